"""The public `render_field`: checks, backend choice, registration with torch and autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.kernels.dispatch import resolve_backend
from fusedplanes.kernels.render_field.reference import VALUE_ACTIVATIONS, render_field_reference

_MOST_CELLS = (2**31 - 1) // 3


def render_field(
    planes: Tensor,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    output_weight: Tensor,
    output_bias: Tensor,
    origins: Tensor,
    directions: Tensor,
    distances: Tensor,
    *,
    value_activation: str = "linear",
    density_bias: float = -1.0,
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """March rays through tri-plane fields: sampling, decoder and compositing in one pass.

    At every sample ``x = origin + t * direction`` the three planes are read bilinearly and summed, and a two-layer
    decoder turns the feature into a raw density and K values::

        feature = XY(x, y) + XZ(x, z) + YZ(y, z)
        raw, value = output_weight @ softplus(hidden_weight @ feature + hidden_bias) + output_bias

    Neighbouring samples are averaged (the midpoint rule of EG3D's ray marcher) and composited::

        depth_k  = softplus((raw[k] + raw[k+1]) / 2 + density_bias) * (t[k+1] - t[k])
        weight_k = exp(-sum_{j<k} depth_j) * (1 - exp(-depth_k))
        values   = sum_k weight_k * (value[k] + value[k+1]) / 2

    Gradients reach planes, decoder, origins and directions; distances are constants. Backward evaluates the samples
    again instead of keeping them, so memory does not grow with the number of samples.

    Args:
        planes: ``[*b, 3, H, W, C]`` in the order XY (width = x, height = y), XZ (width = x, height = z), YZ
            (width = y, height = z) over ``[-1, 1]``; zero outside, cells as in ``grid_sample(align_corners=False)``.
        hidden_weight: ``[Hd, C]``, or ``[*b, Hd, C]`` where every entry has a decoder of its own (all four then).
        hidden_bias: ``[Hd]``.
        output_weight: ``[1 + K, Hd]``; row 0 is the raw density.
        output_bias: ``[1 + K]``.
        origins: ``[*b, R, 3]`` world coordinates.
        directions: ``[*b, R, 3]``.
        distances: ``[*b, R, S]`` of the samples along each ray, ascending, at least 2. A ray whose distances are all
            equal has missed the field and gives exact zeros.
        value_activation: "linear", or "sigmoid" for colours: ``1.002 * sigmoid(value) - 0.001``.
        density_bias: added to the mean raw density before softplus; -1 starts fields off thin.
        backend: "reference" or "cpu"; None chooses.

    Returns:
        ``values [*b, R, K]`` premultiplied, without background; ``alpha [*b, R]`` in [0, 1]; ``distance [*b, R]``, the
        sum of weights times interval midpoints, not divided by alpha; ``weights [*b, R, S - 1]``, without gradient.

    Raises:
        DataError: shapes or dtypes do not fit together.
        ConfigError: an unknown activation or backend.

    Example:
        >>> decoder = torch.zeros(8, 4), torch.zeros(8), torch.zeros(4, 8), torch.zeros(4)
        >>> rays = torch.tensor([[[0.0, 0.0, -2.0]]]), torch.tensor([[[0.0, 0.0, 1.0]]])
        >>> values, alpha, *_ = render_field(
        ...     torch.zeros(1, 3, 16, 16, 4), *decoder, *rays, torch.linspace(1, 3, 24).expand(1, 1, 24)
        ... )
        >>> round(alpha.item(), 4)  # 1 - exp(-2 * softplus(-1))
        0.4656
    """
    _check(planes, hidden_weight, hidden_bias, output_weight, output_bias, origins, directions, distances)
    if value_activation not in VALUE_ACTIVATIONS:
        raise ConfigError(
            f"render_field: value_activation is {value_activation!r}; choose one of {', '.join(VALUE_ACTIVATIONS)}"
        )
    decoder = hidden_weight, hidden_bias, output_weight, output_bias
    if resolve_backend(planes, backend) == "reference":
        return render_field_reference(
            planes,
            *decoder,
            origins,
            directions,
            distances,
            value_activation=value_activation,
            density_bias=density_bias,
        )
    batch = planes.shape[:-4]

    def flat(tensor: Tensor, dimensions: int) -> Tensor:
        leading, shape = tensor.shape[:-dimensions], tensor.shape[-dimensions:]
        return tensor.to(torch.float32).reshape(leading.numel(), *shape)

    results = _render_field(
        flat(planes, 4),
        *(flat(tensor, dimensions) for tensor, dimensions in zip(decoder, (2, 1, 2, 1))),
        *(flat(tensor, 2) for tensor in (origins, directions, distances)),
        value_activation == "sigmoid",
        density_bias,
    )
    return tuple(result.view(*batch, *result.shape[1:]) for result in results)


def _check(planes, hidden_weight, hidden_bias, output_weight, output_bias, origins, directions, distances) -> None:
    def fail(name: str, tensor: Tensor, expected: str) -> None:
        raise DataError(f"render_field: {name} has shape {list(tensor.shape)}, expected {expected}")

    if planes.dim() < 4 or planes.shape[-4] != 3 or 0 in planes.shape[-3:]:
        fail("planes", planes, "[*b, 3, H, W, C] with H, W, C at least 1")
    if planes.shape[-3] * planes.shape[-2] > _MOST_CELLS:
        fail("planes", planes, f"at most {_MOST_CELLS} cells H * W; cells are numbered in 32 bits")
    batch, channels = planes.shape[:-4], planes.shape[-1]
    if hidden_weight.dim() < 2 or hidden_weight.shape[-1] != channels or hidden_weight.shape[-2] == 0:
        fail("hidden_weight", hidden_weight, f"[Hd, {channels}] or [*b, Hd, {channels}]")
    hidden, own = hidden_weight.shape[-2], hidden_weight.shape[:-2]
    if own not in (batch, ()):
        fail("hidden_weight", hidden_weight, f"no batch dimensions or those of planes, {list(batch)}")
    outputs = output_weight.shape[-2] if output_weight.dim() > 1 else 0
    if outputs < 2 or output_weight.shape != (*own, outputs, hidden):
        fail("output_weight", output_weight, f"{[*own, '1 + K', hidden]} with K at least 1")
    if hidden_bias.shape != (*own, hidden):
        fail("hidden_bias", hidden_bias, f"{[*own, hidden]}")
    if output_bias.shape != (*own, outputs):
        fail("output_bias", output_bias, f"{[*own, outputs]}")
    if origins.dim() < 2 or origins.shape[:-2] != batch or origins.shape[-1] != 3:
        fail("origins", origins, f"{[*batch, 'R', 3]}")
    if directions.shape != origins.shape:
        fail("directions", directions, f"{list(origins.shape)} as origins")
    if distances.shape[:-1] != origins.shape[:-1] or distances.shape[-1] < 2:
        fail("distances", distances, f"{[*origins.shape[:-1], 'S']} with S at least 2")
    for name, tensor in (("hidden_weight", hidden_weight), ("origins", origins), ("distances", distances)):
        if tensor.device != planes.device:
            raise DataError(f"render_field: {name} is on {tensor.device}, planes are on {planes.device}; move one")


@torch.library.custom_op("fusedplanes::render_field", mutates_args=(), device_types="cpu")
def _render_field(
    planes: Tensor,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    output_weight: Tensor,
    output_bias: Tensor,
    origins: Tensor,
    directions: Tensor,
    distances: Tensor,
    sigmoid: bool,
    density_bias: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from fusedplanes.kernels.render_field import cpu

    decoder = cpu.Decoder(hidden_weight, hidden_bias, output_weight, output_bias)
    return tuple(cpu.render(planes, decoder, cpu.Rays(origins, directions, distances), sigmoid, density_bias))


@torch.library.custom_op("fusedplanes::render_field_backward", mutates_args=(), device_types="cpu")
def _render_field_backward(
    grad_values: Tensor,
    grad_alpha: Tensor,
    grad_distance: Tensor,
    planes: Tensor,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    output_weight: Tensor,
    output_bias: Tensor,
    origins: Tensor,
    directions: Tensor,
    distances: Tensor,
    sigmoid: bool,
    density_bias: float,
    by_rays: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from fusedplanes.kernels.render_field import cpu

    grad_rendered = grad_values, grad_alpha, grad_distance
    decoder = cpu.Decoder(hidden_weight, hidden_bias, output_weight, output_bias)
    rays = cpu.Rays(origins, directions, distances)
    return cpu.render_backward(grad_rendered, planes, decoder, rays, sigmoid, density_bias, by_rays)


@_render_field.register_fake
def _(planes, hidden_weight, hidden_bias, output_weight, output_bias, origins, directions, distances, *_):
    entries, rays, samples = distances.shape
    values = planes.new_empty(entries, rays, output_bias.shape[-1] - 1)
    alpha, distance = planes.new_empty(entries, rays), planes.new_empty(entries, rays)
    return values, alpha, distance, planes.new_empty(entries, rays, samples - 1)


@_render_field_backward.register_fake
def _(grad_values, grad_alpha, grad_distance, planes, hidden_weight, hidden_bias, output_weight, output_bias, *rest):
    inputs = planes, hidden_weight, hidden_bias, output_weight, output_bias
    origins, by_rays = rest[0], rest[-1]
    rays = origins.shape if by_rays else (origins.shape[0], 0, 3)
    return *(tensor.new_empty(tensor.shape) for tensor in inputs), origins.new_empty(rays), origins.new_empty(rays)


def _setup_context(ctx, inputs, output) -> None:
    *tensors, ctx.sigmoid, ctx.density_bias = inputs
    ctx.save_for_backward(*tensors)
    ctx.mark_non_differentiable(output[3])


def _backward(ctx, grad_values, grad_alpha, grad_distance, _):
    by_rays = any(ctx.needs_input_grad[5:7])
    *grads, grad_origins, grad_directions = _render_field_backward(
        grad_values, grad_alpha, grad_distance, *ctx.saved_tensors, ctx.sigmoid, ctx.density_bias, by_rays
    )
    grad_rays = (grad_origins, grad_directions) if by_rays else (None, None)
    return *grads, *grad_rays, None, None, None


_render_field.register_autograd(_backward, setup_context=_setup_context)
