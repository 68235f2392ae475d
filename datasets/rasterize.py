"""Draw a mesh with a z-buffer: numba alone, no ray-casting library."""

from __future__ import annotations

import numpy as np

from fusedplanes.cameras import Cameras
from fusedplanes.datasets.mesh_kernels import draw
from fusedplanes.datasets.shading import PackedMesh, render_views
from fusedplanes.datasets.textured_mesh import TexturedMesh


def render(
    mesh: TexturedMesh, cameras: Cameras, *, lighting: str = "fixed", samples: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Views of a mesh; the same function as `ray_cast.render`, without embree."""
    return render_views(mesh, cameras, _find_visible, lighting=lighting, samples=samples)


def _find_visible(packed: PackedMesh, origin, directions, samples, first_row, rows, width) -> np.ndarray:
    visible = np.full((rows * samples, width * samples), -1, np.int32)
    nearest = np.full(visible.shape, np.inf)
    draw(
        packed.corners,
        *packed.surface,
        packed.may_have_holes,
        origin,
        directions,
        np.linalg.inv(directions),
        samples,
        first_row,
        visible,
        nearest,
    )
    return visible
