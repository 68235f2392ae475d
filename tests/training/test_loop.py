import math
import os
import signal
import threading

import pytest
import torch

from fusedplanes.errors import FusedPlanesError
from fusedplanes.training import loop
from fusedplanes.training.log import TrainingLog, read_log
from fusedplanes.training.loop import TrainingDiverged, TrainingInterrupted, run_phase


class Run:
    """A phase of ten steps that notes what it is asked to do."""

    def __init__(self, tmp_path):
        self.log = TrainingLog(tmp_path / "log.jsonl")
        self.steps, self.saved, self.shown = [], [], []

    def step(self, step):
        self.steps.append(step)
        return {"loss": torch.tensor(1.0 / (step + 1), dtype=torch.float64), "psnr": 20.0 + step}

    def __call__(self, steps=10, step=None, **options):
        options = {"checkpoint": self.saved.append, "quiet": True} | options
        return run_phase("warm-up", steps, step or self.step, log=self.log, **options)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_steps_run_in_order_and_the_last_is_saved_and_logged(run):
    assert run(25) == 25
    assert run.steps == list(range(25))
    assert run.saved == [25]
    assert [record.step for record in read_log(run.log.path)] == [1, 10, 20, 25]
    assert read_log(run.log.path)[1].metrics == {"loss": 0.1, "psnr": 29.0}


def test_a_resumed_phase_starts_where_it_stood(run):
    assert run(10, first_step=7) == 10
    assert run.steps == [7, 8, 9]
    assert [record.step for record in read_log(run.log.path)] == [8, 10]
    assert run(10, first_step=10) == 10
    assert run.steps == [7, 8, 9] and run.saved == [10]


def test_checkpoints_and_previews_follow_the_clock(run, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])

    def step(step):
        now[0] += 10
        return run.step(step)

    run(12, step, checkpoint_seconds=30, on_interval=run.shown.append, interval_first_seconds=10, interval_seconds=50)
    assert run.saved == [3, 6, 9, 12]
    assert run.shown == [1, 6, 11]


def test_looking_on_changes_no_random_number(run):
    def numbers(**options):
        drawn = []

        def step(step):
            drawn.append(torch.rand(()).item())
            return {"loss": 1.0}

        torch.manual_seed(3)
        run(5, step, **options)
        return drawn

    assert numbers() == numbers(on_interval=lambda step: torch.rand(7), interval_first_seconds=0, interval_seconds=0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_finishes_the_step_and_saves(run, number, status):
    before = signal.getsignal(number)

    def step(step):
        if step == 3:
            os.kill(os.getpid(), number)
        return run.step(step)

    with pytest.raises(
        TrainingInterrupted, match=r"^stopped at step 4 of 10 of warm-up;.* resume with: go on$"
    ) as stop:
        run(10, step, resume_command="go on")
    assert (stop.value.phase, stop.value.step, stop.value.exit_status) == ("warm-up", 4, status)
    assert isinstance(stop.value, FusedPlanesError)
    assert run.saved == [4]
    assert signal.getsignal(number) is before


def test_the_second_signal_aborts_at_once(run, capfd):
    before = signal.getsignal(signal.SIGINT)
    reached = []

    def step(step):
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("still here")
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("never here")

    with pytest.raises(KeyboardInterrupt):
        run(10, step, quiet=False)
    assert reached == ["still here"] and run.saved == []
    assert signal.getsignal(signal.SIGINT) is before
    assert "once more to stop at once" in capfd.readouterr().err


def test_a_signal_during_the_last_checkpoint_still_stops_the_run(run):
    def checkpoint(step):
        run.saved.append(step)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(TrainingInterrupted, match="step 10 of 10"):
        run(10, checkpoint=checkpoint)
    assert run.saved == [10]


def test_without_a_checkpoint_the_message_says_that_nothing_is_saved(run):
    with pytest.raises(TrainingInterrupted, match=r"nothing was saved$"):
        run(10, lambda step: os.kill(os.getpid(), signal.SIGINT) or {}, checkpoint=None, resume_command="go on")


def test_an_ignored_signal_stays_ignored(run):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(3, lambda step: os.kill(os.getpid(), signal.SIGINT) or {}) == 3
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone(run):
    handlers, result = [], []

    def step(step):
        handlers.append(signal.getsignal(signal.SIGINT))
        return {"loss": 1.0}

    thread = threading.Thread(target=lambda: result.append(run(2, step)))
    thread.start()
    thread.join()
    assert result == [2]
    assert set(handlers) == {signal.getsignal(signal.SIGINT)}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, torch.tensor(math.nan), torch.tensor([math.inf])])
def test_divergence_names_the_step_and_the_term_and_saves_nothing_more(run, value):
    def step(step):
        return {"loss": 1.0, "latent": value if step == 6 else 0.5}

    with pytest.raises(TrainingDiverged, match=r"^warm-up, step 7: 'latent' is (nan|-?inf); ") as error:
        run(10, step, checkpoint_seconds=0)
    assert "\n" not in str(error.value)
    assert run.saved == [1, 2, 3, 4, 5, 6]


def test_a_perfect_match_is_no_divergence(run):
    assert run(3, lambda step: {"loss": 0.0, "psnr": math.inf}) == 3
    assert read_log(run.log.path)[0].metrics == {"loss": 0.0}
    with pytest.raises(TrainingDiverged, match="psnr"):
        run(3, lambda step: {"psnr": math.nan})


def test_readings_do_not_keep_the_graph_of_their_step(run):
    weight = torch.ones((), requires_grad=True)
    losses = []

    def step(step):
        losses.append((weight * 2).square())
        return {"loss": losses[-1]}

    readings = loop._Readings("warm-up", 0, 1, run.log, 1)
    readings.add(1, step(0))
    (_, kept) = readings._waiting[0]
    assert losses[0].grad_fn is not None and kept["loss"].grad_fn is None


def test_without_a_terminal_progress_is_lines(run, capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])

    def step(step):
        now[0] += 2
        return run.step(step)

    run(10, step, quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "warm-up: 1/10  0.5 steps/s  0:18 left  PSNR 20.00 dB  loss 1"
    assert [line.split()[1] for line in lines] == ["1/10", "6/10", "10/10"]


def test_on_a_terminal_progress_is_a_bar(run, capsys, monkeypatch):
    monkeypatch.setattr(loop.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    run(10, quiet=False)
    shown = capsys.readouterr()
    assert "10/10" in shown.err and "PSNR 29.00 dB" in shown.err and "steps/s" in shown.err
    assert shown.out == ""


def test_quiet_says_nothing(run, capfd):
    run(3)
    assert capfd.readouterr() == ("", "")
