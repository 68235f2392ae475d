"""Draw a mesh by casting rays through embree (the package ``embreex``)."""

from __future__ import annotations

import numpy as np

from fusedplanes.cameras import Cameras
from fusedplanes.datasets.mesh_kernels import aim, step_through_holes
from fusedplanes.datasets.shading import PackedMesh, render_views
from fusedplanes.datasets.textured_mesh import TexturedMesh
from fusedplanes.errors import ConfigError

_LAYERS_LIMIT = 64


def is_available() -> bool:
    """Whether embree can be used on this machine."""
    try:
        import embreex.rtcore_scene  # noqa: F401
    except ImportError:
        return False
    return True


def render(
    mesh: TexturedMesh, cameras: Cameras, *, lighting: str = "fixed", samples: int = 4
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
    aim(directions, samples, first_row, rays)
    rays = rays.reshape(-1, 3)
    starts = np.broadcast_to(origin.astype(np.float32), rays.shape).copy()
    visible = scene.run(starts, rays).astype(np.int32)
    if packed.may_have_holes.any():
        pending = np.flatnonzero(visible >= 0)
        for _ in range(_LAYERS_LIMIT):
            pending = pending[packed.may_have_holes[visible[pending]]]
            through = np.zeros(len(pending), np.bool_)
            step_through_holes(packed.corners, *packed.surface, origin, rays, pending, visible, starts, through)
            pending = pending[through]
            if len(pending) == 0:
                break
            visible[pending] = scene.run(starts[pending], rays[pending])
            pending = pending[visible[pending] >= 0]
        else:
            visible[pending] = -1
    return visible.reshape(shape)
