"""`composite` in plain torch: the definition the other implementations are held to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus


def composite_reference(
    values: Tensor, densities: Tensor, distances: Tensor, density_bias: float = -1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `fusedplanes.kernels.composite`; any device, any float dtype, differentiable any number of times.

    Optical depths are summed and exponentiated once, rather than multiplying transmittances, so an opaque interval
    (``alpha = 1``) needs no division and no epsilon, and its gradient is exact.
    """
    distances = distances.detach()
    length = distances[..., 1:] - distances[..., :-1]
    # The threshold is where log(1 + exp(x)) equals x even in float64.
    density = softplus(_midpoints(densities) + density_bias, threshold=40.0)
    optical_depth = density * length
    passed = optical_depth.cumsum(-1)
    before = pad(passed[..., :-1], (1, 0)) if passed.shape[-1] else passed
    weights = torch.exp(-before) * -torch.expm1(-optical_depth)
    middle = (values[..., 1:, :] + values[..., :-1, :]) / 2
    accumulated = (weights[..., None] * middle).sum(-2)
    alpha = -torch.expm1(-optical_depth.sum(-1))
    distance = (weights * _midpoints(distances)).sum(-1)
    return accumulated, alpha, distance, weights.detach()


def _midpoints(samples: Tensor) -> Tensor:
    return (samples[..., 1:] + samples[..., :-1]) / 2
