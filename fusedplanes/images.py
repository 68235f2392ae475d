"""The one way images enter and leave the project.

In memory an image is float32 in [0, 1], sRGB, channels last. Alpha is straight: colour is not multiplied by it.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fusedplanes.errors import DataError
from fusedplanes.files import check_readable, write_atomically

if TYPE_CHECKING:
    from PIL import Image as PillowImage

MAX_PIXELS = 100_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "TGA", "GIF", "PPM")
"""Pillow's names of what is decoded, whatever a file is called. Left to itself it takes all it knows, and some of that
starts other programs (Ghostscript for EPS), opens further files, or is barely tested."""

_PNG_METADATA = (b"eXIf", b"iTXt", b"tEXt", b"zTXt")
_PNG_CHUNK_LIMIT = 16 << 20


@contextmanager
def opened(source: str | Path | IO[bytes]) -> Iterator[PillowImage.Image]:
    """An image with its header read: the one way to open any with Pillow.

    Raises:
        UnidentifiedImageError: it is of no format of ``FORMATS``. Other exceptions of any type on damaged bytes.
    """
    from PIL import Image

    # Pillow also warns of what it then copes with, such as EXIF data with a tag cut off.
    with warnings.catch_warnings(action="ignore"), Image.open(source, formats=FORMATS) as image:
        yield image


def load(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> Tensor:
    """Read an image file upright, as ``[H, W, 3]`` or, when it carries transparency, ``[H, W, 4]``.

    Palettes are looked up, grey becomes RGB, 16-bit values are scaled by 65535, CMYK is converted, and the EXIF
    orientation (mirrored ones too) is applied.

    Raises:
        DataError: missing, truncated, not an image, or more than ``max_pixels`` pixels (checked before decoding).
    """
    from PIL import ImageOps, UnidentifiedImageError

    path = Path(path)
    check_readable(path)
    try:
        with opened(path) as image:
            if image.width * image.height > max_pixels:
                raise DataError(
                    f"{path}: {image.width}x{image.height} pixels exceed the limit of {max_pixels}; shrink it first"
                )
            image = ImageOps.exif_transpose(image)
            pixels = _to_float(image)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{path}: not an image in a known format; convert it to PNG or JPEG") from error
    except Exception as error:  # a decoder may raise anything on damaged bytes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: the image cannot be decoded ({reason})") from error
    return torch.from_numpy(pixels)


def size_of(path: str | Path) -> tuple[int, int]:
    """Width and height in pixels that `load` would give; only the header is read.

    Raises:
        DataError: missing, or not an image.
    """
    path = Path(path)
    check_readable(path)
    try:
        with opened(path) as image:
            turned = _orientation(path, image) in (5, 6, 7, 8)
            return (image.height, image.width) if turned else (image.width, image.height)
    except Exception as error:  # a decoder may raise anything on damaged bytes
        raise DataError(f"{path}: not an image in a known format; convert it to PNG or JPEG") from error


def _orientation(path: Path, image: PillowImage.Image) -> int:
    """The EXIF orientation of an opened image, which stays undecoded."""
    from PIL import Image

    if image.format != "PNG":
        return image.getexif().get(0x0112, 1)
    # A PNG may tell it behind its pixels, and Pillow's own way there is to decode them.
    with opened(_png_without_pixels(path)) as head:
        return Image.Image.getexif(head).get(0x0112, 1)


def _png_without_pixels(path: Path) -> IO[bytes]:
    """A PNG's header and metadata, wherever in the file they are, in front of no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    with path.open("rb") as file:
        parts = [file.read(8)]
        while len(header := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", header)
            if kind == b"IHDR" or (kind in _PNG_METADATA and length <= _PNG_CHUNK_LIMIT):
                parts.append(chunk(kind, file.read(length)))
                length = 0
            file.seek(length + 4, io.SEEK_CUR)
    return io.BytesIO(b"".join([*parts, chunk(b"IDAT", b"")]))


def _to_float(image) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image).astype(np.float32)
        # 16-bit modes and Pillow's 32-bit "I", which it also uses for 16-bit files, both count to 65535.
        if image.mode != "F":
            values = values / 65535.0
        grey = np.clip(np.nan_to_num(values, posinf=1.0, neginf=0.0), 0.0, 1.0)
        return np.repeat(grey[..., None], 3, axis=-1)
    transparent = image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info
    image = image.convert("RGBA" if transparent else "RGB")
    return np.asarray(image).astype(np.float32) / 255.0


def to_uint8(image: Tensor) -> np.ndarray:
    """Round ``[..., C]`` values in [0, 1] to bytes, clamping what lies outside."""
    return (image.detach().float().clamp(0, 1) * 255 + 0.5).to(torch.uint8).cpu().numpy()


def save(path: str | Path, image: Tensor) -> None:
    """Write ``[H, W, 3 or 4]`` values in [0, 1] atomically; the suffix names the format, PNG where it names none.

    JPEG has no alpha: such images are laid over white.
    """
    from PIL import Image

    path = Path(path)
    buffer = io.BytesIO()
    format_name = Image.registered_extensions().get(path.suffix.lower(), "PNG")
    if format_name == "JPEG":
        image = composite_over(image)
    Image.fromarray(to_uint8(image)).save(buffer, format=format_name)
    write_atomically(path, buffer.getvalue())


def composite_over(images: Tensor, background: float | Tensor = 1.0) -> Tensor:
    """Lay straight-alpha images ``[..., 4]`` over a colour; ``[..., 3]`` passes through unchanged."""
    if images.shape[-1] == 3:
        return images
    color, alpha = images[..., :3], images[..., 3:]
    return color * alpha + (1 - alpha) * background


def with_alpha(images: Tensor) -> Tensor:
    """``[..., 3]`` as opaque ``[..., 4]``; images that have alpha pass through unchanged."""
    return torch.cat([images, torch.ones_like(images[..., :1])], -1) if images.shape[-1] == 3 else images


def resize(images: Tensor, width: int, height: int) -> Tensor:
    """Resample ``[*b, H, W, C]`` with an anti-aliased bilinear filter; alpha is premultiplied while filtering.

    Returns:
        ``[*b, height, width, C]``.
    """
    *batch, old_height, old_width, channels = images.shape
    if (old_width, old_height) == (width, height):
        return images
    flat = images.reshape(-1, old_height, old_width, channels)
    if channels == 4:
        flat = torch.cat([flat[..., :3] * flat[..., 3:], flat[..., 3:]], -1)
    flat = torch.nn.functional.interpolate(
        flat.permute(0, 3, 1, 2), size=(height, width), mode="bilinear", antialias=True, align_corners=False
    ).permute(0, 2, 3, 1)
    if channels == 4:
        alpha = flat[..., 3:]
        flat = torch.cat([flat[..., :3] / alpha.clamp_min(1e-6), alpha], -1)
    return flat.reshape(*batch, height, width, channels).clamp(0, 1)
