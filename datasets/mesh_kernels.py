"""The compiled loops that draw meshes.

They stand in one file because numba's cache on disk looks at the file of a function only: a change in a function that
is inlined from elsewhere would go unseen.
"""

from __future__ import annotations

import numba
import numpy as np

from fusedplanes.kernels.dispatch import compile_kernel

# The light stands still in the world: a field without view directions can hold its effect like paint. Brightness is
# AMBIENT + SKY * n_z + KEY * max(0, n . KEY_DIRECTION), at most 1, and multiplies sRGB values.
AMBIENT, SKY, KEY = 0.56, 0.12, 0.36
_KEY_DIRECTION = np.array([0.42, -0.62, 0.66])
KEY_DIRECTION = tuple((_KEY_DIRECTION / np.linalg.norm(_KEY_DIRECTION)).tolist())

OPAQUE_FROM = 0.5
"""Alpha from which a point counts as surface; below it is a hole."""

_NEAR = 1e-6

_compile_inline = numba.njit(nogil=True, error_model="numpy", inline="always")


@_compile_inline
def _edge_functions(corners, face, origin, dx, dy, dz):
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
def _normalise_weights(wa, wb, wc):
    """Barycentric coordinates that are never outside the face, whatever rounding did at its rim."""
    total = wa + wb + wc
    if total == 0.0:
        return 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0
    wa, wb, wc = max(wa / total, 0.0), max(wb / total, 0.0), max(wc / total, 0.0)
    total = wa + wb + wc
    return wa / total, wb / total, wc / total


@_compile_inline
def _surface_color(uv, colors, textures, texels, face, wa, wb, wc):
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
def resolve_color(
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
                wa, wb, wc, volume = _edge_functions(corners, face, origin, dx, dy, dz)
                wa, wb, wc = _normalise_weights(wa, wb, wc)
                r, g, b, _ = _surface_color(uv, colors, textures, texels, face, wa, wb, wc)
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
def resolve_depth(corners, origin, directions, visible, first_row, depth):
    for row in range(visible.shape[0]):
        for column in range(visible.shape[1]):
            face = visible[row, column]
            if face < 0:
                continue
            x, y = column + 0.5, first_row + row + 0.5
            dx = directions[0, 0] * x + directions[0, 1] * y + directions[0, 2]
            dy = directions[1, 0] * x + directions[1, 1] * y + directions[1, 2]
            dz = directions[2, 0] * x + directions[2, 1] * y + directions[2, 2]
            wa, wb, wc, volume = _edge_functions(corners, face, origin, dx, dy, dz)
            total = wa + wb + wc
            if total != 0.0:
                depth[row, column] = volume / total


@compile_kernel(
    "void(float64[:,:,::1], float32[:,:,::1], float32[:,:,::1], int64[:,::1], uint8[:,::1], boolean[::1], float64[::1],"
    " float64[:,::1], float64[:,::1], int64, int64, int32[:,::1], float64[:,::1])",
    parallel=False,
)
def draw(
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
            if z > _NEAR:
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
                wa, wb, wc, volume = _edge_functions(corners, face, origin, dx, dy, dz)
                if not ((wa >= 0.0 and wb >= 0.0 and wc >= 0.0) or (wa <= 0.0 and wb <= 0.0 and wc <= 0.0)):
                    continue
                total = wa + wb + wc
                if total == 0.0:
                    continue
                depth = volume / total
                if depth <= _NEAR or depth >= nearest[i, j]:
                    continue
                if may_have_holes[face]:
                    wa, wb, wc = _normalise_weights(wa, wb, wc)
                    alpha = _surface_color(uv, colors, textures, texels, face, wa, wb, wc)[3]
                    if alpha < OPAQUE_FROM:
                        continue
                nearest[i, j] = depth
                visible[i, j] = face


@compile_kernel("void(float64[:,::1], int64, int64, float32[:,:,::1])", parallel=False)
def aim(directions, samples, first_row, rays):
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
def step_through_holes(corners, uv, colors, textures, texels, origin, rays, pending, visible, starts, through):
    for index in range(len(pending)):
        ray = pending[index]
        face = visible[ray]
        dx, dy, dz = float(rays[ray, 0]), float(rays[ray, 1]), float(rays[ray, 2])
        wa, wb, wc, volume = _edge_functions(corners, face, origin, dx, dy, dz)
        total = wa + wb + wc
        wa, wb, wc = _normalise_weights(wa, wb, wc)
        if _surface_color(uv, colors, textures, texels, face, wa, wb, wc)[3] >= OPAQUE_FROM or total == 0.0:
            continue
        through[index] = True
        # Behind the hole by a little more than float32 can lose, or the same face would be met again.
        distance = volume / total
        distance += 1e-5 * max(abs(distance), 1.0)
        for axis in range(3):
            starts[ray, axis] = origin[axis] + distance * rays[ray, axis]
