"""The ray caster and the rasteriser: each against geometry, and against each other."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.datasets import mesh_kernels, rasterize, ray_cast
from fusedplanes.datasets.mesh_files import load_mesh
from fusedplanes.datasets.textured_mesh import Material
from fusedplanes.errors import ConfigError, DataError

RENDERERS = [ray_cast, rasterize]
BOTH = pytest.mark.parametrize("renderer", RENDERERS, ids=["ray_cast", "rasterize"])


def front_camera(distance=4.0, size=64, focal=1.0, height=None):
    """Looks along +y from (0, -distance, 0): x is to the right, z is up."""
    cameras = Cameras.look_at(torch.tensor([[0.0, -distance, 0.0]]).double(), focal=focal, width=size, height=size)
    return cameras if height is None else replace(cameras, height=height)


@BOTH
def test_a_wall_has_the_size_depth_and_orientation_of_perspective(renderer, wall, four_colors):
    images, depth = renderer.render(wall(texture=four_colors), front_camera(), lighting="unlit")
    # Half-width 1 at distance 4 with a focal length of 64 pixels: 16 pixels from the centre at 32.
    assert images[0, :, :, 3].sum() == 32 * 32
    assert images[0, 16:48, 16:48, 3].min() == 1
    assert np.array_equal(depth[0, 16:48, 16:48], np.full((32, 32), 4.0, np.float32))
    assert depth.sum() == 4.0 * 32 * 32
    corners = images[0][[20, 20, 43, 43], [20, 43, 20, 43], :3]
    assert np.array_equal(corners, [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])


@BOTH
def test_alpha_is_the_covered_share_of_a_pixel(renderer, wall):
    # The wall's edges cut pixels in half: 2 * 16.5 pixels wide.
    images, _ = renderer.render(wall(half=16.5 / 16), front_camera(), lighting="unlit", samples=4)
    assert images[0, 32, 15, 3] == pytest.approx(0.5)
    assert images[0, 15, 15, 3] == pytest.approx(0.25)
    assert images[..., 3].sum() == pytest.approx(33 * 33)
    # Straight alpha: the colour of a half-covered pixel is not darkened.
    assert images[0, 32, 15, :3].tolist() == [1, 1, 1]


@BOTH
def test_depth_is_that_of_the_pixel_centre_for_odd_and_even_samples(renderer, boxes):
    cameras = Cameras.orbit(2, width=24, height=24)
    depths = [renderer.render(boxes(), cameras, samples=samples)[1] for samples in (1, 3, 4)]
    assert (depths[0] > 0).mean() > 0.1
    assert np.array_equal(depths[0], depths[1])
    assert np.array_equal(depths[0], depths[2])


@BOTH
def test_depth_is_along_the_camera_axis_off_centre_too(renderer, wall):
    cameras = Cameras.look_at(torch.tensor([[1.0, -3.0, 0.5]]).double(), focal=1.0, width=48, height=48)
    _, depth = renderer.render(wall(), cameras, samples=1)
    rows, columns = np.nonzero(depth[0])
    assert len(rows) > 200
    pixels = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))]) * depth[0, rows, columns]
    points = np.linalg.inv(cameras.intrinsics[0].numpy()) @ pixels
    world = cameras.camera_to_world[0, :3, :3].numpy() @ points + cameras.camera_to_world[0, :3, 3:].numpy()
    assert np.abs(world[1]).max() < 1e-6
    assert np.abs(world[[0, 2]]).max() <= 1 + 1e-6


@BOTH
def test_both_sides_of_a_face_are_drawn_and_lit_by_the_side_one_sees(renderer, wall):
    front, back = (
        renderer.render(wall(), Cameras.look_at(torch.tensor([[0.0, y, 0.0]]).double(), focal=1.0), lighting="fixed")[0]
        for y in (-4.0, 4.0)
    )
    key = -mesh_kernels.KEY_DIRECTION[1]
    assert front[0, 64, 64, 0] == pytest.approx(mesh_kernels.AMBIENT + mesh_kernels.KEY * key, abs=1e-5)
    assert back[0, 64, 64, 0] == pytest.approx(mesh_kernels.AMBIENT, abs=1e-5)
    assert np.array_equal(front[..., 3], back[..., 3])


@BOTH
def test_winding_and_the_sign_of_normals_change_nothing(renderer, boxes):
    mesh = boxes()
    cameras = Cameras.orbit(2, width=24, height=24)
    expected, _ = renderer.render(mesh, cameras)
    turned = replace(
        mesh,
        faces=mesh.faces[:, ::-1],
        corner_colors=mesh.corner_colors[:, ::-1],
        corner_uv=mesh.corner_uv[:, ::-1],
        corner_normals=-mesh.corner_normals[:, ::-1],
    )
    assert np.abs(renderer.render(turned, cameras)[0] - expected).max() < 1e-5
    inside_out = replace(mesh, corner_normals=-mesh.corner_normals)
    assert np.abs(renderer.render(inside_out, cameras)[0] - expected).max() < 1e-5


@BOTH
def test_light_does_not_follow_the_camera(renderer, boxes):
    """One point of a surface has one brightness from wherever it is seen."""
    mesh = boxes(1, seed=3)
    mesh = replace(mesh, corner_colors=np.ones_like(mesh.corner_colors))
    cameras = Cameras.orbit(12, elevation=30, width=48, height=48)
    images, _ = renderer.render(mesh, cameras, samples=1)
    values = np.round(images[images[..., 3] == 1][:, 0], 4)
    # A box has six sides, so at most six brightnesses in all views together.
    assert 2 <= len(np.unique(values)) <= 6


@BOTH
def test_transparent_texels_are_holes_and_what_is_behind_is_seen(renderer, wall, mesh_of):
    texture = np.full((8, 8, 4), 255, np.uint8)
    texture[:, :4, 3] = 0  # the left half
    texture[..., 1:3] = 0
    front = wall(texture=texture)
    behind = wall(half=2.0)
    mesh = replace(
        front,
        vertices=np.concatenate([front.vertices, behind.vertices + np.array([0, 1, 0])]),
        faces=np.concatenate([front.faces, behind.faces + 4]),
        corner_normals=np.concatenate([front.corner_normals, behind.corner_normals]),
        corner_uv=np.concatenate([front.corner_uv, behind.corner_uv]),
        corner_colors=np.concatenate([front.corner_colors, behind.corner_colors]),
        face_material=np.int32([0, 0, 1, 1]),
        materials=(*front.materials, Material(np.float32([0, 0, 1, 1]))),
    )
    images, depth = renderer.render(mesh, front_camera(), lighting="unlit")
    assert depth[0, 32, 24] == pytest.approx(5.0)
    assert images[0, 32, 24].tolist() == [0, 0, 1, 1]
    assert depth[0, 32, 40] == pytest.approx(4.0)
    assert images[0, 32, 40].tolist() == [1, 0, 0, 1]
    alone, depth = renderer.render(front, front_camera(), lighting="unlit")
    assert alone[0, 32, 20].tolist() == [0, 0, 0, 0]
    assert depth[0, 32, 20] == 0


@BOTH
def test_a_material_more_transparent_than_not_is_not_drawn(renderer, wall):
    images, depth = renderer.render(wall(color=(1, 1, 1, 0.4)), front_camera())
    assert images.sum() == 0
    assert depth.sum() == 0
    images, _ = renderer.render(wall(color=(1, 1, 1, 0.6)), front_camera())
    assert images[0, 32, 32, 3] == 1


@BOTH
def test_textures_are_repeated_and_interpolated(renderer, wall):
    texture = np.zeros((1, 2, 4), np.uint8)
    texture[..., 3] = 255
    texture[0, 1, :3] = 255
    mesh = wall(texture=texture)
    mesh = replace(mesh, corner_uv=mesh.corner_uv * np.float32([2, 1]) - np.float32([3, 0]))
    # One hundred and twenty-eight pixels show two periods: black at u = 0.25, white at 0.75, linear in between.
    images, _ = renderer.render(mesh, front_camera(size=256), lighting="unlit", samples=1)
    row = images[0, 128, 64:192, 0]
    u = (np.arange(128) + 0.5) / 64 % 1
    expected = np.clip(np.where(u < 0.75, (u - 0.25) * 2, 2 - (u - 0.25) * 2), 0, 1)
    expected = np.where(u < 0.25, 0.5 - u * 2, expected)
    assert np.abs(row - expected).max() < 1e-5


@BOTH
def test_colours_are_weighted_by_alpha_when_texels_are_interpolated(renderer, wall):
    texture = np.zeros((1, 2, 4), np.uint8)
    texture[0, 0] = (255, 0, 0, 255)  # beside it: black, fully transparent
    images, _ = renderer.render(wall(texture=texture), front_camera(), lighting="unlit")
    visible = images[images[..., 3] > 0]
    assert len(visible) > 100
    assert np.abs(visible[:, :3] - (1, 0, 0)).max() < 1e-5


@BOTH
def test_a_camera_inside_the_scene_sees_what_is_before_it_only(renderer, wall):
    """A floor that reaches behind the camera is cut at the camera, not mirrored."""
    floor = wall(half=5.0)
    floor = replace(floor, vertices=floor.vertices[:, [0, 2, 1]] - np.array([0, 0, 0.5]))
    cameras = front_camera(distance=0.0001, size=32)
    images, depth = renderer.render(floor, cameras, lighting="unlit", samples=1)
    assert images[0, :16, :, 3].sum() == 0
    assert images[0, 31, :, 3].min() == 1
    # The bottom row looks down by 15.5 pixels of 32: the floor, 0.5 below, is met at 0.5 * 32 / 15.5.
    assert depth[0, 31, 16] == pytest.approx(0.5 * 32 / 15.5, rel=1e-5)


@BOTH
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_large_pictures_in_bands_equal_small_ones(renderer, boxes, samples, monkeypatch):
    cameras = Cameras.orbit(2, width=20, height=20)
    cameras = replace(cameras, height=17)
    expected = renderer.render(boxes(), cameras, samples=samples)
    monkeypatch.setattr("fusedplanes.datasets.shading._SUBPIXELS_AT_ONCE", 20 * samples**2 * 3)
    found = renderer.render(boxes(), cameras, samples=samples)
    assert found[0].shape == (2, 17, 20, 4)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])


@BOTH
def test_options_out_of_range_are_named(renderer, wall):
    with pytest.raises(ConfigError, match=r"lighting 'headlight'.*fixed, unlit"):
        renderer.render(wall(), front_camera(), lighting="headlight")
    for samples in (0, 17):
        with pytest.raises(ConfigError, match=f"samples {samples}"):
            renderer.render(wall(), front_camera(), samples=samples)


@BOTH
@pytest.mark.parametrize("name", ["vertices", "corner_uv"])
def test_coordinates_that_are_not_finite_are_refused(renderer, wall, four_colors, name):
    mesh = wall(texture=four_colors)
    getattr(mesh, name).flat[0] = np.inf
    with pytest.raises(DataError, match=f"{name} has values that are not finite"):
        renderer.render(mesh, front_camera())


def test_without_embree_the_ray_caster_names_the_extra(wall, monkeypatch):
    monkeypatch.setitem(sys.modules, "embreex.rtcore_scene", None)
    assert not ray_cast.is_available()
    with pytest.raises(ConfigError, match=r"fusedplanes\[meshes\]"):
        ray_cast.render(wall(), front_camera())


def away_from_edges(mesh, cameras, image):
    """Pixels that stay as they are when the picture is shifted by a hundredth of a pixel any way."""
    steady = np.ones(image.shape[:3], bool)
    for right, down in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
        intrinsics = cameras.intrinsics.clone()
        intrinsics[:, 0, 2] += right
        intrinsics[:, 1, 2] += down
        shifted, _ = rasterize.render(mesh, replace(cameras, intrinsics=intrinsics), samples=3)
        steady &= (np.abs(shifted - image) < 1 / 255).all(-1)
    return steady


def assert_agreement(mesh, cameras, *, ties=0.0):
    """Colours within 1/255 and equal depth away from edges; at edges a sub-pixel or two may differ."""
    cast, cast_depth = ray_cast.render(mesh, cameras, samples=3)
    drawn, drawn_depth = rasterize.render(mesh, cameras, samples=3)
    difference = np.abs(cast - drawn).max(-1)
    steady = away_from_edges(mesh, cameras, drawn)
    assert (difference[steady] > 1 / 255).mean() <= ties
    assert (cast_depth != drawn_depth)[steady].mean() <= ties
    assert (difference > 1 / 255).mean() < 1e-3
    covered = drawn[..., 3] == 1
    assert covered.mean() > 0.02
    assert steady[covered].mean() > 0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("holes", [False, True])
def test_the_two_renderers_agree(boxes, seed, holes):
    generator = np.random.default_rng(seed)
    texture = generator.integers(0, 256, (9, 7, 4)).astype(np.uint8)
    if not holes:
        texture[..., 3] = 255
    mesh = boxes(8, seed=seed, texture=texture)
    assert_agreement(mesh, Cameras.orbit(4, radius=2.2, elevation=30 * seed - 30, width=96, height=96))


def test_the_two_renderers_agree_on_real_cars(real_cars):
    cameras = Cameras.orbit(3, width=128, height=128)
    for path in real_cars:
        # Modelled by hand: some faces lie in each other's plane, and either may be in front.
        assert_agreement(load_mesh(path)[0], cameras, ties=1e-4)


def test_a_sphere_has_the_light_and_depth_of_a_sphere(mesh_of):
    """Interpolated normals and exact depth, against the analytic answer."""
    theta, phi = np.meshgrid(np.linspace(0, math.pi, 65), np.linspace(0, 2 * math.pi, 129), indexing="ij")
    points = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], -1)
    rows, columns = points.shape[:2]
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1)
    faces = np.concatenate(
        [
            np.stack([corner, corner + columns, corner + columns + 1], -1)[columns - 1 :],
            np.stack([corner, corner + columns + 1, corner + 1], -1),
        ]
    )
    vertices = points.reshape(-1, 3)
    corners = vertices[faces]
    faces = faces[
        np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=-1) > 1e-9
    ]
    mesh = mesh_of(vertices, faces, normals=vertices[faces].astype(np.float32))
    cameras = front_camera(distance=4.0, size=64, focal=1.5)
    images, depth = rasterize.render(mesh, cameras, samples=1)
    y, x = np.mgrid[:64, :64] + 0.5
    direction = np.stack([(x - 32) / 96, np.ones_like(x), (32 - y) / 96], -1)
    b, c = -4 * direction[..., 1], 15.0
    square = (direction**2).sum(-1)
    root = b * b - square * c
    inside = root > 0.05
    t = (-b - np.sqrt(np.maximum(root, 0))) / square
    assert np.abs(depth[0][inside] - t[inside]).max() < 3e-3
    normal = direction * t[..., None] - (0, 4, 0)
    light = mesh_kernels.AMBIENT + mesh_kernels.SKY * normal[..., 2]
    light = np.minimum(light + mesh_kernels.KEY * np.maximum(normal @ np.array(mesh_kernels.KEY_DIRECTION), 0), 1)
    assert np.abs(images[0, ..., 0][inside] - light[inside]).max() < 1 / 255
