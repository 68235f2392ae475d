"""Where half precision is worth it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def single_precision(device: torch.device) -> Iterator[None]:
    """Compute in float32 without gradients, whatever autocast or inference mode the caller is in.

    What is measured and what is stored must not depend on who asks.
    """
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def fast_bfloat16(device: str | torch.device) -> bool:
    """Whether convolutions in bfloat16 are faster than in float32: a recent GPU, or a CPU with instructions for it.

    Example:
        >>> fast_bfloat16("mps")
        False
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and supported is not None and supported()
