"""The mesh that every maker produces and every renderer draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusedplanes.errors import DataError


@dataclass(frozen=True)
class Material:
    """Surface colour: ``base_color * vertex colour * texture``, all straight-alpha sRGB in [0, 1].

    Attributes:
        base_color: ``[4]`` float32 RGBA.
        texture: optional ``[h, w, 4]`` uint8 RGBA; row 0 is the top (v = 1), repeated outside [0, 1].
    """

    base_color: np.ndarray
    texture: np.ndarray | None = None


@dataclass(frozen=True)
class TexturedMesh:
    """Triangles with what is needed to colour them. Faces are drawn from both sides.

    Attributes:
        vertices: ``[N, 3]`` float64 world positions (+z up).
        faces: ``[F, 3]`` int64 vertex indices.
        corner_normals: ``[F, 3, 3]`` float32 unit normals at the corners.
        corner_uv: ``[F, 3, 2]`` float32 texture coordinates, v up.
        corner_colors: ``[F, 3, 4]`` float32 RGBA factors in [0, 1] (ones where the file has none).
        face_material: ``[F]`` int32 index into ``materials``.
        materials: at least one.
        world_from_source: ``[4, 4]`` float64 similarity from the file's coordinates to these.
    """

    vertices: np.ndarray
    faces: np.ndarray
    corner_normals: np.ndarray
    corner_uv: np.ndarray
    corner_colors: np.ndarray
    face_material: np.ndarray
    materials: tuple[Material, ...]
    world_from_source: np.ndarray

    def __post_init__(self) -> None:
        count = len(self.faces)
        expected = {
            "vertices": (len(self.vertices), 3),
            "faces": (count, 3),
            "corner_normals": (count, 3, 3),
            "corner_uv": (count, 3, 2),
            "corner_colors": (count, 3, 4),
            "face_material": (count,),
            "world_from_source": (4, 4),
        }
        for name, shape in expected.items():
            found = getattr(self, name).shape
            if found != shape:
                raise DataError(f"mesh: {name} has shape {found}; expected {shape}")
        if not self.materials:
            raise DataError("mesh: no material; give at least one")
