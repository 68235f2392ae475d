"""`sample_triplane` for float32 tensors in main memory, compiled by numba.

Planes are channels-last, so a tap is one contiguous run of C floats and the innermost loops run over channels. They
index two-dimensional arrays by (row, channel): LLVM then sees that no channel offset is negative, and vectorises.

Outputs do not depend on the number of threads. Forward and the gradient of points treat each point alone. The gradient
of planes is scattered, so the work is cut into units whose number depends on shapes only: one per batch entry, plane
and part of the points. A unit owns the plane it adds to; when the points of an entry are cut into parts, each part has
a private copy and the copies are added in order.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import torch
from numba import prange
from torch import Tensor

from fusedplanes.kernels.dispatch import compile_kernel, launch
from fusedplanes.kernels.sample_triplane.reference import PLANE_AXES

SUM, PRODUCT, CONCAT = 0, 1, 2
REDUCTION = {"sum": SUM, "product": PRODUCT, "concat": CONCAT}
POINTS_PER_TASK = 256
SCATTER_UNITS = 12
"""Units that the scatter is cut into, if there are points enough: six for each of two threads evens out their ends."""

_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
# Everything but the flags that would let LLVM assume away NaN and infinity.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_inlined = numba.njit(fastmath=_FAST, error_model="numpy")

# Planes [entries * 3 * H * W, C], points [entries * N, 3], and the setting:
# entries, H, W, C, reduction, third plane is ZX, border padding, align_corners.
_INPUTS = "float32[:, ::1], float32[:, ::1], UniTuple(int64, 8)"


@_inlined
def _is_finite(points, n):
    return math.isfinite(points[n, 0]) and math.isfinite(points[n, 1]) and math.isfinite(points[n, 2])


@_inlined
def _axes(plane, zx):
    """The point's coordinates that run along the plane's width and height."""
    across = 0 if plane < 2 else (2 if zx else 1)
    down = 1 if plane == 0 else (0 if zx and plane == 2 else 2)
    return across, down


@_inlined
def _taps(coordinate, size, border, align_corners):
    """The two cells either side of a coordinate: their indices, weights, and the weights' derivatives."""
    half = np.float32(size - 1 if align_corners else size) * _HALF
    position = coordinate * half + (half if align_corners else half - _HALF)
    slope = half
    if border:
        last = np.float32(size - 1)
        if position <= _ZERO:
            position = _ZERO
            slope = _ZERO
        if position >= last:
            position = last
            slope = _ZERO
    # Far outside, a coordinate may not fit an integer; one cell beyond either end is outside already.
    position = min(max(position, np.float32(-2.0)), np.float32(size))
    floor = math.floor(position)
    fraction = position - np.float32(floor)
    lower = int(floor)
    upper = lower + 1
    lower_exists = lower >= 0 and lower < size
    upper_exists = upper >= 0 and upper < size
    return (
        min(max(lower, 0), size - 1),
        min(max(upper, 0), size - 1),
        _ONE - fraction if lower_exists else _ZERO,
        fraction if upper_exists else _ZERO,
        -slope if lower_exists else _ZERO,
        slope if upper_exists else _ZERO,
    )


@_inlined
def _corners(points, n, entry, plane, setting):
    """The four rows of the planes that a point touches on one plane, and their weights."""
    _, height, width, _, _, zx, border, align_corners = setting
    across, down = _axes(plane, zx)
    left, right, left_weight, right_weight, _, _ = _taps(points[n, across], width, border, align_corners)
    top, bottom, top_weight, bottom_weight, _, _ = _taps(points[n, down], height, border, align_corners)
    top = ((entry * 3 + plane) * height + top) * width
    bottom = ((entry * 3 + plane) * height + bottom) * width
    return (
        top + left,
        top + right,
        bottom + left,
        bottom + right,
        top_weight * left_weight,
        top_weight * right_weight,
        bottom_weight * left_weight,
        bottom_weight * right_weight,
    )


@compile_kernel(f"void(float32[:, ::1], {_INPUTS})", fastmath=_FAST)
def _forward(features, planes, points, setting):
    entries, _, _, channels, reduction, _, _, _ = setting
    per_entry = points.shape[0] // entries
    tasks = (per_entry + POINTS_PER_TASK - 1) // POINTS_PER_TASK
    for task in prange(entries * tasks):
        entry = task // tasks
        start = (task % tasks) * POINTS_PER_TASK
        for n in range(entry * per_entry + start, entry * per_entry + min(start + POINTS_PER_TASK, per_entry)):
            if not _is_finite(points, n):
                if reduction == CONCAT:
                    features[n * 3 : n * 3 + 3] = _ZERO
                else:
                    features[n] = _ZERO
                continue
            a0, a1, a2, a3, u0, u1, u2, u3 = _corners(points, n, entry, 0, setting)
            b0, b1, b2, b3, v0, v1, v2, v3 = _corners(points, n, entry, 1, setting)
            c0, c1, c2, c3, w0, w1, w2, w3 = _corners(points, n, entry, 2, setting)
            # Twelve taps in one loop: a channel's sum stays in a register.
            if reduction == SUM:
                for c in range(channels):
                    first = u0 * planes[a0, c] + u1 * planes[a1, c] + u2 * planes[a2, c] + u3 * planes[a3, c]
                    second = v0 * planes[b0, c] + v1 * planes[b1, c] + v2 * planes[b2, c] + v3 * planes[b3, c]
                    third = w0 * planes[c0, c] + w1 * planes[c1, c] + w2 * planes[c2, c] + w3 * planes[c3, c]
                    features[n, c] = first + second + third
            elif reduction == PRODUCT:
                for c in range(channels):
                    first = u0 * planes[a0, c] + u1 * planes[a1, c] + u2 * planes[a2, c] + u3 * planes[a3, c]
                    second = v0 * planes[b0, c] + v1 * planes[b1, c] + v2 * planes[b2, c] + v3 * planes[b3, c]
                    third = w0 * planes[c0, c] + w1 * planes[c1, c] + w2 * planes[c2, c] + w3 * planes[c3, c]
                    features[n, c] = first * second * third
            else:
                for c in range(channels):
                    first = u0 * planes[a0, c] + u1 * planes[a1, c] + u2 * planes[a2, c] + u3 * planes[a3, c]
                    features[n * 3, c] = first
                for c in range(channels):
                    second = v0 * planes[b0, c] + v1 * planes[b1, c] + v2 * planes[b2, c] + v3 * planes[b3, c]
                    features[n * 3 + 1, c] = second
                for c in range(channels):
                    third = w0 * planes[c0, c] + w1 * planes[c1, c] + w2 * planes[c2, c] + w3 * planes[c3, c]
                    features[n * 3 + 2, c] = third


@_inlined
def _upstream_of_product(result, grad_features, planes, points, n, entry, plane, setting):
    """Write into ``result[0]`` the gradient of one factor of a product at one point."""
    channels = setting[3]
    a0, a1, a2, a3, u0, u1, u2, u3 = _corners(points, n, entry, (plane + 1) % 3, setting)
    b0, b1, b2, b3, v0, v1, v2, v3 = _corners(points, n, entry, (plane + 2) % 3, setting)
    for c in range(channels):
        one = u0 * planes[a0, c] + u1 * planes[a1, c] + u2 * planes[a2, c] + u3 * planes[a3, c]
        other = v0 * planes[b0, c] + v1 * planes[b1, c] + v2 * planes[b2, c] + v3 * planes[b3, c]
        result[0, c] = grad_features[n, c] * (one * other)


@_inlined
def _scatter(cells, part, row, weight, terms, term, channels):
    for c in range(channels):
        cells[part, row, c] += weight * terms[term, c]


@_inlined
def _dot(planes, row, terms, term, channels):
    total = _ZERO
    for c in range(channels):
        total += terms[term, c] * planes[row, c]
    return total


@compile_kernel(f"void(float32[:, :, ::1], float32[:, ::1], {_INPUTS})", fastmath=_FAST)
def _backward_planes(grad_planes, grad_features, planes, points, setting):
    entries, height, width, channels, reduction, _, _, _ = setting
    per_entry = points.shape[0] // entries
    parts = grad_planes.shape[0]
    for unit in prange(parts * entries * 3):
        plane = unit % 3
        entry = unit // 3 % entries
        part = unit // (3 * entries)
        first_row = (entry * 3 + plane) * height * width
        grad_planes[part, first_row : first_row + height * width] = _ZERO
        upstream = np.empty((1, channels), np.float32)
        start = entry * per_entry + per_entry * part // parts
        stop = entry * per_entry + per_entry * (part + 1) // parts
        for n in range(start, stop):
            if not _is_finite(points, n):
                continue
            r0, r1, r2, r3, w0, w1, w2, w3 = _corners(points, n, entry, plane, setting)
            if reduction == PRODUCT:
                _upstream_of_product(upstream, grad_features, planes, points, n, entry, plane, setting)
                _scatter(grad_planes, part, r0, w0, upstream, 0, channels)
                _scatter(grad_planes, part, r1, w1, upstream, 0, channels)
                _scatter(grad_planes, part, r2, w2, upstream, 0, channels)
                _scatter(grad_planes, part, r3, w3, upstream, 0, channels)
            else:
                own = n * 3 + plane if reduction == CONCAT else n
                _scatter(grad_planes, part, r0, w0, grad_features, own, channels)
                _scatter(grad_planes, part, r1, w1, grad_features, own, channels)
                _scatter(grad_planes, part, r2, w2, grad_features, own, channels)
                _scatter(grad_planes, part, r3, w3, grad_features, own, channels)


@compile_kernel(f"void(float32[:, ::1], float32[:, ::1], {_INPUTS})", fastmath=_FAST)
def _backward_points(grad_points, grad_features, planes, points, setting):
    entries, height, width, channels, reduction, zx, border, align_corners = setting
    per_entry = points.shape[0] // entries
    tasks = (per_entry + POINTS_PER_TASK - 1) // POINTS_PER_TASK
    for task in prange(entries * tasks):
        entry = task // tasks
        start = (task % tasks) * POINTS_PER_TASK
        upstream = np.empty((1, channels), np.float32)
        for n in range(entry * per_entry + start, entry * per_entry + min(start + POINTS_PER_TASK, per_entry)):
            grad_points[n] = _ZERO
            if not _is_finite(points, n):
                continue
            for plane in range(3):
                r0, r1, r2, r3, _, _, _, _ = _corners(points, n, entry, plane, setting)
                if reduction == PRODUCT:
                    _upstream_of_product(upstream, grad_features, planes, points, n, entry, plane, setting)
                    dot0 = _dot(planes, r0, upstream, 0, channels)
                    dot1 = _dot(planes, r1, upstream, 0, channels)
                    dot2 = _dot(planes, r2, upstream, 0, channels)
                    dot3 = _dot(planes, r3, upstream, 0, channels)
                else:
                    own = n * 3 + plane if reduction == CONCAT else n
                    dot0 = _dot(planes, r0, grad_features, own, channels)
                    dot1 = _dot(planes, r1, grad_features, own, channels)
                    dot2 = _dot(planes, r2, grad_features, own, channels)
                    dot3 = _dot(planes, r3, grad_features, own, channels)
                across, down = _axes(plane, zx)
                _, _, left, right, left_slope, right_slope = _taps(points[n, across], width, border, align_corners)
                _, _, top, bottom, top_slope, bottom_slope = _taps(points[n, down], height, border, align_corners)
                grad_points[n, across] += top * (left_slope * dot0 + right_slope * dot1) + bottom * (
                    left_slope * dot2 + right_slope * dot3
                )
                grad_points[n, down] += left * (top_slope * dot0 + bottom_slope * dot2) + right * (
                    top_slope * dot1 + bottom_slope * dot3
                )


def forward(planes: Tensor, points: Tensor, reduce: str, layout: str, padding: str, align_corners: bool) -> Tensor:
    """Features ``[*b, N, C or 3 * C]``."""
    setting = _setting(planes, reduce, layout, padding, align_corners)
    channels = setting[3]
    features = planes.new_empty(*points.shape[:-1], channels * (3 if reduce == "concat" else 1))
    if features.numel():
        launch(_forward, features.view(-1, channels), _rows(planes, channels), _rows(points, 3), setting)
    return features


def backward_planes(
    grad_features: Tensor, planes: Tensor, points: Tensor, reduce: str, layout: str, padding: str, align_corners: bool
) -> Tensor:
    """Gradient of the planes ``[*b, 3, H, W, C]`` from that of the features."""
    if not grad_features.numel():
        return torch.zeros_like(planes, memory_format=torch.contiguous_format)
    setting = _setting(planes, reduce, layout, padding, align_corners)
    entries, height, width, channels = setting[:4]
    parts = _parts(entries, points.shape[-2], height * width)
    grad_planes = planes.new_empty(parts, entries * 3 * height * width, channels)
    grad_rows = _rows(grad_features, channels)
    launch(_backward_planes, grad_planes, grad_rows, _rows(planes, channels), _rows(points, 3), setting)
    if parts == 1:
        return grad_planes.view(planes.shape)
    total = grad_planes[0] + grad_planes[1]
    for part in grad_planes[2:]:
        total += part
    return total.view(planes.shape)


def backward_points(
    grad_features: Tensor, planes: Tensor, points: Tensor, reduce: str, layout: str, padding: str, align_corners: bool
) -> Tensor:
    """Gradient of the points ``[*b, N, 3]`` from that of the features."""
    if not grad_features.numel():
        return torch.zeros_like(points, memory_format=torch.contiguous_format)
    setting = _setting(planes, reduce, layout, padding, align_corners)
    channels = setting[3]
    grad_points = torch.empty_like(points, memory_format=torch.contiguous_format)
    grad_rows = _rows(grad_features, channels)
    launch(_backward_points, grad_points.view(-1, 3), grad_rows, _rows(planes, channels), _rows(points, 3), setting)
    return grad_points


def _parts(entries: int, points: int, cells: int) -> int:
    """Parts that an entry's points are cut into: enough units for the threads, unless clearing copies costs more."""
    wanted = -(-SCATTER_UNITS // (3 * entries))
    return max(1, min(wanted, points // (2 * cells)))


def _rows(tensor: Tensor, columns: int) -> Tensor:
    return tensor.contiguous().view(-1, columns)


def _setting(planes: Tensor, reduce: str, layout: str, padding: str, align_corners: bool) -> tuple[int, ...]:
    height, width, channels = planes.shape[-3:]
    entries = math.prod(planes.shape[:-4])
    zx = PLANE_AXES[layout] == PLANE_AXES["eg3d"]
    return entries, height, width, channels, REDUCTION[reduce], int(zx), int(padding == "border"), int(align_corners)
