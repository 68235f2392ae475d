"""The record of a training run: JSON lines that survive crashes, and TensorBoard if wanted."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.files import write_atomically

MAX_LOG_BYTES = 1 << 30


@dataclass(frozen=True)
class LogRecord:
    """One line of the log.

    Attributes:
        phase: name of the training phase.
        step: steps of that phase taken so far, from 1.
        seconds: training time since the run began; the time between two sessions of a resumed run does not count.
        metrics: finite numbers by name.
    """

    phase: str
    step: int
    seconds: float
    metrics: Mapping[str, float]


class TrainingLog:
    """Appends one JSON line per record, each written out as soon as it is complete.

    A line torn by a crash is dropped when the log is opened again. After loading a checkpoint, call `rewind` with its
    position, so that steps taken twice are logged once.

    Args:
        path: the file, usually ``log.jsonl`` in the run folder; None keeps no log.
        tensorboard: also write TensorBoard event files, to ``tensorboard/`` beside the file.

    Raises:
        ConfigError: TensorBoard is asked for but not installed, or there is no path to put its files beside.
        CheckpointError: the file cannot be read or written.

    Example:
        >>> log = TrainingLog(None)
        >>> log.write("warm-up", 10, {"loss": 0.25})
        >>> log.close()
    """

    def __init__(self, path: str | Path | None, *, tensorboard: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self._file = None
        self._events = _open_tensorboard(self.path) if tensorboard else None
        self._keep([] if self.path is None else _read_lines(self.path))

    def rewind(self, phase: str, step: int) -> None:
        """Forget what was logged after ``step`` steps of ``phase``, the position of the checkpoint that was loaded."""
        if self.path is None:
            return
        self.close()
        kept, seen = [], False
        for line, record in _read_lines(self.path):
            if (record.phase == phase and record.step > step) or (seen and record.phase != phase):
                break
            seen = seen or record.phase == phase
            kept.append((line, record))
        self._keep(kept)

    def write(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """Append a record. Metrics that are not finite are left out, since JSON has no word for them.

        Raises:
            CheckpointError: the disk is full or the folder read-only.
        """
        metrics = {name: float(f"{value:.7g}") for name, value in metrics.items() if math.isfinite(value)}
        if self._file is not None:
            seconds = round(self._seconds + time.monotonic() - self._opened, 3)
            line = json.dumps({"phase": phase, "step": step, "seconds": seconds, "metrics": metrics}, allow_nan=False)
            data = f"{line}\n".encode()
            try:
                while data:
                    data = data[self._file.write(data) :]
            except OSError as error:
                raise _unusable(self.path, "written", error) from error
        if self._events is not None:
            for name, value in metrics.items():
                self._events.add_scalar(f"{phase}/{name}", value, step)

    def close(self) -> None:
        """Close the file; writing again needs a new log."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._events is not None:
            self._events.flush()

    def _keep(self, lines: list[tuple[bytes, LogRecord]]) -> None:
        if self.path is None:
            return
        data = b"".join(line for line, _ in lines)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size != len(data):
                write_atomically(self.path, data)
            # Not buffered: what a crash can lose is the line being written, and a failed write leaves nothing behind.
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise _unusable(self.path, "written", error) from error
        self._seconds = lines[-1][1].seconds if lines else 0.0
        self._opened = time.monotonic()


def read_log(path: str | Path) -> list[LogRecord]:
    """The records of a log, in the order they were written; lines that are damaged are passed over.

    Raises:
        CheckpointError: the file cannot be read or is larger than a GiB.

    Example:
        >>> [record.metrics["psnr"] for record in read_log("runs/cars/log.jsonl")]  # doctest: +SKIP
    """
    return [record for _, record in _read_lines(Path(path))]


def _read_lines(path: Path) -> list[tuple[bytes, LogRecord]]:
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise CheckpointError(f"{path}: larger than {MAX_LOG_BYTES} bytes; move it away to start a new log")
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(path, "read", error) from error
    records = ((line, _parse(line)) for line in lines if line.endswith(b"\n"))
    return [(line, record) for line, record in records if record is not None]


def _parse(line: bytes) -> LogRecord | None:
    try:
        value = json.loads(line)
        record = LogRecord(value["phase"], value["step"], value["seconds"], value["metrics"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = [record.seconds, *record.metrics.values()] if isinstance(record.metrics, dict) else [None]
    finite = all(type(number) in (int, float) and abs(number) <= sys.float_info.max for number in numbers)
    return record if finite and type(record.step) is int and isinstance(record.phase, str) else None


def _open_tensorboard(path: Path | None):
    if path is None:
        raise ConfigError("tensorboard: there is no run folder to write to; give the log a path")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("tensorboard is not installed; run: pip install 'fusedplanes[tensorboard]'") from error
    return SummaryWriter(str(path.parent / "tensorboard"))


def _unusable(path: Path, verb: str, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path}: cannot be {verb} ({error.strerror}); free space or check the folder's permissions")
