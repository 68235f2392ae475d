"""`render_field` as compiled CPU kernels.

Every ray is evaluated by itself (see `ray`), in scratch that belongs to a worker: memory grows neither with the number
of rays nor with what backward needs. Work is cut into chunks whose number depends on the problem alone; each sums
gradients of its own, which are added up in order, so that results are the same bits on any number of threads.
"""

import numba
import numpy as np
import torch
from numba import types
from torch import Tensor
from torch.nn.functional import pad

from fusedplanes.kernels.dispatch import compile_kernel, launch
from fusedplanes.kernels.render_field.ray import (
    FASTMATH,
    Decoder,
    Marching,
    Rays,
    Rendered,
    Sizes,
    add_decoder,
    buffer_size,
    clear,
    composite,
    decode_backward,
    evaluate,
    gradients_in,
    is_empty,
    locate_samples_backward,
    march,
    march_backward,
    scratch_in,
    visible_samples,
)
from fusedplanes.kernels.render_field.registers import LANES, unowned

RAYS_PER_BLOCK = 16
"""Consecutive rays dealt to a chunk at a time: neighbours share cells, and dealing evens out rays that miss."""

WORKERS = 32
"""Loops that share the chunks, each with scratch of its own: the most threads that find work."""


def _arrays(kind, *dimensions):
    return types.NamedTuple([types.Array(types.float32, n, "C") for n in dimensions], kind)


_LINE, _MATRIX, _STACK, _STACKS = (types.Array(types.float32, n, "C") for n in (1, 2, 3, 4))
_SIZES = types.NamedUniTuple(types.int64, len(Sizes._fields), Sizes)
_MARCHING = types.NamedTuple([types.float32, types.boolean], Marching)
# One entry's, and those of a batch.
_DECODER, _DECODERS = _arrays(Decoder, 2, 1, 2, 1), _arrays(Decoder, 3, 2, 3, 2)
_RAYS, _ALL_RAYS = (types.NamedUniTuple(kind, 3, Rays) for kind in (_MATRIX, _STACK))
_RENDERED, _ALL_RENDERED = _arrays(Rendered, 2, 1, 1, 2), _arrays(Rendered, 3, 2, 2, 3)
_FORWARD = types.void(_MATRIX, _DECODER, _RAYS, _SIZES, _MARCHING, types.int64, types.int64, _LINE, _RENDERED)
_BACKWARD = types.void(
    _MATRIX,
    *(_DECODER, _DECODER),
    *(_RAYS, _SIZES, _MARCHING, types.int64, types.int64, _LINE),
    *(_RENDERED, _MATRIX, _DECODER, _MATRIX, _MATRIX),
)


@compile_kernel(_FORWARD, parallel=False, fastmath=FASTMATH)
def _render_chunk(planes, decoder, rays, sizes, marching, chunk, chunks, buffer, rendered):
    """Render every block of an entry's rays whose number is ``chunk`` modulo ``chunks``."""
    zero = np.float32(0.0)
    planes, decoder, rays, rendered = unowned(planes), unowned(decoder), unowned(rays), unowned(rendered)
    scratch, _ = scratch_in(unowned(buffer), sizes)
    count = rays.origins.shape[0]
    for block in range(chunk * RAYS_PER_BLOCK, count, chunks * RAYS_PER_BLOCK):
        for ray in range(block, min(block + RAYS_PER_BLOCK, count)):
            distances = rays.distances[ray]
            if is_empty(distances):
                rendered.values[ray, :] = zero
                rendered.weights[ray, :] = zero
                rendered.alpha[ray] = zero
                rendered.distance[ray] = zero
                continue
            evaluate(planes, decoder, sizes, rays.origins[ray], rays.directions[ray], distances, scratch)
            optical_depth = march(sizes, distances, marching, scratch)
            composite(sizes, distances, optical_depth, marching, scratch, ray, rendered)


@compile_kernel(_BACKWARD, parallel=False, fastmath=FASTMATH)
def _backward_chunk(
    planes,
    decoder,
    decoder_rows,
    rays,
    sizes,
    marching,
    chunk,
    chunks,
    buffer,
    grad_rendered,
    grad_planes,
    grad_decoder,
    grad_origins,
    grad_directions,
):
    """Sum the gradients of every block of an entry's rays whose number is ``chunk`` modulo ``chunks``."""
    zero = np.float32(0.0)
    planes, decoder, decoder_rows, rays = unowned(planes), unowned(decoder), unowned(decoder_rows), unowned(rays)
    grad_rendered, grad_planes, grad_decoder = unowned(grad_rendered), unowned(grad_planes), unowned(grad_decoder)
    grad_origins, grad_directions, buffer = unowned(grad_origins), unowned(grad_directions), unowned(buffer)
    scratch, end = scratch_in(buffer, sizes)
    grads = gradients_in(buffer, end, sizes)
    grad_planes[:] = zero
    clear(grad_decoder)
    count = rays.origins.shape[0]
    for block in range(chunk * RAYS_PER_BLOCK, count, chunks * RAYS_PER_BLOCK):
        last = min(block + RAYS_PER_BLOCK, count)
        grad_origins[block:last] = zero
        grad_directions[block:last] = zero
        for ray in range(block, last):
            distances = rays.distances[ray]
            if is_empty(distances):
                continue
            evaluate(planes, decoder, sizes, rays.origins[ray], rays.directions[ray], distances, scratch)
            march(sizes, distances, marching, scratch)
            march_backward(sizes, distances, marching, ray, grad_rendered, scratch, grads.output)
            samples = visible_samples(sizes.samples, scratch.transmittance)
            decode_backward(decoder_rows, sizes, samples, scratch, grads, grad_planes)
            add_decoder(grads.of_ray, grads.of_block)
            if grad_origins.shape[0] > 0:
                locate_samples_backward(
                    planes, sizes, samples, distances, scratch, grads, grad_origins[ray], grad_directions[ray]
                )
        add_decoder(grads.of_block, grad_decoder)
        clear(grads.of_block)


@numba.njit(error_model="numpy")
def _decoder_of(decoders, entry):
    """The decoder of an entry, which may be everybody's."""
    i = entry if decoders.hidden_bias.shape[0] > 1 else 0
    return Decoder(
        decoders.hidden_weight[i], decoders.hidden_bias[i], decoders.output_weight[i], decoders.output_bias[i]
    )


@numba.njit(error_model="numpy")
def _rays_of(rays, entry):
    return Rays(rays.origins[entry], rays.directions[entry], rays.distances[entry])


@numba.njit(error_model="numpy")
def _rendered_of(rendered, entry):
    return Rendered(rendered.values[entry], rendered.alpha[entry], rendered.distance[entry], rendered.weights[entry])


# The functions of a chunk are passed by address. Called by name they would be part of the parallel loops, of which
# numba compiles five copies: 30 seconds instead of 20, once per machine.
@compile_kernel(
    types.void(
        types.FunctionType(_FORWARD),
        _STACK,
        _DECODERS,
        _ALL_RAYS,
        _SIZES,
        _MARCHING,
        types.int64,
        _MATRIX,
        _ALL_RENDERED,
    )
)
def _render_all(render_chunk, planes, decoders, rays, sizes, marching, chunks, buffers, rendered):
    workers, items = buffers.shape[0], planes.shape[0] * chunks
    for worker in numba.prange(workers):
        for item in range(worker, items, workers):
            entry = item // chunks
            render_chunk(
                planes[entry],
                _decoder_of(decoders, entry),
                _rays_of(rays, entry),
                sizes,
                marching,
                np.int64(item % chunks),
                chunks,
                buffers[worker],
                _rendered_of(rendered, entry),
            )


@compile_kernel(
    types.void(
        types.FunctionType(_BACKWARD),
        _STACK,
        *(_DECODERS, _DECODERS),
        *(_ALL_RAYS, _SIZES, _MARCHING, types.int64, _MATRIX),
        *(_ALL_RENDERED, _STACKS, _DECODERS, _STACK, _STACK),
    )
)
def _backward_all(
    backward_chunk,
    planes,
    decoders,
    decoder_rows,
    rays,
    sizes,
    marching,
    chunks,
    buffers,
    grad_rendered,
    grad_planes,
    grad_decoders,
    grad_origins,
    grad_directions,
):
    workers, items = buffers.shape[0], planes.shape[0] * chunks
    for worker in numba.prange(workers):
        for item in range(worker, items, workers):
            entry, chunk = item // chunks, item % chunks
            backward_chunk(
                planes[entry],
                _decoder_of(decoders, entry),
                _decoder_of(decoder_rows, entry),
                _rays_of(rays, entry),
                sizes,
                marching,
                np.int64(chunk),
                chunks,
                buffers[worker],
                _rendered_of(grad_rendered, entry),
                grad_planes[entry, chunk],
                Decoder(
                    grad_decoders.hidden_weight[item],
                    grad_decoders.hidden_bias[item],
                    grad_decoders.output_weight[item],
                    grad_decoders.output_bias[item],
                ),
                grad_origins[entry],
                grad_directions[entry],
            )


def _forward_chunks(entries: int, rays: int) -> int:
    """Into how many chunks each entry's rays are cut, so that several threads find work."""
    return max(1, min(32 // max(1, entries), -(-rays // RAYS_PER_BLOCK)))


def _backward_chunks(entries: int, rays: int) -> int:
    """The same for backward, where a chunk costs a copy of its entry's planes and sets the order of sums."""
    return max(1, min(8 // max(1, entries), -(-rays // RAYS_PER_BLOCK))) if entries < 4 else 1


def _padded(tensor: Tensor) -> np.ndarray:
    return pad(tensor, (0, -tensor.shape[-1] % LANES)).contiguous().numpy()


def _arranged(planes: Tensor, decoder: Decoder, rays: Rays) -> tuple[np.ndarray, Decoder, Rays]:
    """Inputs as the kernels read them."""
    # Padded hidden units are softplus(0), not 0: their output weights must be.
    output_weight = pad(decoder.output_weight.mT, (0, 0, 0, -decoder.hidden_bias.shape[-1] % LANES))
    columns = decoder.hidden_weight.mT, decoder.hidden_bias, output_weight, decoder.output_bias
    return (
        planes.flatten(1, 3).contiguous().numpy(),
        Decoder(*map(_padded, columns)),
        Rays(*(tensor.contiguous().numpy() for tensor in rays)),
    )


def _setting(planes: Tensor, decoder: Decoder, rays: Rays, values: int, chunks: int) -> tuple[Sizes, np.ndarray]:
    sizes = Sizes(
        *planes.shape[2:], rays.distances.shape[2], decoder.hidden_bias.shape[1], decoder.output_bias.shape[1], values
    )
    workers = min(WORKERS, max(1, planes.shape[0] * chunks))
    return sizes, torch.empty(workers, buffer_size(sizes), dtype=torch.float32).numpy()


def render(planes: Tensor, decoder: Decoder, rays: Rays, sigmoid: bool, density_bias: float) -> Rendered:
    """`render_field` for float32 tensors with one leading dimension (the decoder's is 1 if it is shared)."""
    cells, columns, marched = _arranged(planes, decoder, rays)
    entries, count, samples = rays.distances.shape
    values = decoder.output_bias.shape[1] - 1
    chunks = _forward_chunks(entries, count)
    sizes, buffers = _setting(planes, columns, marched, values, chunks)
    shapes = (entries, count, values), (entries, count), (entries, count), (entries, count, samples - 1)
    rendered = Rendered(*(torch.empty(shape, dtype=torch.float32) for shape in shapes))
    results = Rendered(*(tensor.numpy() for tensor in rendered))
    marching = Marching(np.float32(density_bias), sigmoid)
    launch(_render_all, _render_chunk, cells, columns, marched, sizes, marching, chunks, buffers, results)
    return rendered


def render_backward(
    grad_rendered: tuple[Tensor, Tensor, Tensor],
    planes: Tensor,
    decoder: Decoder,
    rays: Rays,
    sigmoid: bool,
    density_bias: float,
    by_rays: bool,
) -> tuple[Tensor, ...]:
    """Gradients of `render` by planes, the four tensors of the decoder, and (empty unless ``by_rays``) the rays."""
    cells, columns, marched = _arranged(planes, decoder, rays)
    entries, count = rays.distances.shape[:2]
    chunks = _backward_chunks(entries, count)
    sizes, buffers = _setting(planes, columns, marched, grad_rendered[0].shape[-1], chunks)
    rows = Decoder(
        _padded(decoder.hidden_weight), columns.hidden_bias, _padded(decoder.output_weight), columns.output_bias
    )
    hidden, outputs = sizes.hidden, sizes.outputs
    shapes = (hidden, rows.hidden_weight.shape[2]), (hidden,), (outputs, hidden), (outputs,)
    grad_decoders = Decoder(*(torch.empty(entries * chunks, *shape, dtype=torch.float32).numpy() for shape in shapes))
    grad_planes = torch.empty(entries, chunks, *cells.shape[1:], dtype=torch.float32)
    grad_rays = [torch.empty(entries, count if by_rays else 0, 3, dtype=torch.float32) for _ in range(2)]
    # Weights have no gradient: what stands in its place is never read.
    grads = Rendered(*(grad.contiguous().numpy() for grad in grad_rendered), marched.distances)
    marching = Marching(np.float32(density_bias), sigmoid)
    launch(
        _backward_all,
        _backward_chunk,
        *(cells, columns, rows, marched, sizes, marching, chunks, buffers),
        *(grads, grad_planes, grad_decoders, *grad_rays),
    )
    total = grad_planes[:, 0]
    for chunk in range(1, chunks):
        total += grad_planes[:, chunk]
    summed = (_sum_in_order(grad, tensor) for grad, tensor in zip(grad_decoders, decoder))
    return total.reshape(planes.shape).contiguous(), *summed, *grad_rays


def _sum_in_order(grads: np.ndarray, parameter: Tensor) -> Tensor:
    """Add ``[P * n, *padded]`` over n; numpy does it one after the other on any number of threads, torch may not."""
    sets, *shape = parameter.shape
    stacked = grads.reshape(sets, grads.shape[0] // max(1, sets), *grads.shape[1:])
    return torch.from_numpy(np.add.reduce(stacked[(..., *map(slice, shape))], axis=1))
