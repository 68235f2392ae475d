from copy import deepcopy

import pytest
import torch

from fusedplanes.training.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 40), (40, 3), (17, 23)])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64, generator=generator)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ orthogonalise(matrix) @ right.T
    assert torch.allclose(inner, torch.diag(inner.diagonal()), atol=1e-9)
    large = inner.diagonal()[values > 0.05 * values.norm()]
    assert large.min() > 0.6 and large.max() < 1.3


def test_the_quintic_is_applied_as_published():
    a, b, c = 3.4445, -4.7750, 2.0315
    value = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)  # singular values, of norm one
    matrix = torch.diag(value)
    for _ in range(5):
        value = a * value + b * value**3 + c * value**5
    assert torch.allclose(orthogonalise(matrix), torch.diag(value), atol=1e-6)


def test_single_precision_is_enough_for_ill_conditioned_gradients():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(24, 96, generator=generator) * torch.logspace(0, -5, 96)
    error = orthogonalise(matrix) - orthogonalise(matrix.double()).float()
    assert error.abs().max() < 1e-3
    assert orthogonalise(torch.zeros(3, 5)).abs().max() == 0


def test_a_step_has_the_length_of_its_learning_rate_whatever_the_gradient():
    steps = []
    for scale in (1e-4, 1e4):
        torch.manual_seed(0)
        kernel = torch.nn.Parameter(torch.zeros(8, 8, 3, 3).to(memory_format=torch.channels_last))
        optimizer = Muon([kernel], lr=0.5)
        (kernel * scale * torch.randn(8, 8, 3, 3)).sum().backward()
        optimizer.step()
        steps.append(kernel.detach().flatten(1))
        assert torch.linalg.svdvals(steps[-1]).mean() == pytest.approx(0.5, rel=0.2)
    assert torch.allclose(*steps, atol=1e-3)


def test_it_goes_downhill_and_leaves_parameters_without_gradients():
    torch.manual_seed(0)
    target = torch.randn(6, 9)
    weight, unused = torch.nn.Parameter(torch.zeros(6, 9)), torch.nn.Parameter(torch.ones(2, 2))
    optimizer = Muon([weight, unused], lr=0.1)
    for step in range(150):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 150)
        optimizer.zero_grad()
        (weight - target).square().mean().backward()
        optimizer.step()
    assert (weight - target).square().mean() < 0.02 * target.square().mean()
    assert torch.equal(unused, torch.ones(2, 2))


def test_its_state_can_be_saved_and_put_back():
    torch.manual_seed(0)
    gradients = torch.randn(4, 3, 5)
    weights = [torch.nn.Parameter(torch.zeros(3, 5)) for _ in range(2)]
    first = Muon([weights[0]])
    for index in range(4):
        if index == 2:
            weights[1].data.copy_(weights[0].data)
            second = Muon([weights[1]])
            second.load_state_dict(deepcopy(first.state_dict()))
        weights[0].grad = gradients[index].clone()
        first.step()
        if index >= 2:
            weights[1].grad = gradients[index].clone()
            second.step()
    assert torch.equal(*weights)
