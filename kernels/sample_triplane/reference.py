"""`sample_triplane` in plain torch: the definition the other implementations are held to."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PLANE_AXES = {
    "orthogonal": ((0, 1), (0, 2), (1, 2)),
    "eg3d": ((0, 1), (0, 2), (2, 0)),
}
"""For every plane, the point's coordinate that runs along its width and the one that runs along its height."""


def sample_triplane_reference(
    planes: Tensor,
    points: Tensor,
    reduce: str = "sum",
    layout: str = "orthogonal",
    padding: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """See `fusedplanes.kernels.sample_triplane`; any device, any float dtype, differentiable any number of times.

    The four taps are gathered by hand because torch's ``grid_sample`` has no second derivative.
    """
    dtype = torch.promote_types(torch.promote_types(planes.dtype, points.dtype), torch.float32)
    finite = points.isfinite().all(-1, keepdim=True)
    points = torch.where(finite, points.to(dtype), 0.0)
    features = []
    for plane, (width_axis, height_axis) in enumerate(PLANE_AXES[layout]):
        cells = planes[..., plane, :, :, :].to(dtype)
        sampled = _bilinear(cells, points[..., width_axis], points[..., height_axis], padding, align_corners)
        features.append(sampled * finite)
    if reduce == "sum":
        combined = features[0] + features[1] + features[2]
    elif reduce == "product":
        combined = features[0] * features[1] * features[2]
    else:
        combined = torch.cat(features, dim=-1)
    return combined.to(planes.dtype)


def _bilinear(cells: Tensor, across: Tensor, down: Tensor, padding: str, align_corners: bool) -> Tensor:
    """Interpolate ``cells [*b, H, W, C]`` at ``across`` and ``down [*b, N]`` in [-1, 1], giving ``[*b, N, C]``."""
    *batch, height, width, channels = cells.shape
    entries = math.prod(batch)
    first_cell = torch.arange(entries, device=cells.device).view(*batch, 1) * (height * width)
    rows = cells.reshape(entries * height * width, channels)
    columns = _taps(across, width, padding, align_corners)
    result = None
    for row, row_weight in _taps(down, height, padding, align_corners):
        for column, column_weight in columns:
            index = first_cell + row * width + column
            tap = rows.index_select(0, index.flatten()).view(*index.shape, channels)
            weighted = tap * (row_weight * column_weight)[..., None]
            result = weighted if result is None else result + weighted
    return result


def _taps(coordinate: Tensor, size: int, padding: str, align_corners: bool) -> list[tuple[Tensor, Tensor]]:
    """The two cells either side of a coordinate, as (index within the axis, interpolation weight)."""
    if align_corners:
        position = (coordinate + 1) * ((size - 1) / 2)
    else:
        position = (coordinate + 1) * (size / 2) - 0.5
    if padding == "border":
        inside = (position > 0) & (position < size - 1)
        position = torch.where(inside, position, position.detach().clamp(0, size - 1))
    # Far outside, a coordinate may not fit an integer; one cell beyond either end is outside already.
    lower = position.detach().floor().clamp(-2, size)
    fraction = position - lower
    taps = []
    for offset, weight in ((0, 1 - fraction), (1, fraction)):
        index = (lower + offset).long()
        exists = (index >= 0) & (index < size)
        taps.append((index.clamp(0, size - 1), torch.where(exists, weight, 0.0)))
    return taps
