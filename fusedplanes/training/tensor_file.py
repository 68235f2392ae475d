"""Tensors as a safetensors file, one after another: a checkpoint of large networks is never in memory a second time."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def safetensors_parts(tensors: Mapping[str, Tensor]) -> Iterator[memoryview | bytes]:
    """The bytes of a safetensors file in parts of at most one tensor; what `safetensors.torch.save` makes as a whole.

    Tensors may lie on any device and share their memory.

    Args:
        tensors: by name.

    Raises:
        KeyError: a type that the format has no name for.

    Example:
        >>> from safetensors.torch import load
        >>> load(b"".join(safetensors_parts({"base_planes": torch.ones(2)})))
        {'base_planes': tensor([1., 1.])}
    """
    header, end = {}, 0
    # Wide types first, so that every tensor lies on a multiple of its own width.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for _, tensor in ordered:
        yield memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
