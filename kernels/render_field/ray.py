"""One ray of `render_field` and its derivative, for compiled CPU kernels.

A ray's samples are the rows of small matrices (features, hidden units, outputs) in scratch that stays in the cache and
is overwritten by the next ray. Backward evaluates the ray again, then goes from what it was composited to back to its
samples' outputs, hidden units, features, and to the cells and coordinates these came from.

Numba's disk cache watches only the file a kernel is written in: after editing this one, delete ``cpu.*.nbi``.
"""

from collections import namedtuple

import numba
import numpy as np

from fusedplanes.kernels.fast_math import exp_float32, expm1_float32, sigmoid_float32, softplus_float32
from fusedplanes.kernels.render_field.registers import (
    LANES,
    PLANE_SHARES,
    TILE_ROWS,
    gather,
    multiply,
    multiply_slope,
    multiply_softplus,
    probe,
    scatter,
    transpose,
)

# All that may be reordered without losing NaN and infinity.
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
compiled = numba.njit(error_model="numpy", fastmath=FASTMATH)

_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
# Outside of every plane, for points whose coordinates are not finite.
_FAR = np.float32(1e6)
# Colours may leave [0, 1] by a thousandth, so that black and white are reachable (mip-NeRF).
_SIGMOID_SCALE, _SIGMOID_SHIFT = np.float32(1.002), np.float32(-0.001)
# Behind this transmittance nothing adds a bit to a float32 gradient.
_OPAQUE = np.float32(2.0**-24)

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
Gradients = namedtuple("Gradients", "output hidden features corners shares of_ray of_block zeros")
Gradients.__doc__ = """A ray's ``output [O+, S+]``, ``hidden [S+, Hd+]``, ``features [S+, C+]``, zero in padding.

``corners [12, S+]`` by a corner's weight, four to a plane; ``shares [8, S+]`` by shares, in turn by coordinates.
``of_ray`` and ``of_block`` are `Decoder` gradients: sums of sums lose far less to rounding than one long sum.
``zeros [Hd+ + C+]``.
"""


def buffer_size(sizes: Sizes) -> int:
    """float32 elements that `scratch_in` and `gradients_in` lay out."""
    samples, columns = sizes.samples + -sizes.samples % LANES, sizes.channels + -sizes.channels % LANES
    decoder = sizes.hidden * columns + sizes.outputs * sizes.hidden + sizes.hidden + sizes.outputs
    per_sample = 2 * columns + 2 * sizes.hidden + 3 * sizes.outputs + 45
    return samples * per_sample + 2 * decoder + sizes.hidden + columns


@compiled
def _round_up(count, multiple):
    return (count + multiple - 1) // multiple * multiple


@compiled
def _take(buffer, start, rows, columns):
    """The next ``[rows, columns]`` of a buffer and where it ends."""
    end = start + rows * columns
    return buffer[start:end].reshape(rows, columns), end


@compiled
def scratch_in(buffer, sizes):
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


@compiled
def _decoder_gradient(buffer, start, sizes):
    hidden_weight, end = _take(buffer, start, sizes.hidden, _round_up(sizes.channels, LANES))
    output_weight, end = _take(buffer, end, sizes.outputs, sizes.hidden)
    biases, end = _take(buffer, end, 1, sizes.hidden + sizes.outputs)
    return Decoder(hidden_weight, biases[0, : sizes.hidden], output_weight, biases[0, sizes.hidden :]), end


@compiled
def clear(decoder):
    """Set a decoder's gradient to zero."""
    decoder.hidden_weight[:] = _ZERO
    decoder.hidden_bias[:] = _ZERO
    decoder.output_weight[:] = _ZERO
    decoder.output_bias[:] = _ZERO


@compiled
def gradients_in(buffer, start, sizes):
    """Lay a ray's gradients out in what `scratch_in` leaves of the buffer."""
    samples = _round_up(sizes.samples, LANES)
    output, end = _take(buffer, start, sizes.outputs, samples)
    hidden, end = _take(buffer, end, samples, sizes.hidden)
    features, end = _take(buffer, end, samples, _round_up(sizes.channels, LANES))
    corners, end = _take(buffer, end, 12, samples)
    shares, end = _take(buffer, end, 8, samples)
    of_ray, end = _decoder_gradient(buffer, end, sizes)
    of_block, end = _decoder_gradient(buffer, end, sizes)
    zeros, end = _take(buffer, end, 1, sizes.hidden + features.shape[1])
    output[:] = _ZERO
    zeros[:] = _ZERO
    clear(of_ray)
    clear(of_block)
    return Gradients(output, hidden, features, corners, shares, of_ray, of_block, zeros[0])


@compiled
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


@compiled
def _lower_cell(coordinate, size):
    """The last cell whose centre is not beyond the coordinate, and how far on to the next it is (0 to 1).

    Coordinates further out than two cells, from where nothing is read, count as just so far: they might not fit an
    integer.
    """
    position = (coordinate + _ONE) * (np.float32(size) * _HALF) - _HALF
    end = np.float32(size + 1)
    position = -_TWO if position < -_TWO else position
    position = end if position > end else position
    lower = np.floor(position)
    return lower, position - lower


@compiled
def _locate(samples, coordinates, size, cells, before, after):
    """Find the two neighbouring cells round each coordinate and their shares; cells that do not exist have none.

    The pair is moved inside at the ends, so that both can be read whatever their shares.
    """
    last, last_pair = np.float32(size - 1), np.float32(max(size - 2, 0))
    for s in range(samples):
        lower, fraction = _lower_cell(coordinates[s], size)
        lower_share = _ONE - fraction if (lower >= _ZERO) & (lower <= last) else _ZERO
        upper_share = fraction if (lower >= -_ONE) & (lower < last) else _ZERO
        first = _ZERO if lower < _ZERO else lower
        first = last_pair if first > last_pair else first
        cells[s] = np.int32(first)
        inner = lower_share if lower == first else _ZERO
        before[s] = upper_share if lower < first else inner
        inner = upper_share if lower == first else _ZERO
        after[s] = lower_share if lower > first else inner


@compiled
def _locate_backward(samples, coordinates, size, grad_before, grad_after):
    """Turn gradients by the two shares of `_locate` into the gradient by the coordinate, in ``grad_before``."""
    last, last_pair, half = np.float32(size - 1), np.float32(max(size - 2, 0)), np.float32(size) * _HALF
    for s in range(samples):
        lower, _ = _lower_cell(coordinates[s], size)
        first = _ZERO if lower < _ZERO else lower
        first = last_pair if first > last_pair else first
        grad_lower = grad_after[s] if lower > first else grad_before[s]
        grad_upper = grad_before[s] if lower < first else grad_after[s]
        grad = grad_upper if (lower >= -_ONE) & (lower < last) else _ZERO
        grad_before[s] = (grad - grad_lower if (lower >= _ZERO) & (lower <= last) else grad) * half


@compiled
def _locate_samples(sizes, origin, direction, distances, scratch):
    """Fill points, pairs, cells and shares of a ray's samples."""
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


@compiled
def _neighbours(sizes):
    """Steps to the next cell along width and height; a plane one cell wide has none."""
    return min(sizes.width - 1, 1), sizes.width if sizes.height > 1 else 0


@compiled
def evaluate(planes, decoder, sizes, origin, direction, distances, scratch):
    """Fill features, hidden units and outputs of a ray's samples."""
    _locate_samples(sizes, origin, direction, distances, scratch)
    step, row_step = _neighbours(sizes)
    gather(planes, scratch.cells, scratch.shares, step, row_step, sizes.samples, scratch.features)
    used_features = scratch.features[:, : sizes.channels]
    multiply_softplus(used_features, decoder.hidden_weight, decoder.hidden_bias, scratch.hidden)
    multiply(scratch.hidden, decoder.output_weight, decoder.output_bias, scratch.raw)
    transpose(scratch.raw, scratch.output)


@compiled
def _sum(a, count):
    total = _ZERO
    for i in range(count):
        total += a[i]
    return total


@compiled
def _dot(a, b, count):
    total = _ZERO
    for i in range(count):
        total += a[i] * b[i]
    return total


@compiled
def march(sizes, distances, marching, scratch):
    """Turn densities into weights and apply the activation to values; returns the ray's optical depth."""
    samples, intervals = sizes.samples, sizes.samples - 1
    density, lengths, depths = scratch.output[0], scratch.lengths, scratch.optical_depths
    transmittance, weights, sample_weights = scratch.transmittance, scratch.weights, scratch.sample_weights
    for k in range(intervals):
        lengths[k] = distances[k + 1] - distances[k]
    for k in range(intervals):
        mean = (density[k] + density[k + 1]) * _HALF + marching.density_bias
        depths[k] = softplus_float32(mean) * lengths[k]
    before = _ZERO
    for k in range(intervals):
        transmittance[k] = before
        before += depths[k]
    transmittance[intervals] = before
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
    return _sum(depths, intervals)


@compiled
def is_empty(distances):
    """Whether the ray missed the field."""
    return distances[0] == distances[distances.size - 1]


@compiled
def _value_scale(marching):
    """Factor and offset from an activated output to a value."""
    if marching.sigmoid:
        return _SIGMOID_SCALE, _SIGMOID_SHIFT
    return _ONE, _ZERO


@compiled
def composite(sizes, distances, optical_depth, marching, scratch, ray, rendered):
    """Write what the marched ray adds up to."""
    scale, shift = _value_scale(marching)
    samples, weights = sizes.samples, rendered.weights[ray]
    for k in range(samples - 1):
        weights[k] = scratch.weights[k]
    mass = _sum(scratch.weights, samples - 1)
    for k in range(sizes.values):
        value = _dot(scratch.sample_weights, scratch.output[1 + k], samples)
        rendered.values[ray, k] = scale * value + shift * mass
    rendered.alpha[ray] = -expm1_float32(-optical_depth)
    rendered.distance[ray] = _dot(scratch.sample_weights, distances, samples)


@compiled
def march_backward(sizes, distances, marching, ray, grad_rendered, scratch, grad_output):
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


@compiled
def locate_samples_backward(planes, sizes, samples, distances, scratch, grads, grad_origin, grad_direction):
    """Gradient of a ray from that of its samples' features."""
    corners, shares, grad_shares, points = grads.corners, scratch.shares, grads.shares, scratch.points
    height, width = sizes.height, sizes.width
    step, row_step = _neighbours(sizes)
    corners[:] = _ZERO
    grad_shares[:] = _ZERO
    probe(grads.features, planes, scratch.cells, shares, step, row_step, samples, corners)
    for plane in range(3):
        across, down = PLANE_SHARES[plane]
        for corner in range(4):
            # A corner's weight is its column's share times its row's.
            column, row = across + corner % 2, down + corner // 2
            for s in range(samples):
                grad_shares[column, s] += corners[4 * plane + corner, s] * shares[row, s]
                grad_shares[row, s] += corners[4 * plane + corner, s] * shares[column, s]
    _locate_backward(samples, points[0], width, grad_shares[0], grad_shares[1])
    _locate_backward(samples, points[1], height, grad_shares[2], grad_shares[3])
    _locate_backward(samples, points[1], width, grad_shares[4], grad_shares[5])
    _locate_backward(samples, points[2], height, grad_shares[6], grad_shares[7])
    x, y, other_y, z = grad_shares[0], grad_shares[2], grad_shares[4], grad_shares[6]
    for s in range(samples):
        y[s] += other_y[s]
    for axis, along in ((0, x), (1, y), (2, z)):
        grad_origin[axis] = _sum(along, samples)
        grad_direction[axis] = _dot(along, distances, samples)


@compiled
def visible_samples(samples, transmittance):
    """How many samples the loss can feel: none counts whose interval begins behind ``_OPAQUE``."""
    while samples > 2 and transmittance[samples - 2] < _OPAQUE:
        samples -= 1
    return samples


@compiled
def _sum_biases(samples, grads):
    """Gradients of the decoder's biases by the ray at hand; padding adds zeros."""
    hidden_bias, output_bias = grads.of_ray.hidden_bias, grads.of_ray.output_bias
    hidden_bias[:] = _ZERO
    for s in range(0, samples, 4):
        a, b, c, d = grads.hidden[s], grads.hidden[s + 1], grads.hidden[s + 2], grads.hidden[s + 3]
        for j in range(hidden_bias.size):
            hidden_bias[j] += (a[j] + b[j]) + (c[j] + d[j])
    for k in range(output_bias.size):
        output_bias[k] = _sum(grads.output[k], samples)


@compiled
def _add_rows(part, total):
    for row in range(part.shape[0]):
        for column in range(part.shape[1]):
            total[row, column] += part[row, column]


@compiled
def add_decoder(part, total):
    """Add one decoder's gradient to another."""
    _add_rows(part.hidden_weight, total.hidden_weight)
    _add_rows(part.output_weight, total.output_weight)
    for j in range(part.hidden_bias.size):
        total.hidden_bias[j] += part.hidden_bias[j]
    for k in range(part.output_bias.size):
        total.output_bias[k] += part.output_bias[k]


@compiled
def decode_backward(decoder, sizes, samples, scratch, grads, grad_planes):
    """From the gradient of a ray's outputs to those of its features, of the planes and of the decoder."""
    rows, output_rows = _round_up(samples, TILE_ROWS), _round_up(decoder.output_weight.shape[0], TILE_ROWS)
    step, row_step = _neighbours(sizes)
    of_ray, zeros = grads.of_ray, grads.zeros
    output = grads.output[: decoder.output_weight.shape[0], :rows]
    hidden, features = grads.hidden[:rows], grads.features[:rows]
    multiply_slope(output.T, decoder.output_weight, scratch.hidden, hidden)
    multiply(hidden[:, : decoder.hidden_weight.shape[0]], decoder.hidden_weight, zeros, features)
    scatter(features, scratch.cells, scratch.shares, step, row_step, samples, grad_planes)
    multiply(grads.output[:output_rows, :samples], scratch.hidden, zeros, of_ray.output_weight[:output_rows])
    multiply(hidden[:samples].T, scratch.features, zeros, of_ray.hidden_weight)
    _sum_biases(rows, grads)
