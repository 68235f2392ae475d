"""The public `resample_distances` and its registration with torch."""

from __future__ import annotations

import torch
from torch import Tensor

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.kernels.dispatch import resolve_backend
from fusedplanes.kernels.jitter import split_seed
from fusedplanes.kernels.resample_distances.reference import resample_distances_reference


def resample_distances(
    distances: Tensor,
    weights: Tensor,
    count: int,
    *,
    seed: int | None = None,
    backend: str | None = None,
) -> Tensor:
    """Add samples where a first pass found weight: hierarchical sampling by inverting a cumulative sum.

    Weights are blurred (the larger of two neighbours, then the mean of two), lifted by 0.01 and normalised over the
    interior intervals; ``count`` equally spaced fractions of their cumulative sum, read off over the middle distances,
    are the new samples (EG3D's rule; see the folder's README). With fewer than four coarse samples no interval is
    interior, and the new samples are spread evenly. Non-finite weights count as 0. No gradient.

    Args:
        distances: ``[*b, S]`` coarse sample distances, ascending.
        weights: ``[*b, S - 1]`` weights of the intervals between them, not negative.
        count: samples to add per ray.
        seed: jitters each fraction within its stratum; None takes the middles.
        backend: "reference" or "cpu"; None chooses.

    Returns:
        ``[*b, S + count]`` coarse and new distances, ascending.

    Raises:
        DataError: shapes do not fit.
        ConfigError: the count is negative.
        BackendUnavailable: the backend cannot take these tensors.

    Example:
        >>> coarse = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
        >>> resample_distances(coarse, torch.tensor([0.0, 0.0, 1.0, 0.0]), 2)
        tensor([0.0000, 1.0000, 1.2451, 2.0000, 2.1238, 3.0000, 4.0000])
    """
    if distances.ndim < 1 or distances.shape[-1] < 1:
        raise DataError(f"resample_distances: distances must be [*b, S] with S at least 1, not {list(distances.shape)}")
    expected = (*distances.shape[:-1], distances.shape[-1] - 1)
    if weights.shape != expected:
        raise DataError(
            f"resample_distances: weights must be {list(expected)} for distances {list(distances.shape)}, "
            f"not {list(weights.shape)}"
        )
    if count < 0:
        raise ConfigError(f"resample_distances: count is {count}; it must not be negative")
    distances, weights = distances.detach(), weights.detach()
    if resolve_backend(distances, backend) == "cpu":
        halves = split_seed(seed or 0)
        return _resample_distances(distances, weights.to(torch.float32), count, seed is not None, *halves)
    return resample_distances_reference(distances, weights, count, seed)


@torch.library.custom_op("fusedplanes::resample_distances", mutates_args=(), device_types="cpu")
def _resample_distances(
    distances: Tensor, weights: Tensor, count: int, jittered: bool, seed_low: int, seed_high: int
) -> Tensor:
    from fusedplanes.kernels.resample_distances import cpu

    return cpu.forward(distances, weights, count, jittered, seed_low, seed_high)


@_resample_distances.register_fake
def _(distances, weights, count, jittered, seed_low, seed_high):
    return distances.new_empty(*distances.shape[:-1], distances.shape[-1] + count)
