"""The reference of `composite` against hand-computed values and finite differences."""

import math

import pytest
import torch

from fusedplanes.errors import DataError
from fusedplanes.kernels import composite


def softplus(x):
    return math.log1p(math.exp(x))


def test_values_computed_by_hand():
    values = torch.tensor([[1.0], [3.0], [5.0]], dtype=torch.float64)
    densities = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64)
    distances = torch.tensor([1.0, 1.5, 3.5], dtype=torch.float64)
    first, second = softplus(1.0 - 1.0) * 0.5, softplus(3.0 - 1.0) * 2.0
    w0, w1 = 1 - math.exp(-first), math.exp(-first) * (1 - math.exp(-second))
    accumulated, alpha, distance, weights = composite(values, densities, distances)
    assert weights.tolist() == pytest.approx([w0, w1], abs=1e-15)
    assert accumulated.item() == pytest.approx(2.0 * w0 + 4.0 * w1, abs=1e-14)
    assert alpha.item() == pytest.approx(w0 + w1, abs=1e-15)
    assert distance.item() == pytest.approx(1.25 * w0 + 2.5 * w1, abs=1e-14)


def test_the_bias_shifts_every_density():
    values, densities = torch.randn(4, 7, 2).double(), torch.randn(4, 7).double()
    distances = torch.rand(4, 7).double().sort(-1).values
    shifted = composite(values, densities + 0.75, distances, density_bias=0.0)
    for one, other in zip(composite(values, densities, distances, density_bias=0.75), shifted):
        torch.testing.assert_close(one, other)


def test_gradients_match_finite_differences_also_where_an_interval_is_opaque():
    # Optical depths of the second ray are about 0.4, 400 (alpha is 1 to the last bit) and 0.7.
    densities = torch.tensor([[-0.5, 1.0, 0.2, 0.0], [0.0, 1.0, 799.0, -796.0]], dtype=torch.float64).requires_grad_()
    distances = torch.tensor([[0.1, 0.3, 0.7, 1.1], [0.0, 0.4, 1.4, 1.9]], dtype=torch.float64)
    values = torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()

    def march(values, densities):
        return composite(values, densities, distances)[:3]

    assert march(values, densities)[1][1].item() == 1.0
    assert torch.autograd.gradcheck(march, (values, densities))
    assert torch.autograd.gradgradcheck(march, (values, densities))


def test_weights_and_distances_carry_no_gradient():
    inputs = [torch.rand(3, 5, 2), torch.rand(3, 5), torch.rand(3, 5).sort(-1).values]
    for backend in ("reference", "cpu"):
        values, densities, distances = (tensor.clone().requires_grad_() for tensor in inputs)
        accumulated, alpha, distance, weights = composite(values, densities, distances, backend=backend)
        assert not weights.requires_grad
        loss = (accumulated.sum() + alpha.sum() + distance.sum()) * 2
        assert torch.autograd.grad(loss, distances, allow_unused=True) == (None,)


def test_weights_add_up_to_alpha_and_a_constant_value_comes_back_as_often():
    densities, distances = torch.randn(20, 48).double() * 3, torch.rand(20, 48).double().sort(-1).values * 4
    accumulated, alpha, _, weights = composite(torch.full((20, 48, 1), 7.0).double(), densities, distances)
    torch.testing.assert_close(weights.sum(-1), alpha)
    torch.testing.assert_close(accumulated[:, 0], 7 * alpha)


def test_splitting_an_interval_of_constant_density_and_value_changes_nothing():
    coarse, fine = torch.tensor([1.0, 2.0]).double(), torch.linspace(1, 2, 9).double()
    results = [
        composite(torch.full((len(t), 1), 2.0).double(), torch.full((len(t),), 1.3).double(), t) for t in (coarse, fine)
    ]
    torch.testing.assert_close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])


@pytest.mark.parametrize(
    ("values", "densities", "distances", "words"),
    [
        ((5, 0, 3), (5, 0), (5, 0), "S at least 1"),
        ((3,), (3,), (3,), "[*b, S, C]"),
        ((5, 4, 3), (5, 3), (5, 4), "densities must be [5, 4]"),
        ((5, 4, 3), (5, 4), (4,), "distances must be [5, 4]"),
    ],
)
def test_wrong_shapes_are_refused_in_one_line(values, densities, distances, words):
    with pytest.raises(DataError) as caught:
        composite(torch.zeros(values), torch.zeros(densities), torch.zeros(distances))
    assert words in str(caught.value) and "\n" not in str(caught.value)
