"""Putting an optimiser's state back exactly as it was."""

from __future__ import annotations

import torch


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict) -> None:
    """Load a state dictionary and lay every moment out in memory as its parameter is.

    A file keeps values in plain order. Fused optimisers walk parameter and moments side by side as raw memory, so the
    moments of a channels-last weight must be channels-last again, or they would meet the wrong elements.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> adam = torch.optim.Adam(layer.parameters())
        >>> load_optimizer_state(adam, adam.state_dict())
    """
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            if torch.is_tensor(value) and value.shape == parameter.shape and value.stride() != parameter.stride():
                moments[name] = torch.empty_like(parameter).copy_(value)
