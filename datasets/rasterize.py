"""Draw a mesh with a z-buffer: numba alone, no ray-casting library."""

from __future__ import annotations

import numpy as np

from fusedplanes.cameras import Cameras
from fusedplanes.datasets.shading import (
    _OPAQUE_FROM,
    PackedMesh,
    edge_functions,
    normalise_weights,
    render_views,
    surface_color,
)
from fusedplanes.datasets.textured_mesh import TexturedMesh
from fusedplanes.kernels.dispatch import compile_kernel


def render(
    mesh: TexturedMesh, cameras: Cameras, *, lighting: str = "fixed", samples: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Views of a mesh; the same function as `ray_cast.render`, without embree."""
    return render_views(mesh, cameras, _find_visible, lighting=lighting, samples=samples)


def _find_visible(packed: PackedMesh, origin, directions, samples, first_row, rows, width) -> np.ndarray:
    visible = np.full((rows * samples, width * samples), -1, np.int32)
    nearest = np.full(visible.shape, np.inf)
    _draw(
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


@compile_kernel(
    "void(float64[:,:,::1], float32[:,:,::1], float32[:,:,::1], int64[:,::1], uint8[:,::1], boolean[::1], float64[::1],"
    " float64[:,::1], float64[:,::1], int64, int64, int32[:,::1], float64[:,::1])",
    parallel=False,
)
def _draw(
    corners,
    uv,
    colors,
    textures,
    texels,
    may_have_holes,
    origin,
    directions,
    projection,
    samples,
    first_row,
    visible,
    nearest,
):
    height, width = visible.shape
    for face in range(len(corners)):
        # Bounds of the face in sub-pixels; a face that reaches behind the camera has none.
        low_x, low_y, high_x, high_y, in_front = np.inf, np.inf, -np.inf, -np.inf, 0
        for corner in range(3):
            px = corners[face, corner, 0] - origin[0]
            py = corners[face, corner, 1] - origin[1]
            pz = corners[face, corner, 2] - origin[2]
            z = projection[2, 0] * px + projection[2, 1] * py + projection[2, 2] * pz
            if z > 1e-6:
                in_front += 1
                x = (projection[0, 0] * px + projection[0, 1] * py + projection[0, 2] * pz) / z * samples
                y = (projection[1, 0] * px + projection[1, 1] * py + projection[1, 2] * pz) / z * samples
                y -= first_row * samples
                low_x, high_x = min(low_x, x), max(high_x, x)
                low_y, high_y = min(low_y, y), max(high_y, y)
        if in_front == 0:
            continue
        if in_front < 3:
            low_x, low_y, high_x, high_y = 0.0, 0.0, float(width), float(height)
        # Sub-pixel j has its centre at j + 0.5.
        first_column = int(max(np.ceil(low_x - 0.5 - 1e-6), 0.0))
        last_column = int(min(np.floor(high_x - 0.5 + 1e-6), width - 1.0))
        first_line = int(max(np.ceil(low_y - 0.5 - 1e-6), 0.0))
        last_line = int(min(np.floor(high_y - 0.5 + 1e-6), height - 1.0))
        for i in range(first_line, last_line + 1):
            y = first_row + (i + 0.5) / samples
            for j in range(first_column, last_column + 1):
                x = (j + 0.5) / samples
                dx = directions[0, 0] * x + directions[0, 1] * y + directions[0, 2]
                dy = directions[1, 0] * x + directions[1, 1] * y + directions[1, 2]
                dz = directions[2, 0] * x + directions[2, 1] * y + directions[2, 2]
                wa, wb, wc, volume = edge_functions(corners, face, origin, dx, dy, dz)
                if not ((wa >= 0.0 and wb >= 0.0 and wc >= 0.0) or (wa <= 0.0 and wb <= 0.0 and wc <= 0.0)):
                    continue
                total = wa + wb + wc
                if total == 0.0:
                    continue
                depth = volume / total
                if depth <= 1e-6 or depth >= nearest[i, j]:
                    continue
                if may_have_holes[face]:
                    wa, wb, wc = normalise_weights(wa, wb, wc)
                    alpha = surface_color(uv, colors, textures, texels, face, wa, wb, wc)[3]
                    if alpha < _OPAQUE_FROM:
                        continue
                nearest[i, j] = depth
                visible[i, j] = face
