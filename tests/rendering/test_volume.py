"""Volume rendering against values computed by hand."""

import math

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.rays import Rays
from fusedplanes.rendering.volume import render_cameras, render_rays


def constant_field(density: float, value: float):
    """Planes and decoder of a field that is the same everywhere in the box."""
    planes = torch.zeros(1, 3, 4, 4, 2, dtype=torch.float64)
    decoder = {
        "hidden_weight": torch.zeros(4, 2, dtype=torch.float64),
        "hidden_bias": torch.zeros(4, dtype=torch.float64),
        "output_weight": torch.zeros(2, 4, dtype=torch.float64),
        "output_bias": torch.tensor([density, value], dtype=torch.float64),
    }
    return planes, decoder


def axis_ray():
    origin = torch.tensor([[[3.0, 0.0, 0.0]]], dtype=torch.float64)
    direction = torch.tensor([[[-1.0, 0.0, 0.0]]], dtype=torch.float64)
    near, far = torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([[4.0]], dtype=torch.float64)
    return Rays(origin, direction, near, far)


def test_a_constant_fog_absorbs_by_the_exponential_law():
    planes, decoder = constant_field(0.5, 0.7)
    samples = 64
    marched = render_rays(planes, decoder, axis_ray(), coarse_samples=samples, fine_samples=0)
    sigma = math.log1p(math.exp(0.5 - 1.0))
    length = 2.0 * (samples - 1) / samples  # from the middle of the first stratum to the middle of the last
    alpha = 1 - math.exp(-sigma * length)
    assert marched.alpha.item() == pytest.approx(alpha, rel=1e-9)
    assert marched.values.item() == pytest.approx(0.7 * alpha, rel=1e-9)


def test_importance_samples_refine_and_do_not_change_the_law():
    planes, decoder = constant_field(0.5, 0.7)
    coarse = render_rays(planes, decoder, axis_ray(), coarse_samples=48, fine_samples=0)
    both = render_rays(planes, decoder, axis_ray(), coarse_samples=48, fine_samples=48)
    assert both.alpha.item() == pytest.approx(coarse.alpha.item(), rel=0.02)


def test_without_a_seed_rendering_is_deterministic_and_seeds_differ():
    torch.manual_seed(0)
    planes = torch.randn(1, 3, 8, 8, 4)
    decoder = {
        "hidden_weight": torch.randn(8, 4),
        "hidden_bias": torch.zeros(8),
        "output_weight": torch.randn(3, 8),
        "output_bias": torch.zeros(3),
    }
    rays = Rays.from_cameras(Cameras.orbit(1, width=8, height=8))
    first = render_rays(planes, decoder, rays)
    assert torch.equal(first.values, render_rays(planes, decoder, rays).values)
    seeded = render_rays(planes, decoder, rays, seed=1)
    assert torch.equal(seeded.values, render_rays(planes, decoder, rays, seed=1).values)
    assert not torch.equal(seeded.values, render_rays(planes, decoder, rays, seed=2).values)
    torch.testing.assert_close(seeded.alpha, first.alpha, atol=0.2, rtol=0)


def test_depth_is_along_the_camera_axis_and_zero_where_nothing_is():
    # A dense slab: opaque at the box's near face, so every pixel of the face sees it at the same depth.
    planes, decoder = constant_field(400.0, 1.0)
    cameras = Cameras.look_at(torch.tensor([[[3.0, 0.0, 0.0]]]).double(), focal=0.5, width=9, height=9)
    background = torch.tensor([0.25], dtype=torch.float64)
    output = render_cameras(planes, decoder, cameras, background, coarse_samples=400, fine_samples=0)
    depth, alpha = output.depth[0, 0], output.alpha[0, 0]
    assert alpha[4, 4] > 0.999 and alpha[0, 0] == 0 and depth[0, 0] == 0
    hit = alpha > 0.999
    assert hit.sum() >= 9
    torch.testing.assert_close(depth[hit], torch.full_like(depth[hit], 2.0), atol=0.02, rtol=0)
    assert output.color[0, 0, 0, 0, 0] == 0.25
    assert output.color[0, 0, 4, 4, 0] == pytest.approx(1.0, abs=1e-3)
