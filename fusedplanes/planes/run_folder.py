"""The folder of a run: who may write it, what it was trained with, what is read from it.

runs/cars/config.json                 what was trained, and how
runs/cars/checkpoint.json             the manifest: the one file that says which others count
runs/cars/shared-<step>.safetensors   base planes, field decoder, autoencoder
runs/cars/objects/                    one record per object
runs/cars/log.jsonl                   one line per logged step
runs/cars/preview.png                 held-out views, truth beside render
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

from fusedplanes.autoencoders.pretrained import PretrainedAutoencoderConfig
from fusedplanes.errors import CheckpointError, ConfigError, shown
from fusedplanes.files import check_format, read_json, write_atomically, write_json
from fusedplanes.licences import UNKNOWN, LicenceRecord, records_from_json, records_to_json, united
from fusedplanes.multiview import MultiViewDataset
from fusedplanes.planes.config import RunConfig, from_json, to_json
from fusedplanes.planes.model import SharedParts
from fusedplanes.planes.views import TrainingViews
from fusedplanes.training.checkpoint import MANIFEST, OBJECTS, Checkpoint, create_store, load_checkpoint
from fusedplanes.training.object_store import LOCK, DiskObjectStore, unwritable

FORMAT, FORMAT_VERSION = "fusedplanes-run", 1
FINISHED = "finished"
PENDING = ".first-checkpoint-pending"
"""An empty file, there until the first checkpoint is: what lies beside it was left by a run that never had one."""
DATA_LICENCES = "data_licences"
"""Field of a run's config.json: the licences of the data sets that its objects came from."""
STAGE_ONE_OBJECTS = "stage_one_objects"
"""Metadata of a checkpoint: how many objects were trained together; those added later are not among them."""
SETTINGS = "settings"
"""Metadata of a checkpoint: what it was trained with, which config.json must still say when the run goes on."""

Result = TypeVar("Result")


@contextlib.contextmanager
def told_in_one_line(out: Path):
    """A disk that is full and a folder that is read-only are told as they are for a checkpoint."""
    try:
        yield
    except OSError as error:
        raise unwritable(out, error) from error


def has_begun(out: str | Path) -> bool:
    """Whether a folder holds anything that training could go on from, or must not overwrite.

    One that was killed before it wrote its configuration leaves at most the lock of its objects and temporary files.
    """
    out = Path(out)
    if not out.is_dir():
        return out.exists()
    return not all(
        path.name.startswith((".config.json.", PENDING))
        or (path.name == OBJECTS and path.is_dir() and all(item.name == LOCK for item in path.iterdir()))
        for path in out.iterdir()
    )


def begin(
    out: Path, config: RunConfig, dataset: MultiViewDataset, views: TrainingViews, *, resume: bool, overwrite: bool
) -> DiskObjectStore:
    """Make the folder of a new run; its store is held for writing before anything is written or removed.

    Args:
        out: the run folder.
        config: what is written to config.json, beside where ``dataset`` lies and what ``views`` are.
        resume, overwrite: as in `fusedplanes.planes.run.train`.

    Raises:
        ConfigError: somebody else began a run there in the meantime.
        CheckpointError: somebody else is training there, or nothing can be written.
    """

    def prepare() -> None:
        # Reading and timing took a while: what the folder held at their start counts no more.
        if claim(out, resume, overwrite):
            _remove_run(out, everything=overwrite)
        elif has_begun(out):
            raise ConfigError(f"{out}: another process trained here meanwhile; go on with --resume")
        write_atomically(out / PENDING, b"")
        write_json(out / "config.json", value)

    folders = [str(path.resolve()) for path in _folders(dataset)]
    value = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **to_json(config),
        "data": folders[0] if len(folders) == 1 else folders or None,
        "resampled": getattr(dataset, "resampled", None),
        "image_size": list(views.size),
        "data_signature": views.signature(),
        DATA_LICENCES: records_to_json(data_licences(dataset)),
    }
    with told_in_one_line(out):
        return create_store(out, prepare)


_OWN_FILE = re.compile(
    r"(shared|optimizer)-\d+(-\d+)?\.safetensors|log\.jsonl|preview\.png|tensorboard"
    r"|\.(shared|optimizer|checkpoint|config|log|preview)[-.].*"
)


def _remove_run(out: Path, *, everything: bool) -> None:
    """Remove a run in such an order that one removed by half begins anew, as one that never had a checkpoint does.

    Args:
        everything: also what training did not write; not the objects' lock, which is held.
    """
    for path in [*out.glob("shared-*"), out / MANIFEST]:
        path.unlink(missing_ok=True)
    kept = {out / "config.json", out / OBJECTS, out / OBJECTS / LOCK}
    own = [path for path in out.iterdir() if everything or _OWN_FILE.fullmatch(path.name)]
    for path in [*(out / OBJECTS).iterdir(), *own]:
        if path in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (out / "config.json").unlink()


def check_unchanged(out: Path, views: TrainingViews) -> None:
    """A run goes on with the images it began with: latents, batches and floors all depend on them.

    Raises:
        ConfigError: the data set has other objects, images or cameras than at the start.
    """
    file = _config_file(out)
    known, size = file.get("data_signature"), list(views.size)
    if file.get("image_size", size) != size:
        raise ConfigError(f"{out}: was started on images of {file['image_size']} pixels, not {size}; start another run")
    if known is not None and known != views.signature():
        data = file.get("data")
        folders = ", ".join(data if isinstance(data, list) else [data] if data else []) or "the data set in memory"
        raise ConfigError(f"{out}: {shown(folders)} has changed since the run began; put it back, or start another run")


def settings_of(run: Path) -> dict:
    """What config.json says that training depends on."""
    file = _config_file(run)
    return {**to_json(read_config(run)), **{name: file.get(name) for name in ("image_size", "data_signature")}}


def check_settings(run: Path, checkpoint: Checkpoint) -> None:
    """A run goes on with the settings it began with, whatever an editor did to config.json.

    Raises:
        ConfigError: it says something else now; the message names the first difference.
    """
    # Read again as JSON, because a checkpoint holds what became of them there: tuples are lists.
    present = json.loads(json.dumps(settings_of(run)))
    for name, began, now in _differences(checkpoint.metadata.get(SETTINGS, {}), present):
        raise ConfigError(f"{run}/config.json: {name} is {shown(now)}, the run began with {shown(began)}; put it back")


def _differences(began: object, now: object, name: str = "") -> Iterator[tuple[str, object, object]]:
    if isinstance(began, dict) and isinstance(now, dict):
        for key, value in began.items():
            yield from _differences(value, now.get(key), f"{name}.{key}" if name else key)
    elif began != now:
        yield name, began, now


def claim(out: Path, resume: bool, overwrite: bool) -> bool:
    """Make sure that a run may be written here; returns whether what there is has to be removed first.

    A run that was stopped before its first checkpoint holds nothing: it begins anew, resumed or not.

    Raises:
        ConfigError: the folder holds something, and neither ``resume`` nor ``overwrite`` says what to do with it.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other")
    known = (out / "config.json").is_file() and (read_json(out / "config.json").get("format") == FORMAT)
    # Shared tensors without a manifest are a damaged run, whose objects may still be worth something.
    if known and not (out / MANIFEST).exists() and ((out / PENDING).exists() or not any(out.glob("shared-*"))):
        return True
    if not has_begun(out):
        _check_writable(out)
        return False
    if resume:
        return False
    if not known:
        raise ConfigError(f"{out}: is no empty folder and no run; choose another --out")
    if not overwrite:
        raise ConfigError(f"{out}: holds a run already; go on with --resume or replace it with --overwrite")
    return True


def _check_writable(out: Path) -> None:
    """Reading a data set takes a while: that nothing can be written is said before.

    Raises:
        ConfigError: the folder, or the one it is to be made in, may not be written to.
    """
    place = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not place.is_dir():
        raise ConfigError(f"{out}: {place} is a file; choose another --out")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{out}: {place} is read-only for you; choose another --out")


# Reading ------------------------------------------------------------------------------------------------------------


def read_config(run: str | Path) -> RunConfig:
    """The configuration a run folder was trained with.

    Raises:
        CheckpointError: there is none, or it was written by a newer version.
        ConfigError: it is damaged.
    """
    value = _config_file(run)
    fields = ("method", "preset", "model", "training")
    return from_json({name: value[name] for name in fields if name in value})


def data_folders(run: str | Path) -> list[Path]:
    """The data sets a run was trained on, in order.

    Raises:
        ConfigError: it was not trained from folders.
    """
    value = _config_file(run).get("data")
    folders = [value] if isinstance(value, str) else value
    if not isinstance(folders, list) or not folders or not all(isinstance(item, str) for item in folders):
        raise ConfigError(f"{run}: does not name its data set; give it with --data")
    return [Path(item) for item in folders]


def _folders(dataset: MultiViewDataset) -> tuple[Path, ...]:
    """Where a data set lies; nowhere, if it is in memory."""
    return getattr(dataset, "paths", ())


def shell_folders(dataset: MultiViewDataset) -> str:
    """The folders of a data set as they are written on a command line."""
    return " ".join(shlex.quote(str(path)) for path in _folders(dataset)) or "DATA"


def resampled_size(run: str | Path) -> int | None:
    """Pixels of the longer side that a run's images were resampled to; None where they were not."""
    size = _config_file(run).get("resampled")
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def training_size(run: str | Path) -> tuple[int, int] | None:
    """Width and height of the training images in pixels; None where the run does not say."""
    size = _config_file(run).get("image_size")
    valid = isinstance(size, list) and len(size) == 2 and all(type(side) is int and 1 <= side <= 16384 for side in size)
    return tuple(size) if valid else None


def image_size(run: str | Path) -> int:
    """Width of the training images in pixels; 128 where the run does not say."""
    return (training_size(run) or (128, 128))[0]


def data_licences(dataset: MultiViewDataset) -> tuple[LicenceRecord, ...]:
    """The names of a data set's folders and what each may be used for, as far as it says."""
    licences = getattr(dataset, "licences", {"images in memory": None})
    return tuple(LicenceRecord("data", name, licence or UNKNOWN) for name, licence in licences.items())


def licences_of(run: str | Path) -> tuple[LicenceRecord, ...]:
    """The licences of all that a run was made from: published weights, and the data sets of its objects.

    Raises:
        CheckpointError: no run, or a damaged one.
    """
    autoencoder, records = read_config(run).model.autoencoder, ()
    if isinstance(autoencoder, PretrainedAutoencoderConfig):
        path = Path(autoencoder.source)
        name = path.name if path.is_absolute() else autoencoder.source
        records = (LicenceRecord("weights", name, autoencoder.licence, autoencoder.licence_accepted),)
    return united(records, _data_licences(run))


def _data_licences(run: str | Path) -> tuple[LicenceRecord, ...]:
    value = _config_file(run)
    if DATA_LICENCES in value:
        return records_from_json(value[DATA_LICENCES], f"{run}/config.json: {DATA_LICENCES}")
    # Runs of before licences were kept name their data set at most.
    data = value.get("data")
    names = [Path(item).name for item in (data if isinstance(data, list) else [data]) if isinstance(item, str)]
    return tuple(LicenceRecord("data", name, UNKNOWN) for name in names or [UNKNOWN])


def note_data_licences(run: str | Path, records: Iterable[LicenceRecord]) -> None:
    """Add the licences of further data sets to a run, before any object of theirs is stored in it."""
    known = _data_licences(run)
    found = united(known, records)
    if found != known:
        write_json(Path(run) / "config.json", {**_config_file(run), DATA_LICENCES: records_to_json(found)})


def _config_file(run: str | Path) -> dict:
    path = Path(run) / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{run}: no run folder; `fusedplanes train` makes one")
    value = read_json(path)
    check_format(value, path, FORMAT, FORMAT_VERSION, error=CheckpointError)
    return value


def stage_one_objects(checkpoint: Checkpoint, store: DiskObjectStore) -> int:
    """How many objects a run trained together; all it has, where an older release did not note the number."""
    return checkpoint.metadata.get(STAGE_ONE_OBJECTS, len(store))


def finished_checkpoint(run: str | Path) -> Checkpoint:
    """The checkpoint of a run that came to its end.

    Raises:
        CheckpointError: no run, a damaged one, or one that is not finished.
    """
    read_config(run)
    checkpoint = load_checkpoint(run)
    if checkpoint.phase != FINISHED:
        raise CheckpointError(f"{run}: is still in its {checkpoint.phase} phase; finish it with `train --resume`")
    check_settings(Path(run), checkpoint)
    return checkpoint


def open_run(run: str | Path) -> tuple[RunConfig, SharedParts, DiskObjectStore, int]:
    """What a model is made of, read from a run folder, and how many objects were trained together.

    Raises:
        CheckpointError: no run, a damaged one, or one of a newer version.
    """
    config = read_config(run)

    def read(checkpoint: Checkpoint):
        shared, store = read_shared(config, checkpoint), checkpoint.store()
        return config, shared, store, stage_one_objects(checkpoint, store)

    return reading(run, read)


def reading(run: str | Path, read: Callable[[Checkpoint], Result]) -> Result:
    """What ``read`` makes of a run's checkpoint, begun again where whoever trains the run saved meanwhile.

    Raises:
        CheckpointError: no checkpoint, or a damaged one.
    """
    while True:
        checkpoint = load_checkpoint(run)
        try:
            return read(checkpoint)
        except CheckpointError:
            # A newer checkpoint removed what the one before it named.
            if load_checkpoint(run).manifest == checkpoint.manifest:
                raise


def read_shared(config: RunConfig, checkpoint: Checkpoint) -> SharedParts:
    """A checkpoint's shared parts, once they fit the configuration; see `shared_tensors`."""
    tensors = shared_tensors(config, checkpoint)
    shared = SharedParts(config.model)
    shared.load_state_dict(tensors)
    return shared


def shared_tensors(config: RunConfig, checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """A checkpoint's shared tensors, once they fit the configuration.

    Raises:
        CheckpointError: other tensors than the configuration asks for, or values that are impossible.
    """
    run, tensors = checkpoint.run, checkpoint.shared()
    with torch.device("meta"):
        # Nothing is allocated for sizes that only config.json speaks of.
        expected = {name: (value.shape, value.dtype) for name, value in SharedParts(config.model).state_dict().items()}
    if {name: (value.shape, value.dtype) for name, value in tensors.items()} != expected:
        raise CheckpointError(f"{run}: the shared tensors do not fit config.json; restore the folder")
    broken = next((name for name, value in tensors.items() if not bool(torch.isfinite(value).all())), None)
    if broken or float(tensors["latent_scale"].min()) <= 0:
        raise CheckpointError(f"{run}: shared tensor '{broken or 'latent_scale'}' holds impossible values; restore it")
    return tensors
