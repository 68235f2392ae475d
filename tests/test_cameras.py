"""Cameras: conventions told apart by where a point lands."""

import math

import numpy as np
import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.rays import Rays


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
        (lambda: Cameras(torch.eye(4), intrinsics(), 0, 4), "width is 0"),
        (lambda: Cameras.look_at(torch.zeros(1, 3)), "target"),
        (lambda: Cameras.concatenate([Cameras.orbit(1), Cameras.orbit(1, width=64)]), "resize"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(build, message):
    with pytest.raises(DataError, match=message):
        build()


# What is given ------------------------------------------------------------------------------------------------------


def changed(matrix, place, value):
    matrix = matrix.clone()
    matrix[place] = value
    return matrix


def test_integers_lists_and_arrays_are_converted_and_float64_stays():
    whole = torch.eye(4, dtype=torch.int64)
    cameras = Cameras.from_opencv(whole.tolist(), [[16.5, 0, 8], [0, 16.5, 8], [0, 0, 1]], np.int64(16), 16)
    assert cameras.camera_to_world.dtype == cameras.intrinsics.dtype == torch.float32
    assert cameras.intrinsics[0, 0] == 16.5 and cameras.width == 16
    assert Cameras.from_opencv(whole, intrinsics(), 16, 16).intrinsics.equal(intrinsics())
    assert Cameras(whole, intrinsics(), 16, 16).camera_to_world.dtype == torch.float32
    double = Cameras.from_opengl(np.eye(4)[None], [[0.1, 0, 8], [0, 0.1, 8], [0, 0, 1]], 16, 16)
    assert double.intrinsics.dtype == torch.float64 and double.intrinsics[0, 0, 0] == 0.1
    assert Cameras.from_opencv(torch.eye(4).half(), intrinsics(), 16, 16).camera_to_world.dtype == torch.float32
    assert Cameras.look_at([[3, 0, 1]]).positions.tolist() == [[3, 0, 1]]
    precise = Cameras.look_at(torch.tensor([[3.0, 0, 0]]).double(), target=(0.1, 0.2, 0.3))
    expected = torch.tensor([-2.9, 0.2, 0.3], dtype=torch.float64)
    torch.testing.assert_close(precise.forward[0], expected / expected.norm(), atol=1e-15, rtol=0)
    assert Cameras.from_colmap([1, 0, 0, 0], [1, 2, 3], intrinsics(), 16, 16).positions.tolist() == [-1, -2, -3]
    one_for_all = Cameras.from_opencv(torch.eye(4).expand(2, 3, 4, 4), intrinsics()[None], 16, 16)
    assert one_for_all.intrinsics.shape == (2, 3, 3, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_the_default_type_changes_nothing(dtype):
    expected = Cameras.orbit(3, width=4, height=4)
    torch.set_default_dtype(dtype)
    try:
        cameras = Cameras.orbit(3, width=4, height=4)
        listed = Cameras.from_opencv(torch.eye(4, dtype=torch.int64).tolist(), [[1, 0, 1], [0, 1, 1], [0, 0, 1]], 2, 2)
        rays = Rays.from_cameras(cameras)
    finally:
        torch.set_default_dtype(torch.float32)
    assert cameras.camera_to_world.equal(expected.camera_to_world) and cameras.intrinsics.equal(expected.intrinsics)
    assert {listed.intrinsics.dtype, listed.camera_to_world.dtype, rays.near.dtype, rays.far.dtype} == {torch.float32}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e20])
@pytest.mark.parametrize(
    ("build", "field"),
    [
        (
            lambda v: Cameras.from_opencv(changed(torch.eye(4), (0, 3), v), intrinsics(), 4, 4),
            r"camera_to_world\[0, 3\]",
        ),
        (
            lambda v: Cameras.from_opengl(changed(torch.eye(4), (1, 1), v), intrinsics(), 4, 4),
            r"camera_to_world\[1, 1\]",
        ),
        (lambda v: Cameras.from_opencv(torch.eye(4), changed(intrinsics(), (0, 0), v), 4, 4), r"intrinsics\[0, 0\]"),
        (lambda v: Cameras.from_opencv(torch.eye(4), changed(intrinsics(), (1, 2), v), 4, 4), r"intrinsics\[1, 2\]"),
        (lambda v: Cameras.from_colmap([v, 0, 0, 0], [0, 0, 0], intrinsics(), 4, 4), "quaternions_wxyz"),
        (lambda v: Cameras.from_colmap([1, 0, 0, 0], [0, v, 0], intrinsics(), 4, 4), "translations"),
        (lambda v: Cameras.look_at([[0, 0, v]]), "positions"),
        (lambda v: Cameras.look_at([[1, 0, 0]], target=(v, 0, 0)), "target"),
        (lambda v: Cameras.look_at([[1, 0, 0]], focal=v), "focal"),
        (lambda v: Cameras.orbit(2, radius=v), "radius"),
        (lambda v: Cameras.orbit(2, radius=torch.tensor(v)), "radius"),
        (lambda v: Cameras.orbit(2, elevation=v), "elevation"),
        (lambda v: Cameras.orbit(2, start=v), "start"),
    ],
)
def test_numbers_that_are_not_finite_or_absurd_are_refused(build, field, value):
    with pytest.raises(DataError, match=rf"^cameras: {field}(\[[\d, ]+\])? is .*expected [^\n]*$"):
        build(value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Cameras.from_opencv(torch.zeros(4, 4), intrinsics(), 4, 4), "scaled or sheared"),
        (lambda: Cameras.from_opencv(changed(torch.eye(4), (0, 0), 1.01), intrinsics(), 4, 4), "scaled or sheared"),
        (lambda: Cameras.from_opengl(changed(torch.eye(4), (0, 1), 0.1), intrinsics(), 4, 4), "scaled or sheared"),
        (
            lambda: Cameras.from_opengl(
                torch.stack([torch.eye(4), changed(torch.eye(4), (0, 0), -1)]), intrinsics(), 4, 4
            ),
            r"camera_to_world \[1\] is mirrored",
        ),
        (lambda: Cameras.from_opencv(changed(torch.eye(4), (3, 3), 2), intrinsics(), 4, 4), "expected 0 0 0 1"),
        (lambda: Cameras.from_opencv(torch.eye(4), changed(intrinsics(), (0, 0), 0), 4, 4), "focal length 0"),
        (lambda: Cameras.from_opencv(torch.eye(4), changed(intrinsics(), (1, 1), -5), 4, 4), "focal length -5"),
        (lambda: Cameras.from_opencv(torch.eye(4), changed(intrinsics(), (2, 2), 0), 4, 4), "no pinhole"),
        (lambda: Cameras.from_colmap([[1, 0, 0, 0], [0] * 4], [[0] * 3] * 2, intrinsics(), 4, 4), r"\[1\] is zero"),
        (lambda: Cameras.orbit(2, radius=0), "radius is 0"),
        (lambda: Cameras.orbit(2, radius="3"), "radius is '3'"),
        (lambda: Cameras.orbit(2, focal=0), "focal is 0"),
        (lambda: Cameras.orbit(2, focal=-1), "focal is -1"),
        (lambda: Cameras.orbit(2, focal=None), "focal is None"),
        (lambda: Cameras.orbit(2).to(torch.int64), "torch.int64"),
        (lambda: Cameras.concatenate([]), "nothing to join"),
        (lambda: Cameras.concatenate(None), "list of cameras"),
        (lambda: Cameras.concatenate([Cameras.orbit(2)[0]] * 2), r"cameras\[None\]"),
        (lambda: Cameras.concatenate([Cameras.orbit(2), Cameras.orbit(2)[None]]), r"\(2,\), \(1, 2\)"),
    ],
)
def test_cameras_that_cannot_be_are_refused(build, message):
    with pytest.raises(DataError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "4\n"])
def test_sides_and_counts_are_whole_numbers(value):
    cameras = Cameras.orbit(1)
    for build in (
        lambda: Cameras.orbit(value),
        lambda: Cameras.orbit(1, width=value),
        lambda: Cameras.from_opencv(torch.eye(4), intrinsics(), 4, value),
        lambda: Cameras(torch.eye(4), intrinsics(), value, 4),
        lambda: cameras.resized(4, value),
    ):
        with pytest.raises(DataError, match=r"^cameras: (count|width|height) is .*whole number of at least 1$"):
            build()


@pytest.mark.parametrize(
    "value", [None, "pose", {}, [[1, 2], [3]], ["a"], torch.zeros(5), 5, torch.ones(5, 4, 5), torch.ones(3) * 1j]
)
def test_what_is_no_array_or_of_another_rank_is_refused(value):
    pose, numbers = torch.eye(4), intrinsics()
    for build in (
        lambda: Cameras(value, numbers, 4, 4),
        lambda: Cameras(pose, value, 4, 4),
        lambda: Cameras.from_opencv(value, numbers, 4, 4),
        lambda: Cameras.from_opencv(pose, value, 4, 4),
        lambda: Cameras.from_opengl(value, numbers, 4, 4),
        lambda: Cameras.from_colmap(value, [0, 0, 0], numbers, 4, 4),
        lambda: Cameras.from_colmap([1, 0, 0, 0], value, numbers, 4, 4),
        lambda: Cameras.look_at(value),
        lambda: Cameras.look_at([[3, 0, 0]], target=value),
    ):
        with pytest.raises(DataError, match=r"^cameras: \w+ (is|has shape) [^\n]*expected [^\n]*$"):
            build()


def test_cameras_are_told_apart_without_an_error():
    cameras, others = Cameras.orbit(2), Cameras.orbit(2)
    assert cameras == cameras and cameras != others and len({cameras, others}) == 2
    assert Rays.from_cameras(cameras) != Rays.from_cameras(others)


# What must not be looked at -----------------------------------------------------------------------------------------


def test_gradients_pass_through_the_constructors():
    pose, k = torch.eye(4).requires_grad_(), intrinsics().requires_grad_()
    rays = Rays.from_cameras(Cameras.from_opengl(pose, k, 8, 8)[None].resized(4, 4).to(torch.float64))
    rays.directions.sum().backward()
    assert pose.grad[:3, :3].abs().sum() > 0 and k.grad.abs().sum() > 0
    radius, positions = torch.tensor(2.0, requires_grad=True), torch.tensor([[3.0, 0, 1]], requires_grad=True)
    Cameras.orbit(2, radius=radius).positions.norm(dim=-1).sum().backward()
    torch.testing.assert_close(radius.grad, torch.tensor(2.0))
    Cameras.look_at(positions).forward.sum().backward()
    assert positions.grad.isfinite().all() and positions.grad.abs().sum() > 0


def test_graphs_are_traced_whole_through_cameras():
    def directions(pose, k, positions):
        posed, looking = Cameras.from_opengl(pose, k, 4, 4), Cameras.look_at(positions, target=(0.1, 0, 0))
        return Rays.from_cameras(posed.resized(2, 2)).directions.sum() + looking.to(torch.float64).forward.sum()

    arguments = torch.eye(4), intrinsics(), torch.tensor([[3.0, 0, 1]])
    compiled = torch.compile(directions, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*arguments), directions(*arguments))
    mapped = torch.func.vmap(lambda pose: Cameras.from_opencv(pose, intrinsics(), 4, 4).camera_to_world)
    assert mapped(torch.eye(4).expand(3, 4, 4)).shape == (3, 4, 4)


def test_tensors_without_values_have_their_shapes_checked():
    assert Cameras.look_at(torch.zeros(2, 3, device="meta")).intrinsics.shape == (2, 3, 3)
    assert Cameras.from_opencv(torch.eye(4, device="meta"), intrinsics(), 4, 4).intrinsics.is_meta
    with pytest.raises(DataError, match="shape"):
        Cameras.from_opencv(torch.zeros(3, 3, device="meta"), intrinsics(), 4, 4)


def test_slices_and_copies_look_at_no_value(monkeypatch):
    cameras = Cameras.orbit(2)
    monkeypatch.setattr(torch.Tensor, "__bool__", None)
    monkeypatch.setattr(torch.Tensor, "item", None)
    assert cameras[1].resized(4, 4).to(torch.float64).intrinsics.dtype == torch.float64
    assert len(Cameras.concatenate([cameras, cameras])) == 4
