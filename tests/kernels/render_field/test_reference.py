"""The definition of `render_field`: worked values, torch's own tri-plane path, derivatives, messages."""

import math

import pytest
import torch
from torch.nn.functional import grid_sample, linear, softplus

from fusedplanes.errors import BackendUnavailable, ConfigError, DataError
from fusedplanes.kernels import render_field

NAMES = ("planes", "hidden_weight", "hidden_bias", "output_weight", "output_bias", "origins", "directions", "distances")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_empty_field_is_fog_of_the_bias(backend):
    output_bias = torch.tensor([0.25, 3.0, -5.0])
    decoder = torch.zeros(6, 4), torch.zeros(6), torch.zeros(3, 6), output_bias
    origins, directions = torch.tensor([[0.0, 0.0, -2.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    distances = torch.tensor([[1.0, 1.5, 3.0]])
    values, alpha, distance, weights = render_field(
        torch.zeros(3, 5, 5, 4), *decoder, origins, directions, distances, density_bias=-0.75, backend=backend
    )
    density = math.log1p(math.exp(0.25 - 0.75))
    passed = math.exp(-0.5 * density)
    expected = [1 - passed, passed * (1 - math.exp(-1.5 * density))]
    assert weights[0].tolist() == pytest.approx(expected, rel=1e-6)
    assert alpha.item() == pytest.approx(sum(expected), rel=1e-6)
    assert distance.item() == pytest.approx(1.25 * expected[0] + 2.25 * expected[1], rel=1e-6)
    assert values[0].tolist() == pytest.approx([3 * sum(expected), -5 * sum(expected)], rel=1e-6)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_colours_pass_through_a_slightly_wider_sigmoid(backend):
    decoder = torch.zeros(2, 1), torch.zeros(2), torch.zeros(3, 2), torch.tensor([60.0, 50.0, -50.0])
    ray = torch.tensor([[0.0, 0.0, -2.0]]), torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[1.0, 3.0]])
    values, *_ = render_field(torch.zeros(3, 2, 2, 1), *decoder, *ray, value_activation="sigmoid", backend=backend)
    assert values[0].tolist() == pytest.approx([1.001, -0.001], rel=1e-4)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("plane", "axes"), [(0, (0, 1)), (1, (0, 2)), (2, (1, 2))])
def test_each_plane_lies_along_its_axes(plane, axes, backend):
    # One bright cell; its position along width and height must show on the plane's two axes and on no other.
    planes = torch.zeros(3, 4, 8, 1)
    planes[plane, 3, 1] = 1.0
    target = torch.zeros(3)
    target[axes[0]], target[axes[1]] = (1 + 0.5) / 4 - 1, (3 + 0.5) / 2 - 1
    decoder = torch.tensor([[1.0]]), torch.zeros(1), torch.tensor([[0.0], [1.0]]), torch.tensor([30.0, 0.0])
    direction = torch.zeros(1, 3)
    direction[0, next(axis for axis in range(3) if axis not in axes)] = 1e-6
    ray = target[None], direction, torch.tensor([[0.0, 1.0]])
    values, *_ = render_field(planes, *decoder, *ray, backend=backend)
    assert values.item() == pytest.approx(math.log1p(math.e), rel=1e-5)


def test_reference_agrees_with_grid_sample_and_linear_layers(scene):
    planes, *decoder, origins, directions, distances = inputs = scene(2, 9, 12, 5, 7, 3)
    points = origins[..., None, :] + distances[..., None] * directions[..., None, :]
    features = 0
    for plane, axes in enumerate(((0, 1), (0, 2), (1, 2))):
        image = planes[:, plane].permute(0, 3, 1, 2)
        features = features + grid_sample(image, points[..., axes], align_corners=False)
    hidden = softplus(linear(features.permute(0, 2, 3, 1), decoder[0], decoder[1]))
    output = linear(hidden, decoder[2], decoder[3])
    raw, value = output[..., 0], output[..., 1:]
    depth = softplus((raw[..., 1:] + raw[..., :-1]) / 2 - 1) * distances.diff(dim=-1)
    alphas = 1 - torch.exp(-depth)
    passed = torch.cumprod(torch.cat([torch.ones_like(alphas[..., :1]), 1 - alphas], -1), -1)
    weights = alphas * passed[..., :-1]
    results = render_field(*inputs)
    assert torch.allclose(results[0], (weights[..., None] * (value[..., 1:, :] + value[..., :-1, :]) / 2).sum(-2))
    assert torch.allclose(results[1], 1 - passed[..., -1])
    assert torch.allclose(results[2], (weights * (distances[..., 1:] + distances[..., :-1]) / 2).sum(-1))
    assert torch.allclose(results[3], weights)


@pytest.mark.parametrize(("activation", "shared"), [("linear", True), ("sigmoid", False)])
def test_reference_derivatives(activation, shared, scene):
    *inputs, distances = scene(2, 2, 4, 2, 3, 2, height=3, width=4, shared=shared)
    inputs = [tensor.requires_grad_() for tensor in inputs]

    def outputs(*inputs):
        return render_field(*inputs, distances, value_activation=activation)[:3]

    assert torch.autograd.gradcheck(outputs, inputs)
    assert torch.autograd.gradgradcheck(outputs, inputs, atol=1e-4)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_weights_and_distances_carry_no_gradient(backend, scene):
    inputs = [tensor.float().requires_grad_() for tensor in scene(1, 3, 5, 2, 4, 1)]
    values, alpha, distance, weights = render_field(*inputs, backend=backend)
    assert not weights.requires_grad
    (values.sum() + alpha.sum() + distance.sum()).backward()
    assert inputs[-1].grad is None and all(tensor.grad is not None for tensor in inputs[:-1])


def test_half_precision_planes_are_rendered_in_single_precision(scene):
    inputs = [tensor.float() for tensor in scene(1, 5, 6, 3, 4, 2)]
    inputs[0] = inputs[0].bfloat16()
    results = render_field(*inputs)
    for result, expected in zip(results, render_field(inputs[0].float(), *inputs[1:], backend="reference")):
        assert result.dtype == torch.float32
        assert torch.allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("planes", (2, 4, 7, 9, 3)),
        ("planes", (2, 3, 7, 9, 0)),
        ("planes", (7, 9, 3)),
        ("hidden_weight", (8, 4)),
        ("hidden_weight", (5, 8, 3)),
        ("hidden_weight", (3,)),
        ("hidden_bias", (7,)),
        ("output_weight", (3, 7)),
        ("output_weight", (1, 8)),
        ("output_weight", (8,)),
        ("output_bias", (4,)),
        ("output_bias", (2, 3)),
        ("origins", (2, 5, 2)),
        ("origins", (5, 3)),
        ("directions", (2, 4, 3)),
        ("distances", (2, 5, 1)),
        ("distances", (2, 4, 6)),
    ],
)
def test_a_wrong_shape_is_named_in_one_line(name, shape, scene):
    inputs = dict(zip(NAMES, scene(2, 5, 6, 3, 8, 2)))
    inputs[name] = torch.zeros(shape)
    with pytest.raises(DataError) as caught:
        render_field(*inputs.values())
    message = str(caught.value)
    assert f"{name} has shape {list(shape)}" in message and "expected" in message and "\n" not in message


def test_more_cells_than_can_be_numbered_are_refused(scene):
    _, *rest = scene(1, 2, 3, 1, 2, 1)
    planes = torch.zeros(1, dtype=torch.float64).expand(1, 3, 2**15, 2**15, 1)
    with pytest.raises(DataError, match=r"planes has shape .* at most 715827882 cells"):
        render_field(planes, *rest)


def test_a_wrong_choice_is_named(scene):
    inputs = scene(1, 2, 3, 1, 2, 1)
    with pytest.raises(ConfigError, match="value_activation is 'relu'; choose one of linear, sigmoid"):
        render_field(*inputs, value_activation="relu")
    with pytest.raises(BackendUnavailable, match="float64"):
        render_field(*inputs, backend="cpu")
    with pytest.raises(DataError, match="origins is on meta"):
        render_field(*inputs[:5], inputs[5].to("meta"), inputs[6].to("meta"), inputs[7])
