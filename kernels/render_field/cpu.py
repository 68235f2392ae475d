"""`render_field` as compiled CPU kernels: one ray at a time, everything between planes and pixels in the cache.

A ray's samples are the rows of small matrices (features, hidden units, outputs) that a thread keeps in scratch and
overwrites for the next ray, so memory does not grow with rays, nor with what backward needs: backward evaluates the ray
again. Work is cut into chunks whose number depends on the problem alone; each sums gradients of its own, which are
added up in order, so that results are the same bits on any number of threads.
"""

from collections import namedtuple

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fusedplanes.kernels.dispatch import compile_kernel, launch
from fusedplanes.kernels.fast_math import exp_float32, expm1_float32, sigmoid_float32, softplus_float32
from fusedplanes.kernels.render_field.registers import LANES, TILE_ROWS, gather, multiply, scatter

RAYS_PER_BLOCK = 16
"""Consecutive rays dealt to a chunk at a time: neighbours share cells, and dealing evens out rays that miss."""

FORWARD_PIECES, BACKWARD_PIECES = 32, 8
"""How many chunks a call is cut into, to keep several threads busy. Fixed, because the order in which
gradients are summed follows from it; a chunk of backward costs a copy of its planes, so there are fewer of those."""

_TAPS = 12
_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
# Colours may leave [0, 1] by a thousandth, so that black and white are reachable (mip-NeRF, appendix).
_SIGMOID_SCALE, _SIGMOID_SHIFT = np.float32(1.002), np.float32(-0.001)
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

_inline = numba.njit(error_model="numpy", fastmath=_FASTMATH)

Sizes = namedtuple("Sizes", "height width channels samples values")
Decoder = namedtuple("Decoder", "hidden_weight hidden_bias output_weight output_bias")
Decoder.__doc__ = """One entry's decoder, padded with zeros.

``hidden_weight [C, Hd+]``, ``hidden_bias [Hd+]``, ``output_weight [Hd+, O+]``, ``output_bias [O+]`` with O = 1 + K,
where + rounds up to whole vectors.
"""
Rays = namedtuple("Rays", "origins directions distances")
Rendered = namedtuple("Rendered", "values alpha distance weights")
Marching = namedtuple("Marching", "density_bias sigmoid")
Scratch = namedtuple(
    "Scratch", "offsets taps counts features hidden output optical_depth transmittance weights sample_weights slopes"
)
Scratch.__doc__ = """What one thread knows of the ray at hand; the samples are the rows.

``offsets, taps [S, 12]`` and ``counts [S]``: the plane cells under each sample, their bilinear weights and how many
there are. ``features [S, C+]``, ``hidden [S, Hd+]``, ``output [S, O+]``. ``optical_depth, transmittance [S]`` up to
each sample; ``weights [S-1]`` of the intervals, ``sample_weights [S]`` of the samples, ``slopes [S-1]`` the
derivative of the interval's optical depth by its mean raw density.
"""


@_inline
def _round_up(count, multiple):
    return (count + multiple - 1) // multiple * multiple


@_inline
def _new_scratch(sizes, decoder):
    rows = _round_up(sizes.samples, TILE_ROWS)
    return Scratch(
        np.empty((rows, _TAPS), np.int64),
        np.empty((rows, _TAPS), np.float32),
        np.empty(rows, np.int64),
        np.empty((rows, _round_up(sizes.channels, LANES)), np.float32),
        np.empty((rows, decoder.hidden_bias.size), np.float32),
        np.empty((rows, decoder.output_bias.size), np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.float32),
    )


@_inline
def _add_taps(u, v, plane, sizes, sample, count, scratch):
    """Append the cells of one plane round ``(u, v)`` that lie inside it; returns the new count."""
    width, height = sizes.width, sizes.height
    x = (u + _ONE) * np.float32(width) * _HALF - _HALF
    y = (v + _ONE) * np.float32(height) * _HALF - _HALF
    if not (x > -_ONE and x < np.float32(width) and y > -_ONE and y < np.float32(height)):
        return count
    left, top = int(np.floor(x)), int(np.floor(y))
    right_share, bottom_share = x - np.float32(left), y - np.float32(top)
    first = (plane * height + top) * width + left
    for row in range(2):
        if top + row < 0 or top + row >= height:
            continue
        row_share = bottom_share if row else _ONE - bottom_share
        for column in range(2):
            if left + column < 0 or left + column >= width:
                continue
            scratch.offsets[sample, count] = (first + row * width + column) * sizes.channels
            scratch.taps[sample, count] = row_share * (right_share if column else _ONE - right_share)
            count += 1
    return count


@_inline
def _evaluate(planes, decoder, sizes, origin, direction, distances, scratch):
    """Fill features, hidden units and outputs of a ray's samples."""
    for s in range(sizes.samples):
        t = distances[s]
        x, y, z = origin[0] + t * direction[0], origin[1] + t * direction[1], origin[2] + t * direction[2]
        count = _add_taps(x, y, 0, sizes, s, 0, scratch)
        count = _add_taps(x, z, 1, sizes, s, count, scratch)
        count = _add_taps(y, z, 2, sizes, s, count, scratch)
        scratch.counts[s] = count
        gather(planes, sizes.channels, scratch.offsets, scratch.taps, count, s, scratch.features)
    multiply(scratch.features[:, : sizes.channels], decoder.hidden_weight, decoder.hidden_bias, scratch.hidden)
    hidden = scratch.hidden.reshape(-1)
    for i in range(hidden.size):
        hidden[i] = softplus_float32(hidden[i])
    multiply(scratch.hidden, decoder.output_weight, decoder.output_bias, scratch.output)


@_inline
def _march(sizes, distances, marching, scratch):
    """Turn outputs into weights; returns the optical depth of the whole ray. Column 0 of ``output`` becomes unused."""
    samples, output = sizes.samples, scratch.output
    depth, weights, slopes, transmittance = (
        scratch.optical_depth,
        scratch.weights,
        scratch.slopes,
        scratch.transmittance,
    )
    raw = scratch.sample_weights
    for s in range(samples):
        raw[s] = output[s, 0]
    for k in range(samples - 1):
        mean = (raw[k] + raw[k + 1]) * _HALF + marching.density_bias
        step = distances[k + 1] - distances[k]
        slopes[k] = sigmoid_float32(mean) * step
        weights[k] = softplus_float32(mean) * step
    total = _ZERO
    for k in range(samples - 1):
        depth[k] = total
        total += weights[k]
    depth[samples - 1] = total
    for s in range(samples):
        transmittance[s] = exp_float32(-depth[s])
    for k in range(samples - 1):
        weights[k] = transmittance[k] * -expm1_float32(-weights[k])
    raw[0] = _HALF * weights[0]
    for s in range(1, samples - 1):
        raw[s] = _HALF * (weights[s - 1] + weights[s])
    raw[samples - 1] = _HALF * weights[samples - 2]
    if marching.sigmoid:
        flat = output.reshape(-1)
        for i in range(flat.size):
            flat[i] = sigmoid_float32(flat[i])
    return total


@_inline
def _is_empty(distances):
    return distances[0] == distances[distances.size - 1]


@_inline
def _value_scale(marching):
    if marching.sigmoid:
        return _SIGMOID_SCALE, _SIGMOID_SHIFT
    return _ONE, _ZERO


@_inline
def _composite(sizes, distances, optical_depth, marching, scratch, ray, rendered):
    """Write what the marched ray adds up to."""
    scale, shift = _value_scale(marching)
    mass, reach = _ZERO, _ZERO
    for k in range(sizes.samples - 1):
        weight = scratch.weights[k]
        rendered.weights[ray, k] = weight
        reach += weight * (_HALF * (distances[k] + distances[k + 1]))
        mass += weight
    values = rendered.values[ray]
    values[:] = _ZERO
    for s in range(sizes.samples):
        for k in range(sizes.values):
            values[k] += scratch.sample_weights[s] * scratch.output[s, 1 + k]
    for k in range(sizes.values):
        values[k] = scale * values[k] + shift * mass
    rendered.alpha[ray] = -expm1_float32(-optical_depth)
    rendered.distance[ray] = reach


@_inline
def _forward_chunk(planes, decoder, sizes, rays, marching, chunk, chunks, rendered):
    """Render every block of rays whose number is ``chunk`` modulo ``chunks``."""
    scratch = _new_scratch(sizes, decoder)
    count = rays.origins.shape[0]
    for block in range(chunk * RAYS_PER_BLOCK, count, chunks * RAYS_PER_BLOCK):
        for ray in range(block, min(block + RAYS_PER_BLOCK, count)):
            distances = rays.distances[ray]
            if _is_empty(distances):
                rendered.values[ray, :] = _ZERO
                rendered.weights[ray, :] = _ZERO
                rendered.alpha[ray] = _ZERO
                rendered.distance[ray] = _ZERO
                continue
            _evaluate(planes, decoder, sizes, rays.origins[ray], rays.directions[ray], distances, scratch)
            optical_depth = _march(sizes, distances, marching, scratch)
            _composite(sizes, distances, optical_depth, marching, scratch, ray, rendered)


@_inline
def _march_backward(sizes, distances, marching, ray, grad_rendered, scratch, grad_output):
    """Gradient of a ray's outputs from the gradient of what they were composited to."""
    samples, output, weights = sizes.samples, scratch.output, scratch.weights
    scale, shift = _value_scale(marching)
    grad_values, grad_distance = grad_rendered.values[ray], grad_rendered.distance[ray]
    # What a unit of weight at each sample is worth; the optical depth is no longer needed.
    worth = scratch.optical_depth
    for s in range(samples):
        total = _ZERO
        for k in range(sizes.values):
            total += grad_values[k] * (scale * output[s, 1 + k] + shift)
        worth[s] = total + grad_distance * distances[s]
    through = grad_rendered.alpha[ray] * scratch.transmittance[samples - 1]
    behind, from_next = _ZERO, _ZERO
    for k in range(samples - 2, -1, -1):
        mean_worth = _HALF * (worth[k] + worth[k + 1])
        grad_depth = scratch.transmittance[k + 1] * mean_worth - behind + through
        behind += weights[k] * mean_worth
        half = _HALF * grad_depth * scratch.slopes[k]
        grad_output[k + 1, 0] = half + from_next
        from_next = half
    grad_output[0, 0] = from_next
    for s in range(samples):
        share = scratch.sample_weights[s] * scale
        for k in range(sizes.values):
            slope = output[s, 1 + k] * (_ONE - output[s, 1 + k]) if marching.sigmoid else _ONE
            grad_output[s, 1 + k] = share * grad_values[k] * slope


@_inline
def _backward_chunk(
    planes, decoder, transposed, sizes, rays, marching, chunk, chunks, grad_rendered, grad_planes, grad_decoder
):
    """Sum the gradients of every block of rays whose number is ``chunk`` modulo ``chunks``."""
    scratch = _new_scratch(sizes, decoder)
    grad_output = np.zeros_like(scratch.output)
    grad_hidden = np.empty_like(scratch.hidden)
    grad_features = np.empty_like(scratch.features)
    zeros = np.zeros(max(grad_hidden.shape[1], grad_features.shape[1]), np.float32)
    output_rows, hidden_rows = grad_output[: sizes.samples].T, grad_hidden[: sizes.samples].T
    used_output = grad_output[:, : transposed.output_weight.shape[0]]
    used_hidden = grad_hidden[:, : transposed.hidden_weight.shape[0]]
    grad_planes[:] = _ZERO
    grad_decoder.hidden_weight[:] = _ZERO
    grad_decoder.hidden_bias[:] = _ZERO
    grad_decoder.output_weight[:] = _ZERO
    grad_decoder.output_bias[:] = _ZERO
    count = rays.origins.shape[0]
    for block in range(chunk * RAYS_PER_BLOCK, count, chunks * RAYS_PER_BLOCK):
        for ray in range(block, min(block + RAYS_PER_BLOCK, count)):
            distances = rays.distances[ray]
            if _is_empty(distances):
                continue
            _evaluate(planes, decoder, sizes, rays.origins[ray], rays.directions[ray], distances, scratch)
            _march(sizes, distances, marching, scratch)
            _march_backward(sizes, distances, marching, ray, grad_rendered, scratch, grad_output)
            multiply(used_output, transposed.output_weight, zeros, grad_hidden)
            multiply(output_rows, scratch.hidden, grad_decoder.output_weight, grad_decoder.output_weight)
            for s in range(sizes.samples):
                for k in range(grad_output.shape[1]):
                    grad_decoder.output_bias[k] += grad_output[s, k]
                for j in range(grad_hidden.shape[1]):
                    # The derivative of softplus, from its result.
                    grad_hidden[s, j] *= -expm1_float32(-scratch.hidden[s, j])
                    grad_decoder.hidden_bias[j] += grad_hidden[s, j]
            multiply(used_hidden, transposed.hidden_weight, zeros, grad_features)
            multiply(hidden_rows, scratch.features, grad_decoder.hidden_weight, grad_decoder.hidden_weight)
            for s in range(sizes.samples):
                taps = scratch.counts[s]
                scatter(grad_features, sizes.channels, scratch.offsets, scratch.taps, taps, s, grad_planes)


_MATRIX, _STACK = "float32[:, ::1]", "float32[:, :, ::1]"
_DECODER = [_STACK, _MATRIX, _STACK, _MATRIX]
_RAYS = [_STACK, _STACK, _STACK]
_SIZES_AND_MARCHING = ["int64", "int64", "int64", "int64", "float32", "boolean"]


@compile_kernel(
    f"void({', '.join([_MATRIX, *_DECODER, *_RAYS, *_SIZES_AND_MARCHING, _STACK, _MATRIX, _MATRIX, _STACK])})",
    fastmath=_FASTMATH,
)
def forward(
    planes,
    hidden_weight,
    hidden_bias,
    output_weight,
    output_bias,
    origins,
    directions,
    distances,
    height,
    width,
    channels,
    chunks,
    density_bias,
    sigmoid,
    values,
    alpha,
    distance,
    weights,
):
    """Render ``[B, R]`` rays.

    Args:
        planes: ``[B, 3*H*W*C]``.
        hidden_weight, hidden_bias, output_weight, output_bias: as in `Decoder`, with a leading 1 or B.
        origins, directions: ``[B, R, 3]``.
        distances: ``[B, R, S]``, S at least 2.
        height, width, channels: of the planes.
        chunks: how many pieces each entry's rays are cut into.
        density_bias: added to the mean raw density.
        sigmoid: whether values pass through the scaled sigmoid.
        values, alpha, distance, weights: results, ``[B, R, K]``, ``[B, R]``, ``[B, R]``, ``[B, R, S-1]``.
    """
    sizes = Sizes(height, width, channels, distances.shape[2], values.shape[2])
    marching = Marching(density_bias, sigmoid)
    for item in numba.prange(planes.shape[0] * chunks):
        entry = item // chunks
        shared = entry if hidden_bias.shape[0] > 1 else 0
        decoder = Decoder(hidden_weight[shared], hidden_bias[shared], output_weight[shared], output_bias[shared])
        rays = Rays(origins[entry], directions[entry], distances[entry])
        rendered = Rendered(values[entry], alpha[entry], distance[entry], weights[entry])
        _forward_chunk(planes[entry], decoder, sizes, rays, marching, item % chunks, chunks, rendered)


@compile_kernel(
    f"void({', '.join([_MATRIX, *_DECODER, _STACK, _STACK, *_RAYS, *_SIZES_AND_MARCHING])}, "
    f"{', '.join([_STACK, _MATRIX, _MATRIX, _STACK, *_DECODER])})",
    fastmath=_FASTMATH,
)
def backward(
    planes,
    hidden_weight,
    hidden_bias,
    output_weight,
    output_bias,
    hidden_rows,
    output_rows,
    origins,
    directions,
    distances,
    height,
    width,
    channels,
    chunks,
    density_bias,
    sigmoid,
    grad_values,
    grad_alpha,
    grad_distance,
    grad_planes,
    grad_hidden_weight,
    grad_hidden_bias,
    grad_output_weight,
    grad_output_bias,
):
    """Gradients of `forward` by planes and decoder, one set for every chunk.

    Args:
        hidden_rows: ``[1 or B, Hd, C+]`` the decoder's hidden weights, a row for every hidden unit.
        output_rows: ``[1 or B, O, Hd+]`` its output weights, a row for every output.
        grad_values, grad_alpha, grad_distance: ``[B, R, K]``, ``[B, R]``, ``[B, R]``.
        grad_planes: result, ``[B, chunks, 3*H*W*C]``; the sum over chunks is in ``[:, 0]``, the rest is scratch.
        grad_hidden_weight, grad_hidden_bias, grad_output_weight, grad_output_bias: results, ``[B*chunks, Hd+, C+]``,
            ``[B*chunks, Hd+]``, ``[B*chunks, O+, Hd+]``, ``[B*chunks, O+]``, to be summed by the caller.
        The rest: as in `forward`.
    """
    sizes = Sizes(height, width, channels, distances.shape[2], grad_values.shape[2])
    marching = Marching(density_bias, sigmoid)
    for item in numba.prange(planes.shape[0] * chunks):
        entry = item // chunks
        shared = entry if hidden_bias.shape[0] > 1 else 0
        decoder = Decoder(hidden_weight[shared], hidden_bias[shared], output_weight[shared], output_bias[shared])
        transposed = Decoder(hidden_rows[shared], hidden_bias[shared], output_rows[shared], output_bias[shared])
        rays = Rays(origins[entry], directions[entry], distances[entry])
        # Weights are constants for autograd: what stands in their place is never read.
        grad_rendered = Rendered(grad_values[entry], grad_alpha[entry], grad_distance[entry], distances[entry])
        grad_decoder = Decoder(
            grad_hidden_weight[item], grad_hidden_bias[item], grad_output_weight[item], grad_output_bias[item]
        )
        _backward_chunk(
            planes[entry],
            decoder,
            transposed,
            sizes,
            rays,
            marching,
            item % chunks,
            chunks,
            grad_rendered,
            grad_planes[entry, item % chunks],
            grad_decoder,
        )
    if chunks > 1:
        for row in numba.prange(planes.shape[0] * 3 * height):
            entry, first = row // (3 * height), row % (3 * height) * width * channels
            for chunk in range(1, chunks):
                for i in range(first, first + width * channels):
                    grad_planes[entry, 0, i] += grad_planes[entry, chunk, i]


def _chunks(planes, distances, pieces: int) -> int:
    """Into how many chunks each entry's rays are cut to give about ``pieces`` in all."""
    blocks = -(-distances.shape[1] // RAYS_PER_BLOCK)
    return max(1, min(pieces // max(1, planes.shape[0]), blocks))


def _padded(tensor: Tensor) -> Tensor:
    return pad(tensor, (0, -tensor.shape[-1] % LANES)).contiguous()


def _kernel_inputs(planes, decoder, rays) -> list[Tensor]:
    hidden_weight, hidden_bias, output_weight, output_bias = decoder
    # Padded hidden units are softplus(0), not 0: their output weights must be.
    output_weight = pad(output_weight.mT, (0, 0, 0, -hidden_bias.shape[-1] % LANES))
    return [
        planes.reshape(planes.shape[0], -1).contiguous(),
        *(_padded(tensor) for tensor in (hidden_weight.mT, hidden_bias, output_weight, output_bias)),
        *(tensor.contiguous() for tensor in rays),
    ]


def render(planes, decoder, rays, sigmoid: bool, density_bias: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`render_field` for ``[B, ...]`` float32 tensors."""
    (entries, _, height, width, channels), (rays_per_entry, samples) = planes.shape, rays[2].shape[1:]
    values = torch.empty(entries, rays_per_entry, decoder[3].shape[-1] - 1)
    alpha, distance = torch.empty(entries, rays_per_entry), torch.empty(entries, rays_per_entry)
    weights = torch.empty(entries, rays_per_entry, samples - 1)
    chunks = _chunks(planes, rays[2], FORWARD_PIECES)
    options = height, width, channels, chunks, density_bias, sigmoid
    launch(forward, *_kernel_inputs(planes, decoder, rays), *options, values, alpha, distance, weights)
    return values, alpha, distance, weights


def render_backward(grad_rendered, planes, decoder, rays, sigmoid: bool, density_bias: float) -> tuple[Tensor, ...]:
    """Gradients of `render` by planes and the four tensors of the decoder."""
    entries, _, height, width, channels = planes.shape
    chunks = _chunks(planes, rays[2], BACKWARD_PIECES)
    inputs = _kernel_inputs(planes, decoder, rays)
    hidden, outputs, columns = inputs[2].shape[-1], inputs[4].shape[-1], -(-channels // LANES) * LANES
    grad_planes = torch.empty(entries, chunks, 3 * height * width * channels)
    shapes = (hidden, columns), (hidden,), (outputs, hidden), (outputs,)
    grad_decoder = [torch.empty(entries * chunks, *shape) for shape in shapes]
    launch(
        backward,
        *inputs[:5],
        _padded(decoder[0]),
        _padded(decoder[2]),
        *inputs[5:],
        *(height, width, channels, chunks, density_bias, sigmoid),
        *(grad.contiguous() for grad in grad_rendered),
        grad_planes,
        *grad_decoder,
    )
    summed = (_sum_in_order(grad, tensor) for grad, tensor in zip(grad_decoder, decoder))
    return grad_planes[:, 0].reshape(planes.shape).contiguous(), *summed


def _sum_in_order(grads: Tensor, parameter: Tensor) -> Tensor:
    """Add ``[P * n, *padded]`` over n, in the same order on any machine."""
    stacked = grads.view(parameter.shape[0], -1, *grads.shape[1:])[(..., *map(slice, parameter.shape[1:]))]
    total = stacked[:, 0].clone()
    for chunk in range(1, stacked.shape[1]):
        total += stacked[:, chunk]
    return total
