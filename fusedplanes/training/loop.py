"""The one training loop: progress, log, checkpoints by the clock, a clean stop on Ctrl-C, and no silent divergence.

What a step does is the caller's; the loop decides when to look at it, when to save, and how to end.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

import torch
from torch import Tensor

from fusedplanes.errors import FusedPlanesError
from fusedplanes.training.log import TrainingLog

# Readings stay on the device until a batch of them is fetched, so that a GPU is not made to wait at every step.
STEPS_BETWEEN_LOOKS = 32
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_LINES = 10.0


class TrainingInterrupted(FusedPlanesError):
    """Training was stopped from outside and can be resumed.

    Attributes:
        phase: the phase that was running.
        step: steps of it that were taken.
        exit_status: what the shell reports: 130 after Ctrl-C, 143 after a termination request.
    """

    def __init__(self, message: str, phase: str, step: int, exit_status: int) -> None:
        super().__init__(message)
        self.phase, self.step, self.exit_status = phase, step, exit_status


class TrainingDiverged(FusedPlanesError):
    """A term of the loss became infinite or not a number."""


def run_phase(
    name: str,
    steps: int,
    step_function: Callable[[int], Mapping[str, float | Tensor]],
    *,
    log: TrainingLog,
    first_step: int = 0,
    checkpoint: Callable[[int], None] | None = None,
    checkpoint_seconds: float = 120.0,
    on_interval: Callable[[int], None] | None = None,
    interval_seconds: float = 300.0,
    interval_first_seconds: float = 30.0,
    log_every: int = 10,
    resume_command: str | None = None,
    quiet: bool = False,
) -> int:
    """Take the steps of one phase.

    Neither the clock nor ``on_interval`` can change what is learned: the global random numbers of torch are put back
    after each look.

    Args:
        name: the phase, as it appears in the log and on the screen.
        steps: steps of the whole phase, those before ``first_step`` included.
        step_function: takes step number 0, 1, ... and returns its losses and metrics, numbers or tensors of one
            element.
        log: receives the first, the last and every ``log_every``-th step.
        first_step: steps that were taken before, in the session that is resumed.
        checkpoint: saves the run; called with the number of steps taken, every ``checkpoint_seconds``, after the last
            step, and before an interruption is reported.
        checkpoint_seconds: seconds between checkpoints.
        on_interval: shows how far things are, a preview for instance; called with the number of steps taken.
        interval_seconds: seconds between calls of ``on_interval``.
        interval_first_seconds: seconds from the start of the phase to the first of these calls.
        log_every: steps between lines in the log.
        resume_command: what to type to go on; named when the run is interrupted.
        quiet: no progress on standard error.

    Returns:
        The number of steps taken, ``steps``.

    Raises:
        TrainingInterrupted: Ctrl-C or a termination request arrived; the step was finished and a checkpoint written. A
            second one raises KeyboardInterrupt at once. Outside the main thread signals are left alone.
        TrainingDiverged: a loss is infinite or not a number; the last checkpoint is as it was.

    Example:
        >>> losses = iter([0.5, 0.25, 0.125])
        >>> run_phase("warm-up", 3, lambda step: {"loss": next(losses)}, log=TrainingLog(None), quiet=True)
        3
    """
    if first_step >= steps:
        return first_step
    readings = _Readings(name, first_step, steps, log, log_every)
    start = looked = saved = time.monotonic()
    next_interval = start + interval_first_seconds
    with _StopRequest(quiet) as stop, _progress(name, first_step, steps, quiet) as show:
        for step in range(first_step, steps):
            readings.add(step + 1, step_function(step))
            stopping, last, now = stop.requested, step + 1 == steps, time.monotonic()
            saving = checkpoint is not None and (stopping or last or now - saved >= checkpoint_seconds)
            looking = on_interval is not None and now >= next_interval
            if saving or looking or stopping or last or readings.full or now - looked >= SECONDS_BETWEEN_LOOKS:
                # Before anything is saved, so that no checkpoint holds what a diverged step has left behind.
                show(step + 1, readings.fetch())
                looked = now
            if saving:
                checkpoint(step + 1)
                saved = time.monotonic()
            if stopping:
                raise _interruption(name, step + 1, steps, stopping, checkpoint is not None, resume_command)
            if looking:
                with _random_numbers_put_back():
                    on_interval(step + 1)
                next_interval = time.monotonic() + interval_seconds
        if stop.requested:
            raise _interruption(name, steps, steps, stop.requested, checkpoint is not None, resume_command)
    return steps


class _Readings:
    """What the steps returned and nobody has looked at yet."""

    def __init__(self, phase: str, first_step: int, steps: int, log: TrainingLog, log_every: int) -> None:
        self.phase, self.first, self.last, self.log, self.log_every = phase, first_step + 1, steps, log, log_every
        self._waiting: list[tuple[int, dict[str, float | Tensor]]] = []

    @property
    def full(self) -> bool:
        return len(self._waiting) >= STEPS_BETWEEN_LOOKS

    def add(self, step: int, metrics: Mapping[str, float | Tensor]) -> None:
        kept = {key: value.detach() if isinstance(value, Tensor) else value for key, value in metrics.items()}
        self._waiting.append((step, kept))

    def fetch(self) -> dict[str, float]:
        """Check and log all that is waiting; returns the metrics of the last step."""
        tensors = [v.reshape(()).float() for _, values in self._waiting for v in values.values() if torch.is_tensor(v)]
        numbers = iter(torch.stack(tensors).tolist() if tensors else [])
        latest: dict[str, float] = {}
        for step, values in self._waiting:
            latest = {key: next(numbers) if torch.is_tensor(v) else float(v) for key, v in values.items()}
            for key, value in latest.items():
                # The PSNR of an exact match is infinite, and no reason to stop.
                if math.isnan(value) or (math.isinf(value) and not (key.startswith("psnr") and value > 0)):
                    raise TrainingDiverged(
                        f"{self.phase}, step {step}: '{key}' is {value}; the last checkpoint is untouched, "
                        "resume from it with smaller learning rates"
                    )
            if step in (self.first, self.last) or step % self.log_every == 0:
                self.log.write(self.phase, step, latest)
        self._waiting.clear()
        return latest


class _StopRequest:
    """Turns the first Ctrl-C or termination request into a wish the loop grants after its step.

    The second one aborts at once. Signals the process was told to ignore stay ignored.
    """

    def __init__(self, quiet: bool) -> None:
        self.requested = 0
        self._quiet = quiet
        self._previous: dict[int, object] = {}

    def __enter__(self) -> _StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive) or signal.SIG_DFL
        return self

    def __exit__(self, *exception: object) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self.__exit__()
            raise KeyboardInterrupt
        self.requested = number
        if not self._quiet:
            # Straight to the descriptor: the loop may be in the middle of printing when the signal arrives.
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping after this step; once more to stop at once\n")


def _interruption(
    phase: str, step: int, steps: int, number: int, saved: bool, resume_command: str | None
) -> TrainingInterrupted:
    message = f"stopped at step {step} of {steps} of {phase}"
    message += "; the checkpoint is written" if saved else "; nothing was saved"
    if saved and resume_command:
        message += f", resume with: {resume_command}"
    return TrainingInterrupted(message, phase, step, 128 + number)


@contextlib.contextmanager
def _random_numbers_put_back() -> Iterator[None]:
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        yield


# Progress -------------------------------------------------------------------------------------------------------------

Show = Callable[[int, Mapping[str, float]], None]


def _progress(name: str, first_step: int, steps: int, quiet: bool) -> contextlib.AbstractContextManager[Show]:
    """What shows the steps taken and their metrics: a bar on a terminal, now and then a line elsewhere, or nothing.

    All of it goes to standard error; standard output belongs to results.
    """
    if quiet:
        return contextlib.nullcontext(lambda step, metrics: None)
    if sys.stderr.isatty():
        return _bar(name, first_step, steps)
    return contextlib.nullcontext(_Lines(name, first_step, steps))


@contextlib.contextmanager
def _bar(name: str, first_step: int, steps: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[metrics]}"),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        task = progress.add_task(name, total=steps, completed=first_step, rate="", metrics="")
        rate = _Rate(first_step)
        yield lambda step, metrics: progress.update(
            task, completed=step, rate=f"{rate(step):.3g} steps/s", metrics=describe(metrics)
        )


class _Lines:
    """Progress for log files and pipes: a line at the start, every few seconds, and at the end."""

    def __init__(self, name: str, first_step: int, steps: int) -> None:
        self.name, self.steps, self._rate, self._due = name, steps, _Rate(first_step), 0.0

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        if now < self._due and step < self.steps:
            return
        self._due = now + SECONDS_BETWEEN_LINES
        rate = self._rate(step)
        left = round((self.steps - step) / rate) if rate else 0
        sys.stderr.write(
            f"{self.name}: {step}/{self.steps}  {rate:.3g} steps/s  {left // 60}:{left % 60:02d} left  "
            f"{describe(metrics)}\n"
        )
        sys.stderr.flush()


class _Rate:
    """Steps per second since the phase began, in this session."""

    def __init__(self, first_step: int) -> None:
        self._first, self._start = first_step, time.monotonic()

    def __call__(self, step: int) -> float:
        return (step - self._first) / max(time.monotonic() - self._start, 1e-6)


def describe(metrics: Mapping[str, float]) -> str:
    """Metrics in few words, PSNR first and in decibels.

    Example:
        >>> describe({"loss": 0.01234, "psnr": 19.09})
        'PSNR 19.09 dB  loss 0.0123'
    """
    quality = [f"PSNR {value:.2f} dB" for name, value in metrics.items() if name == "psnr"]
    return "  ".join(quality + [f"{name} {value:.3g}" for name, value in metrics.items() if name != "psnr"])
