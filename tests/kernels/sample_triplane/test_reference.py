"""The reference of `sample_triplane` against hand-computed values, torch's ``grid_sample`` and finite differences."""

import pytest
import torch
from torch.nn.functional import grid_sample

from fusedplanes.errors import BackendUnavailable, ConfigError, DataError
from fusedplanes.kernels import sample_triplane

AXES = {"orthogonal": ((0, 1), (0, 2), (1, 2)), "eg3d": ((0, 1), (0, 2), (2, 0))}


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def points_inside_cells(count, height, width, entries=(), reach=1.3):
    """Random points, some outside, none so close to a cell's edge that a derivative jumps within rounding."""
    points = (torch.rand(*entries, count, 3, dtype=torch.float64) * 2 - 1) * reach
    for size in (height, width):
        for position in (
            points * size / 2,
            points * size / 2 - 0.5,
            points * (size - 1) / 2,
            points * (size - 1) / 2 - 0.5,
        ):
            points = torch.where((position - position.round()).abs() < 1e-3, points + 4e-3 / size, points)
    return points


def through_grid_sample(planes, points, layout, padding, align_corners):
    """Concatenated features of unbatched inputs, as torch computes them."""
    features = []
    for plane, axes in zip(planes, AXES[layout]):
        grid = points[:, list(axes)].view(1, 1, -1, 2)
        image = plane.permute(2, 0, 1)[None]
        sampled = grid_sample(image, grid, padding_mode=padding, align_corners=align_corners)
        features.append(sampled[0, :, 0].T)
    return torch.cat(features, dim=1)


def test_values_computed_by_hand():
    # XY holds 10 * row + column, XZ holds 100, YZ holds 1000 * row. Cell centres of 4 cells: -0.75, -0.25, 0.25, 0.75.
    planes = torch.zeros(3, 4, 4, 1, dtype=torch.float64)
    planes[0, ..., 0] = 10.0 * torch.arange(4)[:, None] + torch.arange(4)
    planes[1] = 100.0
    planes[2, ..., 0] = 1000.0 * torch.arange(4)[:, None]
    points = torch.tensor(
        [
            [-0.75, -0.75, -0.75],  # first cells: 0 + 100 + 0
            [0.25, -0.25, 0.75],  # column 2, row 1, z row 3: 12 + 100 + 3000
            [0.0, -0.25, -0.25],  # between columns 1 and 2: 11.5 + 100 + 1000
            [1.0, -0.75, -0.75],  # half of column 3 remains at the edge: 1.5 + 50 + 0
            [3.0, -0.75, -0.75],  # outside in x: only YZ is left: 0
        ],
        dtype=torch.float64,
    )
    assert sample_triplane(planes, points)[:, 0].tolist() == [100.0, 3112.0, 1111.5, 51.5, 0.0]
    assert sample_triplane(planes, points, reduce="product")[1].item() == 12.0 * 100.0 * 3000.0
    assert sample_triplane(planes, points, reduce="concat")[1].tolist() == [12.0, 100.0, 3000.0]
    assert sample_triplane(planes, points, padding="border")[3:, 0].tolist() == [103.0, 103.0]
    # The third plane of the eg3d layout is looked up with width = z and height = x.
    assert sample_triplane(planes, points, reduce="concat", layout="eg3d")[1].tolist() == [12.0, 100.0, 2000.0]


def test_moving_a_point_along_one_axis_changes_exactly_the_planes_that_hold_it():
    planes = double(3, 8, 8, 1)
    here = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    for axis, changed in ((0, [True, True, False]), (1, [True, False, True]), (2, [False, True, True])):
        there = here.clone()
        there[axis] += 0.37
        features = sample_triplane(planes, torch.stack([here, there]), reduce="concat")
        assert (features[0] != features[1]).tolist() == changed


@pytest.mark.parametrize("layout", ["orthogonal", "eg3d"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_values_and_gradients_equal_grid_sample(layout, padding, align_corners):
    height, width = 5, 7
    planes = double(3, height, width, 2).requires_grad_()
    special = [-1.0, -1 + 0.3 / width, -1 + 1e-9, 0.0, 0.3, 1 - 1e-9, 1.0, 1.2, -1.9, 50.0, -1e30]
    special = torch.cartesian_prod(*[torch.tensor(special, dtype=torch.float64)] * 3)
    points = torch.cat([special, points_inside_cells(300, height, width)]).requires_grad_()
    ours = sample_triplane(planes, points, reduce="concat", layout=layout, padding=padding, align_corners=align_corners)
    theirs = through_grid_sample(planes, points, layout, padding, align_corners)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    weighting = torch.randn_like(ours)
    for mine, expected in zip(
        torch.autograd.grad(ours, (planes, points), weighting), torch.autograd.grad(theirs, (planes, points), weighting)
    ):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduce", ["sum", "product", "concat"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_first_and_second_derivatives_match_finite_differences(reduce, padding):
    planes = double(2, 3, 2, 3, 1).requires_grad_()
    points = points_inside_cells(3, 2, 3, entries=(2,), reach=1.1).requires_grad_()

    def sample(planes, points):
        return sample_triplane(planes, points, reduce=reduce, padding=padding)

    assert torch.autograd.gradcheck(sample, (planes, points))
    assert torch.autograd.gradgradcheck(sample, (planes, points))


def test_reductions_agree_with_the_planes_on_their_own():
    planes, points = double(3, 6, 5, 4), points_inside_cells(40, 6, 5)
    parts = sample_triplane(planes, points, reduce="concat").view(40, 3, 4)
    torch.testing.assert_close(sample_triplane(planes, points), parts.sum(1))
    torch.testing.assert_close(sample_triplane(planes, points, reduce="product"), parts.prod(1))


def test_sampling_is_linear_in_the_planes_and_weights_sum_to_one_inside():
    points = points_inside_cells(200, 6, 6, reach=0.8)
    a, b = double(3, 6, 6, 3), double(3, 6, 6, 3)
    torch.testing.assert_close(
        sample_triplane(2 * a - b, points), 2 * sample_triplane(a, points) - sample_triplane(b, points)
    )
    ones = sample_triplane(torch.ones_like(a), points, reduce="concat")
    torch.testing.assert_close(ones, torch.ones_like(ones))


def test_a_non_finite_point_has_zero_features_and_passes_no_gradient():
    planes = double(3, 4, 4, 2).requires_grad_()
    points = torch.tensor([[0.1, 0.2, float("nan")], [float("inf"), 0, 0], [0.1, 0.2, 0.3]], dtype=torch.float64)
    points.requires_grad_()
    for padding in ("zeros", "border"):
        features = sample_triplane(planes, points, padding=padding)
        assert (features[:2] == 0).all() and (features[2] != 0).all()
        grad_planes, grad_points = torch.autograd.grad(features.sum(), (planes, points))
        only_finite = sample_triplane(planes, points[2:], padding=padding).sum()
        assert torch.equal(grad_planes, torch.autograd.grad(only_finite, planes)[0])
        assert (grad_points[:2] == 0).all()


def test_half_precision_planes_are_computed_in_float32_and_returned_in_their_dtype():
    planes, points = torch.randn(3, 8, 8, 4).bfloat16(), torch.rand(50, 3) * 2 - 1
    features = sample_triplane(planes, points)
    assert features.dtype == torch.bfloat16
    assert torch.equal(features, sample_triplane(planes.float(), points, backend="reference").bfloat16())


@pytest.mark.parametrize(
    ("planes", "points", "options", "error", "words"),
    [
        ((2, 8, 8, 4), (5, 3), {}, DataError, "planes must be [*b, 3, H, W, C]"),
        ((8, 8, 4), (5, 3), {}, DataError, "[8, 8, 4]"),
        ((3, 8, 8, 4), (5, 2), {}, DataError, "points must be [N, 3]"),
        ((2, 3, 8, 8, 4), (5, 3), {}, DataError, "points must be [2, N, 3]"),
        ((3, 0, 8, 4), (5, 3), {}, DataError, "no cells"),
        ((3, 8, 8, 4), (5, 3), {"reduce": "mean"}, ConfigError, "sum, product, concat"),
        ((3, 8, 8, 4), (5, 3), {"layout": "xyz"}, ConfigError, "orthogonal, eg3d"),
        ((3, 8, 8, 4), (5, 3), {"padding": "reflect"}, ConfigError, "zeros, border"),
        ((3, 8, 8, 4), (5, 3), {"backend": "gpu"}, BackendUnavailable, "Triton"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(planes, points, options, error, words):
    with pytest.raises(error) as caught:
        sample_triplane(torch.zeros(planes), torch.zeros(points), **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
