"""Latents of every view, encoded once, so that training a field never runs the encoder again.

A cache knows what it was made from: a fingerprint of the encoder's weights and of the images. Opening a file with
another fingerprint encodes anew; nothing stale is ever served. The statistics that standardise latents are computed
with the cache and live and die with it.

A cache file is read object by object (`pread`, no mapping), so its size is bounded by the disk and not by memory::

    8 bytes   magic
    16 bytes  offset and length of the header, little-endian unsigned 64-bit each
    data      per object: means [V, h, w, c], then log-variances [V, h, w, c], little-endian
    header    JSON: format_version, fingerprint, dtype, latent shape, statistics, and per object id, views, CRC-32
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fusedplanes.autoencoders.interface import Autoencoder
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import composite_over

MAGIC = b"FPLATENT"
PREFIX = struct.Struct("<8sQQ")
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 1 << 30
DTYPES = {"float16": torch.float16, "float32": torch.float32}
VIEWS_AT_ONCE = 32
MINIMUM_SCALE = 1e-6


class LatentCache:
    """Means and log-variances of the latents of all views of all objects, with their per-channel statistics.

    Made by `build`. Objects are numbered in the order of the images given there.

    Attributes:
        mean: ``[c]`` float32, average of the latent means over all cells of all views.
        scale: ``[c]`` float32, their standard deviation (at least 1e-6).
        fingerprint: hexadecimal digest of everything the latents depend on.
    """

    def __init__(
        self, records: _MemoryRecords | _FileRecords, *, mean: Tensor, scale: Tensor, fingerprint: str
    ) -> None:
        self._records = records
        self.mean, self.scale, self.fingerprint = mean, scale, fingerprint

    @classmethod
    def build(
        cls,
        autoencoder: Autoencoder,
        images: Sequence[Tensor],
        background: Tensor,
        *,
        ids: Sequence[str] | None = None,
        path: str | Path | None = None,
        dtype: str = "float16",
        data_signature: str | None = None,
    ) -> LatentCache:
        """Encode every view, or reopen ``path`` if it holds exactly that already.

        Args:
            autoencoder: its encoder is run on the device it is on, without gradients.
            images: per object ``[V, H, W, 4]`` uint8 straight alpha, all of one size; anything with ``len`` and
                indexing, so objects can be loaded when they are asked for.
            background: ``[3]`` sRGB in [0, 1], behind the objects.
            ids: the objects' ids; their numbers if not given.
            path: cache file; latents stay in memory if not given.
            dtype: "float16" or "float32", of the stored latents.
            data_signature: names the images' content, for a caller who knows that it has not changed (a data set's
                checksum, say). Without it every image is read and digested before a file is trusted.

        Raises:
            ConfigError: an unknown ``dtype``, or as many ids as not objects.
            DataError: no objects, images of different sizes, a size the autoencoder does not divide, or latents that
                are not finite in ``dtype``.

        Example:
            >>> from fusedplanes.autoencoders.image import ImageAutoencoder
            >>> images = [torch.randint(256, (3, 16, 16, 4), dtype=torch.uint8) for _ in range(2)]
            >>> cache = LatentCache.build(ImageAutoencoder(), images, torch.ones(3))
            >>> cache.standardised(1).shape
            torch.Size([3, 4, 4, 8])
        """
        if dtype not in DTYPES:
            raise ConfigError(f"latent cache: dtype '{dtype}' does not exist; choose float16 or float32")
        ids = [str(index) for index in range(len(images))] if ids is None else list(ids)
        if len(ids) != len(images):
            raise ConfigError(f"latent cache: {len(ids)} ids for {len(images)} objects")
        if not ids:
            raise DataError("latent cache: there are no images to encode")
        fingerprint = _fingerprint(autoencoder, images, background, ids, dtype, data_signature)
        if path is None:
            statistics = _Statistics()
            latents = _encode_all(autoencoder, images, background, dtype)
            records = _MemoryRecords([statistics.watch(item) for item in latents])
            return cls(records, mean=statistics.mean, scale=statistics.scale, fingerprint=fingerprint)
        try:
            cache = cls.open(path)
            if cache.fingerprint == fingerprint:
                return cache
        except DataError:
            pass  # missing, damaged or of another version: all the same, it is made anew
        _write(Path(path), _encode_all(autoencoder, images, background, dtype), ids, dtype, fingerprint)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> LatentCache:
        """Open a cache file as it is, whatever it was made from.

        Raises:
            DataError: missing, damaged, or written by a newer version.
        """
        records, header = _FileRecords.open(Path(path))
        mean, scale = (torch.tensor(header[name], dtype=torch.float32) for name in ("mean", "scale"))
        return cls(records, mean=mean, scale=scale, fingerprint=header["fingerprint"])

    def __len__(self) -> int:
        return len(self._records)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        """Means and log-variances of an object's views, ``[V, h, w, c]`` float32 each, in the encoder's scale.

        Raises:
            DataError: the file was damaged after it was opened.
        """
        moments = self._records.read(index).float()
        return moments[0], moments[1]

    def standardised(self, index: int) -> Tensor:
        """Standardised means of an object's views, ``[V, h, w, c]`` float32: what fields are trained on."""
        return self.standardise(self.read(index)[0])

    def standardise(self, latents: Tensor) -> Tensor:
        """``(latents - mean) / scale`` per channel (the last axis)."""
        return (latents - self.mean.to(latents.device)) / self.scale.to(latents.device)

    def restore(self, latents: Tensor) -> Tensor:
        """Inverse of `standardise`: back to the scale that the autoencoder decodes."""
        return latents * self.scale.to(latents.device) + self.mean.to(latents.device)


@torch.no_grad()
def background_latents(autoencoder: Autoencoder, background: Tensor, width: int, height: int) -> Tensor:
    """The encoder's code of an image that shows only background.

    Not one code for all cells: convolutions see zeros beyond the border, so cells near it have codes of their own, and
    a field composited over a single code would render a frame round every image.

    Args:
        background: ``[3]`` sRGB in [0, 1].
        width, height: image size in pixels.

    Returns:
        ``[h, w, c]`` in the encoder's scale.
    """
    device = next(autoencoder.encoder_parameters()).device
    mean, _ = autoencoder.encode(background.to(device, torch.float32).expand(1, height, width, 3))
    return mean[0]


@torch.no_grad()
def _encode_all(autoencoder: Autoencoder, images: Sequence[Tensor], background: Tensor, dtype: str):
    """Yield ``[2, V, h, w, c]`` on the CPU for one object after another."""
    device = next(autoencoder.encoder_parameters()).device
    background = background.to(device)
    size = None
    for index in range(len(images)):
        views = images[index]
        if views.dim() != 4 or views.shape[-1] != 4 or views.dtype != torch.uint8 or not len(views):
            raise DataError(
                f"latent cache: object number {index} has images {tuple(views.shape)} {views.dtype}; "
                "expected [V, H, W, 4] uint8 with at least one view"
            )
        size = views.shape[1:3] if size is None else size
        if views.shape[1:3] != size:
            raise DataError(
                f"latent cache: object number {index} has {views.shape[2]}x{views.shape[1]} images, others "
                f"{size[1]}x{size[0]}; make them one size"
            )
        parts = []
        for start in range(0, len(views), VIEWS_AT_ONCE):
            colors = composite_over(views[start : start + VIEWS_AT_ONCE].to(device).float() / 255, background)
            parts.append(torch.stack(autoencoder.encode(colors)).cpu())
        moments = torch.cat(parts, 1).to(DTYPES[dtype])
        if not moments.isfinite().all():
            raise DataError(
                f"latent cache: latents of object number {index} are not finite in {dtype}; the encoder has diverged"
                + (", or needs dtype float32" if dtype == "float16" else "")
            )
        yield moments


class _Statistics:
    """Per-channel mean and standard deviation of the latent means of everything that passes by."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def watch(self, moments: Tensor) -> Tensor:
        values = moments[0].double().flatten(0, -2)
        count, mean = len(values), values.mean(0)
        squares = (values - mean).square().sum(0)
        # Merging centred sums (Chan, Golub and LeVeque 1983) keeps digits that sums of squares would lose.
        total, shift = self._count + count, mean - self._mean
        self._squares = self._squares + squares + shift.square() * (self._count * count / total)
        self._mean = self._mean + shift * (count / total)
        self._count = total
        return moments

    @property
    def mean(self) -> Tensor:
        return self._mean.float()

    @property
    def scale(self) -> Tensor:
        return (self._squares / self._count).sqrt().clamp_min(MINIMUM_SCALE).float()


def _fingerprint(
    autoencoder: Autoencoder,
    images: Sequence[Tensor],
    background: Tensor,
    ids: list[str],
    dtype: str,
    data_signature: str | None,
) -> str:
    digest = hashlib.sha256()

    def add(label: str, content: bytes) -> None:
        digest.update(f"{label}:{len(content)}:".encode() + content)

    add("version", str(FORMAT_VERSION).encode())
    add("dtype", dtype.encode())
    add("downscale", str(autoencoder.config.downscale).encode())
    add("background", background.detach().cpu().double().numpy().astype("<f8").tobytes())
    for name, parameter in sorted(autoencoder.encoding_tensors().items()):
        add(f"{name}{tuple(parameter.shape)}", parameter.detach().cpu().float().contiguous().numpy().tobytes())
    for index, name in enumerate(ids):
        add("id", name.encode())
        if data_signature is None:
            views = images[index].contiguous()
            add(str(tuple(views.shape)), views.cpu().numpy().tobytes())
    add("signature", (data_signature or "").encode())
    return digest.hexdigest()


class _MemoryRecords:
    def __init__(self, records: list[Tensor]) -> None:
        self._items = records

    def __len__(self) -> int:
        return len(self._items)

    def read(self, index: int) -> Tensor:
        return self._items[index]


class _FileRecords:
    """Records of an open cache file."""

    def __init__(self, path: Path, file: io.FileIO, header: dict) -> None:
        self._path, self._file = path, file
        self._dtype = np.dtype(header["dtype"]).newbyteorder("<")
        self._shape = tuple(header["latent_shape"])
        self._views, self._checksums = header["views"], header["crc32"]
        view_bytes = 2 * int(np.prod(self._shape)) * self._dtype.itemsize
        self._offsets = (PREFIX.size + view_bytes * np.cumsum([0, *self._views])).tolist()

    @classmethod
    def open(cls, path: Path) -> tuple[_FileRecords, dict]:
        try:
            file = io.FileIO(path)
            header = _read_header(path, file)
        except OSError as error:
            raise DataError(f"{path}: the latent cache cannot be read ({error.strerror})") from error
        return cls(path, file, header), header

    def __len__(self) -> int:
        return len(self._views)

    def read(self, index: int) -> Tensor:
        index = range(len(self))[index]
        start, end = self._offsets[index], self._offsets[index + 1]
        content = os.pread(self._file.fileno(), end - start, start)
        if zlib.crc32(content) != self._checksums[index]:
            raise DataError(f"{self._path}: the latents of object number {index} are damaged; delete the file")
        values = np.frombuffer(content, self._dtype).astype(self._dtype.newbyteorder("="))
        return torch.from_numpy(values.reshape(2, self._views[index], *self._shape))


def _read_header(path: Path, file: io.FileIO) -> dict:
    size = os.fstat(file.fileno()).st_size
    prefix = os.pread(file.fileno(), PREFIX.size, 0)
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        raise DataError(f"{path}: not a latent cache; delete the file")
    _, offset, length = PREFIX.unpack(prefix)
    if offset + length != size or length > MAX_HEADER_BYTES:
        raise DataError(f"{path}: the latent cache is cut short or damaged; delete the file")
    try:
        header = json.loads(os.pread(file.fileno(), length, offset))
        version = header["format_version"]
        if version != FORMAT_VERSION:
            raise DataError(f"{path}: latent cache of format version {version}; this release reads {FORMAT_VERSION}")
        shape, views = header["latent_shape"], header["views"]
        channels = shape[2]
        numbers = [*shape, *views, *header["crc32"]]
        valid = (
            header["dtype"] in DTYPES
            and isinstance(header["fingerprint"], str)
            and len(shape) == 3
            and all(type(number) is int and number >= 0 for number in numbers)
            and min([*shape, *views]) > 0
            and len(views) == len(header["crc32"]) == len(header["ids"])
            and all(len(header[name]) == channels for name in ("mean", "scale"))
            and all(type(number) is float and math.isfinite(number) for number in header["mean"] + header["scale"])
            and min(header["scale"]) > 0
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DataError(f"{path}: the latent cache's header is damaged ({error}); delete the file") from error
    itemsize = np.dtype(header["dtype"]).itemsize if valid else 0
    if not valid or PREFIX.size + 2 * sum(views) * shape[0] * shape[1] * channels * itemsize != offset:
        raise DataError(f"{path}: the latent cache's header is damaged; delete the file")
    return header


def _write(path: Path, latents, ids: list[str], dtype: str, fingerprint: str) -> None:
    """Write a cache file beside ``path``, object by object, and move it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    statistics, views, checksums = _Statistics(), [], []
    storage = np.dtype(dtype).newbyteorder("<")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(bytes(PREFIX.size))
            for moments in latents:
                content = statistics.watch(moments).numpy().astype(storage).tobytes()
                file.write(content)
                views.append(moments.shape[1])
                checksums.append(zlib.crc32(content))
                shape = list(moments.shape[2:])
            header = json.dumps(
                {
                    "format": "fusedplanes latent cache",
                    "format_version": FORMAT_VERSION,
                    "fingerprint": fingerprint,
                    "dtype": dtype,
                    "latent_shape": shape,
                    "mean": statistics.mean.tolist(),
                    "scale": statistics.scale.tolist(),
                    "ids": ids,
                    "views": views,
                    "crc32": checksums,
                }
            ).encode()
            offset = file.tell()
            file.write(header)
            file.seek(0)
            file.write(PREFIX.pack(MAGIC, offset, len(header)))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
