"""Run folders: a class is trained into one, and everything later is read from it.

runs/cars/config.json                 what was trained, and how
runs/cars/checkpoint.json             the manifest: the one file that says which others count
runs/cars/shared-<step>.safetensors   base planes, field decoder, autoencoder
runs/cars/objects/                    one record per object
runs/cars/log.jsonl                   one line per logged step
runs/cars/preview.png                 held-out views, truth beside render
"""

from __future__ import annotations

import contextlib
import math
import shlex
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from fusedplanes.autoencoders.pretrained import PretrainedAutoencoderConfig
from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.files import read_json, remove_temporaries, write_atomically, write_json
from fusedplanes.licences import UNKNOWN, LicenceRecord, records_from_json, records_to_json, united
from fusedplanes.multiview import MultiViewDataset
from fusedplanes.planes.config import RunConfig, from_json, to_json
from fusedplanes.planes.model import PlanesModel, SharedParts
from fusedplanes.planes.plan import Plan, fit_minutes, peak_memory, probe
from fusedplanes.planes.preview import HeldOutViews
from fusedplanes.planes.stage_one import StageOne, object_optimizer
from fusedplanes.planes.views import TrainingViews
from fusedplanes.training.checkpoint import (
    MANIFEST,
    OBJECTS,
    Checkpoint,
    create_store,
    load_checkpoint,
    load_objects,
    save_checkpoint,
)
from fusedplanes.training.log import TrainingLog
from fusedplanes.training.loop import run_phase
from fusedplanes.training.object_store import MOMENTS, DiskObjectStore, hold_for_writing, unwritable

FORMAT, FORMAT_VERSION = "fusedplanes-run", 1


@dataclass(frozen=True)
class TrainingSummary:
    """What a finished `train` reports: times in seconds, sizes in bytes, PSNR in decibels on a few held-out views."""

    run: str
    method: str
    objects: int
    seconds: float
    seconds_per_object: float
    predicted_seconds: float
    object_bytes: int
    shared_bytes: int
    disk_bytes: int
    peak_memory_bytes: int
    held_out_psnr: float | None
    held_out_psnr_foreground: float | None

    def to_json(self) -> dict:
        """The summary as plain values."""
        return asdict(self)

    def text(self) -> str:
        """One paragraph for people."""
        quality = "" if self.held_out_psnr is None else f"; held-out PSNR {self.held_out_psnr:.2f} dB on the preview"
        return (
            f"{self.run}: {self.objects} objects in {self.seconds:.0f} s ({self.seconds_per_object:.1f} s per object)"
            f"{quality}; {self.object_bytes:,} bytes per object, {self.shared_bytes:,} shared"
        )


def train(
    dataset: MultiViewDataset,
    out: str | Path,
    *,
    config: RunConfig,
    minutes: float = 0.0,
    device: str | torch.device = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    watch_seconds: float = 60.0,
    watch_first_seconds: float = 30.0,
    tensorboard: bool = False,
    quiet: bool = False,
) -> TrainingSummary:
    """Train a class into a run folder: stage 1 of Fused-Planes, or plain Tri-Planes.

    Ctrl-C ends with a usable checkpoint; ``resume`` goes on from it.

    Args:
        dataset: objects with views in the splits "train" and, for previews, "test".
        out: the run folder.
        config: from `fusedplanes.preset`, or your own.
        minutes: scale every phase's steps so that training takes about so long; 0 keeps them.
        watch_seconds: seconds between previews; 0 renders none.
        watch_first_seconds: seconds from the start of a phase to its first preview.
        tensorboard: also write TensorBoard event files.
        quiet: no progress on standard error.

    Returns:
        What it took and what came out.

    Raises:
        ConfigError: the folder holds something already and neither ``resume`` nor ``overwrite`` says what to do.
        CheckpointError: the disk is full, the folder read-only, or the checkpoint to resume from damaged.
        TrainingInterrupted: Ctrl-C.

    Example:
        >>> data = fusedplanes.datasets.load("cars")  # doctest: +SKIP
        >>> fp.train(data, "runs/cars", config=fp.preset("small"))  # doctest: +SKIP
    """
    _check_minutes(minutes)
    if not (math.isfinite(watch_seconds) and watch_seconds >= 0):
        raise ConfigError(f"watch {watch_seconds}: choose seconds between previews, or 0 for none")
    out = Path(out)
    replaced = _claim(out, resume, overwrite)
    resume = resume and has_begun(out)
    checkpoint = load_checkpoint(out) if resume and not replaced else None
    if resume:
        config, minutes = read_config(out), 0.0
    if checkpoint is not None and checkpoint.phase == FINISHED:
        if not quiet:
            sys.stderr.write(f"{out}: is finished; nothing is left to train\n")
        return _finished(out, checkpoint)
    if not quiet:
        sys.stderr.write(f"reading {len(dataset)} objects\n")
    views = TrainingViews.read(dataset)
    held_out = HeldOutViews(dataset, background=config.model.background) if watch_seconds else None
    if checkpoint is None:
        if not quiet:
            sys.stderr.write("timing a few steps of every phase (the first run also compiles its kernels)\n")
        plan = probe(config, views, device=device)
        if minutes:
            config = fit_minutes(config, plan, minutes)
            plan = plan.with_steps(config)
        if replaced:
            hold_for_writing(out / OBJECTS).close()
            _remove_run(out)
        folders = [str(path.resolve()) for path in _folders(dataset)]
        extra = {
            "data": folders[0] if len(folders) == 1 else folders or None,
            "resampled": getattr(dataset, "resampled", None),
            "image_size": list(views.size),
            "data_signature": views.signature(),
            DATA_LICENCES: records_to_json(data_licences(dataset)),
        }
        with _one_line(out):
            write_atomically(out / PENDING, b"")
            write_json(
                out / "config.json", {"format": FORMAT, "format_version": FORMAT_VERSION, **to_json(config), **extra}
            )
        store = create_store(out)
        stage = StageOne(config, views, device=device)
        stage.start_pretrained()
        position, predicted = (stage.phases[0].name, 0), plan.seconds
        if not quiet:
            sys.stderr.write(plan.text() + "\n")
    else:
        _check_unchanged(out, views)
        stage = StageOne(config, views, device=device)
        store = checkpoint.store(writable=True)
        position = (checkpoint.phase, checkpoint.step)
        predicted = checkpoint.metadata.get("predicted_seconds", 0.0)
        stage.shared.load_state_dict(checkpoint.shared())
        stage.table, stage.object_adam = load_objects(
            store, views.ids, optimizer=partial(object_optimizer, config.training.object_optimizer)
        )
        stage.load_optimizer_state(checkpoint.phase, checkpoint.optimizer())
    remove_temporaries(out, "config.json", "log.jsonl", "preview.png")
    log = TrainingLog(out / "log.jsonl", tensorboard=tensorboard)
    with contextlib.closing(store), contextlib.closing(log):
        resume_command = f"fusedplanes train {shell_folders(dataset)} --out {shlex.quote(str(out))} --resume"
        session = _Session(out, stage, store, log, predicted, resume_command, quiet)
        if checkpoint is not None:
            log.rewind(*position)
            session.clock.spent = checkpoint.metadata.get("seconds", 0.0)
        session.held_out = held_out
        session.watch_seconds, session.watch_first_seconds = watch_seconds, watch_first_seconds
        return session.run(position)


FINISHED = "finished"
PENDING = ".first-checkpoint-pending"
"""An empty file, there until the first checkpoint is: what lies beside it was left by a run that never had one."""
MOST_MINUTES = 1_000_000
DATA_LICENCES = "data_licences"
"""Field of a run's config.json: the licences of the data sets that its objects came from."""
STAGE_ONE_OBJECTS = "stage_one_objects"
"""Metadata of a checkpoint: how many objects were trained together; those added later are not among them."""


class _Clock:
    """Seconds spent training: pauses for previews do not count, and earlier sessions do."""

    def __init__(self) -> None:
        self.spent, self._since = 0.0, time.perf_counter()

    def __call__(self) -> float:
        return self.spent + (time.perf_counter() - self._since if self._since is not None else 0.0)

    @contextlib.contextmanager
    def paused(self):
        self.spent, self._since = self(), None
        try:
            yield
        finally:
            self._since = time.perf_counter()


class _Session:
    """One sitting of a run: goes through the phases that are left, watching and saving."""

    def __init__(
        self, out: Path, stage: StageOne, store, log: TrainingLog, predicted: float, resume_command: str, quiet: bool
    ) -> None:
        self.out, self.stage, self.store, self.log = out, stage, store, log
        self.predicted, self.resume_command, self.quiet = predicted, resume_command, quiet
        self.clock = _Clock()
        self.held_out: HeldOutViews | None = None
        self.watch_seconds = self.watch_first_seconds = 0.0

    def run(self, position: tuple[str, int]) -> TrainingSummary:
        names = [phase.name for phase in self.stage.phases]
        first = names.index(position[0])
        for index in range(first, len(names)):
            phase = self.stage.phases[index]
            first_step = position[1] if index == first else 0
            self.stage.prepare(phase.name, first_step)
            if first_step == 0:
                self.store.delete(self.store.ids, MOMENTS)
            run_phase(
                phase.name,
                phase.steps,
                phase.step,
                log=self.log,
                first_step=first_step,
                checkpoint=lambda step, name=phase.name: self.save(name, step),
                on_interval=(lambda step, name=phase.name: self.watch(name, step)) if self.held_out else None,
                interval_seconds=self.watch_seconds,
                interval_first_seconds=self.watch_first_seconds,
                resume_command=self.resume_command,
                quiet=self.quiet,
            )
        seconds = self.clock()
        quality = self.watch(names[-1], self.stage.phases[-1].steps) if self.held_out else {}
        self.store.delete(self.store.ids, MOMENTS)
        self.stage.object_adam.drop(self.stage.table.ids)
        facts = {STAGE_ONE_OBJECTS: len(self.stage.table), "peak_memory_bytes": peak_memory(), **quality}
        self.save(FINISHED, 0, **facts, seconds=seconds)
        return _finished(self.out, load_checkpoint(self.out))

    def save(self, phase: str, step: int, **metadata: float) -> None:
        optimizer = None if phase == FINISHED else self.stage.optimizer_state(phase)
        save_checkpoint(
            self.out,
            self.store,
            phase=phase,
            step=step,
            shared=self.stage.shared.state_dict(),
            optimizer=optimizer,
            table=self.stage.table,
            object_adam=self.stage.object_adam,
            metadata={"seconds": self.clock(), "predicted_seconds": self.predicted, **metadata},
        )
        with contextlib.suppress(OSError):
            (self.out / PENDING).unlink(missing_ok=True)

    def watch(self, phase: str, step: int) -> dict[str, float]:
        """Render the held-out views into preview.png and note their PSNR in the log."""
        with self.clock.paused(), _one_line(self.out):
            heading, render = "render", self._render
            if phase == "autoencoder":
                heading, render = "autoencoder", self._reconstruct
            quality = self.held_out.measure(render, self.out / "preview.png", heading=heading)
            self.log.write(phase, step, {**quality, "training_seconds": self.clock()})
        return quality

    @torch.no_grad()
    def _reconstruct(self, id: str, cameras, images):
        autoencoder = self.stage.shared.autoencoder
        mean, _ = autoencoder.encode(images.to(self.stage.device))
        return autoencoder.decode(mean).clamp(0, 1)

    def _render(self, id: str, cameras, images):
        return self.stage.model.render(self.stage.object_planes(id), cameras).color


def _finished(out: Path, checkpoint: Checkpoint) -> TrainingSummary:
    """The summary of a run that came to its end."""
    metadata, model = checkpoint.metadata, PlanesModel(read_config(out))
    with contextlib.closing(checkpoint.store()) as store:
        count = stage_one_objects(checkpoint, store)
    seconds = metadata.get("seconds", 0.0)
    return TrainingSummary(
        run=str(out),
        method=model.config.method,
        objects=count,
        seconds=seconds,
        seconds_per_object=seconds / max(count, 1),
        predicted_seconds=metadata.get("predicted_seconds", 0.0),
        object_bytes=model.object_bytes(),
        shared_bytes=model.shared_bytes(),
        disk_bytes=sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
        peak_memory_bytes=metadata.get("peak_memory_bytes", 0),
        held_out_psnr=metadata.get("held_out_psnr"),
        held_out_psnr_foreground=metadata.get("held_out_psnr_foreground"),
    )


@contextlib.contextmanager
def _one_line(out: Path):
    """A disk that is full and a folder that is read-only are told as they are for a checkpoint."""
    try:
        yield
    except OSError as error:
        raise unwritable(out, error) from error


def has_begun(out: str | Path) -> bool:
    """Whether a folder holds anything that training could go on from, or must not overwrite.

    One that was killed before it wrote its configuration leaves at most a temporary file.
    """
    out = Path(out)
    return out.exists() and not (
        out.is_dir() and all(path.name.startswith((".config.json.", PENDING)) for path in out.iterdir())
    )


def _remove_run(out: Path) -> None:
    """Remove a run in such an order that one removed by half begins anew, as one that never had a checkpoint does."""
    for path in [*out.glob("shared-*"), out / MANIFEST]:
        path.unlink(missing_ok=True)
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != "config.json":
            path.unlink()
    (out / "config.json").unlink()


def _check_unchanged(out: Path, views: TrainingViews) -> None:
    """A run goes on with the images it began with: latents, batches and floors all depend on them.

    Raises:
        ConfigError: the data set has other objects, images or cameras than at the start.
    """
    file = _config_file(out)
    known, size = file.get("data_signature"), list(views.size)
    if file.get("image_size", size) != size:
        raise ConfigError(f"{out}: was started on images of {file['image_size']} pixels, not {size}; start another run")
    if known is not None and known != views.signature():
        raise ConfigError(f"{out}: the data set has changed since the run began; put it back, or start another run")


def _claim(out: Path, resume: bool, overwrite: bool) -> bool:
    """Make sure that a run may be written here; returns whether what there is has to be removed first.

    A run that was stopped before its first checkpoint holds nothing: it begins anew, resumed or not.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other")
    known = (out / "config.json").is_file() and (read_json(out / "config.json").get("format") == FORMAT)
    # Shared tensors without a manifest are a damaged run, whose objects may still be worth something.
    if known and not (out / MANIFEST).exists() and ((out / PENDING).exists() or not any(out.glob("shared-*"))):
        return True
    if resume or not has_begun(out):
        return False
    if not known:
        raise ConfigError(f"{out}: is no empty folder and no run; choose another --out")
    if not overwrite:
        raise ConfigError(f"{out}: holds a run already; go on with --resume or replace it with --overwrite")
    return True


def _check_minutes(minutes: float) -> None:
    if not 0 <= minutes <= MOST_MINUTES:
        raise ConfigError(f"minutes {minutes}: choose 0 to {MOST_MINUTES}; 0 keeps the preset's steps")


def make_plan(config: RunConfig, data: MultiViewDataset | TrainingViews, *, minutes: float = 0.0, device="cpu") -> Plan:
    """Predict steps, time, disk and memory of a run from a short probe; nothing is written.

    Args:
        minutes: as in `train`.
    """
    _check_minutes(minutes)
    views = data if isinstance(data, TrainingViews) else TrainingViews.read(data)
    plan = probe(config, views, device=device)
    return plan.with_steps(fit_minutes(config, plan, minutes)) if minutes else plan


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
    if value.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format is {value.get('format')!r}, expected '{FORMAT}'")
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CheckpointError(f"{path}: format_version is {version!r}; expected a whole number from 1")
    if version > FORMAT_VERSION:
        raise CheckpointError(f"{path}: format_version {version} is newer than this fusedplanes knows; upgrade it")
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
    return checkpoint


def open_run(run: str | Path) -> tuple[RunConfig, SharedParts, DiskObjectStore, int]:
    """What a model is made of, read from a run folder, and how many objects were trained together.

    Raises:
        CheckpointError: no run, a damaged one, or one of a newer version.
    """
    config = read_config(run)
    while True:
        checkpoint = load_checkpoint(run)
        try:
            shared, store = read_shared(config, checkpoint), checkpoint.store()
        except CheckpointError:
            # Whoever trains this run may have saved meanwhile, and removed what the checkpoint before it named.
            if load_checkpoint(run).manifest == checkpoint.manifest:
                raise
        else:
            return config, shared, store, stage_one_objects(checkpoint, store)


def read_shared(config: RunConfig, checkpoint: Checkpoint) -> SharedParts:
    """A checkpoint's shared parts, once they fit the configuration.

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
    shared = SharedParts(config.model)
    shared.load_state_dict(tensors)
    return shared
