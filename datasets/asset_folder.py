"""The files that a mesh file refers to: found only inside the asset's own folder, and never decoded unseen.

Mesh files come from anywhere. A reference is a relative path that stays inside one folder even through symbolic links;
absolute paths, ``..`` that leads out, and addresses of any network are refused.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from fusedplanes import images as image_files
from fusedplanes.errors import DataError

FILE_BYTES_LIMIT = 512 << 20
TEXTURE_PIXELS_LIMIT = 1 << 26
ALL_TEXTURES_PIXELS_LIMIT = 1 << 28
TEXTURE_SIDE_KEPT = 2048
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


class AssetFolder:
    """Gives a mesh file the files it refers to.

    Args:
        mesh_file: the file that refers to others; names are relative to its folder.
        root: folder that no reference may leave; the mesh file's own folder if None.

    Attributes:
        warnings: one line for each reference that could not be followed.
    """

    def __init__(self, mesh_file: Path, root: Path | None = None) -> None:
        self._start = mesh_file.parent
        self._root = (root or mesh_file.parent).resolve()
        self.warnings: list[str] = []
        self._bytes_left = 2 * FILE_BYTES_LIMIT

    def read(self, reference: str) -> bytes:
        """The bytes of a referenced file.

        Raises:
            DataError: the reference leads out of the asset's folder, or the file is missing or too large.
        """
        name = unquote(reference).replace("\\", "/").strip()
        if _SCHEME.match(name) or name.startswith(("/", "~")) or not name or "\0" in name:
            raise DataError(f"'{shortened(reference)}' is not a relative path; keep files beside the mesh")
        try:
            path = (self._start / name).resolve()
            if not path.is_relative_to(self._root):
                raise DataError(f"'{shortened(reference)}' leads out of the mesh's folder; keep files beside the mesh")
            data = read_capped(path, shortened(reference), limit=min(FILE_BYTES_LIMIT, self._bytes_left))
            self._bytes_left -= len(data)
            return data
        except (OSError, RuntimeError, ValueError) as error:  # names no file system takes, loops of links
            raise DataError(f"'{shortened(reference)}' cannot be read ({type(error).__name__})") from error

    def warn(self, message: str) -> None:
        """Remember a remark once."""
        if message not in self.warnings:
            self.warnings.append(message)


def read_capped(path: Path, name: str, *, limit: int = FILE_BYTES_LIMIT) -> bytes:
    """Read a whole file that is not too large to be a mesh or a texture.

    Raises:
        DataError: missing, a folder, or larger than ``limit`` bytes.
    """
    if not path.is_file():
        raise DataError(f"{name}: no such file")
    size = path.stat().st_size
    if size > limit:
        raise DataError(f"{name}: {size >> 20} MiB exceed the limit of {limit >> 20} MiB; simplify the mesh first")
    return path.read_bytes()


def decode_texture(data: bytes, name: str) -> np.ndarray:
    """Decode a texture to ``[h, w, 4]`` uint8 RGBA, halved until no side exceeds ``TEXTURE_SIDE_KEPT``.

    Raises:
        DataError: not an image, damaged, or more than ``TEXTURE_PIXELS_LIMIT`` pixels (checked before decoding).
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with image_files.opened(io.BytesIO(data)) as image:
            if image.width * image.height > TEXTURE_PIXELS_LIMIT:
                raise DataError(
                    f"texture {name}: {image.width}x{image.height} pixels exceed the limit of {TEXTURE_PIXELS_LIMIT}"
                )
            if image.mode.startswith("I"):
                # Pillow clips 16-bit greys at 255 when it converts them.
                image = Image.fromarray((np.asarray(image).clip(0, 65535) / 257.0).round().astype(np.uint8))
            factor = -(-max(image.width, image.height) // TEXTURE_SIDE_KEPT)
            image = image.convert("RGBA")
            if factor > 1:
                image = image.reduce(factor)
            return np.ascontiguousarray(image)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(
            f"texture {name}: cannot be decoded (not in a known format); convert it to PNG or JPEG"
        ) from error
    except Exception as error:  # a decoder may raise anything on damaged bytes
        raise DataError(
            f"texture {name}: cannot be decoded ({shortened(str(error) or type(error).__name__)})"
        ) from error


def shortened(text: str) -> str:
    """One line of at most 120 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."
