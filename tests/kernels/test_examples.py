"""The examples in the kernels' docstrings print what they say."""

import doctest
import importlib

import pytest
import torch


@pytest.mark.parametrize(
    "module",
    ["dispatch", "jitter", "sample_triplane.op", "composite.op", "resample_distances.op", "ssim.op"],
)
def test_examples_print_what_they_say(module):
    module = importlib.import_module(f"fusedplanes.kernels.{module}")
    results = doctest.testmod(module, extraglobs={"torch": torch})
    assert results.attempted > 0 and results.failed == 0
