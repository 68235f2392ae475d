"""The command: one line and a status for whatever goes wrong, help for whoever asks."""

import json
import subprocess
import sys

import pytest

from fusedplanes.cli.main import COMMANDS, main


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = 0
    try:
        main(list(arguments))
    except SystemExit as end:
        status = end.code or 0
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_help_lists_every_command(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0 and all(name in out for name in COMMANDS)


@pytest.mark.parametrize("command", ["train", "render", "evaluate", "export", "demo"])
def test_every_command_explains_its_options(capsys, command):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0 and "--json" in out and "--seed" in out and "--device" in out and "default" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "no command 'fly'"),
        (["train", "nowhere"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["render", "nowhere"], "nowhere"),
        (["export", "nowhere"], "nowhere"),
        (["render", "nowhere", "--device", "toaster"], "toaster"),
        (["demo", "--minutes", "-1"], "--minutes"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(capsys, arguments, message):
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


def test_from_data_to_pictures_in_four_commands(tmp_path, capsys):
    data, out = tmp_path / "data", tmp_path / "run"
    made = ["data", "make", "cars", "--objects", "3", "--views", "12", "--size", "16", "--out", str(data), "--quiet"]
    assert run(capsys, *made, "--workers", "1")[0] == 0
    status, text, err = run(capsys, "train", str(data), "--preset", "tiny", "--plan", "--json")
    plan = json.loads(text)
    assert status == 0 and plan["objects"] == 3 and plan["seconds"] > 0
    status, text, err = run(
        capsys, "train", str(data), "--out", str(out), "--preset", "tiny", "--minutes", "0.02", "--json"
    )
    assert status == 0, err
    summary = json.loads(text)
    assert summary["objects"] == 3 and summary["object_bytes"] > 0
    status, text, _ = run(capsys, "evaluate", str(out), "--json")
    result = json.loads(text)
    assert {"psnr", "psnr_foreground", "ssim", "floors", "objects", "seconds", "object_bytes"} <= result.keys()
    assert len(result["objects"]) == 3
    status, _, err = run(capsys, "render", str(out), "--out", str(tmp_path / "orbit.gif"), "--frames", "3", "--quiet")
    assert status == 0 and (tmp_path / "orbit.gif").stat().st_size > 0, err
    status, text, _ = run(capsys, "render", str(out), "--out", str(tmp_path / "views"), "--frames", "2", "--json")
    assert len(json.loads(text)["files"]) == 6
    planes = tmp_path / "planes.safetensors"
    status, text, _ = run(capsys, "export", str(out), "--out", str(planes), "--json")
    assert json.loads(text)["bytes"] == planes.stat().st_size
    mesh = tmp_path / "mesh.ply"
    status, text, err = run(capsys, "export", str(out), "--format", "mesh", "--out", str(mesh), "--resolution", "24")
    # A model that was trained for a second is mist: no surface at all, or crumbs of one.
    assert (status, err.count("\n")) == (0 if mesh.exists() else 2, 1) and "train longer" in err
    for wrong in (["--object", "unicorn"], ["--out", str(tmp_path / "planes.zip")]):
        status, _, err = run(capsys, "export", str(out), *wrong)
        assert status == 2 and err.count("\n") == 1


def test_the_module_runs_as_the_command_does():
    result = subprocess.run([sys.executable, "-m", "fusedplanes", "--version"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.startswith("fusedplanes ")


@pytest.mark.parametrize("device", ["meta", "xpu", "vulkan", "cpu:3", "cuda:-1", "x" * 5000, "\x1b[31m"])
def test_other_devices_are_refused_in_one_short_line(capsys, tmp_path, device):
    status, out, err = run(capsys, "evaluate", str(tmp_path), "--device", device)
    assert status == 2 and out == "" and err.count("\n") == 1 and len(err) < 300 and err.rstrip().isprintable()
    assert "no such device; use auto" in err


def test_a_message_of_any_length_is_one_line(capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": "x" * 100_000}))
    status, _, err = run(capsys, "objects", "list", str(tmp_path))
    assert status == 2 and err.count("\n") == 1 and len(err) < 1000
