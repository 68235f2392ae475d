"""Painting shapes and joining them into one mesh."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.procedural.shapes import Shape
from fusedplanes.datasets.textured_mesh import Material, TexturedMesh

HALF_EXTENT = 0.9
_TEXELS_PER_UNIT = 96
_TEXELS_LIMIT = 192
_SMALLEST_AREA = 1e-9


@dataclass(frozen=True)
class Texels:
    """The texels of one patch, as a painter sees them.

    Attributes:
        points: ``[h, w, 3]`` float32, where they lie on the assembled object, in the object's own unit.
        row: ``[h, 1]`` position between the rows of the patch's grid: 2.5 is halfway from row 2 to row 3.
        column: ``[1, w]`` likewise between its columns.
        u: ``[1, w]`` distance along a row, divided by its length: 0 at the left, 1 at the right.
        v: ``[h, 1]`` distance up a column, divided by its length.
        size: mean length along a row and up a column, in the object's own unit.
        patch: number of the patch in its shape.
    """

    points: np.ndarray
    row: np.ndarray
    column: np.ndarray
    u: np.ndarray
    v: np.ndarray
    size: tuple[float, float]
    patch: int

    @property
    def x(self) -> np.ndarray:
        """``[h, w]`` coordinates of the points along x."""
        return self.points[..., 0]

    @property
    def y(self) -> np.ndarray:
        """``[h, w]`` coordinates of the points along y."""
        return self.points[..., 1]

    @property
    def z(self) -> np.ndarray:
        """``[h, w]`` coordinates of the points along z."""
        return self.points[..., 2]

    def filled(self, color) -> np.ndarray:
        """``[h, w, 3]`` of one colour, to paint on."""
        return np.broadcast_to(np.asarray(color, dtype=np.float32), self.points.shape).copy()


Paint = tuple[float, float, float] | Callable[[Texels], np.ndarray]
"""How a shape is coloured: one sRGB colour in [0, 1], or a function from texels to sRGB colours ``[h, w, 3]``."""


class Assembly:
    """Collects painted shapes and turns them into one mesh.

    Example:
        >>> from fusedplanes.datasets.procedural.shapes import box
        >>> assembly = Assembly()
        >>> assembly.add(box(1, 1, 1), (0.8, 0.2, 0.1))
        >>> len(assembly.build().faces)
        12
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Shape, Paint, float]] = []

    def add(self, shape: Shape, paint: Paint, crease_degrees: float = 40.0) -> None:
        """Add a shape where it stands.

        Args:
            shape: in the object's own unit.
            paint: see `Paint`.
            crease_degrees: edges that bend more than this are drawn sharp, others smooth.
        """
        self._parts.append((shape, paint, crease_degrees))

    def build(self) -> TexturedMesh:
        """The mesh: centred at the origin, its longest side from -0.9 to 0.9, without faces of no area."""
        bounds = np.stack([shape.bounds for shape, _, _ in self._parts])
        low, high = bounds[:, 0].min(0), bounds[:, 1].max(0)
        scale = 2 * HALF_EXTENT / (high - low).max()
        center = (low + high) / 2

        materials = [Material(np.ones(4, np.float32))]
        vertices, faces, uv, colors, material, part, crease = [], [], [], [], [], [], []
        first_vertex = 0
        for number, (shape, paint, crease_degrees) in enumerate(self._parts):
            for index, patch in enumerate(shape.patches):
                rows, columns = patch.shape[:2]
                corners = _grid_faces(rows, columns)
                v, u = _arc_length(patch, 0), _arc_length(patch, 1)
                if callable(paint):
                    texture, texel_u, texel_v = _bake(paint, patch, u, v, scale, index)
                    color, slot = (1.0, 1.0, 1.0), len(materials)
                    materials.append(Material(np.ones(4, np.float32), texture))
                else:
                    texel_u, texel_v, color, slot = u, v, paint, 0
                coordinates = np.stack(np.broadcast_arrays(texel_u[None, :], texel_v[:, None]), -1).reshape(-1, 2)
                vertices.append((patch.reshape(-1, 3) - center) * scale)
                faces.append(corners + first_vertex)
                uv.append(coordinates[corners])
                colors.append(np.broadcast_to(np.float32([*color, 1.0]), (len(corners), 3, 4)))
                material.append(np.full(len(corners), slot, np.int32))
                part.append(np.full(len(corners), number))
                crease.append(np.full(len(corners), crease_degrees))
                first_vertex += rows * columns

        points = np.clip(np.concatenate(vertices), -HALF_EXTENT, HALF_EXTENT)
        triangles = np.concatenate(faces)
        corner_points = points[triangles]
        cross = np.cross(corner_points[:, 1] - corner_points[:, 0], corner_points[:, 2] - corner_points[:, 0])
        kept = np.linalg.norm(cross, axis=-1) > 2 * _SMALLEST_AREA
        normals = _corner_normals(
            corner_points[kept], cross[kept], np.concatenate(part)[kept], np.concatenate(crease)[kept]
        )
        used, triangles = np.unique(triangles[kept], return_inverse=True)
        world_from_model = np.diag([scale, scale, scale, 1.0])
        world_from_model[:3, 3] = -center * scale
        return TexturedMesh(
            vertices=points[used],
            faces=triangles.reshape(-1, 3).astype(np.int64),
            corner_normals=normals.astype(np.float32),
            corner_uv=np.concatenate(uv)[kept].astype(np.float32),
            corner_colors=np.concatenate(colors)[kept],
            face_material=np.concatenate(material)[kept],
            materials=tuple(materials),
            world_from_source=np.eye(4),
        )


def _grid_faces(rows: int, columns: int) -> np.ndarray:
    """``[2 * (rows - 1) * (columns - 1), 3]`` triangles of a grid, facing along d(column) x d(row)."""
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1)
    right, above = corner + 1, corner + columns
    return np.concatenate(
        [np.stack([corner, right, above + 1], -1), np.stack([corner, above + 1, above], -1)],
    )


def _arc_length(patch: np.ndarray, axis: int) -> np.ndarray:
    """Distance along rows (axis 1) or columns (axis 0), the mean of all: ``[n]`` from 0 to the whole length."""
    steps = np.linalg.norm(np.diff(patch, axis=axis), axis=-1).mean(1 - axis)
    return np.concatenate([[0.0], np.cumsum(steps)])


def _bake(
    paint: Callable[[Texels], np.ndarray], patch: np.ndarray, u: np.ndarray, v: np.ndarray, scale: float, index: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Paint one patch. Returns the texture ``[h, w, 4]`` uint8 and the texture coordinates of the grid's lines."""
    counts = [int(np.clip(math.ceil(line[-1] * scale * _TEXELS_PER_UNIT), 2, _TEXELS_LIMIT)) for line in (v, u)]
    row, column = (
        np.interp(np.linspace(0, line[-1], count), line, np.arange(len(line))) for line, count in zip((v, u), counts)
    )
    low_row = np.minimum(row.astype(int), len(v) - 2)
    low_column = np.minimum(column.astype(int), len(u) - 2)
    # Single precision: this is most of the work of making an object, and a texel is a hundredth of its size.
    patch = patch.astype(np.float32)
    across = (column - low_column).astype(np.float32)[None, :, None]
    lines = patch[:, low_column] * (1 - across) + patch[:, low_column + 1] * across
    up = (row - low_row).astype(np.float32)[:, None, None]
    points = lines[low_row] * (1 - up) + lines[low_row + 1] * up
    texels = Texels(
        points=points,
        row=row[:, None],
        column=column[None],
        u=np.linspace(0, 1, counts[1])[None],
        v=np.linspace(0, 1, counts[0])[:, None],
        size=(float(u[-1]), float(v[-1])),
        patch=index,
    )
    texture = np.full((*counts, 4), 255, np.uint8)
    # Row 0 of a texture is its top.
    texture[::-1, :, :3] = np.clip(paint(texels), 0, 1) * 255 + 0.5
    # The grid's border lies on the centres of the outermost texels: a texture repeats, and its far side must not show.
    texture_u, texture_v = (
        (0.5 + line / max(line[-1], 1e-12) * (count - 1)) / count for line, count in ((u, counts[1]), (v, counts[0]))
    )
    return texture, texture_u, texture_v


def _corner_normals(corners: np.ndarray, cross: np.ndarray, part: np.ndarray, crease_degrees: np.ndarray) -> np.ndarray:
    """Unit normals ``[F, 3, 3]``: at each corner the mean over the part's faces that meet there below the crease angle.

    Faces weigh by their angle at the corner, so that it does not matter which way a quadrilateral is cut in two.

    Args:
        corners: ``[F, 3, 3]`` positions in [-1, 1].
        cross: ``[F, 3]`` cross products of the edges.
        part: ``[F]`` shape number; shapes never share a smooth edge.
        crease_degrees: ``[F]``.
    """
    flat = cross / np.linalg.norm(cross, axis=-1, keepdims=True)
    edges = np.roll(corners, -1, 1) - corners
    edges /= np.linalg.norm(edges, axis=-1, keepdims=True)
    angle = np.arccos(np.clip(-(edges * np.roll(edges, 1, 1)).sum(-1), -1, 1)).reshape(-1)
    # Positions on a grid of 2^-17, three to a word, with the part's number above them.
    place = np.rint((corners.reshape(-1, 3) + 1) * 2**17).astype(np.int64)
    key = (((part.repeat(3) << 18) + place[:, 0] << 18) + place[:, 1] << 18) + place[:, 2]
    _, corner_vertex, valence = np.unique(key, return_inverse=True, return_counts=True)
    by_vertex = np.argsort(corner_vertex, kind="stable")
    start = np.cumsum(valence) - valence
    # All pairs of corners that meet at a vertex.
    partners = valence[corner_vertex]
    corner = np.arange(len(key)).repeat(partners)
    turn = np.arange(len(corner)) - (np.cumsum(partners) - partners).repeat(partners)
    other = by_vertex[start[corner_vertex].repeat(partners) + turn]
    cosine = np.einsum("ij,ij->i", flat[corner // 3], flat[other // 3])
    smooth = cosine > np.cos(np.radians(crease_degrees))[corner // 3] - 1e-6
    corner, other = corner[smooth], other[smooth]
    weighted = angle[other, None] * flat[other // 3]
    total = np.stack([np.bincount(corner, weighted[:, axis], len(key)) for axis in range(3)], -1)
    return (total / np.linalg.norm(total, axis=-1, keepdims=True)).reshape(-1, 3, 3)
