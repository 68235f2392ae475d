"""What a visible point of a mesh looks like: the part that the ray caster and the rasteriser share.

Both renderers answer one question, "which face does this sub-pixel see?", and `render_views` does the rest. Colour and
depth are computed from the face's number alone, so that two renderers that see the same face agree to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusedplanes.cameras import Cameras
from fusedplanes.datasets.mesh_kernels import OPAQUE_FROM, resolve_color, resolve_depth
from fusedplanes.datasets.textured_mesh import TexturedMesh
from fusedplanes.errors import ConfigError, DataError

LIGHTINGS = ("fixed", "unlit")
SAMPLES_LIMIT = 16
_SUBPIXELS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class PackedMesh:
    """A `TexturedMesh` as flat arrays for compiled loops; faces that are transparent everywhere are left out.

    Attributes:
        corners: ``[F, 3, 3]`` float64 world positions.
        normals: ``[F, 3, 3]`` float32, on the side from which the corners run anti-clockwise.
        uv: ``[F, 3, 2]`` float32.
        colors: ``[F, 3, 4]`` float32: vertex colour times the material's base colour.
        textures: ``[F, 3]`` int64: first texel, height, width; a height of 0 means none.
        texels: ``[T, 4]`` uint8 RGBA of all textures.
        may_have_holes: ``[F]`` bool: some point of the face may be transparent.
    """

    corners: np.ndarray
    normals: np.ndarray
    uv: np.ndarray
    colors: np.ndarray
    textures: np.ndarray
    texels: np.ndarray
    may_have_holes: np.ndarray

    @property
    def surface(self) -> tuple[np.ndarray, ...]:
        """What the alpha test needs, in the order the kernels take it."""
        return self.uv, self.colors, self.textures, self.texels


def pack(mesh: TexturedMesh) -> PackedMesh:
    """Lay a mesh out for the kernels.

    Raises:
        DataError: a coordinate is not finite; the kernels would read beyond a texture.
    """
    for name in ("vertices", "corner_uv"):
        if not np.isfinite(getattr(mesh, name)).all():
            raise DataError(f"mesh: {name} has values that are not finite")
    table = np.zeros((len(mesh.materials), 3), np.int64)
    alpha_range = np.ones((len(mesh.materials), 2), np.float32)
    pieces, first = [], 0
    for index, material in enumerate(mesh.materials):
        if material.texture is None:
            continue
        height, width = material.texture.shape[:2]
        table[index] = first, height, width
        alpha_range[index] = material.texture[..., 3].min() / 255, material.texture[..., 3].max() / 255
        pieces.append(np.ascontiguousarray(material.texture).reshape(-1, 4))
        first += height * width
    base = np.stack([material.base_color for material in mesh.materials]).astype(np.float32)
    colors = mesh.corner_colors.astype(np.float32) * base[mesh.face_material][:, None]
    alpha_range = alpha_range[mesh.face_material]
    kept = colors[..., 3].max(1) * alpha_range[:, 1] >= OPAQUE_FROM
    corners = mesh.vertices[mesh.faces[kept]].astype(np.float64)

    # Files disagree about which side of a face is its front, and often the normals do not follow the winding. Only
    # the normals are turned: seen from behind they are turned once more, so nothing depends on the winding.
    normals = mesh.corner_normals[kept].astype(np.float32)
    facing = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    against = (normals.sum(1) * facing).sum(-1) < 0
    normals = np.where(against[:, None, None], -normals, normals)
    return PackedMesh(
        corners=np.ascontiguousarray(corners),
        normals=np.ascontiguousarray(normals),
        uv=np.ascontiguousarray(mesh.corner_uv[kept], np.float32),
        colors=np.ascontiguousarray(colors[kept]),
        textures=np.ascontiguousarray(table[mesh.face_material[kept]]),
        texels=np.concatenate(pieces) if pieces else np.zeros((1, 4), np.uint8),
        may_have_holes=(colors[..., 3].min(1) * alpha_range[:, 0] < OPAQUE_FROM)[kept],
    )


def view_arrays(cameras: Cameras) -> tuple[np.ndarray, np.ndarray]:
    """Camera positions and the matrices that turn pixels into world directions.

    Returns:
        positions ``[V, 3]`` and matrices ``[V, 3, 3]`` in float64; a matrix times (x, y, 1), x and y in pixels, is a
        direction whose length along the camera's z axis is 1, so that distances along it are camera-z depths.
    """
    camera_to_world = cameras.camera_to_world.detach().cpu().double().numpy().reshape(-1, 4, 4)
    intrinsics = cameras.intrinsics.detach().cpu().double().numpy().reshape(-1, 3, 3)
    directions = camera_to_world[:, :3, :3] @ np.linalg.inv(intrinsics)
    return np.ascontiguousarray(camera_to_world[:, :3, 3]), np.ascontiguousarray(directions)


def check_options(lighting: str, samples: int) -> None:
    """Refuse an unknown lighting or a senseless number of samples with a `ConfigError`."""
    if lighting not in LIGHTINGS:
        raise ConfigError(f"lighting '{lighting}': choose one of {', '.join(LIGHTINGS)}")
    if not 1 <= samples <= SAMPLES_LIMIT:
        raise ConfigError(f"samples {samples}: a pixel takes 1 to {SAMPLES_LIMIT} samples per side")


def render_views(mesh: TexturedMesh, cameras: Cameras, find_visible, *, lighting: str, samples: int):
    """Render with a function that finds the visible face of every sub-pixel.

    Args:
        find_visible: called as ``find_visible(packed, origin, directions, samples, first_row, rows, width)``; returns
            ``[rows * samples, width * samples]`` int32 face numbers, -1 where nothing is seen.

    Returns:
        images ``[V, H, W, 4]`` and depth ``[V, H, W]``, see `ray_cast.render`.
    """
    check_options(lighting, samples)
    packed = pack(mesh)
    positions, directions = view_arrays(cameras)
    images = np.zeros((len(positions), cameras.height, cameras.width, 4), np.float32)
    depth = np.zeros(images.shape[:3], np.float32)
    if len(packed.corners) == 0:
        return images, depth
    # Bands of rows bound the memory of large pictures.
    band = max(1, _SUBPIXELS_AT_ONCE // (cameras.width * samples**2))
    for view in range(len(positions)):
        for first in range(0, cameras.height, band):
            rows = min(band, cameras.height - first)
            ray = positions[view], directions[view]
            visible = find_visible(packed, *ray, samples, first, rows, cameras.width)
            resolve_color(
                packed.corners,
                packed.normals,
                *packed.surface,
                *ray,
                visible,
                samples,
                first,
                lighting == "fixed",
                images[view, first : first + rows],
            )
            # Depth is that of the ray through the pixel's centre: a mean over a silhouette would float in the air.
            if samples % 2:
                visible = np.ascontiguousarray(visible[samples // 2 :: samples, samples // 2 :: samples])
            else:
                visible = find_visible(packed, *ray, 1, first, rows, cameras.width)
            resolve_depth(packed.corners, *ray, visible, first, depth[view, first : first + rows])
    return images, depth
