"""Banks of base planes: in a run over several classes, each class mixes base planes of its own.

All base planes stand in one tensor and every object has a weight for each, so composing, storing and interpolating know
nothing of banks; an object's weights outside its class's bank are zero and stay so. An object that is added later is of
no class that must be named: it may mix from every bank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fusedplanes.errors import ConfigError


def bank_mask(classes: Sequence[str], base_planes: int, banks: int) -> Tensor | None:
    """Which base planes each object may mix, ``[N, base_planes]`` of ones and zeros; None where all may mix all.

    Args:
        classes: name of every object's class; classes take banks in the order in which they appear.
        base_planes: of all banks together.
        banks: number of banks, a divisor of ``base_planes``.

    Raises:
        ConfigError: more classes than banks.

    Example:
        >>> bank_mask(["cars", "chairs"], 4, 2)
        tensor([[1., 1., 0., 0.],
                [0., 0., 1., 1.]])
    """
    if banks == 1:
        return None
    names = list(dict.fromkeys(classes))
    if len(names) > banks:
        raise ConfigError(f"model: banks={banks}, but the objects are of {len(names)} classes ({', '.join(names)})")
    bank = torch.tensor([names.index(name) for name in classes])
    own = torch.arange(base_planes) // (base_planes // banks)
    return (bank[:, None] == own).float()
