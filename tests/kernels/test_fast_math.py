"""The exponentials of compiled kernels against float64."""

import numpy as np
import pytest
import torch

from fusedplanes.kernels import fast_math
from fusedplanes.kernels.dispatch import compile_kernel, launch

EXACT = {
    "exp": np.exp,
    "expm1": np.expm1,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "sigmoid": lambda x: np.exp(-np.logaddexp(0.0, -x)),
}


def apply(name, numbers):
    function = getattr(fast_math, f"{name}_float32")

    def over_array(source, result):
        for i in range(source.shape[0]):
            result[i] = function(source[i])

    result = torch.zeros(len(numbers))
    kernel = compile_kernel("void(float32[::1], float32[::1])", parallel=False)(over_array)
    launch(kernel, torch.tensor(numbers, dtype=torch.float32), result)
    return result.numpy().astype(np.float64)


@pytest.mark.parametrize("name", EXACT)
def test_relative_error_stays_within_a_few_roundings(name):
    numbers = np.concatenate(
        [
            np.linspace(-87.0, 88.0, 200_001),
            np.linspace(-1.0, 1.0, 50_001),
            *(s * np.logspace(-30, 0, 301) for s in (1, -1)),
        ]
    ).astype(np.float32)
    exact = EXACT[name](numbers.astype(np.float64))
    normal = np.abs(exact) > np.finfo(np.float32).tiny
    error = np.abs(apply(name, numbers)[normal] / exact[normal] - 1)
    assert error.max() < 2.5e-7


def test_beyond_the_range_results_are_the_limits_and_nan_stays_nan():
    ends = [-np.inf, -1000.0, 1000.0, np.inf]
    assert apply("exp", ends).tolist() == [0.0, 0.0, np.inf, np.inf]
    assert apply("softplus", ends).tolist() == [0.0, 0.0, 1000.0, np.inf]
    assert apply("sigmoid", ends).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert apply("expm1", ends[:2]).tolist() == [-1.0, -1.0]
    assert apply("expm1", [0.0, -0.0]).tolist() == [0.0, 0.0]
    for name in EXACT:
        assert np.isnan(apply(name, [np.nan])).all(), name


def test_denormal_results_are_within_one_denormal_of_exact():
    numbers = np.linspace(-104.0, -87.4, 5001).astype(np.float32)
    assert np.abs(apply("exp", numbers) - np.exp(numbers.astype(np.float64))).max() <= 1.5e-45
