"""What holds for every test: fixed seeds, one thread, and memory that is never accidentally zero."""

import os
import random
import sys

# Read when numba is first imported: thread-count tests need two threads even on a machine with one core.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seeds():
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - for code under test that uses the global generator
    torch.manual_seed(0)


@pytest.fixture
def threads():
    """A function that sets torch's (and so the kernels') number of threads; put back to one afterwards."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


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
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))
