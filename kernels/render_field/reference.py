"""`render_field` in plain torch: the definition the other implementations are held to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

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
    distances = distances.detach()
    points = origins[..., None, :] + distances[..., None] * directions[..., None, :]  # [*b, R, S, 3]
    features = sample_triplane_reference(planes, points.flatten(-3, -2))
    hidden = softplus(features @ hidden_weight.mT + hidden_bias[..., None, :], threshold=1e9)
    output = (hidden @ output_weight.mT + output_bias[..., None, :]).unflatten(-2, points.shape[-3:-1])
    raw_density, values = output[..., 0], output[..., 1:]
    if value_activation == "sigmoid":
        values = 1.002 * torch.sigmoid(values) - 0.001

    steps = distances.diff(dim=-1)
    mean_density = (raw_density[..., 1:] + raw_density[..., :-1]) / 2
    optical_depths = softplus(mean_density + density_bias) * steps
    before = torch.cumsum(optical_depths, -1) - optical_depths
    weights = torch.exp(-before) * -torch.expm1(-optical_depths)
    marched = (weights[..., None] * (values[..., 1:, :] + values[..., :-1, :]) / 2).sum(-2)
    alpha = -torch.expm1(-optical_depths.sum(-1))
    distance = (weights * (distances[..., 1:] + distances[..., :-1]) / 2).sum(-1)
    return marched, alpha, distance, weights.detach()
