"""`render_field`: the reference against its definition, the compiled kernels against the reference."""

import pytest
import torch

from fusedplanes.kernels import render_field

NAMES = ("planes", "hidden_weight", "hidden_bias", "output_weight", "output_bias", "origins", "directions", "distances")


def scene(entries, rays, samples, channels, hidden, values, *, height=7, width=9, shared=True, seed=0):
    """Rays from a sphere round the box towards its middle; ray 1 misses. Float64 tensors in the order of `NAMES`."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    own = () if shared else (entries,)
    origins = torch.nn.functional.normalize(normal(entries, rays, 3), dim=-1) * 2.5
    directions = torch.nn.functional.normalize(0.3 * normal(entries, rays, 3) - origins, dim=-1)
    distances = 1.2 + 2.6 * torch.rand(entries, rays, samples, generator=generator, dtype=torch.float64).sort(-1).values
    distances[:, 1:2] = 0.0
    return [
        0.5 * normal(entries, 3, height, width, channels),
        normal(*own, hidden, channels) * channels**-0.5,
        0.3 * normal(*own, hidden),
        normal(*own, 1 + values, hidden) * hidden**-0.5,
        0.3 * normal(*own, 1 + values),
        origins,
        directions,
        distances,
    ]


def render_with_gradients(inputs, backend, activation):
    """Outputs, then gradients of a random weighting of them by planes and decoder."""
    inputs = [tensor.clone().requires_grad_(i < 5) for i, tensor in enumerate(inputs)]
    outputs = render_field(*inputs, value_activation=activation, backend=backend)
    generator = torch.Generator().manual_seed(7)
    loss = 0
    for output in outputs[:3]:
        weighting = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        loss = loss + (output * weighting.to(output.dtype)).sum()
    loss.backward()
    return [output.detach() for output in outputs] + [tensor.grad for tensor in inputs[:5]]


@pytest.mark.parametrize("activation", ["linear", "sigmoid"])
@pytest.mark.parametrize(("samples", "channels", "hidden", "values"), [(48, 32, 64, 8), (17, 10, 16, 3), (2, 1, 20, 1)])
def test_cpu_agrees_with_the_reference(samples, channels, hidden, values, activation):
    inputs = [tensor.float() for tensor in scene(3, 17, samples, channels, hidden, values)]
    expected = render_with_gradients([tensor.double() for tensor in inputs], "reference", activation)
    for got, wanted in zip(render_with_gradients(inputs, "cpu", activation), expected):
        assert (got - wanted).norm() <= 3e-6 * wanted.norm()
