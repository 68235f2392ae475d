"""Rays through pixels, limited to the field's box."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError


@dataclass(frozen=True, eq=False)
class Rays:
    """Half-lines with unit directions; distances ``t`` along them are Euclidean.

    Attributes:
        origins: ``[*b, 3]`` in the world.
        directions: ``[*b, 3]``, unit length.
        near: ``[*b]`` distance at which the ray enters the box (0 if it starts inside).
        far: ``[*b]`` distance at which it leaves. A ray that misses the box has ``near == far == 0``.
    """

    origins: Tensor
    directions: Tensor
    near: Tensor
    far: Tensor

    @classmethod
    def from_cameras(cls, cameras: Cameras, *, half_size: float = 1.0) -> Rays:
        """One ray per pixel, ``[*b, height * width]`` in row order, limited to the box ``[-half_size, half_size]^3``.

        Rays of cameras in half precision are float32: a pixel's number does not fit into less.

        Raises:
            DataError: intrinsics that have no inverse, or a box without extent.

        Example:
            >>> rays = Rays.from_cameras(Cameras.orbit(2, width=4, height=3))
            >>> tuple(rays.origins.shape)
            (2, 12, 3)
        """
        if not 0 < half_size < math.inf:
            raise DataError(f"rays: half_size is {half_size}; expected a finite number above 0")
        dtype = torch.promote_types(cameras.camera_to_world.dtype, torch.float32)
        c2w, k = cameras.camera_to_world.to(dtype), cameras.intrinsics.to(dtype)
        u = torch.arange(cameras.width, device=c2w.device, dtype=c2w.dtype) + 0.5
        v = torch.arange(cameras.height, device=c2w.device, dtype=c2w.dtype) + 0.5
        v, u = torch.meshgrid(v, u, indexing="ij")
        pixels = torch.stack([u.flatten(), v.flatten(), torch.ones_like(u).flatten()], -1)  # [P, 3]
        try:
            camera_from_pixel = torch.linalg.inv(k)
        except torch.linalg.LinAlgError as error:
            raise DataError(
                "rays: the cameras' intrinsics have no inverse; expected [[fx, s, cx], [0, fy, cy], [0, 0, 1]]"
            ) from error
        in_camera = pixels @ camera_from_pixel.transpose(-1, -2)  # [*b, P, 3]
        directions = in_camera @ c2w[..., :3, :3].transpose(-1, -2)
        directions = torch.nn.functional.normalize(directions, dim=-1)
        origins = c2w[..., None, :3, 3].expand_as(directions)
        near, far = intersect_box(origins, directions, half_size)
        return cls(origins, directions, near, far)

    @property
    def batch_shape(self) -> torch.Size:
        return self.near.shape

    def __getitem__(self, index) -> Rays:
        return Rays(self.origins[index], self.directions[index], self.near[index], self.far[index])

    def flatten(self, start: int = 0, end: int = -1) -> Rays:
        """Merge batch dimensions ``start`` to ``end`` (inclusive) into one; a single ray becomes a batch of one.

        Raises:
            DataError: a dimension that is not there, or ``end`` before ``start``.
        """
        if not self.near.dim():
            return self[None].flatten(start, end)
        count = self.near.dim()
        first, last = (index + count if index < 0 else index for index in (start, end))
        if not 0 <= first <= last < count:
            raise DataError(f"rays: cannot merge dimensions {start} to {end} of batch shape {tuple(self.batch_shape)}")
        start, end = first, last
        return Rays(
            self.origins.flatten(start, end),
            self.directions.flatten(start, end),
            self.near.flatten(start, end),
            self.far.flatten(start, end),
        )


def intersect_box(origins: Tensor, directions: Tensor, half_size: float = 1.0) -> tuple[Tensor, Tensor]:
    """Distances at which rays enter and leave the box ``[-half_size, half_size]^3`` (slab test).

    Args:
        origins, directions: ``[*b, 3]``.

    Returns:
        near, far ``[*b]``: both 0 where the box is missed or lies behind the origin.
    """
    # A zero component never leaves its slab: the division gives +-inf, which min and max handle, except 0 * inf.
    directions = directions.to(torch.promote_types(directions.dtype, torch.float32))
    tiny = torch.finfo(directions.dtype).tiny
    safe = torch.where(directions.abs() < tiny, torch.full_like(directions, tiny), directions)
    t0 = (-half_size - origins) / safe
    t1 = (half_size - origins) / safe
    near = torch.minimum(t0, t1).amax(-1).clamp_min(0)
    far = torch.maximum(t0, t1).amin(-1)
    hit = far > near
    return torch.where(hit, near, 0.0), torch.where(hit, far, 0.0)
