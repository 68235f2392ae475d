"""Primitive shapes from which objects are assembled.

A shape is a handful of patches, and a patch is a grid of points. That one representation is enough for boxes, lathes,
tubes and lofts, and it gives every surface coordinates to paint on. Rows run up the texture and columns run to its
right, so that ``d(column) x d(row)`` points out of the shape.

Every primitive is centred at the origin with its axis along +z unless its docstring says otherwise. The unit is
whatever the object is designed in: an `Assembly` scales the finished object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """A surface made of patches.

    Attributes:
        patches: grids of points, each ``[rows, columns, 3]`` float64 with at least two rows and two columns.
            Neighbouring points may coincide (the pole of a sphere).

    Example:
        >>> leg = cylinder(0.05, 0.7).moved(z=0.35)
        >>> leg.bounds[1, 2]
        np.float64(0.7)
    """

    patches: tuple[np.ndarray, ...]

    @property
    def bounds(self) -> np.ndarray:
        """``[2, 3]`` smallest and largest coordinates."""
        points = np.concatenate([patch.reshape(-1, 3) for patch in self.patches])
        return np.stack([points.min(0), points.max(0)])

    def moved(self, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Shape:
        """This shape, translated."""
        return Shape(tuple(patch + np.array([x, y, z]) for patch in self.patches))

    def scaled(self, x: float = 1.0, y: float = 1.0, z: float = 1.0) -> Shape:
        """This shape, scaled about the origin along each axis by a positive factor."""
        return Shape(tuple(patch * (x, y, z) for patch in self.patches))

    def rotated(self, axis: str, degrees: float) -> Shape:
        """This shape, turned about the axis ``"x"``, ``"y"`` or ``"z"`` through the origin by the right-hand rule."""
        first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
        cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        matrix = np.eye(3)
        matrix[[first, second], [first, second]] = cosine
        matrix[first, second], matrix[second, first] = -sine, sine
        return Shape(tuple(patch @ matrix.T for patch in self.patches))

    def mirrored(self, axis: str) -> Shape:
        """This shape seen in a mirror across the plane where ``axis`` is 0. Columns run the other way round, so that
        the surface still faces outwards."""
        factor = np.ones(3)
        factor["xyz".index(axis)] = -1
        return Shape(tuple((patch * factor)[:, ::-1] for patch in self.patches))

    def joined(self, *others: Shape) -> Shape:
        """One shape with the patches of all."""
        return Shape(sum((other.patches for other in others), self.patches))


def panel(corners: Sequence[Sequence[float]]) -> Shape:
    """A flat or bent quadrilateral through four points, anti-clockwise seen from outside, starting bottom left."""
    a, b, c, d = np.asarray(corners, dtype=np.float64)
    return Shape((np.array([[a, b], [d, c]]),))


def box(x: float, y: float, z: float) -> Shape:
    """A box with edges of these lengths. Its patches face +x, -x, +y, -y, +z, -z; the side patches stand upright."""
    half = np.array([x, y, z]) / 2
    return Shape(tuple(patch * half for patch in _cube_patches(np.array([-1.0, 1.0]))))


def rounded_box(x: float, y: float, z: float, radius: float, segments: int = 2) -> Shape:
    """A box whose edges are rounded with ``radius`` (at most half the shortest edge); patches as in `box`."""
    half = np.array([x, y, z]) / 2
    radius = min(radius, *half)
    # A face of a cube seen from its centre, at equal angles along each quarter arc. The middle sample occurs twice,
    # once for either corner: the flat of the face lies between the two.
    arc = np.tan(np.linspace(0, math.pi / 4, segments + 1))
    directions = _cube_patches(np.concatenate([-arc[::-1], arc]))
    corners = _cube_patches(np.repeat([-1.0, 1.0], segments + 1))
    return Shape(
        tuple(
            corner * (half - radius) + radius * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
            for corner, direction in zip(corners, directions)
        )
    )


def _cube_patches(along: np.ndarray) -> list[np.ndarray]:
    """The six faces of the cube ``[-1, 1]^3``, each sampled at ``along`` in both directions."""
    v, u = np.meshgrid(along, along, indexing="ij")
    one = np.ones_like(u)
    faces = [(one, u, v), (-one, -u, v), (-u, one, v), (u, -one, v), (u, v, one), (u, -v, -one)]
    return [np.stack(face, -1) for face in faces]


def lathe(profile: Sequence[Sequence[float]], segments: int = 24) -> Shape:
    """A surface of revolution about z: one patch whose rows follow the profile and whose columns go round from +x.

    Args:
        profile: ``[n, 2]`` (radius, z) from bottom to top along the outside; start or end at radius 0 to close it.
        segments: number of columns round the axis.
    """
    radius, height = np.asarray(profile, dtype=np.float64).T
    angle = np.linspace(0, 2 * math.pi, segments + 1)
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    circle[-1] = circle[0]
    ring = radius[:, None, None] * circle
    return Shape((np.concatenate([ring, np.broadcast_to(height[:, None, None], (*ring.shape[:2], 1))], -1),))


def cylinder(radius: float, height: float, top_radius: float | None = None, segments: int = 20) -> Shape:
    """A closed cylinder, or a truncated cone if ``top_radius`` differs (0 for a cone). Patches: side, top, bottom."""
    top = radius if top_radius is None else top_radius
    low, high = -height / 2, height / 2
    side = lathe([(radius, low), (top, high)], segments)
    return side.joined(lathe([(top, high), (0, high)], segments), lathe([(0, low), (radius, low)], segments))


def sphere(radius: float, segments: int = 18) -> Shape:
    """A sphere; scale it for an ellipsoid."""
    tilt = np.linspace(-math.pi / 2, math.pi / 2, segments // 2 + 1)
    ring = np.cos(tilt)
    ring[[0, -1]] = 0
    return lathe(radius * np.stack([ring, np.sin(tilt)], -1), segments)


def torus(radius: float, thickness: float, segments: int = 20, sides: int = 8, arc_degrees: float = 360.0) -> Shape:
    """A ring in the xy plane: ``radius`` to the middle of a tube of radius ``thickness``, or an arc of it from +x."""
    angle = np.radians(np.linspace(0, arc_degrees, segments + 1))
    path = radius * np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], -1)
    return tube(path, thickness, sides)


def tube(path: Sequence[Sequence[float]], radius: float | Sequence[float], sides: int = 8) -> Shape:
    """A round tube along a curve, with closed ends.

    Args:
        path: ``[n, 3]`` points along the middle, no two in a row equal. A path that ends where it starts is a ring.
        radius: one radius, or one for every point.
        sides: number of columns round the tube.
    """
    path = np.asarray(path, dtype=np.float64)
    closed = bool(np.allclose(path[0], path[-1]))
    step = np.diff(path, axis=0)
    step /= np.linalg.norm(step, axis=1, keepdims=True)
    before = np.concatenate([step[-1:] if closed else step[:1], step])
    after = np.concatenate([step, step[:1] if closed else step[-1:]])
    tangent = before + after
    tangent /= np.maximum(np.linalg.norm(tangent, axis=1, keepdims=True), 1e-12)
    # Each ring inherits the sideways direction of the one before, so that the tube does not twist.
    sideways = np.cross(tangent[0], np.eye(3)[np.argmin(np.abs(tangent[0]))])
    frames = []
    for direction in tangent:
        sideways = sideways - direction * (sideways @ direction)
        sideways = sideways / np.linalg.norm(sideways)
        frames.append((sideways, np.cross(direction, sideways)))
    first, second = np.array(frames).transpose(1, 0, 2)
    angle = np.linspace(0, 2 * math.pi, sides + 1)
    cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
    cosine[-1], sine[-1] = cosine[0], sine[0]
    thickness = np.broadcast_to(np.asarray(radius, dtype=np.float64), len(path))[:, None, None]
    rings = path[:, None] + thickness * (cosine * first[:, None] + sine * second[:, None])
    if closed:
        rings[-1] = rings[0]
        return Shape((rings,))
    return loft(rings)


def loft(rings: np.ndarray, caps: bool = True) -> Shape:
    """A surface through closed cross-sections, with flat ends.

    Args:
        rings: ``[n, k, 3]``; the last point of each ring equals its first. Seen from the end towards the start, a ring
            runs anti-clockwise.
        caps: close both ends. Patches: side, end, start.
    """
    rings = np.asarray(rings, dtype=np.float64)
    if not caps:
        return Shape((rings,))
    start = np.broadcast_to(rings[0].mean(0), rings[0].shape)
    end = np.broadcast_to(rings[-1].mean(0), rings[-1].shape)
    return Shape((rings, np.stack([rings[-1], end]), np.stack([start, rings[0]])))


def prism(outline: Sequence[Sequence[float]], thickness: float, top_scale: float = 1.0) -> Shape:
    """An outline in the xy plane, extruded along z.

    Args:
        outline: ``[n, 2]`` corners, anti-clockwise, all of them visible from their mean (every convex outline is).
        thickness: height along z.
        top_scale: scale of the top outline about the mean.

    Patches: side, top, bottom.
    """
    corners = np.asarray(outline, dtype=np.float64)
    corners = np.concatenate([corners, corners[:1]])
    middle = corners[:-1].mean(0)
    low = np.concatenate([corners, np.full((len(corners), 1), -thickness / 2)], 1)
    high = np.concatenate([middle + (corners - middle) * top_scale, np.full((len(corners), 1), thickness / 2)], 1)
    return loft(np.stack([low, high]))


def arc(radius: float, start_degrees: float, end_degrees: float, count: int) -> np.ndarray:
    """``[count, 2]`` points on a circle round the origin."""
    angle = np.radians(np.linspace(start_degrees, end_degrees, count))
    return radius * np.stack([np.cos(angle), np.sin(angle)], -1)


def smooth_curve(points: Sequence[Sequence[float]], count: int) -> np.ndarray:
    """``[count, d]`` samples of the Catmull-Rom spline through points ``[n, d]``, with equal numbers per span."""
    points = np.asarray(points, dtype=np.float64)
    padded = np.concatenate([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
    place = np.linspace(0, len(points) - 1, count)
    span = np.minimum(place.astype(int), len(points) - 2)
    t = (place - span)[:, None]
    a, b, c, d = (padded[span + k] for k in range(4))
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
