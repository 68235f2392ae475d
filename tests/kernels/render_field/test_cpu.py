"""The compiled kernels of `render_field` against the reference, and their registration with torch."""

import pytest
import torch

from fusedplanes.kernels import render_field

SIZES = [
    # entries, rays, samples, channels, hidden units, values, shared decoder
    (3, 17, 48, 32, 64, 8, True),
    (2, 255, 17, 10, 16, 3, False),
    (1, 1, 2, 1, 64, 1, True),
    (5, 17, 96, 10, 20, 8, False),
    (2, 17, 33, 48, 48, 17, True),
]


def allowed_error(torchs, exact):
    """Twice torch's own error, root mean square; where that is lucky, a few roundings of a typical element."""
    return max(2 * (torchs - exact).square().mean().sqrt(), 4e-7 * exact.square().mean().sqrt())


@pytest.mark.parametrize("activation", ["linear", "sigmoid"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_outputs_and_gradients_agree_with_the_reference_and_are_as_accurate(size, activation, scene, render):
    inputs = [tensor.float() for tensor in scene(*size[:-1], shared=size[-1])]
    got = render(inputs, value_activation=activation, backend="cpu")
    torchs = render(inputs, value_activation=activation, backend="reference")
    exact = render([tensor.double() for tensor in inputs], value_activation=activation)
    for result, plain, wanted in zip(got, torchs, exact):
        assert result.shape == wanted.shape and result.dtype == torch.float32
        assert (result - wanted).square().mean().sqrt() <= allowed_error(plain, wanted)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 6), (6, 1), (2, 2)])
def test_planes_few_cells_wide(height, width, scene, render):
    inputs = [tensor.float() for tensor in scene(2, 9, 24, 3, 8, 2, height=height, width=width)]
    for got, wanted in zip(render(inputs, backend="cpu"), render([tensor.double() for tensor in inputs])):
        assert (got - wanted).norm() <= 1e-6 * wanted.norm()


@pytest.mark.parametrize("batch", [(), (2, 3), (0,)])
def test_leading_dimensions(batch, scene, render):
    entries = torch.Size(batch).numel()
    inputs = [tensor.float() for tensor in scene(entries, 4, 5, 3, 8, 2, shared=False)]
    flat = render(inputs, backend="cpu")
    shaped = render([tensor.view(*batch, *tensor.shape[1:]) for tensor in inputs], backend="cpu")
    for got, wanted in zip(shaped, flat):
        assert torch.equal(got, wanted.view(*batch, *wanted.shape[1:]))


def test_no_rays(scene, render):
    inputs = [tensor.float() for tensor in scene(2, 0, 5, 3, 8, 2)]
    *outputs, grad_planes, _, _, _, _, _, _ = render(inputs, backend="cpu")
    assert [list(output.shape) for output in outputs] == [[2, 0, 2], [2, 0], [2, 0], [2, 0, 4]]
    assert grad_planes.shape == inputs[0].shape and not grad_planes.any()


def test_memory_layout_does_not_matter(scene, render):
    inputs = [tensor.float() for tensor in scene(2, 6, 9, 4, 8, 2, shared=False)]
    expected = render(inputs, backend="cpu")
    scattered = [tensor.transpose(0, -1).contiguous().transpose(0, -1) for tensor in inputs]
    assert not any(tensor.is_contiguous() for tensor in scattered)
    for got, wanted in zip(render(scattered, backend="cpu"), expected):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_rays_that_miss_give_exact_zeros_whatever_the_field(backend, scene, render):
    inputs = [tensor.float() for tensor in scene(1, 3, 8, 3, 8, 2)]
    inputs[0][:] = float("nan")
    inputs[-1][:] = 1.7
    results = render(inputs, backend=backend)
    assert all((result == 0).all() for result in results)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(("height", "width"), [(7, 9), (1, 1), (1, 4)])
def test_a_field_that_is_not_finite_leaves_the_others_alone(bad, height, width, scene, render):
    inputs = [tensor.float() for tensor in scene(5, 20, 24, 3, 8, 2, height=height, width=width, shared=False)]
    expected = render(inputs, backend="cpu")
    inputs[0][2] = bad
    others = [0, 1, 3, 4]
    for got, wanted in zip(render(inputs, backend="cpu"), expected):
        assert torch.equal(got[others], wanted[others])


def test_a_ray_that_meets_nan_leaves_the_next_alone(scene, render):
    inputs = [tensor.float() for tensor in scene(1, 6, 40, 20, 24, 2)]
    expected = render(inputs, by=0, backend="cpu")
    # A single ray's NaN is in all of a worker's scratch when the next ray begins.
    origins, directions, distances = inputs[5:]
    origins[0, 2], directions[0, 2] = torch.tensor([0.0, 0.0, -2.0]), torch.tensor([0.0, 0.0, 1.0])
    inputs[0][0, 0, 3, 4] = float("nan")
    points = origins[..., None, :] + distances[..., None] * directions[..., None, :]
    cell = (points[..., :2] + 1) * torch.tensor([9 / 2, 7 / 2]) - 0.5 - torch.tensor([4.0, 3.0])
    meets = (cell.abs() < 1).all(-1).any(-1)[0]
    assert meets[2] and not meets[1] and not meets.all()
    for got, wanted in zip(render(inputs, by=0, backend="cpu")[:3], expected):
        clean = ~meets
        clean[2] = False
        assert torch.equal(got[0, clean], wanted[0, clean]) and got[0, 2].isnan().all()


def test_points_that_are_not_finite_have_no_features(scene, render):
    inputs = [tensor.float() for tensor in scene(1, 9, 12, 3, 8, 2)]
    inputs[5][0, 0, 1], inputs[5][0, 2, 0], inputs[6][0, 3, 2] = float("nan"), float("inf"), -float("inf")
    inputs[5][0, 5, 0], inputs[6][0, 6, 2] = float("nan"), float("nan")
    far = inputs[5].clone()
    far[0, [0, 2, 3, 5, 6]] = 1e4
    outside = [*inputs[:5], far, inputs[6].nan_to_num(0, 0, 0), inputs[7]]
    for got, wanted in zip(render(inputs, by=5, backend="cpu"), render(outside, by=5, backend="cpu")):
        assert torch.equal(got, wanted)
    for got, wanted in zip(render(inputs, by=5, backend="cpu"), render(inputs, by=5, backend="reference")):
        assert torch.allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize(("entries", "shared"), [(1, True), (2, False), (5, True)])
def test_results_are_the_same_bits_on_any_number_of_threads(entries, shared, scene, render, threads):
    inputs = [tensor.float() for tensor in scene(entries, 150, 20, 6, 16, 3, shared=shared)]
    threads(1)
    expected = render(inputs, value_activation="sigmoid", backend="cpu")
    threads(2)
    for got, wanted in zip(render(inputs, value_activation="sigmoid", backend="cpu"), expected):
        assert torch.equal(got, wanted)


def test_what_lies_behind_an_opaque_surface_may_be_left_out(scene, render):
    inputs = [tensor.float() for tensor in scene(2, 40, 64, 8, 16, 3)]
    inputs[4][0] = 60.0
    got = render(inputs, backend="cpu")
    exact = render([tensor.double() for tensor in inputs])
    assert exact[1][:, 2:].min() > 1 - 1e-12
    for result, wanted in zip(got, exact):
        assert (result - wanted).abs().max() <= 1e-6 * wanted.abs().max()


def test_only_what_is_asked_for_is_differentiated(scene):
    planes, *decoder, origins, directions, distances = [tensor.float() for tensor in scene(1, 5, 6, 3, 8, 2)]
    planes.requires_grad_()
    values, *_ = render_field(planes, *decoder, origins, directions, distances)
    values.sum().backward()
    assert planes.grad.abs().sum() > 0
    with torch.no_grad():
        assert not render_field(planes, *decoder, origins, directions, distances)[0].requires_grad


def test_registration(scene):
    inputs = [tensor.float() for tensor in scene(2, 3, 4, 3, 8, 2, shared=False)]
    differentiable = [tensor.clone().requires_grad_(i < 7) for i, tensor in enumerate(inputs)]
    torch.library.opcheck(torch.ops.fusedplanes.render_field.default, (*differentiable, True, -1.0))
    grads = torch.randn(2, 3, 2), torch.randn(2, 3), torch.randn(2, 3)
    for by_rays in (False, True):
        torch.library.opcheck(
            torch.ops.fusedplanes.render_field_backward.default, (*grads, *inputs, False, -1.0, by_rays)
        )


def test_compiles_without_a_graph_break(scene, render):
    inputs = [tensor.float() for tensor in scene(2, 3, 4, 3, 8, 2)]
    expected = render(inputs, backend="cpu")
    inputs = [tensor.requires_grad_(i < 7) for i, tensor in enumerate(inputs)]
    compiled = torch.compile(render_field, fullgraph=True, backend="aot_eager")
    outputs = compiled(*inputs)
    for got, wanted in zip(outputs, expected):
        assert torch.equal(got, wanted)
    outputs[0].sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in inputs[:7])
