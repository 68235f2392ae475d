"""Fields and rays to render."""

import pytest
import torch
from torch.nn.functional import normalize

from fusedplanes.kernels import render_field


def make_scene(entries, rays, samples, channels, hidden, values, *, height=7, width=9, shared=True, seed=0):
    """The eight tensors that `render_field` takes, in float64.

    Rays start on a sphere round the field and pass near its middle; their samples reach beyond the box at both ends.
    Ray 1 of every entry misses. Decoders are shared or every entry's own.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    own = () if shared else (entries,)
    origins = normalize(normal(entries, rays, 3), dim=-1) * 2.5
    directions = normalize(0.3 * normal(entries, rays, 3) - origins, dim=-1)
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


def render_and_differentiate(inputs, by=7, **options):
    """The four outputs, then gradients of a fixed random weighting of the first three by the first ``by`` inputs."""
    inputs = [tensor.detach().requires_grad_(i < by) for i, tensor in enumerate(inputs)]
    outputs = render_field(*inputs, **options)
    if by == 0:
        return list(outputs)
    generator = torch.Generator().manual_seed(7)
    weightings = [torch.randn(out.shape, generator=generator, dtype=torch.float64) for out in outputs[:3]]
    weightings = [weighting.to(out.dtype) for weighting, out in zip(weightings, outputs)]
    return [out.detach() for out in outputs] + list(torch.autograd.grad(outputs[:3], inputs[:by], weightings))


@pytest.fixture
def scene():
    return make_scene


@pytest.fixture
def render():
    return render_and_differentiate
