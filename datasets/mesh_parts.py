"""From the parts that file readers deliver to one mesh in the project's frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.textured_mesh import Material, TexturedMesh
from fusedplanes.errors import DataError

FACES_LIMIT = 5_000_000
PLAIN_GREY = np.array([0.75, 0.75, 0.75, 1.0], np.float32)
"""Base colour of meshes whose file names none."""
CREASE_DEGREES = 40.0
_VALENCE_LIMIT = 64

# Rows are the world's axes in the file's: y up, z towards the viewer, becomes z up, -y towards the viewer.
WORLD_FROM_Y_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1.0, 0], [0, 1.0, 0, 0], [0, 0, 0, 1.0]])


@dataclass(frozen=True)
class MeshPart:
    """Triangles of one material, in the file's coordinates.

    Attributes:
        vertices: ``[N, 3]`` float64.
        faces: ``[F, 3]`` int64, all within ``vertices``.
        material: its base colour and texture.
        normals: ``[N, 3]`` or None.
        uv: ``[N, 2]`` with v up, or None.
        colors: ``[N, 4]`` sRGB in [0, 1], or None.
    """

    vertices: np.ndarray
    faces: np.ndarray
    material: Material
    normals: np.ndarray | None = None
    uv: np.ndarray | None = None
    colors: np.ndarray | None = None


def join(parts: list[MeshPart], *, up: str) -> TexturedMesh:
    """One mesh with +z up, centred, its longest side from -0.9 to 0.9; faces without area are dropped.

    Args:
        parts: at least one with a face, or the mesh counts as empty.
        up: the file's up axis, "y" or "z".

    Raises:
        DataError: no face is left, or sizes are beyond what numbers can tell apart.
    """
    parts = [part for part in parts if len(part.faces)]
    if not parts:
        raise DataError("no faces; a point cloud or an empty file cannot be drawn")
    if sum(len(part.faces) for part in parts) > FACES_LIMIT:
        raise DataError(f"more than {FACES_LIMIT} faces; simplify the mesh first")
    world_from_source = WORLD_FROM_Y_UP if up == "y" else np.eye(4)
    rotation = world_from_source[:3, :3]
    materials = list({id(part.material): part.material for part in parts}.values())
    slots = {id(material): slot for slot, material in enumerate(materials)}

    vertices = np.concatenate([part.vertices for part in parts]).astype(np.float64) @ rotation.T
    starts = np.cumsum([0, *(len(part.vertices) for part in parts)])
    faces = np.concatenate([part.faces + start for part, start in zip(parts, starts)]).astype(np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        corners = vertices[faces]
        area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=-1)
        kept = np.isfinite(corners).all((1, 2)) & np.isfinite(area) & (area > 0)
    if not kept.any():
        raise DataError("every face is degenerate: without area, or with coordinates that are not finite")
    low, high = corners[kept].min((0, 1)), corners[kept].max((0, 1))
    extent = (high - low).max()
    if not 1e-12 < extent < 1e12:
        raise DataError(f"the bounding box is {extent:.3g} wide; rescale the mesh to between 1e-12 and 1e12")
    scale, center = 1.8 / extent, (low + high) / 2

    similarity = np.diag([scale, scale, scale, 1.0])
    similarity[:3, 3] = -center * scale
    points = (vertices - center) * scale
    normals = np.concatenate([_corner_normals(part, rotation) for part in parts])
    kept_faces = faces[kept]
    missing = ~(np.linalg.norm(normals[kept], axis=-1) > 1e-6)
    normals = normals[kept]
    if missing.any():
        computed = creased_normals(points[kept_faces], CREASE_DEGREES)
        normals = np.where(missing[..., None], computed, normals)
    normals = normals / np.linalg.norm(normals, axis=-1, keepdims=True)
    used, kept_faces = np.unique(kept_faces, return_inverse=True)
    return TexturedMesh(
        vertices=points[used],
        faces=kept_faces.reshape(-1, 3).astype(np.int64),
        corner_normals=normals.astype(np.float32),
        corner_uv=np.concatenate([_corner_uv(part) for part in parts])[kept],
        corner_colors=np.concatenate([_corner_colors(part) for part in parts])[kept],
        face_material=np.repeat([slots[id(part.material)] for part in parts], [len(part.faces) for part in parts])[
            kept
        ].astype(np.int32),
        materials=tuple(materials),
        world_from_source=similarity @ world_from_source,
    )


def _corner_normals(part: MeshPart, rotation: np.ndarray) -> np.ndarray:
    """``[F, 3, 3]`` in world axes; zeros where the file has none or nonsense."""
    if part.normals is None:
        return np.zeros((len(part.faces), 3, 3))
    with np.errstate(invalid="ignore", over="ignore"):
        normals = np.nan_to_num(part.normals.astype(np.float64), posinf=0.0, neginf=0.0) @ rotation.T
        length = np.linalg.norm(normals, axis=-1, keepdims=True)
        normals = np.where((length > 1e-12) & np.isfinite(length), normals / np.maximum(length, 1e-300), 0.0)
    return normals[part.faces]


def _corner_uv(part: MeshPart) -> np.ndarray:
    if part.uv is None:
        return np.zeros((len(part.faces), 3, 2), np.float32)
    # Far outside [0, 1] a float32 has no fraction left to look a texel up with.
    uv = np.nan_to_num(part.uv.astype(np.float64), posinf=0.0, neginf=0.0)[part.faces]
    return (uv - np.floor(uv.min(1, keepdims=True))).astype(np.float32)


def _corner_colors(part: MeshPart) -> np.ndarray:
    if part.colors is None:
        return np.ones((len(part.faces), 3, 4), np.float32)
    return np.clip(np.nan_to_num(part.colors), 0, 1).astype(np.float32)[part.faces]


def creased_normals(corners: np.ndarray, crease_degrees: float) -> np.ndarray:
    """Normals for faces that came without: smooth across gentle edges, sharp across others.

    Args:
        corners: ``[F, 3, 3]`` positions of faces that have an area.
        crease_degrees: faces at a vertex that differ by more are not averaged.

    Returns:
        ``[F, 3, 3]`` unit normals: at each corner the mean, weighted by area, over the faces that share its position
        and turn by no more than the crease angle.
    """
    count = len(corners)
    weighted = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    unit = weighted / np.maximum(np.linalg.norm(weighted, axis=-1, keepdims=True), 1e-300)
    flat = np.repeat(unit[:, None], 3, 1)
    _, point = np.unique(np.round(corners.reshape(-1, 3), 6), axis=0, return_inverse=True)
    order = np.argsort(point, kind="stable")
    valence = np.bincount(point)
    start = np.cumsum(valence) - valence
    # Rank r of every corner meets all ranks of its vertex: one pass per offset keeps memory at one array. The hub of a
    # great fan stays flat-shaded, as its mean would cost the square of its faces.
    total = np.zeros((3 * count, 3))
    sorted_face = order // 3
    for offset in range(min(int(valence.max()), _VALENCE_LIMIT)):
        has_partner = (valence[point[order]] > offset) & (valence[point[order]] <= _VALENCE_LIMIT)
        rank = np.arange(3 * count) - start[point[order]]
        partner = start[point[order]] + (rank + offset) % np.maximum(valence[point[order]], 1)
        mine, other = sorted_face[has_partner], sorted_face[partner[has_partner]]
        smooth = (unit[mine] * unit[other]).sum(-1) >= np.cos(np.radians(crease_degrees))
        total[order[has_partner]] += weighted[other] * smooth[:, None]
    length = np.linalg.norm(total, axis=-1, keepdims=True)
    return np.where(length > 1e-300, total / np.maximum(length, 1e-300), flat.reshape(-1, 3)).reshape(count, 3, 3)
