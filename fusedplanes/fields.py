"""Tri-plane fields: how an object's planes are put together and what a point on them means.

Planes are stored channels-last, ``[*b, 3, H, W, C]``, in the order XY, XZ, YZ (see `fusedplanes.kernels`). A fused
object is micro planes of its own beside a mix of base planes shared by its class (Fused-Planes, equations 1 and 2)::

    macro_i = sum_k weights_i[k] * base_planes[k]
    planes_i = concatenate(micro_i, macro_i)          # on the channel axis, micro first
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusedplanes.errors import DataError


@dataclass(frozen=True)
class ObjectPlanes:
    """What is stored for one object.

    Attributes:
        micro_planes: ``[3, H, W, C_micro]``; ``C_micro`` is 0 for the ultra-lightweight variant.
        weights: ``[M]`` mix of the class's base planes; empty for plain tri-planes.
        decoder: the object's own field decoder, for models that do not share one: the four tensors of `FieldDecoder`
            by name.
        world_from_source: ``[4, 4]`` similarity from the source file's coordinates to the world.
    """

    micro_planes: Tensor
    weights: Tensor
    decoder: dict[str, Tensor] | None = None
    world_from_source: Tensor | None = None

    def interpolate(self, other: ObjectPlanes, t: float) -> ObjectPlanes:
        """The object a fraction ``t`` of the way to ``other``: 0 is this one, 1 the other; beyond extrapolates."""
        if self.micro_planes.shape != other.micro_planes.shape or self.weights.shape != other.weights.shape:
            raise DataError("interpolate: the two objects come from models of different shapes")

        def mix(a: Tensor, b: Tensor) -> Tensor:
            return torch.lerp(a, b, t)

        decoder = self.decoder
        if self.decoder is not None and other.decoder is not None:
            decoder = {name: mix(value, other.decoder[name]) for name, value in self.decoder.items()}
        return ObjectPlanes(
            mix(self.micro_planes, other.micro_planes),
            mix(self.weights, other.weights),
            decoder,
            self.world_from_source,
        )


def compose_planes(micro_planes: Tensor, weights: Tensor, base_planes: Tensor) -> Tensor:
    """Write micro and macro planes side by side into one buffer.

    The mix of base planes is one matrix product per batch, ``[B, M] @ [M, 3*H*W*C_macro]``.

    Args:
        micro_planes: ``[B, 3, H, W, C_micro]``.
        weights: ``[B, M]``.
        base_planes: ``[M, 3, H, W, C_macro]``.

    Returns:
        ``[B, 3, H, W, C_micro + C_macro]``, micro channels first.

    Example:
        >>> compose_planes(torch.zeros(2, 3, 8, 8, 4), torch.ones(2, 5), torch.ones(5, 3, 8, 8, 6)).shape
        torch.Size([2, 3, 8, 8, 10])
    """
    if base_planes.shape[0] == 0:
        return micro_planes
    macro_planes = (weights @ base_planes.flatten(1)).view(-1, *base_planes.shape[1:])
    if micro_planes.shape[-1] == 0:
        return macro_planes
    return torch.cat([micro_planes, macro_planes], dim=-1)


class FieldDecoder(nn.Module):
    """The tiny network that turns a plane feature into density and value: linear, softplus, linear.

    It sees neither position nor viewing direction (Fused-Planes, section 3.1), so a field is Lambertian. The parameters
    are stored as plain tensors because the fused kernels take them so.

    Args:
        channels: plane channels C.
        hidden: hidden units.
        values: value channels K (3 for colour, the latent channels otherwise).
    """

    NAMES = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")

    def __init__(self, channels: int, hidden: int, values: int) -> None:
        super().__init__()
        for name, value in self.initial(channels, hidden, values).items():
            setattr(self, name, nn.Parameter(value))

    @staticmethod
    def initial(channels: int, hidden: int, values: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Fresh parameters: uniform within one over the square root of the fan-in, as ``torch.nn.Linear``."""

        def uniform(*shape: int, fan_in: int) -> Tensor:
            return (torch.rand(*shape, generator=generator, dtype=torch.float32) * 2 - 1) * fan_in**-0.5

        return {
            "hidden_weight": uniform(hidden, channels, fan_in=channels),
            "hidden_bias": uniform(hidden, fan_in=channels),
            "output_weight": uniform(1 + values, hidden, fan_in=hidden),
            "output_bias": uniform(1 + values, fan_in=hidden),
        }

    def tensors(self) -> dict[str, Tensor]:
        """The four parameters by name, in the order the kernels take them."""
        return {name: getattr(self, name) for name in self.NAMES}


def query_field(planes: Tensor, decoder: dict[str, Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate a field at points, without rendering.

    Args:
        planes: ``[*b, 3, H, W, C]`` composed planes.
        decoder: the four tensors of `FieldDecoder`.
        points: ``[*b, N, 3]`` in [-1, 1].

    Returns:
        Raw density ``[*b, N]`` (before the softplus of the marcher) and raw values ``[*b, N, K]``.
    """
    from fusedplanes.kernels import sample_triplane

    features = sample_triplane(planes, points)
    hidden = features @ decoder["hidden_weight"].transpose(-1, -2) + decoder["hidden_bias"][..., None, :]
    hidden = nn.functional.softplus(hidden)
    output = hidden @ decoder["output_weight"].transpose(-1, -2) + decoder["output_bias"][..., None, :]
    return output[..., 0], output[..., 1:]
