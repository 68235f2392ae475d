"""What holds for every test: fixed seeds, one thread, and memory that is never accidentally zero."""

import os
import random
import sys

# Read when numba is first imported: thread-count tests need two threads even on a machine with one core.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

import numpy as np
import pytest
import torch
from failing_disk import FailingDisk

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seeds():
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - for code under test that uses the global generator
    torch.manual_seed(0)
    # When numba starts its OpenMP layer, it sets the number of threads of the whole process, torch's included.
    torch.set_num_threads(1)


@pytest.fixture
def threads():
    """A function that sets torch's (and so the kernels') number of threads; put back to one afterwards."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def failing_disk():
    """See `FailingDisk`: one for all tests, as nothing that listens to Python can be taken off again."""
    return FailingDisk()


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """A function of "kl" or "tiny": a folder that diffusers saved an autoencoder of random weights to, in moments.

    Latent cells are 2 pixels a side and have 4 channels.
    """

    def save(kind):
        import diffusers

        folder = tmp_path_factory.getbasetemp() / f"published-{kind}"
        if not folder.exists():
            torch.manual_seed(1)
            widths = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
            counts = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
            network = (
                diffusers.AutoencoderTiny(**widths, **counts)
                if kind == "tiny"
                else diffusers.AutoencoderKL(
                    block_out_channels=(8, 16),
                    down_block_types=("DownEncoderBlock2D",) * 2,
                    up_block_types=("UpDecoderBlock2D",) * 2,
                    norm_num_groups=4,
                )
            )
            network.save_pretrained(folder)
        return folder

    return save


def _poisoned(allocate):
    """``allocate``, whose floating-point result is filled with NaN when the library asks for it."""

    def poisoning(*arguments, **keywords):
        tensor = allocate(*arguments, **keywords)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("fusedplanes.") and tensor.is_floating_point() and not tensor.is_meta:
            tensor.fill_(float("nan"))
        return tensor

    return poisoning


@pytest.fixture(autouse=True)
def _poisoned_allocations(monkeypatch):
    """An output that a kernel forgets to write is NaN instead of whatever the allocator left there."""
    with torch.device("meta"):
        torch.empty(0)  # torch notes down which functions allocate at the first such call; it must see its own ones.
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))


def pytest_collection_modifyitems(config, items):
    """Tests of real files, beside those of self-made ones, do not exist where there are no such files."""

    def has_no_files(item):
        return any("empty parameter set" in str(mark.kwargs.get("reason")) for mark in item.iter_markers("skip"))

    config.hook.pytest_deselected(items=[item for item in items if has_no_files(item)])
    items[:] = [item for item in items if not has_no_files(item)]


# Time -----------------------------------------------------------------------------------------------------------------

MINUTES = {"kernels": 4.0, "datasets": 2.0, "planes": 4.0, "training": 1.5, "cli": 1.0}
OTHER_MINUTES = 1.0
TOLERANCE = 1.5


def pytest_terminal_summary(terminalreporter):
    """Print the minutes of each folder: a suite that creeps is noticed before it is slow."""
    spent = _minutes_by_folder(terminalreporter)
    line = ", ".join(f"{folder} {minutes:.1f}" for folder, minutes in sorted(spent.items()))
    terminalreporter.write_line(f"minutes of testing: {line}")
    for folder, minutes in _over_budget(spent).items():
        terminalreporter.write_line(f"tests/{folder}: {minutes:.1f} minutes, more than {TOLERANCE} times its budget")


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.exitstatus == 0 and _over_budget(_minutes_by_folder(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _minutes_by_folder(reporter) -> dict[str, float]:
    spent: dict[str, float] = {}
    for reports in reporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                parts = report.nodeid.split("::")[0].split("/")
                folder = parts[1] if len(parts) > 2 else "(top)"
                spent[folder] = spent.get(folder, 0.0) + report.duration / 60
    return spent


def _over_budget(spent: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in spent.items() if value > TOLERANCE * MINUTES.get(name, OTHER_MINUTES)}
