"""Muon: momentum whose step in a weight matrix changes all of its directions by the same amount."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Coefficients of the odd quintic whose iterates take singular values in (0, 1] to about 1 (Jordan et al. 2024).
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Gradient descent with orthogonalised momentum (Jordan et al. 2024), for matrices and convolution kernels.

    Small networks trained for a few hundred steps get further per step than with Adam, because weak directions of the
    gradient move as fast as strong ones. Vectors, and the first and last layers of a network, are better left to Adam.

    Args:
        parameters: each of two or more dimensions; a kernel counts as a matrix of output channels by everything else.
        lr: root mean square change of a square matrix's rows in one step.
        momentum: decay of the running sum of gradients; Nesterov's variant is used.

    Example:
        >>> weight = torch.nn.Parameter(torch.eye(3))
        >>> optimizer = Muon([weight], lr=0.1)
        >>> (weight[0, 0] * 5 + weight[1, 1] * 1e-3).backward()
        >>> optimizer.step()
        >>> bool(weight[0, 0] < 0.95 and weight[1, 1] < 1)
        True
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 0.02, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """Take one step from the gradients at hand; parameters without one stay."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].mul_(group["momentum"]).add_(parameter.grad)
                ahead = parameter.grad + group["momentum"] * momentum
                matrix = orthogonalise(ahead.flatten(1))
                taller = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                parameter.add_(matrix.view_as(parameter), alpha=-group["lr"] * taller)


def orthogonalise(matrix: Tensor) -> Tensor:
    """Roughly ``U V^T`` for a matrix ``U S V^T``: all singular values come out between about 0.7 and 1.2.

    Every iterate is a polynomial in ``X X^T`` times ``X``, so the iteration runs on that small square alone and touches
    the long side of the matrix twice.

    Args:
        matrix: ``[m, n]``.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalise(matrix.T).T
    a, b, c = QUINTIC
    matrix = matrix / (torch.linalg.matrix_norm(matrix) + 1e-7)
    square = matrix @ matrix.T
    identity = torch.eye(len(square), dtype=square.dtype, device=square.device)
    polynomial = identity
    for _ in range(ITERATIONS):
        factor = a * identity + b * square + c * square @ square
        polynomial = factor @ polynomial
        square = factor @ factor @ square
    return polynomial @ matrix
