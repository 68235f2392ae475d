"""`resample_distances` for float32 tensors in main memory, compiled by numba.

New samples come out in order, so nothing is searched or sorted: one pass walks up the cumulative sum and merges the new
samples with the coarse ones.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from torch import Tensor

from fusedplanes.kernels.dispatch import compile_kernel, launch
from fusedplanes.kernels.jitter_cpu import hash_seed, hash_to_unit
from fusedplanes.kernels.resample_distances import reference

RAYS_PER_TASK = 64

_ZERO, _HALF = np.float32(0.0), np.float32(0.5)
_UNIFORM_WEIGHT, _EPSILON = np.float32(reference.UNIFORM_WEIGHT), np.float32(reference.EPSILON)
_SMALLEST_PLACED = reference.SMALLEST_PLACED


@compile_kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1], boolean, int64, int64)")
def _forward(union, distances, weights, jittered, seed_low, seed_high):
    rays, samples = distances.shape
    count = union.shape[1] - samples
    seed_bits = hash_seed(seed_low, seed_high)
    for task in prange((rays + RAYS_PER_TASK - 1) // RAYS_PER_TASK):
        known = np.empty(samples, np.float32)
        cumulative = np.empty(max(samples - 2, 2), np.float32)
        for ray in range(task * RAYS_PER_TASK, min((task + 1) * RAYS_PER_TASK, rays)):
            last = 1
            cumulative[0] = _ZERO
            if samples >= _SMALLEST_PLACED:
                last = samples - 3
                for k in range(samples - 1):
                    known[k] = weights[ray, k] if math.isfinite(weights[ray, k]) else _ZERO
                total = 0.0
                for k in range(1, samples - 2):
                    larger_left, larger_right = max(known[k - 1], known[k]), max(known[k], known[k + 1])
                    cumulative[k] = (larger_left + larger_right) * _HALF + _UNIFORM_WEIGHT + _EPSILON
                    total += cumulative[k]
                running = 0.0
                for k in range(1, samples - 2):
                    running += cumulative[k] / np.float32(total)
                    cumulative[k] = running
            above = 1
            coarse = 0
            previous = distances[ray, 0]
            for k in range(count):
                offset = hash_to_unit(seed_bits, ray, k) if jittered else _HALF
                unit = (np.float32(k) + offset) / np.float32(count)
                if samples >= _SMALLEST_PLACED:
                    while above < last and cumulative[above] <= unit:
                        above += 1
                    start = (distances[ray, above - 1] + distances[ray, above]) * _HALF
                    end = (distances[ray, above] + distances[ray, above + 1]) * _HALF
                    unit = (unit - cumulative[above - 1]) / (cumulative[above] - cumulative[above - 1])
                else:
                    start, end = distances[ray, 0], distances[ray, samples - 1]
                # Rounding must not put a sample before its predecessor.
                previous = max(start + unit * (end - start), previous)
                while coarse < samples and distances[ray, coarse] <= previous:
                    union[ray, coarse + k] = distances[ray, coarse]
                    coarse += 1
                union[ray, coarse + k] = previous
            for s in range(coarse, samples):
                union[ray, count + s] = distances[ray, s]


def forward(distances: Tensor, weights: Tensor, count: int, jittered: bool, seed_low: int, seed_high: int) -> Tensor:
    """The sorted union ``[*b, S + count]``."""
    samples = distances.shape[-1]
    union = distances.new_empty(*distances.shape[:-1], samples + count)
    if union.numel():
        rays = union.numel() // (samples + count)
        rows = distances.reshape(rays, samples).contiguous(), weights.reshape(rays, samples - 1).contiguous()
        launch(_forward, union.view(rays, -1), *rows, jittered, seed_low, seed_high)
    return union
