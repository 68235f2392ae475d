"""Camera rigs: where cameras stand, what is held out, and that objects fill the view without leaving it."""

import math

import numpy as np
import pytest
import torch

from fusedplanes.datasets import camera_rigs
from fusedplanes.datasets.make import fit_to_views
from fusedplanes.errors import ConfigError


@pytest.mark.parametrize("name", camera_rigs.RADII)
def test_cameras_look_at_the_origin_upright_from_their_radius(name):
    cameras = camera_rigs.rig(name, 40, 64)
    radius = {"sphere": 2.7, "upper-hemisphere": 2.7, "paper": 1.3}[name]
    assert np.allclose(cameras.positions.norm(dim=-1), radius)
    assert np.allclose(cameras.positions + radius * cameras.forward, 0, atol=1e-12)
    down = cameras.camera_to_world[:, :3, 1]
    assert bool((down[:, 2] < 0).all())
    assert cameras.intrinsics[0].tolist() == [[1.02 * 64, 0, 32], [0, 1.02 * 64, 32], [0, 0, 1]]
    assert bool((cameras.positions[:, 2] > 0).all()) == (name != "sphere")


@pytest.mark.parametrize("name", camera_rigs.RADII)
def test_cameras_are_spread_evenly(name):
    directions = torch.nn.functional.normalize(camera_rigs.rig(name, 200, 8).positions, dim=-1)
    angles = torch.arccos((directions @ directions.T - 2 * torch.eye(200)).clamp(-1, 1))
    nearest = angles.min(-1).values
    area = (4 if name == "sphere" else 2) * math.pi
    # No two of n points can all be farther apart than the hexagonal packing of their area.
    densest = math.sqrt(area / 200 * 2 / math.sqrt(3))
    assert nearest.min() > 0.55 * densest
    # By area, height is uniform.
    heights = directions[:, 2].sort().values
    low = -1 if name == "sphere" else 0
    assert torch.allclose(heights, low + (1 - low) * (torch.arange(200).double() + 0.5) / 200)


def test_a_rig_is_the_same_at_every_call():
    first, second = (camera_rigs.rig("sphere", 33, 64).camera_to_world for _ in range(2))
    assert torch.equal(first, second)


def test_wrong_rigs_are_named():
    with pytest.raises(ConfigError, match=r"cameras 'ring'.*sphere"):
        camera_rigs.rig("ring", 8, 64)
    for views, size in ((0, 8), (8, 0), (-1, 8)):
        with pytest.raises(ConfigError, match="at least 1"):
            camera_rigs.rig("sphere", views, size)


@pytest.mark.parametrize(
    ("views", "held_out"), [(1, 0), (2, 1), (9, 1), (10, 1), (11, 1), (25, 2), (50, 5), (100, 10), (160, 16)]
)
def test_a_tenth_of_the_views_is_held_out_evenly(views, held_out):
    """144 and 16 of 160, 45 and 5 of 50, as published."""
    split = camera_rigs.split(views)
    assert len(split) == views
    assert split.count("test") == held_out
    assert split.count("train") == views - held_out
    index = [i for i, name in enumerate(split) if name == "test"]
    gaps = np.diff(index)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


def box(mesh_of, sides):
    corners = [[x, y, z] for x in (0, sides[0]) for y in (0, sides[1]) for z in (0, sides[2])]
    return mesh_of(corners, [(0, 1, 2), (1, 2, 3), (4, 5, 6), (5, 6, 7), (0, 1, 4), (1, 4, 5)])


def projected(mesh, cameras):
    """Image coordinates of the bounding box's corners as shares of the image ``[V, 8, 2]``."""
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    world_to_camera = np.linalg.inv(cameras.camera_to_world.numpy())
    in_camera = corners @ world_to_camera[:, :3, :3].transpose(0, 2, 1) + world_to_camera[:, None, :3, 3]
    assert in_camera[..., 2].min() > 0
    pixels = in_camera @ cameras.intrinsics.numpy().transpose(0, 2, 1)
    return pixels[..., :2] / pixels[..., 2:] / cameras.width


@pytest.mark.parametrize("name", camera_rigs.RADII)
@pytest.mark.parametrize("views", [12, 50, 160])
def test_boxes_of_every_shape_fill_60_to_95_percent_and_are_never_cut_off(name, views, mesh_of):
    cameras = camera_rigs.rig(name, views, 64)
    generator = np.random.default_rng(0)
    shapes = [(1, 1, 1), (1, 1, 0.01), (0.01, 1, 1), (1, 0.01, 0.01), (0.01, 1, 0.01), (0.01, 0.01, 1), (2, 1, 0.8)]
    for sides in [*shapes, *generator.uniform(0.01, 1, (20, 3))]:
        mesh = fit_to_views(box(mesh_of, sides), cameras)
        assert np.abs(mesh.vertices).max() <= 0.9 + 1e-9
        assert np.allclose(mesh.vertices.max(0), -mesh.vertices.min(0))
        corners = projected(mesh, cameras)
        assert corners.min() >= 0.025 - 1e-9
        assert corners.max() <= 0.975 + 1e-9
        widest = (corners.max(1) - corners.min(1)).max()
        assert 0.6 <= widest <= 0.95 + 1e-9, sides


def test_fitting_keeps_the_way_back_to_the_source(mesh_of):
    mesh = box(mesh_of, (3, 4, 5))
    fitted = fit_to_views(mesh, camera_rigs.rig("paper", 40, 64))
    homogeneous = np.append(mesh.vertices, np.ones((8, 1)), 1)
    assert np.allclose((homogeneous @ fitted.world_from_source.T)[:, :3], fitted.vertices)
