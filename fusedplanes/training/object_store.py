"""Where the tensors of a class's objects are kept: in memory, or in a run folder that holds up to millions of them.

On disk, records are only ever appended: a changed object is written to a new place (copy on write), and the index that
a checkpoint lists says which place counts. So a checkpoint costs what changed since the last one, and whatever happens
while it is written, the last one still finds every byte it lists.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from fusedplanes.errors import CheckpointError, DataError
from fusedplanes.files import write_atomically
from fusedplanes.training import object_format as fmt

OBJECT = "object"
"""Kind of record: what an object consists of."""
MOMENTS = "moments"
"""Kind of record: an object's optimiser moments and step counts, there while it is in training."""

_CODES = {OBJECT: 0, MOMENTS: 1}

LOCK = ".writer"
"""An empty file that is locked by whoever writes."""
SEGMENT_BYTES = 256 << 20
"""A segment file that has reached this size gets no more records."""
SPARE_NUMBERS = 1024
"""Deleted objects leave gaps in the numbering until there are as many as objects, and this many more."""
SEALED_BYTES = 1 << 20
"""Nor does one that has reached this size at a checkpoint: when its objects change again, it goes as a whole."""


class ObjectStore(ABC):
    """Named tensors per object, found by the object's id."""

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """Ids of the stored objects, in the order in which they were first written."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __contains__(self, id: object) -> bool: ...

    @abstractmethod
    def read_many(self, ids: Iterable[str], kind: str = OBJECT) -> dict[str, dict[str, Tensor]]:
        """Tensors of objects by id and name, on the CPU and free to be changed.

        An object without moments gives an empty dictionary for them.

        Raises:
            DataError: an id that is not stored.
            CheckpointError: a file is missing or damaged.
        """

    @abstractmethod
    def write_many(self, records: Mapping[str, Mapping[str, Tensor]], kind: str = OBJECT) -> None:
        """Store or replace records of objects.

        Raises:
            DataError: moments for an object that is not stored, or tensors that cannot be stored.
            CheckpointError: the disk is full, or the folder read-only.
        """

    @abstractmethod
    def delete(self, ids: Iterable[str], kind: str | None = None) -> None:
        """Remove objects, or with ``kind=MOMENTS`` only their moments; what is not there is passed over."""

    def read(self, id: str, kind: str = OBJECT) -> dict[str, Tensor]:
        """`read_many` for one object."""
        return self.read_many([id], kind)[id]


class MemoryObjectStore(ObjectStore):
    """An object store that ends with the process.

    Example:
        >>> import torch
        >>> store = MemoryObjectStore()
        >>> store.write_many({"chair": {"weights": torch.ones(3)}})
        >>> store.ids, store.read("chair")["weights"]
        (['chair'], tensor([1., 1., 1.]))
    """

    def __init__(self) -> None:
        self._records: dict[str, dict[str, dict[str, Tensor]]] = {OBJECT: {}, MOMENTS: {}}

    @property
    def ids(self) -> list[str]:
        return list(self._records[OBJECT])

    def __len__(self) -> int:
        return len(self._records[OBJECT])

    def __contains__(self, id: object) -> bool:
        return id in self._records[OBJECT]

    def read_many(self, ids: Iterable[str], kind: str = OBJECT) -> dict[str, dict[str, Tensor]]:
        found = {}
        for id in ids:
            _check_stored(self, id)
            found[id] = {name: tensor.clone() for name, tensor in self._records[kind].get(id, {}).items()}
        return found

    def write_many(self, records: Mapping[str, Mapping[str, Tensor]], kind: str = OBJECT) -> None:
        for id, tensors in records.items():
            fmt.encode_id(id)
            if kind == MOMENTS:
                _check_stored(self, id)
            self._records[kind][id] = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def delete(self, ids: Iterable[str], kind: str | None = None) -> None:
        for id in ids:
            for each in _deleted_kinds(kind):
                self._records[each].pop(id, None)


@dataclass(frozen=True, eq=False)
class _Shard:
    """An index file and what it speaks of: the numbers ``2 * object + kind``, in ascending order."""

    file: str
    bytes: int
    checksum: str
    keys: np.ndarray


class DiskObjectStore(ObjectStore):
    """An object store in a folder of append-only segment files and small index files.

    What is written counts for later sessions once a checkpoint lists it: `stage` makes it durable and returns what the
    checkpoint must hold, `commit` is called when the checkpoint is durable in turn, and removes what only the one
    before it needed (`fusedplanes.training.checkpoint` does both). One process may write at a time; any number may
    read.

    Args:
        folder: the ``objects`` folder of a run.
        state: what `stage` returned for the checkpoint to open; None for a new, empty store.
        writable: allow writing.

    Raises:
        CheckpointError: a file is missing, damaged, or smaller than it was; another process is writing.

    Example:
        >>> import tempfile, torch
        >>> store = DiskObjectStore(tempfile.mkdtemp() + "/objects", writable=True)
        >>> store.write_many({"chair": {"weights": torch.ones(3)}})
        >>> state = store.stage()
        >>> store.commit()
        >>> DiskObjectStore(store.folder, state).read("chair")["weights"]
        tensor([1., 1., 1.])
    """

    def __init__(self, folder: str | Path, state: Mapping | None = None, *, writable: bool = False) -> None:
        self.folder = Path(folder)
        self.writable = writable
        self._generation = 0
        self._ids: list[str | None] = []
        self._numbers: dict[str, int] = {}
        self._entries = {kind: np.zeros(0, fmt.ENTRY) for kind in _CODES}
        self._sizes: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._shards: list[_Shard] = []
        self._staged: tuple[dict, list[_Shard]] | None = None
        self._touched: set[int] = set()
        self._unsynced = False
        self._renumbered = False
        self._open: tuple[int, io.FileIO] | None = None
        self._lock = hold_for_writing(self.folder) if writable else None
        if state is not None:
            self._load(state)
        if writable:
            self._next_segment = 1 + max([0, *self._sizes, *self._segments_on_disk()])

    # Reading ------------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> list[str]:
        return list(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def read_many(self, ids: Iterable[str], kind: str = OBJECT) -> dict[str, dict[str, Tensor]]:
        ids = list(ids)
        for id in ids:
            _check_stored(self, id)
        found: dict[str, dict[str, Tensor]] = {id: {} for id in ids}
        table = self._entries[kind]
        places: dict[int, list[tuple[int, str, np.void]]] = {}
        for id in found:
            entry = table[self._numbers[id]]
            if entry["length"]:
                places.setdefault(int(entry["segment"]), []).append((int(entry["offset"]), id, entry))
        for segment, wanted in places.items():
            with self._reading(segment) as (file, path):
                for _, id, entry in sorted(wanted, key=lambda place: place[0]):
                    data = _read_at(file, int(entry["offset"]), int(entry["length"]), path, id)
                    if fmt.checksum(data) != int(entry["checksum"]):
                        raise CheckpointError(
                            f"{path}: the checksum of object '{id}' does not match; restore the file or train again"
                        )
                    found[id] = fmt.decode_record(data, id, _CODES[kind], int(entry["generation"]), str(path))
        return found

    @contextlib.contextmanager
    def _reading(self, segment: int) -> Iterator[tuple[io.FileIO, Path]]:
        path = self.folder / _segment_name(segment)
        try:
            with path.open("rb", buffering=0) as file:
                if file.read(fmt.SEGMENT_HEADER.size) != _segment_header(segment):
                    raise CheckpointError(f"{path}: not an object segment, or a damaged one; restore the file")
                yield file, path
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be read ({error.strerror}); restore it, or open the run again if it is being trained"
            ) from error

    # Writing ------------------------------------------------------------------------------------------------------

    def write_many(self, records: Mapping[str, Mapping[str, Tensor]], kind: str = OBJECT) -> None:
        self._check_writable()
        for id, tensors in records.items():
            if kind == MOMENTS:
                _check_stored(self, id)
            data = fmt.encode_record(id, _CODES[kind], self._generation, dict(tensors))
            segment, offset = self._append(data)
            number = self._numbers.get(id)
            if number is None:
                number = self._numbers[id] = len(self._ids)
                self._ids.append(id)
                self._make_room()
            self._set(number, kind, (segment, len(data), offset, self._generation, fmt.checksum(data)))

    def delete(self, ids: Iterable[str], kind: str | None = None) -> None:
        self._check_writable()
        for id in ids:
            number = self._numbers.get(id)
            if number is None:
                continue
            for each in _deleted_kinds(kind):
                if self._entries[each][number]["length"]:
                    self._set(number, each, (0, 0, 0, self._generation, 0))
            if kind != MOMENTS:
                del self._numbers[id]
                self._ids[number] = None

    def _append(self, data: bytes) -> tuple[int, int]:
        """Write bytes to the end of the open segment; returns its number and where they begin."""
        if self._open is not None and self._sizes[self._open[0]] >= SEGMENT_BYTES:
            self._seal()
        if self._open is None:
            self._open = self._new_segment()
        number, file = self._open
        offset = self._sizes[number]
        try:
            _write_at(file, offset, data)
        except OSError as error:
            raise unwritable(self.folder / _segment_name(number), error) from error
        self._sizes[number] = offset + len(data)
        self._unsynced = True
        return number, offset

    def _new_segment(self) -> tuple[int, io.FileIO]:
        number, self._next_segment = self._next_segment, self._next_segment + 1
        path = self.folder / _segment_name(number)
        try:
            # "x": a file of that name would be another's, and records are never overwritten.
            file = path.open("xb", buffering=0)
            try:
                _write_at(file, 0, _segment_header(number))
            except OSError:
                file.close()
                path.unlink()
                raise
        except OSError as error:
            raise unwritable(path, error) from error
        self._sizes[number] = fmt.SEGMENT_HEADER.size
        self._live[number] = 0
        return number, file

    def _set(self, number: int, kind: str, values: tuple[int, int, int, int, int]) -> None:
        segment, length, offset, generation, checksum = values
        entry = self._entries[kind][number]
        if entry["length"]:
            self._live[int(entry["segment"])] -= int(entry["length"])
        self._entries[kind][number] = (number, _CODES[kind], 0, 0, segment, length, offset, generation, checksum)
        if length:
            self._live[segment] += length
        self._touched.add(2 * number + _CODES[kind])

    def _make_room(self) -> None:
        for kind, table in self._entries.items():
            if len(table) < len(self._ids):
                grown = np.zeros(max(2 * len(table), len(self._ids)), fmt.ENTRY)
                grown[: len(table)] = table
                self._entries[kind] = grown

    # Checkpoints --------------------------------------------------------------------------------------------------

    def stage(self) -> dict:
        """Make everything written so far durable, beside what the last checkpoint lists.

        Returns:
            JSON values for the checkpoint, from which the store can be opened again.

        Raises:
            CheckpointError: the disk is full, or the folder read-only. The store can be used on and staged again.
        """
        self._check_writable()
        # A new name at every attempt: one that failed may have left a checkpoint that lists its files.
        self._generation += 1
        self._compact()
        if len(self._ids) > 2 * len(self._numbers) + SPARE_NUMBERS:
            self._renumber()
        try:
            self._sync()
            shards = self._next_shards()
            self._staged = self._state(shards), shards
            sync_folder(self.folder)
        except OSError as error:
            self.discard()
            raise unwritable(self.folder, error) from error
        return self._staged[0]

    def _state(self, shards: list[_Shard]) -> dict:
        return {
            "generation": self._generation,
            "numbers": len(self._ids),
            "segments": [
                {"file": _segment_name(number), "bytes": size}
                for number, size in sorted(self._sizes.items())
                if self._live[number]
            ],
            "index": [
                {"file": shard.file, "bytes": shard.bytes, "entries": len(shard.keys), "checksum": shard.checksum}
                for shard in shards
            ],
        }

    def commit(self) -> None:
        """Let go of what only older checkpoints need; the checkpoint that holds the staged state must be durable."""
        if self._staged is None:
            raise CheckpointError(f"{self.folder}: nothing is staged")
        _, self._shards = self._staged
        self._staged = None
        self._touched.clear()
        self._renumbered = False
        if self._open is not None and self._sizes[self._open[0]] >= SEALED_BYTES:
            self._seal()
        for number in [number for number, live in self._live.items() if not live]:
            if self._open is not None and number == self._open[0]:
                continue
            del self._live[number], self._sizes[number]
        self.remove_leftovers()

    def discard(self) -> None:
        """Remove the index that was staged for a checkpoint that could not be written."""
        if self._staged is not None:
            _, shards = self._staged
            for shard in shards:
                if shard not in self._shards:
                    with contextlib.suppress(OSError):
                        (self.folder / shard.file).unlink()
            self._staged = None

    def close(self) -> None:
        """Close the files and let others write; what no checkpoint lists is gone with the session."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self.writable = False

    def _next_shards(self) -> list[_Shard]:
        """The index with what was touched.

        Shards at least double in size from the newest to the oldest: the new one swallows those that are too small. So
        there are few of them, and an entry is written again a number of times that grows with the logarithm of theirs.
        """
        if not self._touched:
            return list(self._shards)
        shards = [] if self._renumbered else list(self._shards)
        keys = np.array(sorted(self._touched), dtype=np.int64)
        while shards and len(shards[-1].keys) < 2 * len(keys):
            keys = np.union1d(keys, shards.pop().keys)
        numbers, codes = keys // 2, keys % 2
        entries = np.zeros(len(keys), fmt.ENTRY)
        for kind, code in _CODES.items():
            entries[codes == code] = self._entries[kind][numbers[codes == code]]
        entries["object"], entries["kind"] = numbers, codes
        if not shards:
            # Nothing older is left that a note of deletion would have to overrule.
            kept = entries["length"] > 0
            keys, entries = keys[kept], entries[kept]
        if not len(keys):
            return shards
        ids = []
        for index in np.flatnonzero((entries["kind"] == _CODES[OBJECT]) & (entries["length"] > 0)).tolist():
            ids.append(fmt.encode_id(self._ids[int(entries["object"][index])]))
            entries["id_bytes"][index] = len(ids[-1])
        data = fmt.encode_index(entries, ids, self._generation)
        name = f"index-{self._generation}.bin"
        write_atomically(self.folder / name, data)
        return [*shards, _Shard(name, len(data), f"{fmt.checksum(data):016x}", keys)]

    def _compact(self) -> None:
        """Copy what is left alive in mostly dead segments, so that they can go with the next checkpoint."""
        mostly_dead = [number for number, live in self._live.items() if 2 * live < self._sizes[number]]
        if self._open is not None and self._open[0] in mostly_dead:
            self._seal()
        for number in filter(self._live.get, mostly_dead):
            for kind, table in self._entries.items():
                alive = np.flatnonzero((table["segment"] == number) & (table["length"] > 0))
                with self._reading(number) as (file, path):
                    for row in alive.tolist():
                        entry = table[row]
                        # Copied as it is: should it be damaged, its checksum goes on saying so.
                        data = _read_at(file, int(entry["offset"]), int(entry["length"]), path, self._ids[row])
                        segment, offset = self._append(bytes(data))
                        values = (segment, len(data), offset, int(entry["generation"]), int(entry["checksum"]))
                        self._set(row, kind, values)

    def _renumber(self) -> None:
        """Close the gaps that deleted objects left in the numbering; the whole index is written anew."""
        numbers = np.array(list(self._numbers.values()), dtype=np.int64)
        self._entries = {kind: table[numbers] for kind, table in self._entries.items()}
        self._ids = list(self._numbers)
        self._numbers = {id: number for number, id in enumerate(self._ids)}
        self._touched = set(range(2 * len(self._ids)))
        self._renumbered = True

    def _seal(self) -> None:
        """End the open segment; the next record begins another."""
        number, file = self._open
        try:
            self._sync()
        except OSError as error:
            raise unwritable(self.folder / _segment_name(number), error) from error
        file.close()
        self._open = None

    def _sync(self) -> None:
        if self._unsynced:
            os.fsync(self._open[1].fileno())
            self._unsynced = False

    def remove_leftovers(self) -> None:
        """Remove files that neither the checkpoint nor this session uses: those of interrupted sessions."""
        reachable = {shard.file for shard in self._shards} | {_segment_name(number) for number in self._sizes}
        for path in self.folder.iterdir():
            ours = re.fullmatch(r"(segment|index)-\d+\.bin|\.(segment|index)-\d+\.bin\..*", path.name)
            if ours and path.name not in reachable:
                # One that cannot be removed now is removed after some later checkpoint.
                with contextlib.suppress(OSError):
                    path.unlink()

    def _segments_on_disk(self) -> list[int]:
        names = (re.fullmatch(r"segment-(\d+)\.bin", path.name) for path in self.folder.iterdir())
        return [int(name[1]) for name in names if name]

    def _check_writable(self) -> None:
        if not self.writable:
            raise CheckpointError(f"{self.folder}: opened for reading only; open the run for training to write to it")

    # Opening ------------------------------------------------------------------------------------------------------

    def _load(self, state: Mapping) -> None:
        """Read the index a checkpoint lists. Nothing in it is believed before it is checked."""
        where = self.folder
        try:
            self._generation = _count(state["generation"])
            numbers = _count(state["numbers"])
            segments = [(str(item["file"]), _count(item["bytes"])) for item in state["segments"]]
            shards = [
                (str(item["file"]), _count(item["bytes"]), _count(item["entries"]), str(item["checksum"]))
                for item in state["index"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{where}: the checkpoint's list of objects is damaged; restore it") from error
        for file, size in segments:
            name = re.fullmatch(r"segment-(\d{6,})\.bin", file)
            if name is None:
                raise CheckpointError(f"{where}: '{file[:80]}' is no name of a segment; restore the checkpoint")
            _check_size(where / file, size, exact=False)
            self._sizes[int(name[1])] = size
            self._live[int(name[1])] = 0
        loaded = [self._load_shard(*shard) for shard in shards]
        # Tables of this many rows are about to be made, so it must be in proportion to what was found on disk.
        if numbers > 2 * sum(len(entries) for entries, _ in loaded) + SPARE_NUMBERS:
            raise CheckpointError(f"{where}: the checkpoint speaks of {numbers} objects and lists fewer; restore it")
        self._ids = [None] * numbers
        self._make_room()
        for (entries, ids), (file, *_) in zip(loaded, shards, strict=True):
            self._apply(entries, ids, where / file)
        present = np.flatnonzero(self._entries[OBJECT]["length"][:numbers])
        self._numbers = {self._ids[number]: number for number in present.tolist()}
        if len(self._numbers) != len(present) or None in self._numbers:
            raise CheckpointError(f"{where}: an object is listed twice or without an id; restore the index")
        for table in self._entries.values():
            table["id_bytes"] = 0
            self._check_places(table)

    def _load_shard(self, file: str, size: int, count: int, checksum: str) -> tuple[np.ndarray, list[str | None]]:
        if re.fullmatch(r"index-\d+\.bin", file) is None:
            raise CheckpointError(f"{self.folder}: '{file[:80]}' is no name of an index; restore the checkpoint")
        path = self.folder / file
        data = read_checked(path, size, checksum)
        entries, ids = fmt.decode_index(data, path)
        keys = entries["object"].astype(np.int64) * 2 + entries["kind"]
        if len(entries) != count or (entries["kind"] > 1).any() or (np.diff(keys) <= 0).any():
            raise CheckpointError(f"{path}: entries are missing or out of order; restore the file")
        self._shards.append(_Shard(file, size, checksum, keys))
        return entries, ids

    def _apply(self, entries: np.ndarray, ids: list[str | None], path: Path) -> None:
        if len(entries) and int(entries["object"].max()) >= len(self._ids):
            raise CheckpointError(f"{path}: speaks of more objects than the checkpoint; restore the file")
        for kind, code in _CODES.items():
            chosen = entries[entries["kind"] == code]
            self._entries[kind][chosen["object"]] = chosen
        for number, id in zip(entries["object"].tolist(), ids, strict=True):
            if id is not None:
                self._ids[number] = id

    def _check_places(self, table: np.ndarray) -> None:
        alive = table[table["length"] > 0]
        segments, which = np.unique(alive["segment"], return_inverse=True)
        sizes = np.array([self._sizes.get(number, 0) for number in segments.tolist()], np.uint64)[which]
        outside = alive["length"] > sizes - np.minimum(alive["offset"], sizes)
        if outside.any():
            name = _segment_name(int(alive["segment"][outside][0]))
            raise CheckpointError(f"{self.folder}: the index points outside {name}; restore the run folder")
        for number, live in zip(segments.tolist(), np.bincount(which, alive["length"]).tolist(), strict=True):
            self._live[number] += int(live)


# Files ----------------------------------------------------------------------------------------------------------------


def read_checked(path: Path, size: int, checksum: str) -> bytes:
    """A file whose size and checksum a checkpoint states.

    Raises:
        CheckpointError: it is missing, or not the file that was written.
    """
    _check_size(path, size, exact=True)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); restore the file") from error
    if f"{fmt.checksum(data):016x}" != checksum:
        raise CheckpointError(f"{path}: its checksum does not match the checkpoint; restore the file")
    return data


def unwritable(path: Path, error: OSError) -> CheckpointError:
    """The one line for a disk that is full or a folder that is read-only."""
    return CheckpointError(
        f"{path}: cannot be written ({error.strerror or error}); free space or make it writable, then go on: what "
        "was saved before stays intact"
    )


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable, where the system offers that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_size(path: Path, size: int, *, exact: bool) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); restore it, or open the run again if it is being trained"
        ) from error
    if found < size or (exact and found != size):
        raise CheckpointError(f"{path}: has {found} bytes where the checkpoint lists {size}; restore the file")


def _read_at(file: io.FileIO, offset: int, length: int, path: Path, id: str) -> bytearray:
    if os.fstat(file.fileno()).st_size < offset + length:
        raise CheckpointError(f"{path}: ends before the record of object '{id}'; restore the file")
    data = bytearray(length)
    view = memoryview(data)
    file.seek(offset)
    while view:
        read = file.readinto(view)
        if not read:
            raise CheckpointError(f"{path}: ends before the record of object '{id}'; restore the file")
        view = view[read:]
    return data


def _write_at(file: io.FileIO, offset: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        file.seek(offset)
        while view:
            view = view[file.write(view) :]
    except OSError:
        # Half a record is no use to anyone, and a full disk wants its space back.
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), offset)
        raise


def hold_for_writing(folder: Path) -> io.FileIO | None:
    """Hold the folder for writing until the returned file is closed; a killed process lets go by itself.

    Raises:
        CheckpointError: another process holds it, or it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab", buffering=0)
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise CheckpointError(f"{folder}: another process is training this run; wait for it or stop it") from error
    except (ImportError, OSError):
        pass  # Not every system and network file system has locks; the run is then guarded by nobody.
    return file


def _segment_name(number: int) -> str:
    return f"segment-{number:06d}.bin"


def _segment_header(number: int) -> bytes:
    return fmt.SEGMENT_HEADER.pack(fmt.SEGMENT_MAGIC, fmt.VERSION, number)


def _deleted_kinds(kind: str | None) -> tuple[str, ...]:
    return (MOMENTS,) if kind == MOMENTS else (OBJECT, MOMENTS)


def _check_stored(store: ObjectStore, id: str) -> None:
    if id not in store:
        raise DataError(f"object '{id}' is not stored; `ids` lists the {len(store)} objects that are")


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no count")
    return value
