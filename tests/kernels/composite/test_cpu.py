"""The compiled kernels of `composite` against the reference, and their registration with torch."""

import pytest
import torch

from fusedplanes.kernels import composite


def random_inputs(batch, samples, channels):
    distances = torch.rand(*batch, samples).sort(-1).values * 3
    return torch.randn(*batch, samples, channels), torch.randn(*batch, samples) * 3, distances


def with_gradients(values, densities, distances, **options):
    values, densities = values.detach().requires_grad_(), densities.detach().requires_grad_()
    outputs = composite(values, densities, distances, **options)
    generator = torch.Generator().manual_seed(5)
    weightings = [torch.randn(output.shape, generator=generator).to(output.dtype) for output in outputs[:3]]
    grads = torch.autograd.grad(outputs[:3], (values, densities), weightings)
    return [output.detach() for output in outputs] + list(grads)


@pytest.mark.parametrize(
    ("batch", "samples", "channels"),
    [((1,), 2, 1), ((), 5, 3), ((17,), 17, 10), ((3, 11), 48, 4), ((1023,), 3, 22), ((64,), 96, 32)],
)
def test_outputs_and_gradients_agree_with_the_reference_and_are_as_accurate(batch, samples, channels):
    inputs = random_inputs(batch, samples, channels)
    got = with_gradients(*inputs, backend="cpu")
    torchs = with_gradients(*inputs, backend="reference")
    exact = with_gradients(*(tensor.double() for tensor in inputs))
    for result, plain, reference in zip(got, torchs, exact):
        assert result.shape == reference.shape and result.dtype == torch.float32
        scale = reference.abs().max().item()
        allowed = max(2 * (plain.double() - reference).abs().max().item(), 2e-7 * scale)
        assert (result.double() - reference).abs().max().item() <= allowed


@pytest.mark.parametrize(("batch", "samples"), [((4,), 1), ((0,), 8), ((2, 0), 1)])
def test_a_single_sample_or_no_ray_gives_zeros_or_nothing(batch, samples):
    for backend in ("cpu", "reference"):
        *outputs, grad_values, grad_densities = with_gradients(*random_inputs(batch, samples, 3), backend=backend)
        accumulated, alpha, distance, weights = outputs
        assert accumulated.shape == (*batch, 3) and alpha.shape == distance.shape == batch
        assert weights.shape == (*batch, samples - 1)
        assert all((tensor == 0).all() for tensor in (*outputs, grad_values, grad_densities))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_is_not_finite_stays_in_its_ray(backend):
    values, densities, distances = random_inputs((9,), 12, 4)
    expected = with_gradients(values, densities, distances, backend=backend)
    values[1, 3, 2] = float("inf")
    densities[4, 5] = float("nan")
    distances[7, 6] = float("nan")
    clean = torch.ones(9, dtype=torch.bool)
    clean[[1, 4, 7]] = False
    for result, wanted in zip(with_gradients(values, densities, distances, backend=backend), expected):
        assert torch.equal(result[clean], wanted[clean])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_extreme_densities_give_exact_limits_and_finite_gradients(backend):
    values, densities, distances = random_inputs((3,), 12, 4)
    densities[0] = 1e30
    densities[1] = -1e30
    distances[2] = 1.5  # a ray without length
    outputs = with_gradients(values, densities, distances, backend=backend)
    assert outputs[1].tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(outputs[0][0], (values[0, 0] + values[0, 1]) / 2)
    assert all(output.isfinite().all() for output in outputs)
    infinite = torch.full((12,), float("inf"))
    assert composite(values[0], infinite, distances[0], backend=backend)[1].item() == 1.0


def test_results_do_not_depend_on_the_number_of_threads(threads):
    inputs = random_inputs((300,), 31, 5)
    one = with_gradients(*inputs, backend="cpu")
    threads(2)
    for first, second in zip(one, with_gradients(*inputs, backend="cpu")):
        assert torch.equal(first, second)


def test_inputs_need_not_be_contiguous():
    inputs = random_inputs((6, 5), 9, 3)
    strided = [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in inputs]
    for result, wanted in zip(with_gradients(*strided, backend="cpu"), with_gradients(*inputs, backend="cpu")):
        assert torch.equal(result, wanted)


def test_the_operators_are_registered_as_torch_demands():
    values, densities, distances = random_inputs((2, 3), 5, 2)
    inputs = values.requires_grad_(), densities.requires_grad_(), distances, -1.0
    torch.library.opcheck(torch.ops.fusedplanes.composite.default, inputs)
    grads = torch.randn(2, 3, 2), torch.randn(2, 3), torch.randn(2, 3)
    inputs = *grads, values.detach(), densities.detach(), distances, -1.0
    torch.library.opcheck(torch.ops.fusedplanes.composite_backward.default, inputs)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_it_compiles_as_one_graph(backend):
    values, densities, distances = random_inputs((7,), 5, 2)

    def loss(values, densities):
        accumulated, alpha, distance, weights = composite(values, densities, distances, backend=backend)
        return (accumulated * alpha[:, None]).sum() + distance.sum() + weights.sum()

    def gradients(function):
        inputs = values.clone().requires_grad_(), densities.clone().requires_grad_()
        return torch.autograd.grad(function(*inputs), inputs)

    compiled = gradients(torch.compile(loss, backend="aot_eager", fullgraph=True))
    for result, expected in zip(compiled, gradients(loss)):
        torch.testing.assert_close(result, expected)
