"""Random numbers that depend only on where they are used: a hash of (seed, ray, sample).

No generator state is kept, so the same ray gets the same jitter in every backend, batch split and thread count. The
compiled twin of `hash_to_unit` is in `fusedplanes.kernels.jitter_cpu`; a test holds the two bit-identical.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
# Odd fractions of 2^32 (from the golden ratio, the square roots of 3 and 5): neighbouring indices differ in many bits
# before they are mixed, and seed 0, ray 0, sample 0 is not the mixer's fixed point.
SALT, RAY_STEP, SAMPLE_STEP = 0x9E3779B9, 0xBB67AE85, 0x3C6EF373


def _mix(bits: Tensor) -> Tensor:
    """Scramble 32-bit integers held in int64, one to one (two rounds of multiply and xor-shift).

    The second factor is 0x846CA68B less 2^32: congruent, and small enough for its product to fit 64 bits.
    """
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _MASK
    bits = ((bits ^ (bits >> 15)) * (0x846CA68B - (1 << 32))) & _MASK
    return bits ^ (bits >> 16)


def hash_to_unit(seed: int, ray: Tensor, sample: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), multiples of 2^-24.

    Args:
        seed: any integer; its lowest 64 bits count.
        ray: int64 ray indices; the lowest 32 bits count.
        sample: int64 sample indices, broadcastable to ``ray``.

    Returns:
        float32, of the broadcast shape.

    Example:
        >>> hash_to_unit(0, torch.tensor([0, 1]), torch.tensor([0, 0]))
        tensor([0.2576, 0.6941])
    """
    low, high = split_seed(seed)
    bits = _mix(_mix(torch.full((), low, device=ray.device) ^ SALT) ^ high)
    bits = _mix((bits + ray * RAY_STEP) & _MASK)
    bits = _mix((bits + sample * SAMPLE_STEP) & _MASK)
    return (bits >> 8).to(torch.float32) * 2.0**-24


def split_seed(seed: int) -> tuple[int, int]:
    """The low and the high 32 bits of a seed."""
    return seed & _MASK, (seed >> 32) & _MASK


def unit_samples(batch: torch.Size, count: int, seed: int | None, device: torch.device) -> Tensor:
    """One number in each of ``count`` equal strata of [0, 1): its middle, or jittered when there is a seed.

    Returns:
        ``[*batch, count]`` float32, increasing. Rays are numbered through ``batch``.
    """
    sample = torch.arange(count, device=device)
    if seed is None:
        offset = torch.full((*batch, count), 0.5, device=device, dtype=torch.float32)
    else:
        ray = torch.arange(math.prod(batch), device=device).view(*batch, 1)
        offset = hash_to_unit(seed, ray, sample)
    return (sample + offset) / count


def stratified_distances(near: Tensor, far: Tensor, count: int, *, seed: int | None = None) -> Tensor:
    """Distances along rays, one in each of ``count`` equal parts of the way from ``near`` to ``far``.

    Args:
        near: ``[*b]`` distance at which each ray starts.
        far: ``[*b]`` distance at which it ends; where it equals ``near``, so do all the ray's distances.
        count: samples per ray.
        seed: jitters each distance within its part; None puts it in the middle.

    Returns:
        ``[*b, count]``, increasing.

    Example:
        >>> stratified_distances(torch.tensor([1.0]), torch.tensor([2.0]), 4)
        tensor([[1.1250, 1.3750, 1.6250, 1.8750]])
    """
    fraction = unit_samples(near.shape, count, seed, near.device).to(near.dtype)
    return near[..., None] + fraction * (far - near)[..., None]
