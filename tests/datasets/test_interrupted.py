"""Makers that are killed, or whose disk fills up, and run again: the data set is the one of an undisturbed run."""

import errno
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from fusedplanes.cli.main import main
from fusedplanes.datasets import layout

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
OBJECTS = 6
OPTIONS = ["--views", "4", "--size", "24", "--samples", "1", "--depth", "--quiet"]


@pytest.fixture(params=["make", "from-meshes"])
def words(request, tmp_path):
    """The command, without its --out."""
    if request.param == "make":
        return ["data", "make", "chairs", "--objects", str(OBJECTS), *OPTIONS]
    meshes = tmp_path / "meshes"
    meshes.mkdir()
    for index in range(OBJECTS):
        x = 1 + index
        (meshes / f"wedge{index}.obj").write_text(f"v 0 0 0\nv {x} 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\n")
    (meshes / "broken.obj").write_text("f 1 2 3\n")
    return ["data", "from-meshes", str(meshes), *OPTIONS]


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def status(*words) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as ended:
        return ended.code
    return 0


def test_killed_makers_that_run_again_make_the_same_files(words, tmp_path):
    seed = secrets.randbelow(1 << 31)
    moments = random.Random(seed)
    program = [sys.executable, "-m", "fusedplanes", *words, "--out"]
    start = time.monotonic()
    subprocess.run([*program, tmp_path / "peace"], check=True)
    seconds = time.monotonic() - start
    for _ in range(2):
        child = subprocess.Popen([*program, tmp_path / "out"])
        try:
            child.wait(moments.uniform(0.3 * seconds, seconds))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
        for path in (tmp_path / "out").glob("*/transforms.json"):
            if not path.parent.name.startswith("."):
                layout.read_object(tmp_path / "out", path.parent.name)
    assert status(*words, "--out", tmp_path / "out") == 0
    assert files(tmp_path / "out") == files(tmp_path / "peace"), f"seed {seed}"


@pytest.mark.parametrize("code", [FULL, READ_ONLY])
def test_makers_go_on_once_there_is_room(failing_disk, words, tmp_path, capsys, code):
    out = tmp_path / "out"
    with failing_disk.after(None, out):
        assert status(*words, "--out", out) == 0
    whole, count = files(out), failing_disk.count
    for moment in (0, 1, count // 3, 2 * count // 3, count - 1):
        shutil.rmtree(out)
        capsys.readouterr()
        with failing_disk.after(moment, out, code):
            assert status(*words, "--out", out) == 2
        told = capsys.readouterr()
        assert told.err.startswith("error: ") and told.err.count("\n") == 1 and told.out == "", told.err
        visible = {name for name in files(out) if not name.startswith(".")} if out.exists() else set()
        assert visible <= set(whole)
        assert code == READ_ONLY or not list(out.glob(".partial-*"))
        assert status(*words, "--out", out) == 0
        assert files(out) == whole


def test_an_object_that_was_deleted_by_half_is_made_again(tmp_path, monkeypatch):
    words = ["data", "make", "mugs", "--objects", "2", *OPTIONS, "--out", tmp_path / "out"]
    assert status(*words) == 0
    whole = files(tmp_path / "out")

    def killed(path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    assert status(*words, "--overwrite") == 130
    monkeypatch.undo()
    assert status(*words) == 0
    assert files(tmp_path / "out") == whole
    assert torch.isfinite(layout.read_object(tmp_path / "out", "mugs_00000").images).all()
