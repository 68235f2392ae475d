"""Names of objects: one visible path component on every system, made from where the object was found."""

from __future__ import annotations

import hashlib
import os
import unicodedata


def unique_ids(names: list[str]) -> dict[str, str]:
    """One id per relative path: its parts joined by underscores, and a hash of the path where two would be equal.

    Example:
        >>> unique_ids(["a/model.obj", "b/model.obj"])
        {'a/model.obj': 'a_model', 'b/model.obj': 'b_model'}
    """
    plain = {name: _plain_name(name) for name in names}
    owners: dict[str, int] = {}
    for item in plain.values():
        owners[item.casefold()] = owners.get(item.casefold(), 0) + 1
    return {
        name: item if owners[item.casefold()] == 1 and _fits(item) else f"{_shorten(item)}-{_digest(name)}"
        for name, item in plain.items()
    }


def _plain_name(name: str) -> str:
    path = unicodedata.normalize("NFC", os.fsencode(name).decode(errors="replace"))
    stem = path.rsplit(".", 1)[0]
    kept = "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in stem)
    return kept.strip(".-") or "object"


_ID_BYTES = 120


def _fits(item: str) -> bool:
    return len(item.encode()) <= _ID_BYTES


def _shorten(item: str) -> str:
    return item.encode()[-_ID_BYTES:].decode(errors="ignore").strip(".-")


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:10]
