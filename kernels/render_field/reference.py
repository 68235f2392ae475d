"""`render_field` in plain torch: the definition the other implementations are held to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fusedplanes.kernels.composite.reference import composite_reference
from fusedplanes.kernels.sample_triplane.reference import sample_triplane_reference

VALUE_ACTIVATIONS = ("linear", "sigmoid")


def render_field_reference(
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `fusedplanes.kernels.render_field`; any device, any float dtype, differentiable any number of times."""
    dtype = torch.promote_types(torch.promote_types(planes.dtype, hidden_weight.dtype), torch.float32)
    planes, hidden_weight, hidden_bias, output_weight, output_bias, origins, directions, distances = (
        tensor.to(dtype)
        for tensor in (
            *(planes, hidden_weight, hidden_bias, output_weight, output_bias),
            *(origins, directions, distances.detach()),
        )
    )
    points = origins[..., None, :] + distances[..., None] * directions[..., None, :]  # [*b, R, S, 3]
    # A ray that missed the field is moved outside, so that it gives zeros even where the field is not finite.
    missed = (distances[..., :1] == distances[..., -1:])[..., None]
    points = torch.where(missed, 2.0, points)
    features = sample_triplane_reference(planes, points.flatten(-3, -2)).unflatten(-2, distances.shape[-2:])
    features = torch.where(missed, 0.0, features)
    # The threshold is where log(1 + exp(x)) equals x even in float64.
    hidden = softplus(_linear(features, hidden_weight, hidden_bias), threshold=40.0)
    output = _linear(hidden, output_weight, output_bias)
    raw_densities, values = output[..., 0], output[..., 1:]
    if value_activation == "sigmoid":
        values = 1.002 * torch.sigmoid(values) - 0.001
    return composite_reference(values, raw_densities, distances, density_bias)


def _linear(samples: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``[*b, R, S, in]`` through ``weight [out, in]`` and ``bias [out]``, shared or with leading ``*b``."""
    return samples @ weight.mT[..., None, :, :] + bias[..., None, None, :]
