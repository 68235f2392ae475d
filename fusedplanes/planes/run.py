"""Train a class into a run folder, resume it, and predict what it will take."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from fusedplanes.errors import CheckpointError, ConfigError, first_few, shown
from fusedplanes.files import remove_temporaries
from fusedplanes.multiview import MultiViewDataset
from fusedplanes.planes.config import RunConfig
from fusedplanes.planes.model import PlanesModel
from fusedplanes.planes.plan import Plan, fit_minutes, peak_memory, probe
from fusedplanes.planes.preview import HeldOutViews
from fusedplanes.planes.run_folder import (
    FINISHED,
    PENDING,
    SETTINGS,
    STAGE_ONE_OBJECTS,
    begin,
    check_settings,
    check_unchanged,
    claim,
    has_begun,
    read_config,
    settings_of,
    shared_tensors,
    shell_folders,
    stage_one_objects,
    told_in_one_line,
)
from fusedplanes.planes.stage_one import StageOne, object_optimizer
from fusedplanes.planes.views import TrainingViews
from fusedplanes.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_objects,
    save_checkpoint,
)
from fusedplanes.training.log import TrainingLog
from fusedplanes.training.loop import run_phase
from fusedplanes.training.object_store import MOMENTS


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
    begins_anew = claim(out, resume, overwrite)
    resume = resume and has_begun(out)
    checkpoint = load_checkpoint(out) if resume and not begins_anew else None
    if resume:
        config, minutes = read_config(out), 0.0
    if checkpoint is not None and checkpoint.phase == FINISHED:
        if not quiet:
            sys.stderr.write(f"{out}: is finished; nothing is left to train{_not_in_it(out, checkpoint, dataset)}\n")
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
        stage = StageOne(config, views, device=device)
        stage.start_pretrained()
        store = begin(out, config, dataset, views, resume=resume, overwrite=overwrite)
        position, predicted = (stage.phases[0].name, 0), plan.seconds
        if not quiet:
            sys.stderr.write(plan.text() + "\n")
    else:
        check_unchanged(out, views)
        check_settings(out, checkpoint)
        stage = StageOne(config, views, device=device)
        position = (checkpoint.phase, checkpoint.step)
        steps = {phase.name: phase.steps for phase in stage.phases}
        if not 0 <= checkpoint.step <= steps.get(checkpoint.phase, -1):
            raise CheckpointError(
                f"{out}: the checkpoint is in step {checkpoint.step} of phase {shown(checkpoint.phase)}, which "
                "config.json does not have; restore the folder"
            )
        predicted = checkpoint.metadata.get("predicted_seconds", 0.0)
        stage.shared.load_state_dict(shared_tensors(config, checkpoint))
        store = checkpoint.store(writable=True)
    with (
        contextlib.closing(store),
        contextlib.closing(TrainingLog(out / "log.jsonl", tensorboard=tensorboard)) as log,
    ):
        if checkpoint is not None:
            stage.table, stage.object_adam = load_objects(
                store, views.ids, optimizer=partial(object_optimizer, config.training.object_optimizer)
            )
            stage.load_optimizer_state(checkpoint.phase, checkpoint.optimizer())
        remove_temporaries(out, "config.json", "log.jsonl", "preview.png")
        resume_command = f"fusedplanes train {shell_folders(dataset)} --out {shlex.quote(str(out))} --resume"
        session = _Session(out, stage, store, log, predicted, resume_command, quiet)
        if checkpoint is not None:
            log.rewind(*position)
            session.clock.spent = checkpoint.metadata.get("seconds", 0.0)
        session.held_out = held_out
        session.watch_seconds, session.watch_first_seconds = watch_seconds, watch_first_seconds
        return session.run(position)


MOST_MINUTES = 1_000_000


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
        self.settings = settings_of(out)
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
            metadata={
                "seconds": self.clock(),
                "predicted_seconds": self.predicted,
                SETTINGS: self.settings,
                **metadata,
            },
        )
        with contextlib.suppress(OSError):
            (self.out / PENDING).unlink(missing_ok=True)

    def watch(self, phase: str, step: int) -> dict[str, float]:
        """Render the held-out views into preview.png and note their PSNR in the log."""
        with self.clock.paused(), told_in_one_line(self.out):
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


def _not_in_it(out: Path, checkpoint: Checkpoint, dataset: MultiViewDataset) -> str:
    """What to do with objects of a data set that a finished run does not hold."""
    with contextlib.closing(checkpoint.store()) as store:
        new = [name for name in dataset.ids if name not in store]
    if not new:
        return ""
    count = "1 object is" if len(new) == 1 else f"{len(new)} objects are"
    command = f"fusedplanes add {shlex.quote(str(out))} {shell_folders(dataset)}"
    return f"; {count} not in it ({first_few(new)}): {command}"


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
