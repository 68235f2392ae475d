"""The compiled kernels of `sample_triplane` against the reference, and their registration with torch."""

import pytest
import torch
from torch.nn.functional import grid_sample

from fusedplanes.kernels import sample_triplane

OPTIONS = [
    {"reduce": "sum"},
    {"reduce": "product", "padding": "border"},
    {"reduce": "concat", "layout": "eg3d"},
    {"reduce": "sum", "padding": "border", "align_corners": True, "layout": "eg3d"},
    {"reduce": "product", "align_corners": True},
]


def random_inputs(entries, count, height, width, channels):
    """Points up to 1.25, well inside a cell of either grid, so that rounding moves none across a derivative's jump."""
    planes = torch.randn(*entries, 3, height, width, channels)
    steps = 8 * height * width
    cell = torch.randint(-5 * steps // 8, 5 * steps // 8, (*entries, count, 3))
    points = (cell + 0.2 + 0.6 * torch.rand(*entries, count, 3)) * (2 / steps)
    return planes, points


def with_gradients(planes, points, weighting_seed=5, **options):
    planes, points = planes.detach().requires_grad_(), points.detach().requires_grad_()
    features = sample_triplane(planes, points, **options)
    generator = torch.Generator().manual_seed(weighting_seed)
    weighting = torch.randn(features.shape, generator=generator).to(features.dtype)
    return features.detach(), *torch.autograd.grad(features, (planes, points), weighting)


def largest_error(got, exact):
    return (got.double() - exact).abs().max().item()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("count", "channels"), [(1, 1), (17, 10), (1023, 22), (1023, 32), (17, 48)])
def test_outputs_and_gradients_agree_with_the_reference(count, channels, options):
    planes, points = random_inputs((2,), count, 5, 7, channels)
    got = with_gradients(planes, points, backend="cpu", **options)
    expected = with_gradients(planes.double(), points.double(), **options)
    for result, exact in zip(got, expected):
        assert result.shape == exact.shape and result.dtype == torch.float32
        torch.testing.assert_close(result.double(), exact, rtol=2e-5, atol=2e-5 * exact.abs().max().item())


def test_rounding_errors_are_at_most_twice_those_of_grid_sample():
    planes, points = random_inputs((), 1023, 16, 16, 32)
    grid = torch.stack([points[:, [0, 1]], points[:, [0, 2]], points[:, [1, 2]]])[:, None].requires_grad_()
    images = planes.permute(0, 3, 1, 2).contiguous().requires_grad_()
    theirs = grid_sample(images, grid, align_corners=False).sum(0)[:, 0].T
    exact = with_gradients(planes.double(), points.double())
    got = with_gradients(planes, points, backend="cpu")
    weighting = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(5))
    grad_images, grad_grid = torch.autograd.grad(theirs, (images, grid), weighting)
    xy, xz, yz = grad_grid[:, 0]
    grad_points = torch.stack([xy[:, 0] + xz[:, 0], xy[:, 1] + yz[:, 0], xz[:, 1] + yz[:, 1]], dim=1)
    theirs = theirs, grad_images.permute(0, 2, 3, 1), grad_points
    for result, torchs, reference in zip(got, theirs, exact):
        assert largest_error(result, reference) <= 2 * largest_error(torchs, reference)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("entries", "count", "channels"), [(2, 0, 3), (0, 5, 3), (2, 5, 0)])
def test_nothing_to_sample_gives_empty_features_and_zero_gradients(entries, count, channels, backend):
    planes, points = random_inputs((entries,), count, 4, 4, channels)
    features, grad_planes, grad_points = with_gradients(planes, points, backend=backend)
    assert features.shape == (entries, count, channels)
    assert grad_planes.shape == planes.shape and (grad_planes == 0).all()
    assert grad_points.shape == points.shape and (grad_points == 0).all()


@pytest.mark.parametrize("reduce", ["sum", "product", "concat"])
def test_points_that_are_outside_or_not_finite_do_as_in_the_reference(reduce):
    planes = torch.randn(3, 4, 6, 2)
    values = torch.tensor([-1e30, -1.5, -1.0, 0.3, 1.0, 2.0, 3e38, float("inf"), float("nan")])
    points = torch.cartesian_prod(values, values, values)
    for padding in ("zeros", "border"):
        got = with_gradients(planes, points, reduce=reduce, padding=padding, backend="cpu")
        expected = with_gradients(planes.double(), points.double(), reduce=reduce, padding=padding)
        for result, exact in zip(got, expected):
            torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5 * exact.abs().max().item())


@pytest.mark.parametrize("reduce", ["sum", "product", "concat"])
def test_results_do_not_depend_on_the_number_of_threads(threads, reduce):
    planes, points = random_inputs((), 2000, 8, 8, 10)
    one = with_gradients(planes, points, reduce=reduce, backend="cpu")
    threads(2)
    for first, second in zip(one, with_gradients(planes, points, reduce=reduce, backend="cpu")):
        assert torch.equal(first, second)


def test_a_batch_equals_its_entries_one_by_one():
    planes, points = random_inputs((2, 2), 100, 4, 5, 3)
    features, grad_planes, grad_points = with_gradients(planes, points, backend="cpu")
    weighting = torch.randn(features.shape, generator=torch.Generator().manual_seed(5))
    for index in torch.cartesian_prod(torch.arange(2), torch.arange(2)).tolist():
        index = tuple(index)
        p, x = planes[index].clone().requires_grad_(), points[index].clone().requires_grad_()
        alone = sample_triplane(p, x, backend="cpu")
        assert torch.equal(alone, features[index])
        grads = torch.autograd.grad(alone, (p, x), weighting[index])
        torch.testing.assert_close(grads[0], grad_planes[index])
        assert torch.equal(grads[1], grad_points[index])


def test_inputs_need_not_be_contiguous():
    planes, points = random_inputs((2,), 50, 4, 4, 6)
    expected = with_gradients(planes, points, backend="cpu")
    strided = planes.movedim(-1, -3).contiguous().movedim(-3, -1), points.mT.contiguous().mT
    assert not strided[0].is_contiguous() and not strided[1].is_contiguous()
    for result, wanted in zip(with_gradients(*strided, backend="cpu"), expected):
        assert torch.equal(result, wanted)


def test_float64_points_are_accepted_with_float32_planes():
    planes, points = random_inputs((), 20, 4, 4, 6)
    assert torch.equal(sample_triplane(planes, points.double()), sample_triplane(planes, points))


@pytest.mark.parametrize("reduce", ["sum", "concat"])
def test_the_operators_are_registered_as_torch_demands(reduce):
    planes, points = random_inputs((2,), 5, 3, 4, 2)
    options = reduce, "orthogonal", "zeros", False
    inputs = planes.requires_grad_(), points.requires_grad_(), *options
    torch.library.opcheck(torch.ops.fusedplanes.sample_triplane.default, inputs)
    inputs = torch.randn(2, 5, 6 if reduce == "concat" else 2), planes.detach(), points.detach(), *options
    torch.library.opcheck(torch.ops.fusedplanes.sample_triplane_backward_planes.default, inputs)
    torch.library.opcheck(torch.ops.fusedplanes.sample_triplane_backward_points.default, inputs)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_it_compiles_as_one_graph(backend):
    planes, points = random_inputs((2,), 30, 4, 4, 6)

    def loss(planes, points):
        return (sample_triplane(planes, points, reduce="product", backend=backend) ** 2).sum()

    def gradients(function):
        inputs = planes.clone().requires_grad_(), points.clone().requires_grad_()
        return torch.autograd.grad(function(*inputs), inputs)

    compiled = gradients(torch.compile(loss, backend="aot_eager", fullgraph=True))
    for result, expected in zip(compiled, gradients(loss)):
        torch.testing.assert_close(result, expected)
