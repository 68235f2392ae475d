"""Unpack an archive of meshes that comes from anywhere.

Nothing is written outside the target folder, no links or devices are made, and neither the number of files, nor their
sizes, nor the ratio by which they grow is left to the archive: sizes in its headers are claims, so bytes are counted as
they come out.
"""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

from fusedplanes.errors import DataError, shown

SUFFIXES = (".zip", ".sh3f", ".tar", ".tar.gz", ".tgz")
"""Archives that are read; .sh3f is the zip of furniture that Sweet Home 3D uses."""

FILES_LIMIT = 200_000
FILE_BYTES_LIMIT = 512 << 20
TOTAL_BYTES_LIMIT = 16 << 30
RATIO_LIMIT = 200
"""Largest growth of the whole archive, once more than ``RATIO_FREE_BYTES`` came out of it."""
RATIO_FREE_BYTES = 64 << 20
_CHUNK = 1 << 20
_WANTED = (
    *(".glb", ".gltf", ".bin", ".obj", ".mtl", ".ply", ".stl"),
    *(".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tga", ".tif", ".tiff", ".gif"),
)


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of an archive that is read."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A temporary folder with the meshes of an archive, and the files they may refer to; it is removed afterwards.

    Raises:
        DataError: the archive is damaged or encrypted, an entry would leave the folder or is a link or device, or a
            limit is passed.
    """
    with TemporaryDirectory(prefix="fusedplanes-meshes-") as folder:
        try:
            _unpack(path, Path(folder))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        except OSError as error:
            raise DataError(f"{path}: cannot be unpacked ({error.strerror or error})") from error
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise DataError(f"{path}: the archive is damaged, encrypted or of an unknown kind ({reason})") from error
        yield Path(folder)


def _unpack(path: Path, folder: Path) -> None:
    budget = _Budget(path.stat().st_size)
    if path.name.lower().endswith((".zip", ".sh3f")):
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            budget.count(len(entries))
            for entry in entries:
                kind = stat.S_IFMT(entry.external_attr >> 16)
                name = _checked(entry.filename, ordinary=kind in (0, stat.S_IFREG, stat.S_IFDIR))
                if entry.flag_bits & 1:
                    raise DataError(f"entry {shown(entry.filename)} is encrypted; unpack it yourself")
                if not entry.is_dir() and name.suffix.lower() in _WANTED:
                    with archive.open(entry) as source:
                        budget.copy(source, folder / name, entry.filename)
        return
    with tarfile.open(path, "r:*") as archive:
        for number, entry in enumerate(archive):
            budget.count(number + 1)
            name = _checked(entry.name, ordinary=entry.isreg() or entry.isdir())
            if entry.isreg() and name.suffix.lower() in _WANTED:
                budget.copy(archive.extractfile(entry), folder / name, entry.name)


class _Budget:
    """What an archive may still unpack to."""

    def __init__(self, packed: int) -> None:
        self._packed, self._written = max(packed, 1), 0

    def count(self, files: int) -> None:
        if files > FILES_LIMIT:
            raise DataError(f"more than {FILES_LIMIT} entries")

    def copy(self, source: IO[bytes], target: Path, name: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with target.open("wb") as file:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                self._written += len(chunk)
                if size > FILE_BYTES_LIMIT:
                    raise DataError(f"entry {shown(name)} unpacks to more than {FILE_BYTES_LIMIT >> 20} MiB")
                if self._written > TOTAL_BYTES_LIMIT:
                    raise DataError(f"it unpacks to more than {TOTAL_BYTES_LIMIT >> 30} GiB")
                if self._written > max(RATIO_FREE_BYTES, RATIO_LIMIT * self._packed):
                    raise DataError(f"it unpacks to more than {RATIO_LIMIT} times its size; it may be a bomb")
                file.write(chunk)


def _checked(name: str, *, ordinary: bool) -> PurePosixPath:
    """An entry's name as a relative path inside the folder."""
    path = PurePosixPath(name)
    drive = len(name) > 1 and name[1] == ":"
    if not ordinary:
        raise DataError(f"entry {shown(name)} is a link or a device; pack plain files")
    if path.is_absolute() or drive or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise DataError(f"entry {shown(name)} leads out of the archive; pack relative paths")
    return path
