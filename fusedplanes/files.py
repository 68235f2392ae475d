"""Files that appear whole or not at all, and JSON that says what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from fusedplanes.errors import DataError, FusedPlanesError, shown


def write_atomically(path: str | Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file through a temporary neighbour, fsync and rename, so that no reader ever sees half of it.

    Args:
        path: the file; its folder is made.
        data: the content, or parts of it in order, which need not be in memory together.

    Raises:
        OSError: the disk is full, the folder read-only; it names ``path``, and nothing is left behind.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not by `tempfile`, whose files are for their owner alone: who may read is for the umask to say.
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
        with temporary.open("xb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            # A write that fails names no file, and the temporary one's name tells nobody anything.
            error.filename = str(path)
        raise


def remove_temporaries(folder: Path, *names: str) -> None:
    """Remove what killed writers of the named files left in a folder; nobody else may be writing them now."""
    for name in names:
        for path in folder.glob(f".{name}.????????"):
            with contextlib.suppress(OSError):
                path.unlink()


def is_flat_name(name: str) -> bool:
    """Whether a name, an object's id for instance, is one visible path component on every system.

    That is 1 to 200 bytes of printable text without / \\ and :, not beginning with a dot.
    """
    plain = all(letter.isprintable() and letter not in "/\\:" for letter in name)
    return plain and 0 < len(name.encode()) <= 200 and name[0] != "."


def write_json(path: str | Path, value: object) -> None:
    """Write readable JSON atomically."""
    write_atomically(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def check_readable(path: Path) -> None:
    """Refuse what is no ordinary file: opening a pipe would wait for ever.

    Raises:
        DataError: missing, or a folder, pipe, socket or device.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: is no ordinary file")


def read_json(path: str | Path, *, max_bytes: int = 256 << 20) -> dict:
    """Read a JSON object.

    Raises:
        DataError: the file is missing, larger than ``max_bytes``, not JSON, or not an object.
    """
    path = Path(path)
    check_readable(path)
    try:
        if path.stat().st_size > max_bytes:
            raise DataError(f"{path}: {path.stat().st_size} bytes exceed the limit of {max_bytes}")
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def check_format(
    value: dict, path: str | Path, name: str, newest: int, *, error: type[FusedPlanesError] = DataError
) -> None:
    """Refuse a file of another kind, or one that a newer release wrote.

    Args:
        value: what `read_json` gave.
        path: the file, for the message.
        name: what its field "format" must be.
        newest: the highest "format_version" that is known; the lowest is 1.
        error: what is raised.

    Raises:
        FusedPlanesError: of the kind ``error``.
    """
    if value.get("format") != name:
        raise error(f"{path}: format is {shown(value.get('format'))}, expected '{name}'; name another folder")
    version = value.get("format_version")
    if type(version) is not int or version < 1:
        raise error(f"{path}: format_version is {shown(version)}; expected a whole number from 1")
    if version > newest:
        raise error(f"{path}: format_version {shown(version)} is newer than the {newest} known here; upgrade it")
