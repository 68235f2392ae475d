"""Kill `fusedplanes train` and `fusedplanes add` at random moments, go on, and compare with a run left in peace.

`kills.py` measures with it, tests/planes/test_kills.py tests with it. The commands are child processes of their own;
run as a program, this file is such a child::

    python benchmarks/killed_runs.py '{"checkpoint_seconds": 0.05}' train data/mugs --preset tiny --out runs/mugs
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from fusedplanes import datasets
from fusedplanes.errors import FusedPlanesError
from fusedplanes.planes.evaluate import evaluate
from fusedplanes.planes.model import load
from fusedplanes.training.checkpoint import load_checkpoint
from fusedplanes.training.object_store import MOMENTS

PHASES = ("autoencoder", "warm-up", "joint", "finished")


@dataclass(frozen=True)
class Pace:
    """How a child differs from the plain command, so that a short run has as many moments as a long one.

    Attributes:
        checkpoint_seconds: between two checkpoints of `train`.
        group: objects that `add` stores together.
        share: steps of every phase, as a share of the preset's.
    """

    checkpoint_seconds: float = 120.0
    group: int = 2
    share: float = 1.0


@dataclass(frozen=True)
class Kill:
    """A kill and what it left.

    Attributes:
        command: "train" or "add".
        after_seconds: of the session that was killed.
        position: the checkpoint that was found, in words.
        lost_seconds: of that session, since its last checkpoint.
        inside_a_checkpoint: files lay there that no checkpoint names.
    """

    command: str
    after_seconds: float
    position: str
    lost_seconds: float
    inside_a_checkpoint: bool


class Damage(Exception):
    """A kill cost more than it may."""


class Commands:
    """The commands of one comparison: a class, objects to add to it, and runs of them left in peace.

    Args:
        folder: an empty one, for everything.
        pace: of the runs that are killed; those left in peace checkpoint as usual.
        objects, more: in the class, and added to it.
        views, size: of each object, and of the images in pixels.
    """

    def __init__(self, folder: Path, pace: Pace, *, objects: int, more: int, views: int, size: int) -> None:
        self.folder, self.pace = folder, pace
        options = {"views": views, "size": size, "samples": 1, "quiet": True}
        datasets.make_class("mugs", objects=objects, out=folder / "data", **options)
        datasets.make_class("mugs", objects=objects + more, out=folder / "more", **options)
        peaceful = replace(pace, checkpoint_seconds=Pace.checkpoint_seconds)
        self.seconds, self.expected = {}, {}
        for command in ("train", "add"):
            run = self.begin(command, folder / f"{command}-in-peace")
            start = time.monotonic()
            self._finish(self._start(command, run, peaceful, first=True))
            self.seconds[command] = time.monotonic() - start
            self.expected[command] = self.content(command, run)

    def begin(self, command: str, run: Path) -> Path:
        """Where a run of the command begins: with nothing, or with what is added to."""
        shutil.rmtree(run, ignore_errors=True)
        if command == "add":
            shutil.copytree(self.folder / "train-in-peace", run)
        return run

    def killed(self, command: str, run: Path, moments: random.Random, kills: int) -> list[Kill]:
        """Begin anew and kill up to so many sessions; the last one is left to finish.

        Raises:
            Damage: a checkpoint or an object was lost, or what came out differs from the run left in peace.
        """
        self.begin(command, run)
        found: list[Kill] = []
        for session in range(kills + 1):
            before = state(run)
            started, clock = time.time(), time.monotonic()
            child = self._start(command, run, self.pace, first=session == 0)
            if session < kills:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(moments.uniform(0, self.seconds[command]))
            if session == kills or child.poll() is not None:
                self._finish(child)
                break
            child.send_signal(signal.SIGKILL)
            child.wait()
            spent, now = time.monotonic() - clock, time.time()
            after = state(run)
            _check_nothing_lost(before, after)
            saved = max(after.saved_at, started)
            found.append(Kill(command, spent, after.position, now - saved, after.unnamed_files))
        differing = [
            name for name, value in self.content(command, run).items() if value != self.expected[command][name]
        ]
        if differing:
            raise Damage(f"{command}: differs from the run left in peace in {', '.join(differing)}")
        return found

    def content(self, command: str, run: Path) -> dict[str, object]:
        """What a finished run holds and how good it is: all that must come out the same."""
        found, model = state(run), load(run)
        quality = evaluate(model, datasets.load(self.folder / ("data" if command == "train" else "more"))).to_json()
        shared = {name: _bits(value) for name, value in model.shared.state_dict().items()}
        return {"shared": shared, "objects": found.objects, "evaluation": {**quality, "seconds": None}}

    def _start(self, command: str, run: Path, pace: Pace, *, first: bool) -> subprocess.Popen:
        words = [sys.executable, __file__, json.dumps(asdict(pace)), command]
        if command == "train":
            words += [self.folder / "data", "--out", run, "--preset", "tiny", *([] if first else ["--resume"])]
        else:
            words += [run, self.folder / "more"]
        pipe = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*map(str, words), "--quiet"], **pipe)

    def _finish(self, child: subprocess.Popen) -> None:
        _, told = child.communicate()
        if child.returncode:
            raise Damage(f"{' '.join(child.args)}: ended with {child.returncode}: {told.strip()}")


@dataclass(frozen=True)
class State:
    """A run folder at one moment: where its checkpoint stands, in order and in words, and the objects it holds."""

    order: tuple[int, int]
    position: str
    saved_at: float
    objects: Mapping[str, Mapping[str, tuple]]
    unnamed_files: bool


NOTHING = State((-1, 0), "no checkpoint yet", 0.0, {}, False)


def state(run: Path) -> State:
    """Read all that the checkpoint of a run names.

    Raises:
        Damage: there is a checkpoint, and something of it cannot be read.
    """
    if not (run / "checkpoint.json").exists():
        return replace(NOTHING, unnamed_files=bool(run.exists() and any(run.iterdir())))
    try:
        checkpoint = load_checkpoint(run)
        checkpoint.shared(), checkpoint.optimizer()
        with contextlib.closing(checkpoint.store()) as store:
            records = store.read_many(store.ids)
            store.read_many(store.ids, MOMENTS)
    except FusedPlanesError as error:
        raise Damage(str(error)) from error
    manifest = checkpoint.manifest
    named = {manifest["shared"]["file"], manifest["optimizer"]["file"]}
    named |= {item["file"] for kind in ("segments", "index") for item in manifest["objects"][kind]}
    named |= {"config.json", "checkpoint.json", "log.jsonl", "preview.png", ".writer"}
    return State(
        (PHASES.index(checkpoint.phase), checkpoint.step),
        f"step {checkpoint.step} of {checkpoint.phase}, {len(records)} objects",
        (run / "checkpoint.json").stat().st_mtime,
        {id: {name: _bits(tensor) for name, tensor in record.items()} for id, record in records.items()},
        any(path.is_file() and path.name not in named for path in run.rglob("*")),
    )


def _bits(tensor: torch.Tensor) -> tuple:
    return tuple(tensor.shape), tensor.dtype, tensor.contiguous().numpy().tobytes()


def _check_nothing_lost(before: State, after: State) -> None:
    if after.order < before.order:
        raise Damage(f"went back from {before.position} to {after.position}")
    lost = set(before.objects) - set(after.objects)
    if lost:
        raise Damage(f"objects are lost: {', '.join(sorted(lost))}")
    finished = before.order[0] == PHASES.index("finished")
    if finished and any(after.objects[id] != record for id, record in before.objects.items()):
        raise Damage("objects that were stored have changed")


def run_child(pace: Pace, arguments: list[str]) -> None:
    """The command line with a pace of its own."""
    from fusedplanes.cli.main import main
    from fusedplanes.planes import add, config, plan, run

    plan.PROBE_SECONDS = 0.0
    add.GROUP = pace.group
    run.run_phase = partial(run.run_phase, checkpoint_seconds=pace.checkpoint_seconds)
    config.preset = partial(_shorter, config.preset, pace.share)
    main(arguments)


def _shorter(preset, share: float, *arguments: str):
    """A preset with a share of its steps."""
    chosen = preset(*arguments)
    training = chosen.training

    def shorter(phase):
        return replace(phase, steps=max(1, round(share * phase.steps)))

    training = replace(
        training,
        autoencoder_steps=max(1, round(share * training.autoencoder_steps)),
        warm_up=shorter(training.warm_up),
        joint=shorter(training.joint),
    )
    return replace(chosen, training=training)


if __name__ == "__main__":
    run_child(Pace(**json.loads(sys.argv[1])), sys.argv[2:])
