"""Rays: through pixel centres, limited to the box."""

import torch

from fusedplanes.cameras import Cameras
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
