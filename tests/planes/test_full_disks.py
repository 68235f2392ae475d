"""Disks that fill up and folders that turn read-only in the middle of a command: one line, and nothing is lost."""

import errno
import shutil

import pytest
import torch
from killed_runs import Pace, run_child, state

from fusedplanes import datasets
from fusedplanes.errors import CheckpointError
from fusedplanes.planes.run import train
from fusedplanes.training.checkpoint import load_checkpoint

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
MOMENTS = 5
"""How many of a command's changes to the disk are made to fail, spread from the first to the last."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data sets of the class and of objects to add."""
    folder = tmp_path_factory.mktemp("full")
    for name, objects in (("data", 2), ("more", 3)):
        datasets.make_class("mugs", objects=objects, out=folder / name, views=5, size=16, samples=1, quiet=True)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """A run that was left in peace."""
    assert command("train", folder / "data", "--out", folder / "run", "--preset", "tiny") == 0
    return folder / "run"


def command(*words) -> int:
    """The exit status of a command."""
    with pytest.MonkeyPatch.context() as patch:
        from fusedplanes.planes import add, config, plan, run

        for module, name in ((add, "GROUP"), (config, "preset"), (plan, "PROBE_SECONDS"), (run, "run_phase")):
            patch.setattr(module, name, getattr(module, name))
        try:
            run_child(Pace(share=0.02, group=1), [*map(str, words), "--quiet"])
        except SystemExit as ended:
            return ended.code
    return 0


def moments(disk, folder, *words) -> list[int]:
    """Run a command in peace; returns changes to let pass before one is refused."""
    with disk.after(None, folder):
        assert command(*words) == 0
    assert disk.count >= 2
    return sorted({round(index * (disk.count - 1) / (MOMENTS - 1)) for index in range(MOMENTS)})


def refused_in_one_line(capsys, *words) -> None:
    capsys.readouterr()
    assert command(*words) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ") and told.err.count("\n") == 1, told.err
    assert "No space left" in told.err or "Read-only file system" in told.err
    assert "Traceback" not in told.err and told.out == ""


def shared(run):
    return load_checkpoint(run).shared()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("code", [FULL, READ_ONLY])
def test_training_goes_on_once_there_is_room(failing_disk, folder, run, tmp_path, capsys, code):
    words = ("train", folder / "data", "--out", tmp_path / "run", "--preset", "tiny")
    for moment in moments(failing_disk, tmp_path, *words):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        with failing_disk.after(moment, tmp_path, code):
            refused_in_one_line(capsys, *words)
        state(tmp_path / "run")
        assert command(*words, "--resume") == 0
        assert state(tmp_path / "run").objects == state(run).objects
        assert same(shared(tmp_path / "run"), shared(run))
        assert not state(tmp_path / "run").unnamed_files


@pytest.mark.parametrize("code", [FULL, READ_ONLY])
def test_adding_goes_on_once_there_is_room(failing_disk, folder, run, tmp_path, capsys, code):
    words = ("add", tmp_path / "run", folder / "more")
    shutil.copytree(run, tmp_path / "run")
    chosen = moments(failing_disk, tmp_path, *words)
    expected, old = state(tmp_path / "run").objects, state(run).objects
    for moment in chosen:
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(run, tmp_path / "run")
        with failing_disk.after(moment, tmp_path, code):
            refused_in_one_line(capsys, *words)
        assert old.items() <= state(tmp_path / "run").objects.items()
        assert command(*words) == 0
        assert state(tmp_path / "run").objects == expected


@pytest.mark.parametrize("code", [FULL, READ_ONLY])
@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("export", "--out"), "planes.safetensors"),
        (("export", "--format", "mesh", "--resolution", "12", "--out"), "mesh.ply"),
        (("render", "--frames", "2", "--out"), "orbit.gif"),
        (("render", "--frames", "2", "--out"), "orbit.mp4"),
        (("render", "--frames", "2", "--out"), "views"),
    ],
)
def test_what_is_written_from_a_run_appears_whole_or_not_at_all(
    failing_disk, run, tmp_path, capsys, monkeypatch, code, words, file
):
    # After so few steps an object is a faint haze.
    monkeypatch.setattr("fusedplanes.planes.export.SURFACE_THICKNESS", 1e4)
    verb, *options = words
    words = (verb, run, *options, tmp_path / "out" / file)
    chosen = moments(failing_disk, tmp_path, *words)
    whole = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for moment in chosen:
        shutil.rmtree(tmp_path / "out")
        with failing_disk.after(moment, tmp_path, code):
            refused_in_one_line(capsys, *words)
        left = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert code == READ_ONLY or left.items() <= whole.items()
        assert {name: data for name, data in left.items() if not name.startswith(".")}.items() <= whole.items()
        assert command(*words) == 0


def test_a_run_on_a_read_only_medium_is_rendered_and_evaluated(failing_disk, folder, run, tmp_path):
    with failing_disk.after(0, folder, READ_ONLY):
        assert command("evaluate", run) == 0
        assert command("render", run, "--frames", "2", "--out", tmp_path / "orbit.gif") == 0
    assert (tmp_path / "orbit.gif").stat().st_size > 0


def test_python_is_told_too(failing_disk, folder, run, tmp_path):
    from fusedplanes.planes.run_folder import read_config

    data = datasets.load(folder / "data")
    with (
        failing_disk.after(0, tmp_path),
        pytest.raises(CheckpointError, match=r"run(/objects)?: cannot be written \(No space"),
    ):
        train(data, tmp_path / "run", config=read_config(run), watch_seconds=0, quiet=True)
