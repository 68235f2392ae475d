"""Loss terms, each a mean, so that its weight means the same at every batch size and resolution."""

from __future__ import annotations

from torch import Tensor


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
