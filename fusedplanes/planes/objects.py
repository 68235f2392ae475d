"""The objects of a run folder: list them, delete some, merge those of a copy that was added to elsewhere.

Every change is one new checkpoint: it happens whole or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.planes.run_folder import (
    FINISHED,
    STAGE_ONE_OBJECTS,
    finished_checkpoint,
    licences_of,
    note_data_licences,
    read_config,
    reading,
    stage_one_objects,
)
from fusedplanes.training.checkpoint import Checkpoint, save_checkpoint
from fusedplanes.training.object_store import DiskObjectStore

AT_ONCE = 256
"""Records that are read before they are written: memory does not follow the number of objects."""


def list_objects(run: str | Path) -> list[str]:
    """Ids of the stored objects, in order.

    Raises:
        CheckpointError: no run folder, or a damaged one.

    Example:
        >>> list_objects("runs/cars")  # doctest: +SKIP
        ['car_000', 'car_001']
    """
    read_config(run)

    def ids(checkpoint: Checkpoint) -> list[str]:
        with contextlib.closing(checkpoint.store()) as store:
            return list(store.ids)

    return reading(run, ids)


def delete_objects(run: str | Path, ids: Sequence[str]) -> tuple[str, ...]:
    """Delete objects from a finished run; the shared parts and all other objects stay as they are.

    Returns:
        The ids that were deleted, each once.

    Raises:
        DataError: an id that is not stored; nothing is deleted then.
        ConfigError: it would delete every object.
        CheckpointError: no finished run, or it cannot be written to.
    """
    with _changing(run) as (checkpoint, store):
        unknown = [name for name in ids if name not in store]
        if unknown:
            raise DataError(f"{run}: there is no object '{unknown[0]}'; `fusedplanes objects list` names all")
        if set(ids) >= set(store.ids):
            raise ConfigError(f"{run}: these are all of its objects; delete the folder instead")
        store.delete(ids)
        _save(run, checkpoint, store)
    return tuple(dict.fromkeys(ids))


def merge_objects(run: str | Path, other: str | Path) -> tuple[str, ...]:
    """Take over the objects that another copy of a run has and this one has not.

    Both must have the same shared parts: objects mean nothing without the base planes they were trained on.

    Returns:
        The ids that were taken over.

    Raises:
        ConfigError: the two runs are not copies of one.
        DataError: both have an object of one id, and it is not the same.
        CheckpointError: no finished run, or it cannot be written to.
    """
    if Path(run).resolve() == Path(other).resolve():
        raise ConfigError(f"{run}: is merged with itself; name another run")
    theirs_at = finished_checkpoint(other)
    with _changing(run) as (checkpoint, store), contextlib.closing(theirs_at.store()) as source:
        if read_config(run).model != read_config(other).model:
            raise ConfigError(f"{other}: has another configuration than {run}; only copies of one run can be merged")
        mine, theirs = checkpoint.shared(), theirs_at.shared()
        if mine.keys() != theirs.keys() or not all(torch.equal(mine[name], theirs[name]) for name in mine):
            raise ConfigError(f"{other}: has other shared parts than {run}; only copies of one run can be merged")
        for name in source.ids:
            if name in store and not _same(store.read(name), source.read(name)):
                raise DataError(f"{other}: object '{name}' differs from the one in {run}; delete one of them first")
        new = [name for name in source.ids if name not in store]
        if new:
            note_data_licences(run, [record for record in licences_of(other) if record.kind == "data"])
        for first in range(0, len(new), AT_ONCE):
            store.write_many(source.read_many(new[first : first + AT_ONCE]))
        if new:
            _save(run, checkpoint, store)
    return tuple(new)


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@contextlib.contextmanager
def _changing(run: str | Path) -> Iterator[tuple[Checkpoint, DiskObjectStore]]:
    """A finished run and its store, held for writing."""
    checkpoint = finished_checkpoint(run)
    with contextlib.closing(checkpoint.store(writable=True)) as store:
        # Before anything changes: an older run's number of objects is its best guess of how many were trained together.
        metadata = {**checkpoint.metadata, STAGE_ONE_OBJECTS: stage_one_objects(checkpoint, store)}
        yield replace(checkpoint, metadata=metadata), store


def _save(run: str | Path, checkpoint: Checkpoint, store: DiskObjectStore) -> None:
    save_checkpoint(
        run, store, phase=FINISHED, step=checkpoint.step, shared=checkpoint.shared(), metadata=checkpoint.metadata
    )
