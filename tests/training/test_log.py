import json
import sys
import types

import pytest

from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.training.log import LogRecord, TrainingLog, read_log


def positions(path):
    return [(record.phase, record.step) for record in read_log(path)]


def logged(path, *steps):
    log = TrainingLog(path)
    for phase, step in steps:
        log.write(phase, step, {"loss": step / 2})
    log.close()


def test_every_record_is_one_line_of_json_that_is_on_disk_at_once(tmp_path):
    log = TrainingLog(tmp_path / "run" / "log.jsonl")
    log.write("warm-up", 10, {"loss": 0.5, "psnr": 20.123456789, "gone": float("nan"), "endless": float("inf")})
    (line,) = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    value = json.loads(line)
    assert set(value) == {"phase", "step", "seconds", "metrics"}
    assert value["metrics"] == {"loss": 0.5, "psnr": 20.12346}
    assert read_log(log.path) == [LogRecord("warm-up", 10, value["seconds"], value["metrics"])]


def test_a_reopened_log_goes_on_and_its_clock_too(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"phase": "warm-up", "step": 1, "seconds": 1000.0, "metrics": {"loss": 1}}\n')
    logged(path, ("warm-up", 2))
    assert positions(path) == [("warm-up", 1), ("warm-up", 2)]
    assert 1000 <= read_log(path)[1].seconds < 1060


@pytest.mark.parametrize(
    "torn",
    [
        '{"phase": "warm-up", "step": 2, "sec',
        "\0" * 40 + "\n",
        "[1, 2]\n",
        '{"phase": "x"}\n',
        '{"phase": "x", "step": 1, "seconds": 1, "metrics": {"a": "b"}}\n',
        '{"phase": "x", "step": 1, "seconds": NaN, "metrics": {}}\n',
        "[" * 100_000 + "\n",
        "\udc80\n",
    ],
)
def test_what_a_crash_left_behind_is_dropped(tmp_path, torn):
    path = tmp_path / "log.jsonl"
    logged(path, ("warm-up", 1))
    with path.open("a", errors="surrogateescape") as file:
        file.write(torn)
    assert positions(path) == [("warm-up", 1)]
    logged(path, ("warm-up", 2))
    assert positions(path) == [("warm-up", 1), ("warm-up", 2)]
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize(
    ("position", "kept"),
    [
        (("warm-up", 20), 2),  # later steps of the phase, and the phase that followed
        (("warm-up", 30), 3),  # the phase was complete: what followed was still logged too early
        (("joint", 0), 3),
        (("joint", 10), 4),
        (("joint", 20), 5),
        (("finetune", 0), 5),
    ],
)
def test_rewinding_forgets_what_came_after_the_checkpoint(tmp_path, position, kept):
    path = tmp_path / "log.jsonl"
    steps = [("warm-up", 10), ("warm-up", 20), ("warm-up", 30), ("joint", 10), ("joint", 20)]
    logged(path, *steps)
    log = TrainingLog(path)
    log.rewind(*position)
    assert positions(path) == steps[:kept]
    log.write("next", 1, {})
    log.close()
    assert positions(path) == [*steps[:kept], ("next", 1)]


def test_no_path_keeps_no_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = TrainingLog(None)
    log.rewind("warm-up", 3)
    log.write("warm-up", 4, {"loss": 1.0})
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_one_line(tmp_path):
    log = TrainingLog(tmp_path / "log.jsonl")
    log._file.close()
    with open("/dev/full", "wb", buffering=0) as full:
        log._file = full
        with pytest.raises(CheckpointError, match=r"log\.jsonl: cannot be written \(No space left"):
            log.write("warm-up", 1, {"loss": 1.0})
        log.close()


def test_a_folder_in_the_way_is_one_line(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"log\.jsonl: cannot be"):
        TrainingLog(tmp_path / "log.jsonl")


def test_tensorboard_that_is_not_installed_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'fusedplanes\[tensorboard\]'"):
        TrainingLog(tmp_path / "log.jsonl", tensorboard=True)
    with pytest.raises(ConfigError, match="path"):
        TrainingLog(None, tensorboard=True)


def test_tensorboard_gets_every_metric_under_its_phase(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, tag, value, step):
            written.append((tag, value, step))

        def flush(self):
            written.append("flushed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    log = TrainingLog(tmp_path / "log.jsonl", tensorboard=True)
    log.write("joint", 7, {"loss": 0.25, "psnr": float("inf")})
    log.close()
    assert written == [str(tmp_path / "tensorboard"), ("joint/loss", 0.25, 7), "flushed"]


def test_numbers_beyond_every_float_are_passed_over(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"phase": "joint", "step": 1, "seconds": 1' + "0" * 400 + ', "metrics": {}}\n')
    assert read_log(path) == []
