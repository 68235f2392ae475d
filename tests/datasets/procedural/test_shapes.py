"""Primitives: sizes, closedness, which way they face, and how they are moved."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fusedplanes.datasets.procedural import shapes
from fusedplanes.datasets.procedural.shapes import Shape

TRIANGLE = [(0.0, 0.0), (3.0, 0.0), (0.0, 4.0)]
SQUARE_RINGS = [
    [(-1, -1, z), (1, -1, z), (1, 1, z), (-1, 1, z), (-1, -1, z)] for z in (0.0, 2.0)
]  # fmt: skip


def triangles(shape: Shape) -> np.ndarray:
    """``[F, 3, 3]`` corners, facing along d(column) x d(row)."""
    faces = []
    for patch in shape.patches:
        a, b = patch[:-1, :-1].reshape(-1, 3), patch[:-1, 1:].reshape(-1, 3)
        c, d = patch[1:, 1:].reshape(-1, 3), patch[1:, :-1].reshape(-1, 3)
        faces += [np.stack([a, b, c], 1), np.stack([a, c, d], 1)]
    return np.concatenate(faces)


def volume(shape: Shape) -> float:
    """Signed volume by the divergence theorem: positive if the surface is closed and faces outwards."""
    a, b, c = triangles(shape).transpose(1, 0, 2)
    return float((a * np.cross(b, c)).sum() / 6)


def total_area_vector(shape: Shape) -> np.ndarray:
    """Zero for every closed surface."""
    a, b, c = triangles(shape).transpose(1, 0, 2)
    return 0.5 * np.cross(b - a, c - a).sum(0)


CLOSED = {
    "box": (shapes.box(1, 2, 3), 6.0, 1e-12),
    "rounded box": (shapes.rounded_box(1, 2, 3, 0.2, 6), None, 0),
    "cylinder": (shapes.cylinder(1, 2, segments=96), 2 * math.pi, 0.01),
    "cone": (shapes.cylinder(1, 3, 0, segments=96), math.pi, 0.01),
    "sphere": (shapes.sphere(2, 64), 4 / 3 * math.pi * 8, 0.2),
    "torus": (shapes.torus(3, 0.5, 64, 32), 2 * math.pi**2 * 3 * 0.25, 0.15),
    "tube": (shapes.tube([(0, 0, 0), (0, 0, 1), (0, 1, 1)], 0.1, 32), None, 0),
    "prism": (shapes.prism(TRIANGLE, 2), 12.0, 1e-12),
    "tapered prism": (shapes.prism([(-1, -1), (1, -1), (1, 1), (-1, 1)], 3, 0.0), 4.0, 1e-12),
    "loft": (shapes.loft(SQUARE_RINGS), 8.0, 1e-12),
    "lathe": (shapes.lathe([(0, 0), (1, 0), (1, 2), (0, 2)], 96), 2 * math.pi, 0.01),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_shapes_face_outwards_and_have_their_volume(name):
    shape, expected, tolerance = CLOSED[name]
    np.testing.assert_allclose(total_area_vector(shape), 0, atol=1e-9)
    assert volume(shape) > 0
    if expected is not None:
        assert abs(volume(shape) - expected) <= tolerance


def test_rounded_box_keeps_its_size_and_loses_its_corners():
    shape = shapes.rounded_box(2, 4, 6, 0.5, 8)
    np.testing.assert_allclose(shape.bounds, [[-1, -2, -3], [1, 2, 3]], atol=1e-12)
    # A box less its edges: inner box, slabs, quarter cylinders and one sphere.
    expected = 1 * 3 * 5 + 2 * 0.5 * (1 * 3 + 3 * 5 + 1 * 5) + math.pi * 0.25 * (1 + 3 + 5) + 4 / 3 * math.pi * 0.125
    assert abs(volume(shape) - expected) < 0.05


def test_rounding_is_limited_to_half_the_shortest_edge():
    shape = shapes.rounded_box(1, 1, 0.2, 5.0)
    np.testing.assert_allclose(shape.bounds, [[-0.5, -0.5, -0.1], [0.5, 0.5, 0.1]], atol=1e-12)


def test_box_patches_come_in_order_and_side_patches_stand_upright():
    normals = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    patches = shapes.box(1, 1, 1).patches
    for grid, normal in zip(patches, normals, strict=True):
        np.testing.assert_allclose(np.cross(grid[0, 1] - grid[0, 0], grid[1, 0] - grid[0, 0]), normal)
    for grid in patches[:4]:
        assert (grid[1, :, 2] > grid[0, :, 2]).all()


def test_moves():
    point = Shape((np.array([[[1.0, 0, 0], [0, 2.0, 0]], [[0, 0, 3.0], [1, 1, 1]]]),))
    np.testing.assert_allclose(point.moved(1, 2, 3).patches[0][0, 0], [2, 2, 3])
    np.testing.assert_allclose(point.scaled(2, 3, 4).patches[0][1, 0], [0, 0, 12])
    np.testing.assert_allclose(point.rotated("z", 90).patches[0][0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(point.rotated("x", 90).patches[0][0, 1], [0, 0, 2], atol=1e-12)
    np.testing.assert_allclose(point.rotated("y", 90).patches[0][1, 0], [3, 0, 0], atol=1e-12)


@pytest.mark.parametrize("axis", "xyz")
def test_a_mirrored_shape_still_faces_outwards(axis):
    shape = shapes.prism(TRIANGLE, 1).moved(1, 2, 3)
    mirrored = shape.mirrored(axis)
    assert abs(volume(mirrored) - volume(shape)) < 1e-12
    index = "xyz".index(axis)
    np.testing.assert_allclose(mirrored.bounds[0, index], -shape.bounds[1, index])


def test_joined_keeps_the_order_of_patches():
    joined = shapes.box(1, 1, 1).joined(shapes.sphere(1), shapes.cylinder(1, 1))
    assert len(joined.patches) == 6 + 1 + 3
    assert joined.patches[6].shape == shapes.sphere(1).patches[0].shape


def test_tube_has_its_radius_at_every_ring():
    path = np.array([(0, 0, 0), (0, 0, 1), (0, 1, 2), (1, 1, 2)], dtype=float)
    side = shapes.tube(path, [0.1, 0.2, 0.3, 0.1], 12).patches[0]
    distance = np.linalg.norm(side - path[:, None], axis=-1)
    np.testing.assert_allclose(distance, np.broadcast_to(np.array([[0.1], [0.2], [0.3], [0.1]]), distance.shape))


def test_closed_path_gives_a_ring_without_ends():
    ring = shapes.torus(1, 0.2, 12, 6)
    assert len(ring.patches) == 1
    np.testing.assert_array_equal(ring.patches[0][0], ring.patches[0][-1])
    assert len(shapes.torus(1, 0.2, 12, 6, arc_degrees=90).patches) == 3


def test_panel_runs_anticlockwise_from_the_bottom_left():
    grid = shapes.panel([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]).patches[0]
    np.testing.assert_array_equal(grid, [[(0, 0, 0), (1, 0, 0)], [(0, 1, 0), (1, 1, 0)]])


def test_smooth_curve_passes_through_its_points_and_keeps_lines_straight():
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 1.0)]
    np.testing.assert_allclose(shapes.smooth_curve(points, 31)[::10], points, atol=1e-12)
    line = shapes.smooth_curve([(0.0, 0.0), (1.0, 2.0), (2.0, 4.0)], 9)
    np.testing.assert_allclose(line[:, 1], 2 * line[:, 0], atol=1e-12)


def test_arc():
    np.testing.assert_allclose(shapes.arc(2, 0, 90, 3), [(2, 0), (math.sqrt(2), math.sqrt(2)), (0, 2)], atol=1e-12)
