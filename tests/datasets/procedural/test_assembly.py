"""Joining painted shapes: size, normals, textures and where their texels lie."""

from __future__ import annotations

import numpy as np
import pytest

from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import box, cylinder, panel, sphere

RED, BLUE = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)


def built(*parts):
    assembly = Assembly()
    for part in parts:
        assembly.add(*part)
    return assembly.build()


def test_the_object_is_centred_and_its_longest_side_fills_the_box():
    mesh = built((box(2, 4, 8).moved(10, -3, 5), RED))
    np.testing.assert_allclose(mesh.vertices.min(0), [-0.225, -0.45, -0.9])
    np.testing.assert_allclose(mesh.vertices.max(0), [0.225, 0.45, 0.9])


def test_plain_colours_share_one_material_without_texture():
    mesh = built((box(1, 1, 1), RED), (box(1, 1, 1).moved(x=2), BLUE))
    assert len(mesh.materials) == 1
    assert mesh.materials[0].texture is None
    assert (mesh.face_material == 0).all()
    left = mesh.vertices[mesh.faces].mean(1)[:, 0] < 0
    np.testing.assert_array_equal(mesh.corner_colors[left], np.broadcast_to([1, 0, 0, 1], (12, 3, 4)))
    np.testing.assert_array_equal(mesh.corner_colors[~left], np.broadcast_to([0, 0, 1, 1], (12, 3, 4)))


def test_faces_without_area_are_left_out():
    # Each pole of a sphere is a whole row of coinciding points: half of the triangles there have no area.
    segments, bands = 12, 6
    assert len(built((sphere(1, segments), RED)).faces) == segments * (2 * bands - 2)


def test_sharp_edges_are_flat_and_soft_edges_smooth():
    corners = built((box(1, 1, 1), RED)).corner_normals
    assert (np.abs(corners).max(-1) == 1).all()
    mesh = built((sphere(1, 24), RED))
    directions = mesh.vertices[mesh.faces] / np.linalg.norm(mesh.vertices[mesh.faces], axis=-1, keepdims=True)
    assert (mesh.corner_normals * directions).sum(-1).min() > 0.99


def test_the_crease_angle_decides_and_parts_never_share_normals():
    # The sides of an octagon meet at 45 degrees.
    soft = built((cylinder(1, 1, segments=8), RED, 50.0)).corner_normals
    sharp = built((cylinder(1, 1, segments=8), RED, 40.0)).corner_normals
    assert len(np.unique(np.round(sharp, 4).reshape(-1, 3), axis=0)) == 8 + 2
    upright = np.abs(soft[..., 2]) < 0.5
    angle = np.degrees(np.arctan2(soft[upright][:, 1], soft[upright][:, 0]))
    # Smooth normals point at the corners of the octagon, at multiples of 45 degrees.
    np.testing.assert_allclose(angle, 45 * np.round(angle / 45), atol=1e-3)
    one = panel([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)])
    other = panel([(1, 0, 0), (2, 0, 0.3), (2, 1, 0.3), (1, 1, 0)])
    apart = built((one, RED), (other, RED)).corner_normals
    np.testing.assert_allclose(apart[:2], np.broadcast_to([0, 0, 1], (2, 3, 3)), atol=1e-6)


def sampled(mesh, face: int, weights: np.ndarray) -> np.ndarray:
    """Colour of the mesh's texture, nearest texel, at barycentric weights of a face."""
    texture = mesh.materials[mesh.face_material[face]].texture
    height, width = texture.shape[:2]
    u, v = weights @ mesh.corner_uv[face]
    return texture[int((1 - v) * height), int(u * width), :3] / 255


@pytest.mark.parametrize("shape", [box(1, 2, 3), sphere(1, 16), cylinder(1, 2).rotated("x", 40)])
def test_a_texel_is_painted_with_the_place_it_has_on_the_surface(shape):
    low, high = shape.bounds
    seen: list[Texels] = []

    def paint(texels: Texels) -> np.ndarray:
        seen.append(texels)
        return (texels.points - low) / (high - low)

    mesh = built((shape, paint))
    assert [texels.patch for texels in seen] == list(range(len(shape.patches)))
    random = np.random.default_rng(0)
    extent = np.ptp(mesh.vertices, axis=0)
    for face in random.integers(0, len(mesh.faces), 40):
        weights = random.dirichlet([1, 1, 1])
        place = (weights @ mesh.vertices[mesh.faces[face]] - mesh.vertices.min(0)) / extent
        np.testing.assert_allclose(sampled(mesh, face, weights), place, atol=0.06)


def test_the_first_row_of_a_texture_is_its_top_and_borders_lie_on_texel_centres():
    mesh = built((panel([(0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1)]), lambda texels: texels.points))
    texture = mesh.materials[1].texture
    height, width = texture.shape[:2]
    np.testing.assert_array_equal(texture[0, 0], [0, 0, 255, 255])
    np.testing.assert_array_equal(texture[-1, -1], [255, 0, 0, 255])
    np.testing.assert_allclose(mesh.corner_uv[..., 0].min(), 0.5 / width, rtol=1e-6)
    np.testing.assert_allclose(mesh.corner_uv[..., 1].max(), 1 - 0.5 / height, rtol=1e-6)


def test_texels_know_rows_columns_and_lengths():
    seen: list[Texels] = []

    def paint(texels: Texels) -> np.ndarray:
        seen.append(texels)
        return texels.filled(RED)

    # Three rows, the second twice as far from the first as the third from the second.
    grid = np.array([[(0, 0, z), (4, 0, z)] for z in (0.0, 2.0, 3.0)])
    shape = panel([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)])
    built((type(shape)((grid,)), paint))
    texels = seen[0]
    assert texels.size == (4.0, 3.0)
    np.testing.assert_allclose(texels.row[:, 0], np.interp(texels.z[:, 0], [0, 2, 3], [0, 1, 2]), atol=1e-6)
    np.testing.assert_allclose(texels.v[:, 0], texels.z[:, 0] / 3, atol=1e-6)
    np.testing.assert_allclose(texels.u[0], texels.x[0] / 4, atol=1e-6)
    np.testing.assert_allclose(texels.column[0], texels.u[0], atol=1e-6)


def test_colours_beyond_the_range_are_clipped():
    mesh = built((box(1, 1, 1), lambda texels: texels.filled((2.0, -1.0, 0.5))))
    np.testing.assert_array_equal(mesh.materials[1].texture[0, 0], [255, 0, 128, 255])
