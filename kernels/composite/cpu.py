"""`composite` for float32 tensors in main memory, compiled by numba.

Rays are independent, so results do not depend on the number of threads. Along a ray only two running sums are serial;
exponentials and softplus run over whole rays in vector registers. Backward repeats the forward's depths instead of
keeping them: scratch is a few rows of S floats per task.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import prange
from torch import Tensor

from fusedplanes.kernels.dispatch import compile_kernel, launch
from fusedplanes.kernels.fast_math import exp_float32, expm1_float32, sigmoid_float32, softplus_float32

RAYS_PER_TASK = 32

_ZERO, _HALF = np.float32(0.0), np.float32(0.5)
# Everything but the flags that would let LLVM assume away NaN and infinity.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_inlined = numba.njit(fastmath=_FAST, error_model="numpy")


@_inlined
def _march(depths, before, weights, densities, distances, ray, row, bias):
    """Fill one ray's optical depths, the depth before each interval, and the weights (row ``row``); total depth."""
    intervals = distances.shape[1] - 1
    for k in range(intervals):
        mean = (densities[ray, k] + densities[ray, k + 1]) * _HALF
        depths[k] = softplus_float32(mean + bias) * (distances[ray, k + 1] - distances[ray, k])
    # Sums along a ray are in double precision: they are serial, so narrower numbers would only cost digits.
    total = 0.0
    for k in range(intervals):
        before[k] = np.float32(total)
        total += np.float64(depths[k])
    for k in range(intervals):
        weights[row, k] = exp_float32(-before[k]) * -expm1_float32(-depths[k])
    return np.float32(total)


@_inlined
def _sample_weights(sample_weights, weights, row):
    """Share each interval's weight between its two samples: values then need no averaging."""
    intervals = weights.shape[1]
    for s in range(intervals + 1):
        sample_weights[s] = _ZERO
    for k in range(intervals):
        sample_weights[k] += _HALF * weights[row, k]
    for k in range(intervals):
        sample_weights[k + 1] += _HALF * weights[row, k]


@compile_kernel(
    "void(float32[:, ::1], float32[::1], float32[::1], float32[:, ::1], "
    "float32[:, :, ::1], float32[:, ::1], float32[:, ::1], float32)",
    fastmath=_FAST,
)
def _forward(accumulated, alpha, distance, weights, values, densities, distances, bias):
    rays, samples, channels = values.shape
    for task in prange((rays + RAYS_PER_TASK - 1) // RAYS_PER_TASK):
        depths = np.empty(samples, np.float32)
        before = np.empty(samples, np.float32)
        sample_weights = np.empty(samples, np.float32)
        sums = np.empty(channels, np.float64)
        for ray in range(task * RAYS_PER_TASK, min((task + 1) * RAYS_PER_TASK, rays)):
            total = _march(depths, before, weights, densities, distances, ray, ray, bias)
            alpha[ray] = -expm1_float32(-total)
            _sample_weights(sample_weights, weights, ray)
            mean_distance = _ZERO
            for s in range(samples):
                mean_distance += sample_weights[s] * distances[ray, s]
            distance[ray] = mean_distance
            for c in range(channels):
                sums[c] = 0.0
            for s in range(samples):
                for c in range(channels):
                    sums[c] += np.float64(sample_weights[s] * values[ray, s, c])
            for c in range(channels):
                accumulated[ray, c] = np.float32(sums[c])


@compile_kernel(
    "void(float32[:, :, ::1], float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], "
    "float32[:, :, ::1], float32[:, ::1], float32[:, ::1], float32)",
    fastmath=_FAST,
)
def _backward(
    grad_values, grad_densities, grad_accumulated, grad_alpha, grad_distance, values, densities, distances, bias
):
    rays, samples, channels = values.shape
    intervals = samples - 1
    for task in prange((rays + RAYS_PER_TASK - 1) // RAYS_PER_TASK):
        depths = np.empty(samples, np.float32)
        before = np.empty(samples, np.float32)
        sample_weights = np.empty(samples, np.float32)
        gains = np.empty(samples, np.float32)
        weights = np.empty((1, intervals), np.float32)
        for ray in range(task * RAYS_PER_TASK, min((task + 1) * RAYS_PER_TASK, rays)):
            total = _march(depths, before, weights, densities, distances, ray, 0, bias)
            _sample_weights(sample_weights, weights, 0)
            # What the loss gains per unit of weight at each sample.
            for s in range(samples):
                gain = grad_distance[ray] * distances[ray, s]
                for c in range(channels):
                    gain += grad_accumulated[ray, c] * values[ray, s, c]
                    grad_values[ray, s, c] = sample_weights[s] * grad_accumulated[ray, c]
                gains[s] = gain
            # More depth in an interval raises its own weight by what still passes it, and dims all behind it.
            from_alpha = grad_alpha[ray] * exp_float32(-total)
            for k in range(intervals):
                before[k] = exp_float32(-(before[k] + depths[k]))
            behind = _ZERO
            for k in range(intervals - 1, -1, -1):
                gain = (gains[k] + gains[k + 1]) * _HALF
                depths[k] = gain * before[k] - behind + from_alpha
                behind += gain * weights[0, k]
            for k in range(intervals):
                mean = (densities[ray, k] + densities[ray, k + 1]) * _HALF
                length = distances[ray, k + 1] - distances[ray, k]
                weights[0, k] = depths[k] * length * sigmoid_float32(mean + bias)
            _sample_weights(gains, weights, 0)
            for s in range(samples):
                grad_densities[ray, s] = gains[s]


def forward(
    values: Tensor, densities: Tensor, distances: Tensor, density_bias: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Accumulated values, alpha, distance and weights: see `fusedplanes.kernels.composite`."""
    *batch, samples, channels = values.shape
    accumulated = values.new_empty(*batch, channels)
    alpha, distance = values.new_empty(batch), values.new_empty(batch)
    weights = values.new_empty(*batch, samples - 1)
    if alpha.numel():
        rays = alpha.numel()
        outputs = accumulated.view(rays, channels), alpha.view(rays), distance.view(rays)
        inputs = _rays(values, densities, distances)
        launch(_forward, *outputs, weights.view(rays, samples - 1), *inputs, density_bias)
    return accumulated, alpha, distance, weights


def backward(
    grad_accumulated: Tensor,
    grad_alpha: Tensor,
    grad_distance: Tensor,
    values: Tensor,
    densities: Tensor,
    distances: Tensor,
    density_bias: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of values and densities."""
    grad_values, grad_densities = values.new_empty(values.shape), densities.new_empty(densities.shape)
    if grad_densities.numel():
        rays = grad_alpha.numel()
        inputs = _rays(values, densities, distances)
        outputs = grad_values.view(inputs[0].shape), grad_densities.view(inputs[1].shape)
        grads = grad_accumulated.contiguous().view(rays, -1), grad_alpha.reshape(rays), grad_distance.reshape(rays)
        launch(_backward, *outputs, *(grad.contiguous() for grad in grads), *inputs, density_bias)
    return grad_values, grad_densities


def _rays(values: Tensor, densities: Tensor, distances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    *_, samples, channels = values.shape
    rays = densities.numel() // samples
    shaped = values.reshape(rays, samples, channels), densities.reshape(rays, samples), distances.reshape(rays, samples)
    return tuple(tensor.contiguous() for tensor in shaped)
