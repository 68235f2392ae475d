"""Cameras: conventions told apart by where a point lands."""

import math

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError


def project(cameras: Cameras, point: torch.Tensor) -> torch.Tensor:
    """Pixel coordinates and depth of a world point, by the textbook formula."""
    world_to_camera = torch.linalg.inv(cameras.camera_to_world)
    in_camera = world_to_camera[..., :3, :3] @ point + world_to_camera[..., :3, 3]
    pixel = (cameras.intrinsics @ in_camera[..., None])[..., 0]
    return torch.cat([pixel[..., :2] / pixel[..., 2:], in_camera[..., 2:]], -1)


def intrinsics() -> torch.Tensor:
    return torch.tensor([[100.0, 0.0, 32.0], [0.0, 100.0, 24.0], [0.0, 0.0, 1.0]])


def test_opencv_looks_along_positive_z_and_opengl_along_negative_z():
    opencv = Cameras.from_opencv(torch.eye(4), intrinsics(), 64, 48)
    opengl = Cameras.from_opengl(torch.eye(4), intrinsics(), 64, 48)
    assert project(opencv, torch.tensor([0.0, 0.0, 2.0])).tolist() == [32, 24, 2]
    assert project(opengl, torch.tensor([0.0, 0.0, -2.0])).tolist() == [32, 24, 2]
    # Up in the world is up in the image for OpenGL axes, down for OpenCV axes.
    assert project(opengl, torch.tensor([0.0, 0.1, -2.0]))[1] < 24
    assert project(opencv, torch.tensor([0.0, 0.1, 2.0]))[1] > 24


def test_converting_to_opengl_axes_twice_is_the_identity():
    pose = Cameras.orbit(1).camera_to_world[0]
    flip = torch.tensor([1.0, -1.0, -1.0, 1.0])
    once = Cameras.from_opengl(pose * flip, intrinsics(), 64, 48)
    torch.testing.assert_close(once.camera_to_world, pose)


def test_colmap_is_world_to_camera():
    half = math.radians(30) / 2
    quaternion = torch.tensor([math.cos(half), 0.0, 0.0, math.sin(half)])  # 30 degrees about z
    translation = torch.tensor([0.1, -0.2, 0.3])
    cameras = Cameras.from_colmap(quaternion, translation, intrinsics(), 64, 48)
    c, s = math.cos(math.radians(30)), math.sin(math.radians(30))
    rotation = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    world_to_camera = torch.linalg.inv(cameras.camera_to_world)
    torch.testing.assert_close(world_to_camera[:3, :3], rotation)
    torch.testing.assert_close(world_to_camera[:3, 3], translation)


def test_orbit_cameras_see_the_origin_in_the_middle_and_up_above_it():
    cameras = Cameras.orbit(5, radius=2.0, elevation=30.0, width=40, height=20)
    middle = project(cameras, torch.zeros(3))
    torch.testing.assert_close(middle, torch.tensor([20.0, 10.0, 2.0]).expand(5, 3), atol=1e-4, rtol=1e-5)
    assert (project(cameras, torch.tensor([0.0, 0.0, 0.2]))[:, 1] < 10).all()
    rotation = cameras.camera_to_world[:, :3, :3]
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(3).expand(5, 3, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(5))


@pytest.mark.parametrize("position", [[0.0, 0.0, 2.0], [0.0, 0.0, -2.0]])
def test_looking_straight_down_or_up_is_finite(position):
    cameras = Cameras.look_at(torch.tensor([position]))
    assert cameras.camera_to_world.isfinite().all()
    torch.testing.assert_close(cameras.forward[0], torch.tensor([0.0, 0.0, -position[2] / 2]))


def test_resized_cameras_see_the_same_fraction_of_the_image():
    cameras = Cameras.orbit(3, width=64, height=48)
    small = cameras.resized(16, 12)
    point = torch.tensor([0.3, -0.2, 0.1])
    torch.testing.assert_close(project(cameras, point)[:, :2] / 4, project(small, point)[:, :2])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Cameras(torch.eye(3), intrinsics(), 4, 4), "camera_to_world"),
        (lambda: Cameras(torch.eye(4)[None], intrinsics(), 4, 4), "intrinsics"),
        (lambda: Cameras(torch.eye(4), intrinsics(), 0, 4), "0x4"),
        (lambda: Cameras.look_at(torch.zeros(1, 3)), "target"),
        (lambda: Cameras.concatenate([Cameras.orbit(1), Cameras.orbit(1, width=64)]), "resize"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(build, message):
    with pytest.raises(DataError, match=message):
        build()
