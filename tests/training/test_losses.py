import pytest
import torch

from fusedplanes.errors import DataError
from fusedplanes.training.losses import mean_squared_error, total_variation


def test_plain_mean_squared_error_is_torchs():
    a, b = torch.rand(2, 4, 5, 3, dtype=torch.float64), torch.rand(2, 4, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(mean_squared_error(a, b), torch.nn.functional.mse_loss(a, b))


def test_weights_choose_the_pixels():
    predicted = torch.rand(2, 6, 3, dtype=torch.float64, requires_grad=True)
    target = torch.rand(2, 6, 3, dtype=torch.float64)
    weights = torch.zeros(2, 6, dtype=torch.float64)
    weights[0, 1], weights[1, 4] = 2.0, 1.0
    loss = mean_squared_error(predicted, target, weights)
    by_hand = (
        2 * (predicted[0, 1] - target[0, 1]).square().mean() + (predicted[1, 4] - target[1, 4]).square().mean()
    ) / 3
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert bool(((predicted.grad.abs().sum(-1) > 0) == (weights > 0)).all())


def test_equal_weights_change_nothing_and_no_weight_at_all_is_zero():
    a, b = torch.rand(7, 3), torch.rand(7, 3)
    torch.testing.assert_close(mean_squared_error(a, b, torch.full((7,), 0.3)), mean_squared_error(a, b))
    assert mean_squared_error(a, b, torch.zeros(7)) == 0


@pytest.mark.parametrize("shapes", [((4, 3), (4, 2), None), ((4, 3), (4, 3), (3,)), ((4, 3), (4, 3), (4, 1))])
def test_shapes_that_would_broadcast_are_refused(shapes):
    arguments = [None if shape is None else torch.ones(shape) for shape in shapes]
    with pytest.raises(DataError, match="mean_squared_error"):
        mean_squared_error(*arguments)


def test_total_variation_by_hand():
    planes = torch.zeros(1, 1, 2, 3, 1)
    planes[0, 0, :, :, 0] = torch.tensor([[0.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    along_rows = (1 + 4 + 0 + 0) / 4
    along_columns = (0 + 1 + 9) / 3
    assert total_variation(planes).item() == pytest.approx(along_rows + along_columns)


def test_total_variation_counts_elements_not_sizes():
    planes = torch.randn(1, 3, 8, 8, 4, dtype=torch.float64)
    expected = total_variation(planes)
    torch.testing.assert_close(total_variation(planes.repeat(5, 1, 1, 1, 3)), expected)


def test_total_variation_is_the_published_one_but_for_the_stated_factor():
    planes = torch.randn(2, 3, 64, 64, 32, dtype=torch.float64)
    published = (planes.diff(dim=2).square().sum() + planes.diff(dim=3).square().sum()) / (64 + 64)
    torch.testing.assert_close(total_variation(planes) * 3024 * 2, published)


def test_total_variation_of_single_cells_is_zero_and_its_gradient_is_right():
    assert total_variation(torch.rand(2, 3, 1, 1, 4)) == 0
    planes = torch.randn(1, 3, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(total_variation, planes)
