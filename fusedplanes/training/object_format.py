"""Bytes of the object store: records, and the index that finds them. All numbers are little-endian.

A segment file is a header followed by records. A record holds the named tensors of one object::

    "FPOB", kind u8, tensors u8, id bytes u16, generation u32, id
    per tensor: name bytes u8, type u8, dimensions u8, name, dimensions u32 each
    zeros up to a multiple of 8, then each tensor's values, padded to a multiple of 8

An index shard is a header, entries of 36 bytes sorted by object and kind, and the ids of those entries that carry one,
one after another. Its checksum is kept by whoever lists the shard; that of a record is in its entry.
"""

from __future__ import annotations

import hashlib
import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fusedplanes.errors import CheckpointError, DataError, shown
from fusedplanes.files import is_flat_name

VERSION = 1
SEGMENT_HEADER = struct.Struct("<8sII")
SEGMENT_MAGIC = b"FPSEGMNT"

_RECORD = struct.Struct("<4sBBHI")
_RECORD_MAGIC = b"FPOB"
_TENSOR = struct.Struct("<BBB")
_INDEX = struct.Struct("<8sIIQ")
_INDEX_MAGIC = b"FPINDEX\0"

MAX_DIMENSIONS = 8
MAX_RECORD_BYTES = 0xFFFF_FFFF

# Codes are part of the format: append, never renumber.
_TYPES = {
    torch.float32: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.float64: 4,
    torch.int64: 5,
    torch.int32: 6,
    torch.uint8: 7,
}
_TYPE_OF_CODE = {code: dtype for dtype, code in _TYPES.items()}

# An entry of length 0 says that the record was deleted.
ENTRY = np.dtype(
    [
        ("object", "<u4"),
        ("kind", "u1"),
        ("reserved", "u1"),
        ("id_bytes", "<u2"),
        ("segment", "<u4"),
        ("length", "<u4"),
        ("offset", "<u8"),
        ("generation", "<u4"),
        ("checksum", "<u8"),
    ]
)


class Checksum:
    """64 bits of BLAKE2b of what comes in parts."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Append a part."""
        self._hash.update(data)

    @property
    def value(self) -> int:
        """The checksum of all parts so far."""
        return int.from_bytes(self._hash.digest(), "little")


def checksum(data: bytes | bytearray | memoryview) -> int:
    """64 bits of BLAKE2b."""
    summed = Checksum()
    summed.update(data)
    return summed.value


def encode_record(id: str, kind: int, generation: int, tensors: dict[str, Tensor]) -> bytes:
    """The bytes of one record.

    Raises:
        DataError: a type that has no code, or more than a record can hold.
    """
    name = encode_id(id)
    if len(tensors) > 255:
        raise DataError(f"object '{id}': {len(tensors)} tensors; a record holds at most 255")
    parts = [_RECORD.pack(_RECORD_MAGIC, kind, len(tensors), len(name), generation), name]
    values = []
    for key, tensor in tensors.items():
        encoded = key.encode()
        if tensor.dtype not in _TYPES:
            raise DataError(
                f"object '{id}': '{key}' has type {tensor.dtype}; a record holds {sorted(map(str, _TYPES))}"
            )
        if len(encoded) > 255 or tensor.dim() > MAX_DIMENSIONS or max(tensor.shape, default=0) > 0xFFFF_FFFF:
            raise DataError(f"object '{id}': '{key}' of shape {tuple(tensor.shape)} does not fit a record")
        parts.append(_TENSOR.pack(len(encoded), _TYPES[tensor.dtype], tensor.dim()) + encoded)
        parts.append(struct.pack(f"<{tensor.dim()}I", *tensor.shape))
        flat = tensor.detach().cpu().contiguous().flatten()
        values.append(flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8))
    head = b"".join(parts)
    pieces = [head, _padding(len(head))]
    for value in values:
        pieces += [value.data, _padding(value.nbytes)]
    data = b"".join(pieces)
    if len(data) > MAX_RECORD_BYTES:
        raise DataError(f"object '{id}': {len(data)} bytes; a record holds at most {MAX_RECORD_BYTES}")
    return data


def decode_record(data: bytearray, id: str, kind: int, generation: int, where: str) -> dict[str, Tensor]:
    """The tensors of a record, which share the memory of ``data``.

    Raises:
        CheckpointError: the bytes are not the record of that object, kind and generation.
    """
    try:
        magic, found_kind, count, id_bytes, found_generation = _RECORD.unpack_from(data)
        at = _RECORD.size + id_bytes
        found = bytes(data[_RECORD.size : at]).decode()
        if (magic, found_kind, found_generation, found) != (_RECORD_MAGIC, kind, generation, id):
            raise ValueError("another record")
        layout = []
        for _ in range(count):
            name_bytes, code, dimensions = _TENSOR.unpack_from(data, at)
            at += _TENSOR.size
            name = bytes(data[at : at + name_bytes]).decode()
            at += name_bytes
            if dimensions > MAX_DIMENSIONS:
                raise ValueError("too many dimensions")
            shape = struct.unpack_from(f"<{dimensions}I", data, at)
            at += 4 * dimensions
            layout.append((name, _TYPE_OF_CODE[code], shape))
        tensors = {}
        for name, dtype, shape in layout:
            at += -at % 8
            size = math.prod(shape) * dtype.itemsize
            if name in tensors or at + size > len(data):
                raise ValueError("sizes")
            if size:
                tensors[name] = torch.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=at).view(shape)
            else:
                tensors[name] = torch.zeros(shape, dtype=dtype)
            at += size
        if at + -at % 8 != len(data):
            raise ValueError("length")
    except (ValueError, KeyError, struct.error, RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"{where}: the record of object '{id}' is damaged; restore the file or train again"
        ) from error
    return tensors


def encode_index(entries: np.ndarray, ids: list[bytes], generation: int) -> bytes:
    """The bytes of an index shard: entries, and the ids of those entries whose ``id_bytes`` is not 0, in order."""
    return b"".join(
        [_INDEX.pack(_INDEX_MAGIC, VERSION, len(entries), generation), np.ascontiguousarray(entries).tobytes(), *ids]
    )


def decode_index(data: bytes, where: Path) -> tuple[np.ndarray, list[str | None]]:
    """Entries of an index shard and, for each, the id or None.

    Raises:
        CheckpointError: the bytes are not an index shard.
    """
    try:
        magic, version, count, _ = _INDEX.unpack_from(data)
        if magic != _INDEX_MAGIC or version != VERSION:
            raise ValueError("header")
        # Compared before anything is allocated: a count cannot promise more than the file holds.
        at = _INDEX.size + count * ENTRY.itemsize
        if at > len(data):
            raise ValueError("count")
        entries = np.frombuffer(data, ENTRY, count, _INDEX.size)
        ids: list[str | None] = []
        for size in entries["id_bytes"].tolist():
            ids.append(data[at : at + size].decode() if size else None)
            at += size
        if at != len(data):
            raise ValueError("length")
        if not all(id is None or is_flat_name(id) for id in ids):
            raise ValueError("id")
    except (ValueError, struct.error) as error:
        raise CheckpointError(f"{where}: not an object index, or a damaged one; restore the file") from error
    return entries, ids


def encode_id(id: str) -> bytes:
    """An id as it is stored.

    Raises:
        DataError: it could not be the name of a file, which it becomes when an object is rendered or exported.
    """
    if not is_flat_name(id):
        raise DataError(
            f"object id {shown(id)}: expected 1 to 200 bytes of visible text, not beginning with a dot, "
            "without / \\ or :; rename the object"
        )
    return id.encode()


def _padding(size: int) -> bytes:
    return b"\0" * (-size % 8)
