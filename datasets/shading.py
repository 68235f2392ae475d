"""What a visible point of a mesh looks like: the part that the ray caster and the rasteriser share.

Both renderers answer one question, "which face does this sub-pixel see?", and hand the answers to `resolve`. Colour,
depth and barycentric coordinates are computed here from the face's number alone, so that two renderers that see the
same face agree to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusedplanes.cameras import Cameras
from fusedplanes.datasets.textured_mesh import TexturedMesh
from fusedplanes.errors import ConfigError
from fusedplanes.kernels.dispatch import compile_kernel

LIGHTINGS = ("fixed", "unlit")
SAMPLES_LIMIT = 16

# The light stands still in the world: a field without view directions can hold its effect like paint. Brightness is
# AMBIENT + SKY * n_z + KEY * max(0, n . KEY_DIRECTION), at most 1, and multiplies sRGB values.
AMBIENT, SKY, KEY = 0.56, 0.12, 0.36
_KEY_DIRECTION = np.array([0.42, -0.62, 0.66])
KEY_DIRECTION = tuple((_KEY_DIRECTION / np.linalg.norm(_KEY_DIRECTION)).tolist())

_OPAQUE_FROM = 0.5


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
    """Lay a mesh out for the kernels."""
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
    kept = colors[..., 3].max(1) * alpha_range[:, 1] >= _OPAQUE_FROM
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
        may_have_holes=(colors[..., 3].min(1) * alpha_range[:, 0] < _OPAQUE_FROM)[kept],
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


_INLINE = dict(nogil=True, error_model="numpy", inline="always")


def _compile_inline(function):
    import numba

    return numba.njit(**_INLINE)(function)


@_compile_inline
def edge_functions(corners, face, origin, dx, dy, dz):
    """Weights of the three corners where a line meets a face's plane, times ``volume / depth``, and the volume.

    With a, b, c the corners seen from the origin and d the direction, the weights are d.(b x c), d.(c x a), d.(a x b);
    their sum divides the volume a.(b x c) to the distance along d. All three have one sign inside the face. A face
    behind the camera or across its plane needs no clipping (Olano and Greer, "Triangle scan conversion using 2D
    homogeneous coordinates", 1997).
    """
    ax, ay, az = corners[face, 0, 0] - origin[0], corners[face, 0, 1] - origin[1], corners[face, 0, 2] - origin[2]
    bx, by, bz = corners[face, 1, 0] - origin[0], corners[face, 1, 1] - origin[1], corners[face, 1, 2] - origin[2]
    cx, cy, cz = corners[face, 2, 0] - origin[0], corners[face, 2, 1] - origin[1], corners[face, 2, 2] - origin[2]
    nx, ny, nz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
    wa = dx * nx + dy * ny + dz * nz
    wb = dx * (cy * az - cz * ay) + dy * (cz * ax - cx * az) + dz * (cx * ay - cy * ax)
    wc = dx * (ay * bz - az * by) + dy * (az * bx - ax * bz) + dz * (ax * by - ay * bx)
    return wa, wb, wc, ax * nx + ay * ny + az * nz


@_compile_inline
def normalise_weights(wa, wb, wc):
    """Barycentric coordinates that are never outside the face, whatever rounding did at its rim."""
    total = wa + wb + wc
    if total == 0.0:
        return 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0
    wa, wb, wc = max(wa / total, 0.0), max(wb / total, 0.0), max(wc / total, 0.0)
    total = wa + wb + wc
    return wa / total, wb / total, wc / total


@_compile_inline
def surface_color(uv, colors, textures, texels, face, wa, wb, wc):
    """Straight-alpha sRGB of a point on a face, before light: vertex colour times bilinear texture, repeated."""
    red = wa * colors[face, 0, 0] + wb * colors[face, 1, 0] + wc * colors[face, 2, 0]
    green = wa * colors[face, 0, 1] + wb * colors[face, 1, 1] + wc * colors[face, 2, 1]
    blue = wa * colors[face, 0, 2] + wb * colors[face, 1, 2] + wc * colors[face, 2, 2]
    alpha = wa * colors[face, 0, 3] + wb * colors[face, 1, 3] + wc * colors[face, 2, 3]
    height = textures[face, 1]
    if height > 0:
        first, width = textures[face, 0], textures[face, 2]
        u = wa * uv[face, 0, 0] + wb * uv[face, 1, 0] + wc * uv[face, 2, 0]
        v = wa * uv[face, 0, 1] + wb * uv[face, 1, 1] + wc * uv[face, 2, 1]
        column = (u - np.floor(u)) * width - 0.5
        row = (np.floor(v) + 1.0 - v) * height - 0.5
        left, top = int(np.floor(column)), int(np.floor(row))
        right_share, lower_share = column - left, row - top
        total, tr, tg, tb = 0.0, 0.0, 0.0, 0.0
        for corner in range(4):
            x, y = left + corner % 2, top + corner // 2
            share = right_share if corner % 2 else 1.0 - right_share
            share *= lower_share if corner // 2 else 1.0 - lower_share
            # Both are between -1 and the size, so one step wraps them.
            x = x + width if x < 0 else (x - width if x >= width else x)
            y = y + height if y < 0 else (y - height if y >= height else y)
            texel = first + y * width + x
            share *= texels[texel, 3] / 255.0
            total += share
            tr += share * texels[texel, 0]
            tg += share * texels[texel, 1]
            tb += share * texels[texel, 2]
        alpha *= total
        if total > 0.0:
            red, green, blue = red * tr / total / 255.0, green * tg / total / 255.0, blue * tb / total / 255.0
    return red, green, blue, alpha


@compile_kernel(
    "void(float64[:,:,::1], float32[:,:,::1], float32[:,:,::1], float32[:,:,::1], int64[:,::1], uint8[:,::1],"
    " float64[::1], float64[:,::1], int32[:,::1], int64, int64, boolean, float32[:,:,::1])",
    parallel=False,
)
def _resolve_color(
    corners, normals, uv, colors, textures, texels, origin, directions, visible, samples, first_row, lit, image
):
    rows, width = visible.shape[0] // samples, visible.shape[1] // samples
    for row in range(rows):
        for column in range(width):
            red, green, blue, hits = 0.0, 0.0, 0.0, 0
            for sample in range(samples * samples):
                i, j = row * samples + sample // samples, column * samples + sample % samples
                face = visible[i, j]
                if face < 0:
                    continue
                x, y = (j + 0.5) / samples, first_row + (i + 0.5) / samples
                dx = directions[0, 0] * x + directions[0, 1] * y + directions[0, 2]
                dy = directions[1, 0] * x + directions[1, 1] * y + directions[1, 2]
                dz = directions[2, 0] * x + directions[2, 1] * y + directions[2, 2]
                wa, wb, wc, volume = edge_functions(corners, face, origin, dx, dy, dz)
                wa, wb, wc = normalise_weights(wa, wb, wc)
                r, g, b, _ = surface_color(uv, colors, textures, texels, face, wa, wb, wc)
                if lit:
                    nx = wa * normals[face, 0, 0] + wb * normals[face, 1, 0] + wc * normals[face, 2, 0]
                    ny = wa * normals[face, 0, 1] + wb * normals[face, 1, 1] + wc * normals[face, 2, 1]
                    nz = wa * normals[face, 0, 2] + wb * normals[face, 1, 2] + wc * normals[face, 2, 2]
                    # The volume is positive where the corners run clockwise for the camera: then it sees the back.
                    length = np.sqrt(nx * nx + ny * ny + nz * nz)
                    scale = 0.0 if length == 0.0 else (-1.0 / length if volume > 0.0 else 1.0 / length)
                    toward_key = nx * KEY_DIRECTION[0] + ny * KEY_DIRECTION[1] + nz * KEY_DIRECTION[2]
                    light = min(AMBIENT + SKY * nz * scale + KEY * max(toward_key * scale, 0.0), 1.0)
                    r, g, b = r * light, g * light, b * light
                red, green, blue, hits = red + r, green + g, blue + b, hits + 1
            if hits > 0:
                image[row, column, 0] = min(red / hits, 1.0)
                image[row, column, 1] = min(green / hits, 1.0)
                image[row, column, 2] = min(blue / hits, 1.0)
                image[row, column, 3] = hits / (samples * samples)


@compile_kernel(
    "void(float64[:,:,::1], float64[::1], float64[:,::1], int32[:,::1], int64, float32[:,::1])", parallel=False
)
def _resolve_depth(corners, origin, directions, visible, first_row, depth):
    for row in range(visible.shape[0]):
        for column in range(visible.shape[1]):
            face = visible[row, column]
            if face < 0:
                continue
            x, y = column + 0.5, first_row + row + 0.5
            dx = directions[0, 0] * x + directions[0, 1] * y + directions[0, 2]
            dy = directions[1, 0] * x + directions[1, 1] * y + directions[1, 2]
            dz = directions[2, 0] * x + directions[2, 1] * y + directions[2, 2]
            wa, wb, wc, volume = edge_functions(corners, face, origin, dx, dy, dz)
            total = wa + wb + wc
            if total != 0.0:
                depth[row, column] = volume / total


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
            _resolve_color(
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
            _resolve_depth(packed.corners, *ray, visible, first, depth[view, first : first + rows])
    return images, depth


_SUBPIXELS_AT_ONCE = 1 << 21
