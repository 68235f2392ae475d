"""Draw a mesh by casting rays through embree (the package ``embreex``)."""

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
from fusedplanes.errors import ConfigError
from fusedplanes.kernels.dispatch import compile_kernel

_LAYERS_LIMIT = 64


def is_available() -> bool:
    """Whether embree can be used on this machine."""
    try:
        import embreex.rtcore_scene  # noqa: F401
    except ImportError:
        return False
    return True


def render(
    mesh: TexturedMesh, cameras: Cameras, *, lighting: str = "fixed", samples: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Anti-aliased views of a mesh, its faces seen from both sides; points with alpha below 0.5 are holes.

    Args:
        mesh: in world units.
        cameras: ``V`` cameras of one size.
        lighting: "fixed" (a key light and sky that stand still in the world) or "unlit" (bare surface colour).
        samples: rays per pixel along each side; alpha is the share of them that hit.

    Returns:
        images ``[V, H, W, 4]`` float32 straight-alpha sRGB in [0, 1], and depth ``[V, H, W]`` float32: camera-z of the
        surface at the pixel's centre in world units, 0 where there is none.

    Raises:
        ConfigError: embree is not installed, or an option is out of range.

    Example:
        >>> from fusedplanes.datasets.procedural import make_mesh
        >>> images, depth = render(make_mesh("cars", 0, seed=0), Cameras.orbit(2, width=32, height=32))
        >>> images.shape, depth.shape
        ((2, 32, 32, 4), (2, 32, 32))
    """
    try:
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene
    except ImportError as error:
        raise ConfigError("ray casting needs the package embreex: pip install 'fusedplanes[meshes]'") from error

    scene = None

    def find_visible(packed: PackedMesh, origin, directions, *band) -> np.ndarray:
        nonlocal scene
        if scene is None:
            scene = EmbreeScene()
            TriangleMesh(scene, packed.corners.astype(np.float32))
        return _find_visible(scene, packed, origin, directions, *band)

    return render_views(mesh, cameras, find_visible, lighting=lighting, samples=samples)


def _find_visible(scene, packed: PackedMesh, origin, directions, samples, first_row, rows, width) -> np.ndarray:
    shape = rows * samples, width * samples
    rays = np.empty((*shape, 3), np.float32)
    _aim(directions, samples, first_row, rays)
    rays = rays.reshape(-1, 3)
    starts = np.broadcast_to(origin.astype(np.float32), rays.shape).copy()
    visible = scene.run(starts, rays).astype(np.int32)
    if packed.may_have_holes.any():
        pending = np.flatnonzero(visible >= 0)
        for _ in range(_LAYERS_LIMIT):
            pending = pending[packed.may_have_holes[visible[pending]]]
            through = np.zeros(len(pending), np.bool_)
            _step_through_holes(packed.corners, *packed.surface, origin, rays, pending, visible, starts, through)
            pending = pending[through]
            if len(pending) == 0:
                break
            visible[pending] = scene.run(starts[pending], rays[pending])
            pending = pending[visible[pending] >= 0]
    return visible.reshape(shape)


@compile_kernel("void(float64[:,::1], int64, int64, float32[:,:,::1])", parallel=False)
def _aim(directions, samples, first_row, rays):
    for i in range(rays.shape[0]):
        for j in range(rays.shape[1]):
            x, y = (j + 0.5) / samples, first_row + (i + 0.5) / samples
            for axis in range(3):
                rays[i, j, axis] = directions[axis, 0] * x + directions[axis, 1] * y + directions[axis, 2]


@compile_kernel(
    "void(float64[:,:,::1], float32[:,:,::1], float32[:,:,::1], int64[:,::1], uint8[:,::1], float64[::1],"
    " float32[:,::1], int64[::1], int32[::1], float32[:,::1], boolean[::1])",
    parallel=False,
)
def _step_through_holes(corners, uv, colors, textures, texels, origin, rays, pending, visible, starts, through):
    for index in range(len(pending)):
        ray = pending[index]
        face = visible[ray]
        dx, dy, dz = float(rays[ray, 0]), float(rays[ray, 1]), float(rays[ray, 2])
        wa, wb, wc, volume = edge_functions(corners, face, origin, dx, dy, dz)
        total = wa + wb + wc
        wa, wb, wc = normalise_weights(wa, wb, wc)
        if surface_color(uv, colors, textures, texels, face, wa, wb, wc)[3] >= _OPAQUE_FROM or total == 0.0:
            continue
        through[index] = True
        # Behind the hole by a little more than float32 can lose, or the same face would be met again.
        distance = volume / total
        distance += 1e-5 * max(abs(distance), 1.0)
        for axis in range(3):
            starts[ray, axis] = origin[axis] + distance * rays[ray, axis]
