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
from fusedplanes.kernels.render_field.registers import (
    LANES,
    TILE_ROWS,
    gather,
    multiply,
    multiply_slope,
    multiply_softplus,
    scatter,
    transpose,
    unowned,
)

RAYS_PER_BLOCK = 16
"""Consecutive rays dealt to a chunk at a time: neighbours share cells, and dealing evens out rays that miss."""

FORWARD_PIECES, BACKWARD_PIECES = 32, 8
"""How many chunks a call is cut into, to keep several threads busy. Fixed, because the order in which
gradients are summed follows from it; a chunk of backward costs a copy of its planes, so there are fewer of those."""

WORKERS = 32
"""Loops that share the chunks, each with scratch of its own: the most threads that find work."""

_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
# Beyond the field's box, however far the planes' outermost cells reach past it.
_FAR = np.float32(1e6)
# Colours may leave [0, 1] by a thousandth, so that black and white are reachable (mip-NeRF, appendix).
_SIGMOID_SCALE, _SIGMOID_SHIFT = np.float32(1.002), np.float32(-0.001)
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

_inline = numba.njit(error_model="numpy", fastmath=_FASTMATH)

Sizes = namedtuple("Sizes", "height width channels samples hidden outputs values")
Sizes.__doc__ = """Of one entry: H, W, C, S, Hd+, O+ and K, where O is 1 + K and + rounds up to whole vectors."""
Marching = namedtuple("Marching", "density_bias sigmoid")
Rays = namedtuple("Rays", "origins directions distances")
Rendered = namedtuple("Rendered", "values alpha distance weights")
Decoder = namedtuple("Decoder", "hidden_weight hidden_bias output_weight output_bias")
Decoder.__doc__ = """One entry's decoder, or gradients of it, padded with zeros.

Forward reads ``hidden_weight [C, Hd+]``, ``hidden_bias [Hd+]``, ``output_weight [Hd+, O+]``, ``output_bias [O+]``.
Backward also reads ``hidden_weight [Hd, C+]`` and ``output_weight [O, Hd+]``, and writes gradients of both laid out so,
with rows padded too.
"""
Scratch = namedtuple(
    "Scratch",
    "points pairs cells shares features hidden raw output lengths optical_depths slopes weights transmittance "
    "sample_weights worth",
)
Scratch.__doc__ = """What a worker knows of the ray at hand.

``points [3, S+]``; ``pairs [4, S+]`` the first cell along x, y (height of XY), y (width of YZ) and z; ``cells [3, S+]``
and ``shares [8, S+]`` as `gather` takes them. ``features [S+, C+]``, zero in rows of padding; ``hidden [S+, Hd+]``;
``raw [S+, O+]`` and, transposed, ``output [O+, S+]``: density, then values.

Of every interval ``lengths``, ``optical_depths``, ``slopes`` (half its optical depth's derivative by the mean raw
density) and ``weights``. Of every sample ``transmittance`` up to it, ``sample_weights`` it has in the composite and
``worth``, what a unit of weight there adds to the loss. All ``[S+]``.
"""
Gradients = namedtuple("Gradients", "output hidden features of_ray of_block")
Gradients.__doc__ = """``output [O+, S+]``, ``hidden [S+, Hd+]``, ``features [S+, C+]`` of the ray at hand, zero in padding.

``of_ray`` and ``of_block`` are `Decoder` gradients. Sums of sums lose far less to rounding than one long sum.
"""


def _buffer_size(sizes: Sizes) -> int:
    """float32 elements that `_scratch` and `_gradients` lay out."""
    samples, columns = sizes.samples + -sizes.samples % LANES, sizes.channels + -sizes.channels % LANES
    decoder = sizes.hidden * columns + sizes.outputs * sizes.hidden + sizes.hidden + sizes.outputs
    return samples * (2 * columns + 2 * sizes.hidden + 3 * sizes.outputs + 25) + 2 * decoder


@_inline
def _round_up(count, multiple):
    return (count + multiple - 1) // multiple * multiple


@_inline
def _take(buffer, start, rows, columns):
    """The next ``[rows, columns]`` of a buffer and where it ends."""
    end = start + rows * columns
    return buffer[start:end].reshape(rows, columns), end


@_inline
def _scratch(buffer, sizes):
    """Lay a ray's matrices out in a worker's buffer; also says where they end."""
    samples = _round_up(sizes.samples, LANES)
    features, end = _take(buffer, 0, samples, _round_up(sizes.channels, LANES))
    hidden, end = _take(buffer, end, samples, sizes.hidden)
    raw, end = _take(buffer, end, samples, sizes.outputs)
    output, end = _take(buffer, end, sizes.outputs, samples)
    points, end = _take(buffer, end, 3, samples)
    shares, end = _take(buffer, end, 8, samples)
    integers, end = _take(buffer.view(np.int32), end, 7, samples)
    lines, end = _take(buffer, end, 7, samples)
    features[:] = _ZERO
    matrices = points, integers[:4], integers[4:], shares, features, hidden, raw, output
    return Scratch(*matrices, lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], lines[6]), end


@_inline
def _decoder_gradient(buffer, start, sizes):
    hidden_weight, end = _take(buffer, start, sizes.hidden, _round_up(sizes.channels, LANES))
    output_weight, end = _take(buffer, end, sizes.outputs, sizes.hidden)
    biases, end = _take(buffer, end, 1, sizes.hidden + sizes.outputs)
    return Decoder(hidden_weight, biases[0, : sizes.hidden], output_weight, biases[0, sizes.hidden :]), end


@_inline
def _clear(decoder):
    decoder.hidden_weight[:] = _ZERO
    decoder.hidden_bias[:] = _ZERO
    decoder.output_weight[:] = _ZERO
    decoder.output_bias[:] = _ZERO


@_inline
def _gradients(buffer, start, sizes):
    """Lay a ray's gradients out in what `_scratch` leaves of the buffer."""
    samples = _round_up(sizes.samples, LANES)
    output, end = _take(buffer, start, sizes.outputs, samples)
    hidden, end = _take(buffer, end, samples, sizes.hidden)
    features, end = _take(buffer, end, samples, _round_up(sizes.channels, LANES))
    of_ray, end = _decoder_gradient(buffer, end, sizes)
    of_block, end = _decoder_gradient(buffer, end, sizes)
    output[:] = _ZERO
    _clear(of_block)
    return Gradients(output, hidden, features, of_ray, of_block)


@_inline
def _locate_points(samples, origin, direction, distances, points):
    """Fill ``points [3, S]``; one with a coordinate that is not finite goes outside of all planes."""
    for s in range(samples):
        x = origin[0] + distances[s] * direction[0]
        y = origin[1] + distances[s] * direction[1]
        z = origin[2] + distances[s] * direction[2]
        finite = (abs(x) < _FAR) & (abs(y) < _FAR) & (abs(z) < _FAR)
        points[0, s] = x if finite else _FAR
        points[1, s] = y if finite else _FAR
        points[2, s] = z if finite else _FAR


@_inline
def _locate(samples, coordinates, size, cells, before, after):
    """Find the two neighbouring cells round each coordinate and their shares; cells that do not exist have none.

    The pair is moved inside at the ends, so that both can be read whatever their shares.
    """
    half, last = np.float32(size) * _HALF, np.float32(size - 1)
    last_pair = np.float32(max(size - 2, 0))
    for s in range(samples):
        position = (coordinates[s] + _ONE) * half - _HALF
        position = -_TWO if position < -_TWO else position
        position = last + _TWO if position > last + _TWO else position
        lower = np.floor(position)
        fraction = position - lower
        lower_share = _ONE - fraction if (lower >= _ZERO) & (lower <= last) else _ZERO
        upper_share = fraction if (lower >= -_ONE) & (lower < last) else _ZERO
        first = _ZERO if lower < _ZERO else lower
        first = last_pair if first > last_pair else first
        cells[s] = np.int32(first)
        inner = lower_share if lower == first else _ZERO
        before[s] = upper_share if lower < first else inner
        inner = upper_share if lower == first else _ZERO
        after[s] = lower_share if lower > first else inner


@_inline
def _locate_samples(sizes, origin, direction, distances, scratch):
    points, pairs, cells, shares = scratch.points, scratch.pairs, scratch.cells, scratch.shares
    samples, height, width = sizes.samples, sizes.height, sizes.width
    _locate_points(samples, origin, direction, distances, points)
    _locate(samples, points[0], width, pairs[0], shares[0], shares[1])
    _locate(samples, points[1], height, pairs[1], shares[2], shares[3])
    _locate(samples, points[1], width, pairs[2], shares[4], shares[5])
    _locate(samples, points[2], height, pairs[3], shares[6], shares[7])
    for s in range(samples):
        cells[0, s] = pairs[1, s] * np.int32(width) + pairs[0, s]
        cells[1, s] = (np.int32(height) + pairs[3, s]) * np.int32(width) + pairs[0, s]
        cells[2, s] = (np.int32(2 * height) + pairs[3, s]) * np.int32(width) + pairs[2, s]


@_inline
def _neighbours(sizes):
    """Steps to the next cell along width and height; a plane one cell wide has none."""
    return min(sizes.width - 1, 1), sizes.width if sizes.height > 1 else 0


@_inline
def _evaluate(planes, decoder, sizes, origin, direction, distances, scratch):
    """Fill features, hidden units and outputs of a ray's samples."""
    _locate_samples(sizes, origin, direction, distances, scratch)
    step, row_step = _neighbours(sizes)
    gather(planes, scratch.cells, scratch.shares, step, row_step, sizes.samples, scratch.features)
    used_features = scratch.features[:, : sizes.channels]
    multiply_softplus(used_features, decoder.hidden_weight, decoder.hidden_bias, scratch.hidden)
    multiply(scratch.hidden, decoder.output_weight, decoder.output_bias, scratch.raw)
    transpose(scratch.raw, scratch.output)


@_inline
def _march(sizes, distances, marching, scratch):
    """Turn densities into weights and apply the activation to values; returns the ray's optical depth."""
    samples, intervals = sizes.samples, sizes.samples - 1
    density, lengths, depths = scratch.output[0], scratch.lengths, scratch.optical_depths
    transmittance, weights, sample_weights = scratch.transmittance, scratch.weights, scratch.sample_weights
    for k in range(intervals):
        lengths[k] = distances[k + 1] - distances[k]
    for k in range(intervals):
        mean = (density[k] + density[k + 1]) * _HALF + marching.density_bias
        depths[k] = softplus_float32(mean) * lengths[k]
    before, total = _ZERO, _ZERO
    for k in range(intervals):
        transmittance[k] = before
        before += depths[k]
    transmittance[intervals] = before
    for k in range(intervals):
        total += depths[k]
    for s in range(samples):
        transmittance[s] = exp_float32(-transmittance[s])
    for k in range(intervals):
        weights[k] = transmittance[k] * -expm1_float32(-depths[k])
    sample_weights[0] = _HALF * weights[0]
    for k in range(1, intervals):
        sample_weights[k] = _HALF * (weights[k - 1] + weights[k])
    sample_weights[intervals] = _HALF * weights[intervals - 1]
    if marching.sigmoid:
        for k in range(1, sizes.values + 1):
            values = scratch.output[k]
            for s in range(samples):
                values[s] = sigmoid_float32(values[s])
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
def _dot(a, b, count):
    total = _ZERO
    for i in range(count):
        total += a[i] * b[i]
    return total


@_inline
def _composite(sizes, distances, optical_depth, marching, scratch, ray, rendered):
    """Write what the marched ray adds up to."""
    scale, shift = _value_scale(marching)
    samples, weights, mass = sizes.samples, rendered.weights[ray], _ZERO
    for k in range(samples - 1):
        weights[k] = scratch.weights[k]
    for k in range(samples - 1):
        mass += scratch.weights[k]
    for k in range(sizes.values):
        value = _dot(scratch.sample_weights, scratch.output[1 + k], samples)
        rendered.values[ray, k] = scale * value + shift * mass
    rendered.alpha[ray] = -expm1_float32(-optical_depth)
    rendered.distance[ray] = _dot(scratch.sample_weights, distances, samples)


@_inline
def _forward_chunk(planes, decoder, sizes, rays, marching, chunk, chunks, buffer, rendered):
    """Render every block of rays whose number is ``chunk`` modulo ``chunks``."""
    scratch, _ = _scratch(buffer, sizes)
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
    samples, intervals = sizes.samples, sizes.samples - 1
    output, slopes, worth, transmittance = scratch.output, scratch.slopes, scratch.worth, scratch.transmittance
    scale, shift = _value_scale(marching)
    grad_values, grad_distance = grad_rendered.values[ray], grad_rendered.distance[ray]
    for s in range(samples):
        worth[s] = grad_distance * distances[s]
    for k in range(sizes.values):
        value, grad, factor, offset = output[1 + k], grad_output[1 + k], grad_values[k] * scale, grad_values[k] * shift
        for s in range(samples):
            worth[s] += factor * value[s] + offset
        if marching.sigmoid:
            for s in range(samples):
                grad[s] = factor * scratch.sample_weights[s] * (value[s] * (_ONE - value[s]))
        else:
            for s in range(samples):
                grad[s] = factor * scratch.sample_weights[s]
    density, grad_density = output[0], grad_output[0]
    for k in range(intervals):
        mean = (density[k] + density[k + 1]) * _HALF + marching.density_bias
        slopes[k] = _HALF * sigmoid_float32(mean) * scratch.lengths[k]
    through = grad_rendered.alpha[ray] * transmittance[intervals]
    behind, from_next = _ZERO, _ZERO
    for k in range(intervals - 1, -1, -1):
        mean_worth = _HALF * (worth[k] + worth[k + 1])
        grad_mean = (transmittance[k + 1] * mean_worth - behind + through) * slopes[k]
        behind += scratch.weights[k] * mean_worth
        grad_density[k + 1] = grad_mean + from_next
        from_next = grad_mean
    grad_density[0] = from_next


@_inline
def _sum_biases(samples, grads):
    """Gradients of the decoder's biases by the ray at hand; padding adds zeros."""
    hidden_bias, output_bias = grads.of_ray.hidden_bias, grads.of_ray.output_bias
    hidden_bias[:] = _ZERO
    for s in range(0, samples, 4):
        a, b, c, d = grads.hidden[s], grads.hidden[s + 1], grads.hidden[s + 2], grads.hidden[s + 3]
        for j in range(hidden_bias.size):
            hidden_bias[j] += (a[j] + b[j]) + (c[j] + d[j])
    for k in range(output_bias.size):
        row, total = grads.output[k], _ZERO
        for s in range(samples):
            total += row[s]
        output_bias[k] = total


@_inline
def _add_rows(part, total):
    for row in range(part.shape[0]):
        for column in range(part.shape[1]):
            total[row, column] += part[row, column]


@_inline
def _add_decoder(part, total):
    _add_rows(part.hidden_weight, total.hidden_weight)
    _add_rows(part.output_weight, total.output_weight)
    for j in range(part.hidden_bias.size):
        total.hidden_bias[j] += part.hidden_bias[j]
    for k in range(part.output_bias.size):
        total.output_bias[k] += part.output_bias[k]


@_inline
def _backward_chunk(
    planes, decoder, transposed, sizes, rays, marching, chunk, chunks, buffer, grad_rendered, grad_planes, grad_decoder
):
    """Sum the gradients of every block of rays whose number is ``chunk`` modulo ``chunks``."""
    scratch, end = _scratch(buffer, sizes)
    grads = _gradients(buffer, end, sizes)
    zeros = np.zeros(max(grads.hidden.shape[1], grads.features.shape[1]), np.float32)
    step, row_step = _neighbours(sizes)
    samples = sizes.samples
    outputs, hidden = transposed.output_weight.shape[0], transposed.hidden_weight.shape[0]
    output_columns, used_hidden = grads.output[:outputs].T, grads.hidden[:, :hidden]
    hidden_columns = grads.hidden[:samples].T
    output_rows = grads.output[: _round_up(outputs, TILE_ROWS), :samples]
    output_weight = grads.of_ray.output_weight[: output_rows.shape[0]]
    grads.of_ray.output_weight[:] = _ZERO
    grad_planes[:] = _ZERO
    _clear(grad_decoder)
    count = rays.origins.shape[0]
    for block in range(chunk * RAYS_PER_BLOCK, count, chunks * RAYS_PER_BLOCK):
        for ray in range(block, min(block + RAYS_PER_BLOCK, count)):
            distances = rays.distances[ray]
            if _is_empty(distances):
                continue
            _evaluate(planes, decoder, sizes, rays.origins[ray], rays.directions[ray], distances, scratch)
            _march(sizes, distances, marching, scratch)
            _march_backward(sizes, distances, marching, ray, grad_rendered, scratch, grads.output)
            multiply_slope(output_columns, transposed.output_weight, scratch.hidden, grads.hidden)
            multiply(used_hidden, transposed.hidden_weight, zeros, grads.features)
            scatter(grads.features, scratch.cells, scratch.shares, step, row_step, samples, grad_planes)
            multiply(output_rows, scratch.hidden, zeros, output_weight)
            multiply(hidden_columns, scratch.features, zeros, grads.of_ray.hidden_weight)
            _sum_biases(scratch.hidden.shape[0], grads)
            _add_decoder(grads.of_ray, grads.of_block)
        _add_decoder(grads.of_block, grad_decoder)
        _clear(grads.of_block)


@_inline
def _entry_decoder(hidden_weight, hidden_bias, output_weight, output_bias, entry):
    """The decoder of an entry, which may be everybody's."""
    i = entry if hidden_bias.shape[0] > 1 else 0
    return Decoder(
        unowned(hidden_weight[i]), unowned(hidden_bias[i]), unowned(output_weight[i]), unowned(output_bias[i])
    )


@_inline
def _entry_rays(origins, directions, distances, entry):
    return Rays(unowned(origins[entry]), unowned(directions[entry]), unowned(distances[entry]))


_LINES, _MATRIX, _STACK = "float32[:, ::1]", "float32[:, :, ::1]", "float32[:, :, :, ::1]"
_DECODER = [_MATRIX, _LINES, _MATRIX, _LINES]
_RAYS = [_MATRIX, _MATRIX, _MATRIX]
_SETTING = ["int64", "int64", "int64", "float32", "boolean", _LINES]


@compile_kernel(
    f"void({', '.join([_MATRIX, *_DECODER, *_RAYS, *_SETTING, _MATRIX, _LINES, _LINES, _MATRIX])})", fastmath=_FASTMATH
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
    chunks,
    density_bias,
    sigmoid,
    buffers,
    values,
    alpha,
    distance,
    weights,
):
    """Render ``[B, R]`` rays.

    Args:
        planes: ``[B, 3*H*W, C]``.
        hidden_weight, hidden_bias, output_weight, output_bias: as in `Decoder`, with a leading 1 or B.
        origins, directions: ``[B, R, 3]``.
        distances: ``[B, R, S]``, S at least 2.
        height, width: of the planes.
        chunks: how many pieces each entry's rays are cut into.
        density_bias: added to the mean raw density.
        sigmoid: whether values pass through the scaled sigmoid.
        buffers: ``[workers, n]`` scratch, see `_buffer_size`.
        values, alpha, distance, weights: results, ``[B, R, K]``, ``[B, R]``, ``[B, R]``, ``[B, R, S-1]``.
    """
    sizes = Sizes(
        height,
        width,
        planes.shape[2],
        distances.shape[2],
        hidden_bias.shape[1],
        output_bias.shape[1],
        values.shape[2],
    )
    marching = Marching(density_bias, sigmoid)
    workers, items = buffers.shape[0], planes.shape[0] * chunks
    for worker in numba.prange(workers):
        buffer = unowned(buffers[worker])
        for item in range(worker, items, workers):
            entry = item // chunks
            decoder = _entry_decoder(hidden_weight, hidden_bias, output_weight, output_bias, entry)
            rays = _entry_rays(origins, directions, distances, entry)
            rendered = Rendered(
                unowned(values[entry]), unowned(alpha[entry]), unowned(distance[entry]), unowned(weights[entry])
            )
            _forward_chunk(
                unowned(planes[entry]), decoder, sizes, rays, marching, item % chunks, chunks, buffer, rendered
            )


@compile_kernel(
    f"void({', '.join([_MATRIX, *_DECODER, _MATRIX, _MATRIX, *_RAYS, *_SETTING])}, "
    f"{', '.join([_MATRIX, _LINES, _LINES, _STACK, *_DECODER])})",
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
    chunks,
    density_bias,
    sigmoid,
    buffers,
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
        grad_planes: result, ``[B, chunks, 3*H*W, C]``; the sum over chunks is in ``[:, 0]``, the rest is scratch.
        grad_hidden_weight, grad_hidden_bias, grad_output_weight, grad_output_bias: results, ``[B*chunks, Hd+, C+]``,
            ``[B*chunks, Hd+]``, ``[B*chunks, O+, Hd+]``, ``[B*chunks, O+]``, to be summed by the caller.
        The rest: as in `forward`.
    """
    sizes = Sizes(
        height,
        width,
        planes.shape[2],
        distances.shape[2],
        hidden_bias.shape[1],
        output_bias.shape[1],
        grad_values.shape[2],
    )
    marching = Marching(density_bias, sigmoid)
    workers, items = buffers.shape[0], planes.shape[0] * chunks
    for worker in numba.prange(workers):
        buffer = unowned(buffers[worker])
        for item in range(worker, items, workers):
            entry = item // chunks
            decoder = _entry_decoder(hidden_weight, hidden_bias, output_weight, output_bias, entry)
            transposed = _entry_decoder(hidden_rows, hidden_bias, output_rows, output_bias, entry)
            rays = _entry_rays(origins, directions, distances, entry)
            # Weights have no gradient: what stands in its place is never read.
            grad_rendered = Rendered(
                unowned(grad_values[entry]),
                unowned(grad_alpha[entry]),
                unowned(grad_distance[entry]),
                unowned(distances[entry]),
            )
            grad_decoder = Decoder(
                unowned(grad_hidden_weight[item]),
                unowned(grad_hidden_bias[item]),
                unowned(grad_output_weight[item]),
                unowned(grad_output_bias[item]),
            )
            _backward_chunk(
                unowned(planes[entry]),
                decoder,
                transposed,
                sizes,
                rays,
                marching,
                item % chunks,
                chunks,
                buffer,
                grad_rendered,
                unowned(grad_planes[entry, item % chunks]),
                grad_decoder,
            )
    if chunks > 1:
        for row in numba.prange(planes.shape[0] * 3 * height):
            entry, first = row // (3 * height), row % (3 * height) * width
            for chunk in range(1, chunks):
                for cell in range(first, first + width):
                    for channel in range(grad_planes.shape[3]):
                        grad_planes[entry, 0, cell, channel] += grad_planes[entry, chunk, cell, channel]


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
        planes.flatten(1, 3).contiguous(),
        *(_padded(tensor) for tensor in (hidden_weight.mT, hidden_bias, output_weight, output_bias)),
        *(tensor.contiguous() for tensor in rays),
    ]


def _setting(inputs, planes, chunks, values, sigmoid, density_bias):
    """The kernels' arguments between rays and results."""
    (height, width, channels), samples = planes.shape[-3:], inputs[7].shape[-1]
    sizes = Sizes(height, width, channels, samples, inputs[2].shape[-1], inputs[4].shape[-1], values)
    workers = min(WORKERS, max(1, planes.shape[0] * chunks))
    return height, width, chunks, density_bias, sigmoid, torch.empty(workers, _buffer_size(sizes))


def render(planes, decoder, rays, sigmoid: bool, density_bias: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`render_field` for ``[B, ...]`` float32 tensors."""
    inputs = _kernel_inputs(planes, decoder, rays)
    entries, count, samples = rays[2].shape
    values = torch.empty(entries, count, decoder[3].shape[-1] - 1)
    alpha, distance = torch.empty(entries, count), torch.empty(entries, count)
    weights = torch.empty(entries, count, samples - 1)
    setting = _setting(
        inputs, planes, _chunks(planes, rays[2], FORWARD_PIECES), values.shape[-1], sigmoid, density_bias
    )
    launch(forward, *inputs, *setting, values, alpha, distance, weights)
    return values, alpha, distance, weights


def render_backward(grad_rendered, planes, decoder, rays, sigmoid: bool, density_bias: float) -> tuple[Tensor, ...]:
    """Gradients of `render` by planes and the four tensors of the decoder."""
    inputs = _kernel_inputs(planes, decoder, rays)
    chunks = _chunks(planes, rays[2], BACKWARD_PIECES)
    setting = _setting(inputs, planes, chunks, grad_rendered[0].shape[-1], sigmoid, density_bias)
    hidden_rows, output_rows = _padded(decoder[0]), _padded(decoder[2])
    entries, cells, channels = inputs[0].shape
    hidden, outputs = inputs[2].shape[-1], inputs[4].shape[-1]
    grad_planes = torch.empty(entries, chunks, cells, channels)
    shapes = (hidden, hidden_rows.shape[-1]), (hidden,), (outputs, hidden), (outputs,)
    grad_decoder = [torch.empty(entries * chunks, *shape) for shape in shapes]
    grad_rendered = [grad.contiguous() for grad in grad_rendered]
    launch(
        backward, *inputs[:5], hidden_rows, output_rows, *inputs[5:], *setting, *grad_rendered, grad_planes, *grad_decoder
    )
    summed = (_sum_in_order(grad, tensor) for grad, tensor in zip(grad_decoder, decoder))
    return grad_planes[:, 0].reshape(planes.shape).contiguous(), *summed


def _sum_in_order(grads: Tensor, parameter: Tensor) -> Tensor:
    """Add ``[P * n, *padded]`` over n; numpy does it one after the other on any number of threads, torch may not."""
    stacked = grads.view(parameter.shape[0], -1, *grads.shape[1:])[(..., *map(slice, parameter.shape[1:]))]
    return torch.from_numpy(np.add.reduce(stacked.numpy(), axis=1))
