"""Where cameras stand round an object, which of them are held out, and how large the object may be before them."""

from __future__ import annotations

import math

import numpy as np
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.errors import ConfigError

FOCAL = 1.02
RADII = {"sphere": 2.7, "upper-hemisphere": 2.7, "paper": 1.3}
PAPER_VIEWS = 160
PAPER_SIZE = 128
WIDEST = 0.95
TEST_SHARE = 0.1


def rig(name: str, views: int, size: int) -> Cameras:
    """Cameras that look at the origin, spread evenly by area on a Fibonacci spiral; the same at every call.

    Args:
        name: "sphere" (all round, radius 2.7), "upper-hemisphere" (above the horizon, radius 2.7) or "paper" (above the
            horizon, radius 1.3, as the published ShapeNet renders: 160 views of 128 pixels).
        views: how many.
        size: side of the square image in pixels.

    Returns:
        ``views`` cameras in float64 with a focal length of 1.02 image widths, ordered from the top down.

    Raises:
        ConfigError: unknown name, or a number below 1.

    Example:
        >>> cameras = rig("paper", 160, 128)
        >>> len(cameras), round(cameras.positions[0].norm().item(), 6)
        (160, 1.3)
    """
    if name not in RADII:
        raise ConfigError(f"cameras '{name}': choose one of {', '.join(RADII)}")
    if views < 1:
        raise ConfigError(f"views {views}: at least 1 is needed")
    if size < 1:
        raise ConfigError(f"size {size}: images have at least 1 pixel per side")
    step = (torch.arange(views, dtype=torch.float64) + 0.5) / views
    height = 1 - 2 * step if name == "sphere" else 1 - step
    azimuth = torch.arange(views, dtype=torch.float64) * (math.pi * (3 - math.sqrt(5)))
    level = (1 - height * height).sqrt()
    positions = RADII[name] * torch.stack([level * azimuth.cos(), level * azimuth.sin(), height], -1)
    return Cameras.look_at(positions, focal=FOCAL, width=size, height=size)


def split(views: int) -> tuple[str, ...]:
    """Hold out a tenth of the views, evenly spread, by the published count: test views = n - ceil(0.9 n), at least one.

    Returns:
        "train" or "test" per view; a single view is for training.

    Example:
        >>> split(10).index("test"), split(160).count("test")
        (5, 16)
    """
    count = views - math.ceil((1 - TEST_SHARE) * views - 1e-9)
    if views > 1:
        count = max(count, 1)
    held_out = {int((index + 0.5) * views / count) for index in range(count)}
    return tuple("test" if index in held_out else "train" for index in range(views))


def largest_scale(low: np.ndarray, high: np.ndarray, cameras: Cameras) -> float:
    """Factor by which a box may grow about the origin until it fills 95 % of some view.

    Args:
        low, high: ``[3]`` corners of the box.
        cameras: views that look at the origin from outside the box.

    Returns:
        The factor at which, over all views, the box's largest half-width (or half-height) from the image's centre is
        0.475 of the image, so that nothing is cut off anywhere.
    """
    corners = np.array(np.meshgrid(*zip(low, high), indexing="ij")).reshape(3, -1).T
    camera_to_world = cameras.camera_to_world.double().numpy()
    intrinsics = cameras.intrinsics.double().numpy()
    rotation, position = camera_to_world[:, :3, :3], camera_to_world[:, :3, 3]
    in_camera = np.einsum("vji,cj->vci", rotation, corners)
    distance = -np.einsum("vj,vj->v", rotation[:, :, 2], position)[:, None]
    scale = math.inf
    for axis, pixels in ((0, cameras.width), (1, cameras.height)):
        # A corner (x, z) is at focal * s x / (distance + s z) from the centre; solved for s at the margin.
        focal = (intrinsics[:, axis, axis] / pixels)[:, None]
        slope = focal * np.abs(in_camera[..., axis]) - WIDEST / 2 * in_camera[..., 2]
        with np.errstate(divide="ignore"):
            scale = min(scale, np.where(slope > 0, WIDEST / 2 * distance / slope, math.inf).min())
    return float(scale)
