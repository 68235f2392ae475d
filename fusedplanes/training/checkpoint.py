"""Checkpoints of a run folder: whole or not at all, at any moment and on any file system that can rename.

A checkpoint is one small file, ``checkpoint.json``, that names everything else with its size and checksum: the shared
tensors, the optimiser's state, the index of the object store. The named files are never changed; the new ones are made
durable first, then ``checkpoint.json`` is replaced in one rename, and only then what the old one named is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fusedplanes.errors import CheckpointError, ConfigError, DataError, shown
from fusedplanes.files import check_format, read_json, write_atomically
from fusedplanes.training.object_format import Checksum
from fusedplanes.training.object_optimizer import ObjectAdam, ObjectTable
from fusedplanes.training.object_store import MOMENTS, DiskObjectStore, read_checked, sync_folder, unwritable
from fusedplanes.training.tensor_file import safetensors_parts

FORMAT = "fusedplanes-run"
FORMAT_VERSION = 1
MANIFEST = "checkpoint.json"
OBJECTS = "objects"

Generators = Mapping[str, torch.Generator | np.random.Generator]

_STRUCTURE = "structure"


@dataclass(frozen=True)
class Checkpoint:
    """What a run folder's ``checkpoint.json`` says; tensors are read when they are asked for.

    Attributes:
        run: the folder.
        phase: the training phase the run is in.
        step: steps of that phase that were taken.
        metadata: JSON values that were saved with it.
        manifest: all of ``checkpoint.json``.
    """

    run: Path
    phase: str
    step: int
    metadata: Mapping
    manifest: Mapping

    def shared(self) -> dict[str, Tensor]:
        """The shared tensors by name, on the CPU.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        return self._tensors("shared")

    def optimizer(self) -> object:
        """What was saved as ``optimizer``, put together again.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        return self._state()["optimizer"]

    def restore_random_numbers(self, generators: Generators | None = None) -> None:
        """Set torch's random numbers, and those of ``generators`` by name, to where they stood.

        Raises:
            CheckpointError: a generator of that name and kind was not saved, or the file is damaged.
        """
        saved = self._state()["random"]
        try:
            torch.set_rng_state(saved["torch"])
            if torch.cuda.is_available() and len(saved["cuda"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(saved["cuda"])
            for name, generator in (generators or {}).items():
                if isinstance(generator, torch.Generator):
                    generator.set_state(saved["generators"][name])
                else:
                    generator.bit_generator.state = saved["generators"][name]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            path = self.run / self.manifest["optimizer"]["file"]
            raise CheckpointError(f"{path}: the state of the random numbers does not fit ({error})") from error

    def store(self, *, writable: bool = False) -> DiskObjectStore:
        """Open the objects, to read or to go on training.

        Raises:
            CheckpointError: a file is missing or damaged, or another process is training this run.
        """
        store = DiskObjectStore(self.run / OBJECTS, self.manifest["objects"], writable=writable)
        if writable:
            # Whoever trained it last may have saved once more before letting go of it.
            if load_checkpoint(self.run).manifest != self.manifest:
                store.close()
                raise CheckpointError(f"{self.run}: was trained on while it was opened; open it again")
            store.remove_leftovers()
        return store

    def _tensors(self, part: str) -> dict[str, Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        entry = self.manifest[part]
        path = self.run / entry["file"]
        data = read_checked(path, entry["bytes"], entry["checksum"])
        try:
            return load(data)
        except (SafetensorError, ValueError, KeyError) as error:
            raise CheckpointError(f"{path}: not a safetensors file ({error}); restore the file") from error

    def _state(self) -> dict:
        tensors = self._tensors("optimizer")
        try:
            structure = json.loads(bytes(tensors[_STRUCTURE].tolist()))
            return _join(structure, tensors)
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            path = self.run / self.manifest["optimizer"]["file"]
            raise CheckpointError(f"{path}: the optimiser's state is damaged; restore the file") from error


def create_store(run: str | Path, prepare: Callable[[], None] = lambda: None) -> DiskObjectStore:
    """The empty object store of a new run, held for writing.

    Args:
        run: the run folder; it is made.
        prepare: called when the store is held and nobody else may write: to look at the folder, clear or fill it.

    Raises:
        CheckpointError: the folder holds a run already.

    Example:
        >>> import tempfile
        >>> len(create_store(tempfile.mkdtemp()))
        0
    """
    run = Path(run)
    store = DiskObjectStore(run / OBJECTS, writable=True)
    with contextlib.ExitStack() as failed:
        failed.callback(store.close)
        prepare()
        if (run / MANIFEST).exists():
            raise CheckpointError(f"{run}: holds a run already; resume it, or choose another folder")
        store.remove_leftovers()
        failed.pop_all()
    return store


def save_checkpoint(
    run: str | Path,
    store: DiskObjectStore,
    *,
    phase: str,
    step: int,
    shared: Mapping[str, Tensor],
    optimizer: object = None,
    table: ObjectTable | None = None,
    object_adam: ObjectAdam | None = None,
    generators: Generators | None = None,
    metadata: Mapping | None = None,
) -> None:
    """Save a run at this moment.

    If it fails, for want of space for instance, the checkpoint before it is what it was, and saving can be tried again.

    Args:
        run: the run folder.
        store: its object store, from `create_store` or ``Checkpoint.store(writable=True)``.
        phase: the training phase the run is in.
        step: steps of that phase that were taken.
        shared: tensors that all objects share, by name.
        optimizer: any nesting of dictionaries, lists and tuples of tensors, numbers and strings, such as
            ``torch.optim.Adam.state_dict()``.
        table: objects in training; those that changed are written, and their mark removed.
        object_adam: their moments; objects without any lose those that were stored.
        generators: random generators to be saved beside torch's global ones, by name.
        metadata: JSON values.

    Raises:
        CheckpointError: the disk is full, the folder read-only, or a tensor not finite.

    Example:
        >>> import tempfile
        >>> run = tempfile.mkdtemp()
        >>> save_checkpoint(run, create_store(run), phase="warm-up", step=10, shared={"base_planes": torch.ones(2)})
        >>> load_checkpoint(run).step, load_checkpoint(run).shared()["base_planes"]
        (10, tensor([1., 1.]))
    """
    run = Path(run)
    rows = set() if table is None else set(table.dirty)
    records = {} if table is None else {table.ids[row]: table.record(table.ids[row]) for row in sorted(rows)}
    _refuse_non_finite("shared tensors", shared)
    for id, record in records.items():
        _refuse_non_finite(f"object '{id}'", record)
    store.write_many(records)
    if object_adam is not None:
        moments = {id: object_adam.state(id) for id in records}
        store.write_many({id: state for id, state in moments.items() if state}, MOMENTS)
        store.delete([id for id, state in moments.items() if not state], MOMENTS)
    state = {"optimizer": optimizer, "random": _random_state(generators or {})}
    _write(run, store, phase, step, dict(shared), _split(state), _as_json(metadata or {}))
    if table is not None:
        table.dirty -= rows


def _write(
    run: Path,
    store: DiskObjectStore,
    phase: str,
    step: int,
    shared: dict[str, Tensor],
    state: dict[str, Tensor],
    metadata: dict,
) -> None:
    objects = store.stage()
    written: list[Path] = []
    data = b""
    try:
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "phase": phase,
            "step": step,
            "shared": _write_tensors(run, "shared", step, objects["generation"], shared, written),
            "optimizer": _write_tensors(run, "optimizer", step, objects["generation"], state, written),
            "objects": objects,
            "metadata": metadata,
        }
        manifest["checksum"] = _manifest_checksum(manifest)
        data = (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode()
        sync_folder(run)
        write_atomically(run / MANIFEST, data)
        sync_folder(run)
    except BaseException as error:
        # An interruption, or a server that answers late, may come after the rename; then the new files are in use.
        if not _holds(run / MANIFEST, data):
            for path in written:
                with contextlib.suppress(OSError):
                    path.unlink()
            store.discard()
        if isinstance(error, OSError):
            raise unwritable(run, error) from error
        raise
    store.commit()
    _remove_old(run, keep={manifest[part]["file"] for part in ("shared", "optimizer")})


def load_checkpoint(run: str | Path) -> Checkpoint:
    """Read a run folder's checkpoint.

    Raises:
        CheckpointError: there is none, it is damaged, or it was written by a newer version.

    Example:
        >>> load_checkpoint("runs/cars").step  # doctest: +SKIP
        2500
    """
    run = Path(run)
    path = run / MANIFEST
    try:
        manifest = read_json(path)
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise CheckpointError(
                f"{run}: no {MANIFEST} here; name a run folder, or train until its first checkpoint"
            ) from error
        raise CheckpointError(f"{error}; restore the file") from error
    check_format(manifest, path, FORMAT, FORMAT_VERSION, error=CheckpointError)
    damage = _damage(manifest)
    if damage:
        raise CheckpointError(f"{path}: {damage}; restore the file")
    return Checkpoint(run, manifest["phase"], manifest["step"], manifest["metadata"], manifest)


def load_objects(
    store: DiskObjectStore,
    ids: Iterable[str] | None = None,
    *,
    optimizer: Callable[[ObjectTable], ObjectAdam] = ObjectAdam,
) -> tuple[ObjectTable, ObjectAdam]:
    """Objects and their moments as they were saved, ready to be trained on.

    Args:
        store: where they are.
        ids: which, in order; all if not given.
        optimizer: makes the optimiser, of the kind that the moments come from.

    Raises:
        CheckpointError: a record is damaged or does not fit the others.
        DataError: an id that is not stored.
    """
    ids = store.ids if ids is None else list(ids)
    records = store.read_many(ids)
    moments = store.read_many(ids, MOMENTS)
    shapes = {name: tensor.shape for name, tensor in records[ids[0]].items()} if ids else {}
    for id, record in records.items():
        if {name: tensor.shape for name, tensor in record.items()} != shapes:
            raise CheckpointError(f"{store.folder}: object '{id}' has other tensors than '{ids[0]}'; train it again")
    table = ObjectTable(ids, {name: torch.stack([records[id].pop(name) for id in ids]) for name in shapes})
    table.dirty.clear()
    adam = optimizer(table)
    for id in ids:
        try:
            adam.load_state(id, moments.pop(id))
        except DataError as error:
            raise CheckpointError(f"{store.folder}: {error}; train it again") from error
    return table, adam


# Pieces ---------------------------------------------------------------------------------------------------------------


def _write_tensors(
    run: Path, part: str, step: int, generation: int, tensors: dict[str, Tensor], written: list[Path]
) -> dict:
    name = f"{part}-{step}.safetensors"
    if (run / name).exists():
        # Perhaps the present checkpoint's: phases count their own steps, and a step can be saved twice.
        name = f"{part}-{step}-{generation}.safetensors"
    summed = Checksum()

    def parts() -> Iterator[bytes | memoryview]:
        for data in safetensors_parts(tensors):
            summed.update(data)
            yield data

    write_atomically(run / name, parts())
    written.append(run / name)
    return {"file": name, "bytes": (run / name).stat().st_size, "checksum": f"{summed.value:016x}"}


def _remove_old(run: Path, keep: set[str]) -> None:
    """Remove what only older checkpoints named, and what interrupted sessions left half-written."""
    ours = re.compile(r"(shared|optimizer)-\d+(-\d+)?\.safetensors|\.((shared|optimizer)-\d|checkpoint\.json\.).*")
    for path in run.iterdir():
        if ours.fullmatch(path.name) and path.name not in keep:
            with contextlib.suppress(OSError):
                path.unlink()


def _damage(manifest: dict) -> str | None:
    """What is wrong with a manifest, if anything."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    if manifest.get("checksum") != _manifest_checksum(content):
        return "its checksum does not match its content"
    for key, kind in (("phase", str), ("step", int), ("metadata", dict), ("objects", dict), ("format_version", int)):
        if type(content.get(key)) is not kind:
            return f"'{key}' is {shown(content.get(key))}"
    for part in ("shared", "optimizer"):
        match content.get(part):
            case {"file": str(file), "bytes": int(), "checksum": str()}:
                if not re.fullmatch(rf"{part}-\d+(-\d+)?\.safetensors", file):
                    return f"'{part}' names the file {file[:80]!r}"
            case _:
                return f"'{part}' names no file"
    return None


def _manifest_checksum(manifest: dict) -> str:
    return hashlib.blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=16).hexdigest()


def _as_json(metadata: Mapping) -> dict:
    """The values as they will be read back."""
    try:
        return json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"checkpoint: the metadata is no JSON ({error})") from error


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _refuse_non_finite(what: str, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{what}: '{name}' holds values that are not finite, so it is not saved; resume from the checkpoint "
                "before it with smaller learning rates"
            )


def _random_state(generators: Generators) -> dict:
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "generators": {
            name: generator.get_state() if isinstance(generator, torch.Generator) else generator.bit_generator.state
            for name, generator in generators.items()
        },
    }


def _split(state: object) -> dict[str, Tensor]:
    """The tensors of a nested state by the path they are found at, and its structure as bytes of JSON."""
    tensors: dict[str, Tensor] = {}

    def walk(value: object, path: str) -> object:
        if isinstance(value, Tensor):
            while path in tensors or path == _STRUCTURE:
                path += "_"
            tensors[path] = value
            return {"tensor": path}
        if isinstance(value, Mapping):
            return {"items": [[key, walk(item, f"{path}.{key}".lstrip("."))] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [walk(item, f"{path}.{index}") for index, item in enumerate(value)]}
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"checkpoint: '{path}' is {value}; only finite numbers are saved")
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        raise ConfigError(f"checkpoint: '{path}' is a {type(value).__name__}; only tensors, numbers and text are saved")

    structure = json.dumps(walk(state, ""), allow_nan=False)
    tensors[_STRUCTURE] = torch.frombuffer(bytearray(structure.encode()), dtype=torch.uint8)
    return tensors


def _join(structure: dict, tensors: Mapping[str, Tensor]) -> object:
    ((kind, content),) = structure.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "items":
        return {key: _join(item, tensors) for key, item in content}
    if kind in ("list", "tuple"):
        items = [_join(item, tensors) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "value":
        return content
    raise ValueError(f"unknown kind {kind!r}")
