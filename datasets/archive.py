"""Unpack an archive of meshes that comes from anywhere.

Nothing is written outside the target folder, no links or devices are made, and neither the number of files, nor their
sizes, nor the ratio by which they grow is left to the archive: sizes in its headers are claims, so bytes are counted as
they come out, those of a tar's headers and of entries that are passed over too.

Python's tarfile parses single headers here but does not walk an archive: it reads a header of any claimed size whole,
keeps every one, searches them in quadratic time, and takes a damaged one for the end.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
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
TAR_HEADERS_LIMIT = 1 << 20
"""Largest sum of the headers in front of one entry of a tar: names have a few hundred bytes."""
DEFLATED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""How entries of a zip may be packed. Python unpacks the other kinds in one go, however large they grow."""
_CHUNK = 1 << 20
_BLOCK = 512
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
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
            # gzip's own errors are of this type too; they have no number.
            fault = "cannot be unpacked" if error.errno else "the archive is damaged or of an unknown kind"
            raise DataError(f"{path}: {fault} ({error.strerror or error})") from error
        except Exception as error:  # the readers of archives raise many types on damaged bytes
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise DataError(f"{path}: the archive is damaged, encrypted or of an unknown kind ({reason})") from error
        yield Path(folder)


def _unpack(path: Path, folder: Path) -> None:
    budget = _Budget(path.stat().st_size)
    name = path.name.lower()
    if name.endswith((".zip", ".sh3f")):
        _unpack_zip(path, folder, budget)
    elif name.endswith(".tar"):
        with path.open("rb") as file:
            _unpack_tar(_Counted(file, budget), folder, budget)
    else:
        with gzip.open(path) as file:
            source = _Counted(file, budget)
            _unpack_tar(source, folder, budget)
            # The checksum is compared at the very end, behind the archive's own.
            while source.read(_CHUNK):
                pass


def _unpack_zip(path: Path, folder: Path, budget: _Budget) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        budget.count(len(entries))
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            name = _checked(entry.filename, ordinary=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            if entry.flag_bits & 1:
                raise DataError(f"entry {shown(entry.filename)} is encrypted; unpack it yourself")
            if not entry.is_dir() and name.suffix.lower() in _WANTED:
                if entry.compress_type not in DEFLATED:
                    method = zipfile.compressor_names.get(entry.compress_type, entry.compress_type)
                    raise DataError(
                        f"entry {shown(entry.filename)} is packed by the method {method}; pack it with deflate"
                    )
                with archive.open(entry) as source:
                    _copy(_Counted(source, budget), None, folder / name, entry.filename)


def _unpack_tar(source: _Counted, folder: Path, budget: _Budget) -> None:
    for number, entry in enumerate(_tar_entries(source)):
        budget.count(number + 1)
        if entry.type == tarfile.GNUTYPE_SPARSE:
            raise DataError(f"entry {shown(entry.name)} is sparse; pack it without --sparse")
        name = _checked(entry.name, ordinary=entry.isreg() or entry.isdir())
        if entry.isreg():
            if name.suffix.lower() in _WANTED:
                _copy(source, entry.size, folder / name, entry.name)
            else:
                source.skip(entry.size)
            source.skip(-entry.size % _BLOCK)


def _tar_entries(source: _Counted) -> Iterator[tarfile.TarInfo]:
    """The entries of a tar, by their last header and what others in front of it say of name and size.

    Whoever takes an entry has to read or skip a regular file's content, in whole blocks, before the next.
    """
    long_name, fields, headers, first = None, {}, 0, True
    while block := source.read(_BLOCK):
        if not block.strip(b"\0"):
            break
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if entry.size < 0:
            raise DataError(f"entry {shown(entry.name)} claims {entry.size} bytes; pack the files anew")
        first = False
        if entry.type in (*_LONG_NAMES, *_PAX, tarfile.XGLTYPE):
            headers += _BLOCK + entry.size
            if headers > TAR_HEADERS_LIMIT:
                raise DataError(f"the headers of one entry claim {headers} bytes; the limit is {TAR_HEADERS_LIMIT}")
            text = source.exactly(entry.size)
            source.skip(-entry.size % _BLOCK)
            if entry.type == tarfile.GNUTYPE_LONGNAME:
                long_name = text.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            elif entry.type in _PAX:
                fields |= _pax_fields(text)
            continue
        # A directory's name ends in a slash, which the longer ways of saying it may keep.
        entry.name = fields.get("path", entry.name if long_name is None else long_name).rstrip("/")
        if "size" in fields:
            if not (fields["size"].isascii() and fields["size"].isdigit()):
                raise DataError(f"entry {shown(entry.name)} claims {shown(fields['size'])} bytes; pack the files anew")
            entry.size = int(fields["size"])
        if any(key.startswith("GNU.sparse.") for key in fields):
            entry.type = tarfile.GNUTYPE_SPARSE
        yield entry
        long_name, fields, headers = None, {}, 0
    if first or headers:
        raise tarfile.ReadError("it is empty" if first else "it is cut off")


def _pax_fields(text: bytes) -> dict[str, str]:
    """The records "length key=value" of a pax header."""
    fields, position = {}, 0
    text = text.rstrip(b"\0")
    while position < len(text):
        digits, space, _ = text[position : position + 20].partition(b" ")
        end = position + int(digits) if space and digits.isdigit() else 0
        record = text[position + len(digits) + 1 : end]
        key, equals, value = record[:-1].partition(b"=")
        if end > len(text) or not record.endswith(b"\n") or not equals:
            raise tarfile.ReadError("a pax header has a wrong record")
        fields[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        position = end
    return fields


class _Budget:
    """What an archive may still unpack to."""

    def __init__(self, packed: int) -> None:
        self._packed, self._unpacked = max(packed, 1), 0

    def count(self, files: int) -> None:
        if files > FILES_LIMIT:
            raise DataError(f"more than {FILES_LIMIT} entries")

    def spend(self, size: int) -> None:
        self._unpacked += size
        if self._unpacked > TOTAL_BYTES_LIMIT:
            raise DataError(
                f"it unpacks to more than {TOTAL_BYTES_LIMIT >> 30} GiB; unpack it yourself and give the folder"
            )
        if self._unpacked > max(RATIO_FREE_BYTES, RATIO_LIMIT * self._packed):
            raise DataError(f"it unpacks to more than {RATIO_LIMIT} times its size; it may be a bomb")


class _Counted:
    """A file whose bytes are counted as they come out, and that gives no more than a chunk at a time."""

    def __init__(self, file: IO[bytes], budget: _Budget) -> None:
        self._file, self._budget = file, budget

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, _CHUNK))
        self._budget.spend(len(data))
        return data

    def exactly(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[bytes]:
        while size > 0:
            data = self.read(size)
            if not data:
                raise tarfile.ReadError("it is cut off")
            size -= len(data)
            yield data

    def skip(self, size: int) -> None:
        for _ in self.pieces(size):
            pass


def _copy(source: _Counted, size: int | None, target: Path, name: str) -> None:
    """Write the next ``size`` bytes, or all there are, to a new file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with target.open("wb") as file:
        for data in iter(lambda: source.read(_CHUNK), b"") if size is None else source.pieces(size):
            written += len(data)
            if written > FILE_BYTES_LIMIT:
                raise DataError(f"entry {shown(name)} unpacks to more than {FILE_BYTES_LIMIT >> 20} MiB")
            file.write(data)


def _checked(name: str, *, ordinary: bool) -> PurePosixPath:
    """An entry's name as a relative path inside the folder."""
    path = PurePosixPath(name)
    drive = len(name) > 1 and name[1] == ":"
    if not ordinary:
        raise DataError(f"entry {shown(name)} is a link or a device; pack plain files")
    if path.is_absolute() or drive or ".." in path.parts or "\\" in name or "\0" in name:
        raise DataError(f"entry {shown(name)} leads out of the archive; pack relative paths")
    return path
