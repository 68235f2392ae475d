"""Loss terms, each a mean, so that its weight means the same at every batch size and resolution."""

from __future__ import annotations

from torch import Tensor

from fusedplanes.errors import DataError


def mean_squared_error(predicted: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean squared error of values, each pixel counted by its weight.

    Args:
        predicted: ``[*b, C]``.
        target: ``[*b, C]``.
        weights: optional ``[*b]``, non-negative; a pixel of weight 0 gets no gradient. The result is the weighted mean,
            so weights of any one value change nothing; all 0 gives 0.

    Returns:
        A scalar.

    Raises:
        DataError: shapes that do not belong together.

    Example:
        >>> import torch
        >>> mean_squared_error(torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([1.0, 0.0]))
        tensor(1.)
    """
    if predicted.shape != target.shape or (weights is not None and weights.shape != predicted.shape[:-1]):
        shapes = [tuple(x.shape) for x in (predicted, target, weights) if x is not None]
        raise DataError(f"mean_squared_error: shapes {shapes}; expected [*b, C], [*b, C] and, for weights, [*b]")
    squared = (predicted - target).square()
    if weights is None:
        return squared.mean()
    return (squared.mean(-1) * weights).sum() / weights.sum().clamp_min(1e-12)


def total_variation(planes: Tensor) -> Tensor:
    """Mean squared difference of neighbouring cells, along rows plus along columns.

    Fused-Planes trains with the sum of the squared differences of a batch divided by ``H + W`` (its code; the paper's
    text leaves the term out). That grows with batch and channels and is some 4e5 per object at the published random
    start, far above every other term. For 64 x 64 planes of 32 channels the published value is this one times the batch
    size times ``3 * 63 * 64 * 32 / 128 = 3024``.

    Args:
        planes: ``[B, 3, H, W, C]`` or with any other leading dimensions.

    Returns:
        A scalar; a side of a single cell has no neighbours and adds nothing.

    Example:
        >>> import torch
        >>> total_variation(torch.arange(4.0).view(1, 1, 2, 2, 1))  # 1 along rows, 4 along columns
        tensor(5.)
    """
    along_rows = (planes[..., :, 1:, :] - planes[..., :, :-1, :]).square()
    along_columns = (planes[..., 1:, :, :] - planes[..., :-1, :, :]).square()
    return sum((term.mean() for term in (along_rows, along_columns) if term.numel()), planes.new_zeros(()))
