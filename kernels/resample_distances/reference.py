"""`resample_distances` in plain torch: the definition the other implementations are held to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from fusedplanes.kernels.jitter import unit_samples

UNIFORM_WEIGHT = 0.01
"""Added to every blurred weight, so that empty parts of a ray keep being looked at."""

EPSILON = 1e-5
"""Added to every weight before normalising."""

SMALLEST_PLACED = 4
"""Coarse samples below which no interval is interior: then the new samples are spread evenly."""


def resample_distances_reference(distances: Tensor, weights: Tensor, count: int, seed: int | None = None) -> Tensor:
    """See `fusedplanes.kernels.resample_distances`; any device, any float dtype, no gradient."""
    distances, weights = distances.detach(), weights.detach()
    samples = distances.shape[-1]
    unit = unit_samples(distances.shape[:-1], count, seed, distances.device).to(distances.dtype)
    if samples < SMALLEST_PLACED:
        first, last = distances[..., :1], distances[..., -1:]
        placed = first + unit * (last - first)
    else:
        placed = _invert(distances, _blur(weights)[..., 1:-1] + EPSILON, unit)
    return torch.cat([distances, placed], dim=-1).sort(dim=-1).values


def _blur(weights: Tensor) -> Tensor:
    """Spread every interval's weight over its neighbours: the larger of two, then the mean of two."""
    weights = torch.where(weights.isfinite(), weights, 0.0)
    larger = torch.maximum(pad(weights, (1, 0)), pad(weights, (0, 1)))
    return (larger[..., 1:] + larger[..., :-1]) / 2 + UNIFORM_WEIGHT


def _invert(distances: Tensor, weights: Tensor, unit: Tensor) -> Tensor:
    """Where the piecewise linear cumulative sum of ``weights [*b, S - 3]`` over middle distances reaches ``unit``."""
    middle = (distances[..., 1:] + distances[..., :-1]) / 2
    cumulative = pad((weights / weights.sum(-1, keepdim=True)).cumsum(-1), (1, 0))
    above = torch.searchsorted(cumulative, unit, right=True).clamp(1, cumulative.shape[-1] - 1)
    low, high = cumulative.gather(-1, above - 1), cumulative.gather(-1, above)
    start, end = middle.gather(-1, above - 1), middle.gather(-1, above)
    return start + (unit - low) / (high - low) * (end - start)
