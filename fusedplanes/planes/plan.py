"""What a run will take, from a short probe: steps, time, disk and memory."""

from __future__ import annotations

import gc
import resource
import sys
import time
from dataclasses import asdict, dataclass, replace

import torch

from fusedplanes.planes.config import RunConfig, phase_steps
from fusedplanes.planes.stage_one import Phase, StageOne
from fusedplanes.planes.views import TrainingViews

PROBE_OBJECTS = 16
PROBE_SECONDS = 1.5
"""Time given to the probe of each phase, after a first step that warms up."""
PROBE_STEPS = 3
"""Steps that are timed at least."""
WARM_STEPS = 2


@dataclass(frozen=True)
class PhasePlan:
    """Steps of a phase and what one takes, in seconds; ``set_up`` is spent once before them."""

    name: str
    steps: int
    step_seconds: float
    set_up_seconds: float

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds + self.set_up_seconds


@dataclass(frozen=True)
class Plan:
    """Prediction of `make_plan`: times in seconds, sizes in bytes."""

    objects: int
    phases: tuple[PhasePlan, ...]
    object_bytes: int
    shared_bytes: int
    peak_memory_bytes: int

    @property
    def seconds(self) -> float:
        """Training time, without reading the data set and without previews."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def disk_bytes(self) -> int:
        """Size of the finished run folder, at 4 bytes a number."""
        return self.objects * self.object_bytes + self.shared_bytes

    def with_steps(self, config: RunConfig) -> Plan:
        """The same measurements for another number of steps."""
        steps = phase_steps(config.training)
        return replace(self, phases=tuple(replace(phase, steps=steps[phase.name]) for phase in self.phases))

    def to_json(self) -> dict:
        """The plan as plain values."""
        return {
            **asdict(self),
            "seconds": self.seconds,
            "seconds_per_object": self.seconds / self.objects,
            "disk_bytes": self.disk_bytes,
        }

    def text(self) -> str:
        """A few lines for people."""
        lines = [
            f"plan: {phase.name:<12} {phase.steps:>7,} steps x {1000 * phase.step_seconds:6.1f} ms = "
            f"{_clock(phase.seconds)}"
            for phase in self.phases
        ]
        lines.append(
            f"plan: {self.objects} objects, {_clock(self.seconds)}, {self.seconds / self.objects:.1f} s per object; "
            f"{_size(self.disk_bytes)} on disk ({_size(self.object_bytes)} per object, {_size(self.shared_bytes)} "
            f"shared); peak memory about {_size(self.peak_memory_bytes)}"
        )
        return "\n".join(lines)


def probe(config: RunConfig, views: TrainingViews, *, device: str | torch.device = "cpu") -> Plan:
    """Time a few steps of every phase on a few objects, with a throw-away copy of the model.

    Caching latents takes time in proportion to the views, so the probe's share is scaled up; a step's time does not
    depend on how many objects there are.
    """
    some = views.first(PROBE_OBJECTS)
    stage = StageOne(config, some, device=device)
    share = sum(len(c) for c in views.cameras) / sum(len(c) for c in some.cameras)
    phases = tuple(_phase_plan(stage, phase, share) for phase in stage.phases)
    shared_bytes = stage.model.shared_bytes()
    object_bytes = stage.model.object_bytes()
    # A training object holds its values, two moments and what is cached of it; the probe's own are in its peak already.
    more = (len(views) - len(some)) * (object_bytes * 3 + _cached_bytes(stage) // len(some))
    # Phases hold their stage, a circle: without this the probe's model stays while the run's own is trained.
    del stage
    gc.collect()
    return Plan(len(views), phases, object_bytes, shared_bytes, peak_memory() + more)


def _phase_plan(stage: StageOne, phase: Phase, share: float) -> PhasePlan:
    start = time.perf_counter()
    stage.prepare(phase.name)
    set_up = (time.perf_counter() - start) * share
    return PhasePlan(phase.name, phase.steps, _step_seconds(phase.step), set_up)


def _cached_bytes(stage: StageOne) -> int:
    """What a stage keeps of its objects' views for random rays; the images themselves were there before."""
    if stage.targets is None:
        return 0
    covered = sum(item.nbytes for item in stage.targets.covered)
    if stage.latents is None:
        return covered
    # The cache of means and log-variances at half precision is as large as the standardised means made from it.
    return covered + 2 * sum(item.nbytes for item in stage.targets.values)


def _step_seconds(step) -> float:
    for index in range(WARM_STEPS):
        step(index)
    times, index = [], WARM_STEPS
    while sum(times) < PROBE_SECONDS or len(times) < PROBE_STEPS:
        start = time.perf_counter()
        step(index)
        times.append(time.perf_counter() - start)
        index += 1
    return sum(times) / len(times)


def peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def fit_minutes(config: RunConfig, plan: Plan, minutes: float) -> RunConfig:
    """The same configuration with every phase's steps scaled so that training takes about ``minutes``."""
    fixed = sum(phase.set_up_seconds for phase in plan.phases)
    running = sum(phase.steps * phase.step_seconds for phase in plan.phases)
    factor = max(60 * minutes - fixed, 1.0) / running
    training = config.training

    def scaled(steps: int) -> int:
        return max(round(steps * factor), 1)

    joint = None if training.joint is None else replace(training.joint, steps=scaled(training.joint.steps))
    training = replace(
        training,
        autoencoder_steps=scaled(training.autoencoder_steps) if training.autoencoder_steps else 0,
        warm_up=replace(training.warm_up, steps=scaled(training.warm_up.steps)),
        joint=joint,
    )
    return replace(config, training=training)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
