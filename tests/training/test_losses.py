import pytest
import torch

from fusedplanes.training.losses import total_variation


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
