"""Where an object stands among its cameras, and the similarity that brings it into the field's box.

Makers place objects themselves; images from elsewhere come in any unit, round any point. The object is found from what
all cameras look at and, where images have alpha, from its silhouettes.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.multiview import MultiViewObject

HALF_SIDE = 0.9
"""Objects fit ``[-0.9, 0.9]^3`` of the field's box ``[-1, 1]^3``."""

_GRID = 64


def look_at_point(cameras: Cameras) -> Tensor | None:
    """The point nearest to all optical axes, ``[3]`` float64; None for one camera or parallel axes."""
    origins, directions = cameras.positions.double(), cameras.forward.double()
    if len(cameras) < 2:
        return None
    # Projections onto the planes across each axis; their sum is singular when all axes are parallel.
    across = torch.eye(3, dtype=torch.float64) - directions[:, :, None] * directions[:, None, :]
    total = across.sum(0)
    if float(torch.linalg.eigvalsh(total)[0]) < 1e-6 * len(cameras):
        return None
    return torch.linalg.solve(total, (across @ origins[:, :, None]).sum(0))[:, 0]


def pose_problems(names: list[str], cameras: Cameras) -> list[str]:
    """Say which cameras cannot be right: those that look away from what all look at.

    Args:
        names: one per camera, for the messages.
        cameras: as they were read.

    Returns:
        One line each, beginning with the name.
    """
    point = look_at_point(cameras)
    if point is None:
        return []
    offsets = point - cameras.positions.double()
    ahead = (offsets * cameras.forward.double()).sum(-1)
    behind = ahead < 0
    if float(behind.double().mean()) > 0.8:
        return [
            f"{names[0]} and {int(behind.sum()) - 1} others: the cameras look away from the object: the poses follow "
            "the other convention (OpenCV against OpenGL axes); negate the second and third column"
        ]
    rotation = cameras.camera_to_world[:, :3, :3].double()
    seen = (rotation.transpose(-1, -2) @ offsets[..., None])[..., 0]
    pixels = (cameras.intrinsics.double() @ seen[..., None])[..., 0]
    pixels = pixels[:, :2] / pixels[:, 2:]
    size = torch.tensor([cameras.width, cameras.height], dtype=torch.float64)
    # Half an image outside the frame: real captures do not centre the object, but they show some of it.
    lost = behind | ((pixels / size - 0.5).abs() > 1).any(-1)
    fault = "the camera looks away from what the others look at; mend its pose or leave the view out"
    return [f"{names[index]}: {fault}" for index in lost.nonzero()[:, 0].tolist()]


def to_world(item: MultiViewObject) -> MultiViewObject:
    """Move and scale the cameras of an object so that it fills the field's box; axes stay as they are.

    Args:
        item: in the source's coordinates.

    Returns:
        The same views in the world, with ``world_from_source``.

    Raises:
        DataError: the cameras do not tell where the object is (one view, or all parallel).
    """
    center = look_at_point(item.cameras)
    if center is None:
        raise DataError(
            f"object '{item.id}': {len(item.split)} view(s) with parallel axes do not tell where the object is; "
            "give views from several sides"
        )
    radius = _visible_radius(item.cameras, center)
    if item.images.shape[-1] == 4:
        box = _silhouette_box(item, center, radius)
        if box is not None:
            center, radius = box
    scale = HALF_SIDE / radius
    world_from_source = torch.eye(4, dtype=torch.float64)
    world_from_source[:3, :3] *= scale
    world_from_source[:3, 3] = -scale * center
    camera_to_world = item.cameras.camera_to_world.double().clone()
    camera_to_world[:, :3, 3] = (camera_to_world[:, :3, 3] - center) * scale
    cameras = replace(item.cameras, camera_to_world=camera_to_world.float())
    return replace(item, cameras=cameras, world_from_source=world_from_source)


def _visible_radius(cameras: Cameras, center: Tensor) -> float:
    """Radius of the ball round ``center`` that the median camera sees whole."""
    distance = (cameras.positions.double() - center).norm(dim=-1)
    k = cameras.intrinsics.double()
    size = torch.tensor([cameras.width, cameras.height], dtype=torch.float64)
    tangent = (size / 2 / k[:, [0, 1], [0, 1]]).amin(-1)
    return float((distance * torch.sin(torch.atan(tangent))).median())


def _silhouette_box(item: MultiViewObject, center: Tensor, radius: float) -> tuple[Tensor, float] | None:
    """Centre and half side of the box round what all silhouettes agree on; None where that is nothing or everything."""
    steps = (torch.arange(_GRID, dtype=torch.float64) + 0.5) / _GRID * 2 - 1
    points = torch.stack(torch.meshgrid(steps, steps, steps, indexing="ij"), -1).flatten(0, 2) * radius + center
    inside, views_of = torch.ones(len(points), dtype=torch.bool), torch.zeros(len(points))
    alpha = item.alpha
    width, height = item.cameras.width, item.cameras.height
    for view in range(len(item.split)):
        pose = item.cameras.camera_to_world[view].double()
        seen = (points - pose[:3, 3]) @ pose[:3, :3]
        pixels = seen @ item.cameras.intrinsics[view].double().T
        column, row = (pixels[:, :2] / pixels[:, 2:].clamp_min(1e-9)).floor().long().unbind(-1)
        framed = (seen[:, 2] > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        covered = alpha[view, row.clamp(0, height - 1), column.clamp(0, width - 1)] > 0.5
        # What a view does not show it cannot rule out; what most do not show is not the object.
        inside &= covered | ~framed
        views_of += framed
    kept = points[inside & (views_of > 0.75 * len(item.split))]
    if not 0 < len(kept) < len(points):
        return None
    cell = 2 * radius / _GRID
    low, high = kept.amin(0) - cell / 2, kept.amax(0) + cell / 2
    return (low + high) / 2, float((high - low).max() / 2)
