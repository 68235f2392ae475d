"""The public `composite`, its registration with torch and its derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from fusedplanes.errors import DataError
from fusedplanes.kernels.composite.reference import composite_reference
from fusedplanes.kernels.dispatch import resolve_backend


def composite(
    values: Tensor,
    densities: Tensor,
    distances: Tensor,
    *,
    density_bias: float = -1.0,
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Composite samples along rays with the midpoint rule (as EG3D's and mip-NeRF's marchers).

    Between neighbouring samples k and k + 1, value v, raw density d and distance t are averaged::

        depth_k  = softplus((d[k] + d[k+1]) / 2 + density_bias) * (t[k+1] - t[k])
        weight_k = exp(-sum_{j<k} depth_j) * (1 - exp(-depth_k))

    Gradients reach values and densities; distances are constants. They are exact where an interval is opaque. A ray's
    results depend on that ray alone, so a non-finite input stays in its ray; a finite ray of zero length gives zeros.

    Args:
        values: ``[*b, S, C]``.
        densities: ``[*b, S]`` raw densities, before the softplus.
        distances: ``[*b, S]`` ascending.
        density_bias: added to the mean raw density.
        backend: "reference" or "cpu"; None chooses. The reference can be differentiated twice.

    Returns:
        ``accumulated [*b, C]``, the sum of weights times values (premultiplied, no background); ``alpha [*b]`` in
        [0, 1]; ``distance [*b]``, the sum of weights times interval midpoints, not divided by alpha; and
        ``weights [*b, S - 1]``, without gradient.

    Raises:
        DataError: shapes do not fit.
        BackendUnavailable: the backend cannot take these tensors.

    Example:
        >>> accumulated, alpha, distance, weights = composite(
        ...     torch.ones(3, 1), torch.tensor([-199.0, 99.0, 99.0]), torch.tensor([1.0, 2.0, 3.0])
        ... )
        >>> alpha.item(), distance.item()
        (1.0, 2.5)
    """
    if values.ndim < 2 or values.shape[-2] < 1:
        raise DataError(f"composite: values must be [*b, S, C] with S at least 1, not {list(values.shape)}")
    for name, samples in (("densities", densities), ("distances", distances)):
        if samples.shape != values.shape[:-1]:
            raise DataError(
                f"composite: {name} must be {list(values.shape[:-1])} for values {list(values.shape)}, "
                f"not {list(samples.shape)}"
            )
    if resolve_backend(values, backend) == "cpu":
        return _composite(values, densities.to(torch.float32), distances.detach().to(torch.float32), density_bias)
    return composite_reference(values, densities, distances, density_bias)


@torch.library.custom_op("fusedplanes::composite", mutates_args=(), device_types="cpu")
def _composite(
    values: Tensor, densities: Tensor, distances: Tensor, density_bias: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from fusedplanes.kernels.composite import cpu

    return cpu.forward(values, densities, distances, density_bias)


@torch.library.custom_op("fusedplanes::composite_backward", mutates_args=(), device_types="cpu")
def _composite_backward(
    grad_accumulated: Tensor,
    grad_alpha: Tensor,
    grad_distance: Tensor,
    values: Tensor,
    densities: Tensor,
    distances: Tensor,
    density_bias: float,
) -> tuple[Tensor, Tensor]:
    from fusedplanes.kernels.composite import cpu

    return cpu.backward(grad_accumulated, grad_alpha, grad_distance, values, densities, distances, density_bias)


@_composite.register_fake
def _(values, densities, distances, density_bias):
    *batch, samples, channels = values.shape
    return (
        values.new_empty(*batch, channels),
        values.new_empty(batch),
        values.new_empty(batch),
        values.new_empty(*batch, samples - 1),
    )


@_composite_backward.register_fake
def _(grad_accumulated, grad_alpha, grad_distance, values, densities, distances, density_bias):
    return values.new_empty(values.shape), densities.new_empty(densities.shape)


def _setup_context(ctx, inputs, output):
    values, densities, distances, ctx.density_bias = inputs
    ctx.save_for_backward(values, densities, distances)
    ctx.mark_non_differentiable(output[3])


def _backward(ctx, grad_accumulated, grad_alpha, grad_distance, _grad_weights):
    grad_values, grad_densities = _composite_backward(
        grad_accumulated, grad_alpha, grad_distance, *ctx.saved_tensors, ctx.density_bias
    )
    return grad_values, grad_densities, None, None


_composite.register_autograd(_backward, setup_context=_setup_context)
