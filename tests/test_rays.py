"""Rays: through pixel centres, limited to the box."""

import math

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.rays import Rays, intersect_box


def test_a_ray_passes_through_the_centre_of_its_pixel():
    cameras = Cameras.orbit(2, width=6, height=4)
    rays = Rays.from_cameras(cameras)
    point = rays.origins + 1.7 * rays.directions
    world_to_camera = torch.linalg.inv(cameras.camera_to_world)[:, None]
    in_camera = (world_to_camera[..., :3, :3] @ point[..., None])[..., 0] + world_to_camera[..., :3, 3]
    pixel = in_camera @ cameras.intrinsics.mT
    pixel = pixel[..., :2] / pixel[..., 2:]
    v, u = torch.meshgrid(torch.arange(4) + 0.5, torch.arange(6) + 0.5, indexing="ij")
    expected = torch.stack([u, v], -1).flatten(0, 1).expand(2, 24, 2)
    torch.testing.assert_close(pixel, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(rays.directions.norm(dim=-1), torch.ones(2, 24))


def test_near_and_far_by_hand():
    origins = torch.tensor([[3.0, 0, 0], [3.0, 0, 0], [0.0, 0, 0], [3.0, 2, 0], [0.5, -3, 0.5]])
    directions = torch.tensor([[-1.0, 0, 0], [1.0, 0, 0], [0, 0, 1.0], [-1.0, 0, 0], [0, 1.0, 0]])
    near, far = intersect_box(origins, directions)
    assert near.tolist() == [2, 0, 0, 0, 2]
    assert far.tolist() == [4, 0, 1, 0, 4]


def test_entry_and_exit_lie_on_the_box():
    generator = torch.Generator().manual_seed(0)
    origins = 3 * torch.randn(5000, 3, generator=generator)
    directions = torch.nn.functional.normalize(torch.randn(5000, 3, generator=generator), dim=-1)
    near, far = intersect_box(origins, directions, 0.7)
    hit = far > near
    assert 100 < hit.sum() < 4900
    exit_points = (origins + far[:, None] * directions)[hit]
    torch.testing.assert_close(exit_points.abs().amax(-1), torch.full((int(hit.sum()),), 0.7), atol=1e-4, rtol=0)
    inside = origins + (0.5 * (near + far))[:, None] * directions
    assert (inside[hit].abs() <= 0.7 + 1e-4).all()
    outside = ~hit
    assert (near[outside] == 0).all() and (far[outside] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rays_of_cameras_in_half_precision_are_float32(dtype):
    cameras = Cameras.orbit(2, width=300, height=2)
    rays = Rays.from_cameras(cameras.to(dtype))
    assert {tensor.dtype for tensor in (rays.origins, rays.directions, rays.near, rays.far)} == {torch.float32}
    expected = Rays.from_cameras(cameras)
    assert (rays.directions - expected.directions).abs().max() < 4 * torch.finfo(dtype).eps
    # Neighbouring pixels keep directions of their own.
    assert (rays.directions[:, 1:300] - rays.directions[:, : 300 - 1]).norm(dim=-1).min() > 1e-3


def test_whole_numbers_meet_the_box_too():
    near, far = intersect_box(torch.tensor([[3, 0, 0]]), torch.tensor([[-1, 0, 0]]))
    assert (near.tolist(), far.tolist()) == ([2.0], [4.0])


def test_merging_dimensions():
    rays = Rays.from_cameras(Cameras.orbit(2, width=4, height=3))
    assert rays.flatten().near.shape == (24,) and rays.flatten(-2, -1).origins.shape == (24, 3)
    assert rays.flatten(1).directions.shape == (2, 12, 3)
    single = rays[0, 5].flatten()
    assert single.near.shape == (1,) and single.origins.shape == (1, 3)
    for start, end in ((2, -1), (0, 2), (-3, -1), (1, 0)):
        with pytest.raises(DataError, match=rf"dimensions {start} to {end} of batch shape \(2, 12\)"):
            rays.flatten(start, end)


@pytest.mark.parametrize("half_size", [0, -1.0, math.nan, math.inf])
def test_a_box_without_extent_is_refused(half_size):
    with pytest.raises(DataError, match="half_size is"):
        Rays.from_cameras(Cameras.orbit(1, width=2, height=2), half_size=half_size)


def test_singular_intrinsics_are_refused():
    with pytest.raises(DataError, match="no inverse"):
        Rays.from_cameras(Cameras(torch.eye(4), torch.zeros(3, 3), 2, 2))
