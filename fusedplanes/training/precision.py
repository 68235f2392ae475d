"""Where half precision is worth it."""

from __future__ import annotations

import torch


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
