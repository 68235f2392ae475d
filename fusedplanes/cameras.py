"""Pinhole cameras.

World frame: right-handed, +z up. Camera axes are OpenCV's: x right, y down, z forward; the centre of the first pixel is
at (0.5, 0.5). A matrix in another convention enters through the constructor that names it, never as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fusedplanes.errors import DataError


@dataclass(frozen=True)
class Cameras:
    """A batch of pinhole cameras that share one image size.

    Attributes:
        camera_to_world: ``[*b, 4, 4]`` rigid transforms, OpenCV axes (x right, y down, z forward).
        intrinsics: ``[*b, 3, 3]`` in pixels of a ``width`` x ``height`` image.
        width: image width in pixels.
        height: image height in pixels.

    Example:
        >>> cameras = Cameras.orbit(8, radius=2.7, elevation=20.0, width=64, height=64)
        >>> len(cameras), tuple(cameras.camera_to_world.shape)
        (8, (8, 4, 4))
    """

    camera_to_world: Tensor
    intrinsics: Tensor
    width: int
    height: int

    def __post_init__(self) -> None:
        if self.camera_to_world.shape[-2:] != (4, 4):
            raise DataError(
                f"cameras: camera_to_world has shape {tuple(self.camera_to_world.shape)}; expected [*batch, 4, 4]"
            )
        if self.intrinsics.shape != (*self.batch_shape, 3, 3):
            raise DataError(
                f"cameras: intrinsics has shape {tuple(self.intrinsics.shape)}; expected {(*self.batch_shape, 3, 3)}"
            )
        if self.width < 1 or self.height < 1:
            raise DataError(f"cameras: image size {self.width}x{self.height}; both sides must be at least 1 pixel")

    # Constructors -------------------------------------------------------------------------------------------------

    @classmethod
    def from_opencv(cls, camera_to_world: Tensor, intrinsics: Tensor, width: int, height: int) -> Cameras:
        """Cameras from camera-to-world matrices with OpenCV axes (x right, y down, z forward)."""
        camera_to_world = torch.as_tensor(camera_to_world)
        intrinsics = torch.as_tensor(intrinsics, dtype=camera_to_world.dtype)
        return cls(camera_to_world, intrinsics.expand(*camera_to_world.shape[:-2], 3, 3), int(width), int(height))

    @classmethod
    def from_opengl(cls, camera_to_world: Tensor, intrinsics: Tensor, width: int, height: int) -> Cameras:
        """Cameras from camera-to-world matrices with OpenGL axes (x right, y up, z backward) (Blender, nerfstudio)."""
        camera_to_world = torch.as_tensor(camera_to_world)
        flip = camera_to_world.new_tensor([1.0, -1.0, -1.0, 1.0])
        return cls.from_opencv(camera_to_world * flip, intrinsics, width, height)

    @classmethod
    def from_colmap(
        cls, quaternions_wxyz: Tensor, translations: Tensor, intrinsics: Tensor, width: int, height: int
    ) -> Cameras:
        """Cameras from COLMAP's world-to-camera rotations ``[*b, 4]`` (w, x, y, z) and translations ``[*b, 3]``."""
        q = torch.nn.functional.normalize(torch.as_tensor(quaternions_wxyz), dim=-1)
        w, x, y, z = q.unbind(-1)
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
        world_to_camera = torch.stack([torch.stack(row, -1) for row in rows], -2)
        camera_to_world = torch.zeros(*q.shape[:-1], 4, 4, dtype=q.dtype, device=q.device)
        rotation = world_to_camera.transpose(-1, -2)
        camera_to_world[..., :3, :3] = rotation
        camera_to_world[..., :3, 3] = -(rotation @ torch.as_tensor(translations, dtype=q.dtype)[..., None])[..., 0]
        camera_to_world[..., 3, 3] = 1
        return cls.from_opencv(camera_to_world, intrinsics, width, height)

    @classmethod
    def look_at(
        cls,
        positions: Tensor,
        *,
        target: tuple[float, float, float] = (0.0, 0.0, 0.0),
        focal: float = 1.02,
        width: int = 128,
        height: int = 128,
    ) -> Cameras:
        """Upright cameras at ``positions`` ``[*b, 3]`` that look at ``target`` with +z up.

        Args:
            focal: focal length divided by the image width (1.02 is a horizontal field of view of 52 degrees).

        Raises:
            DataError: if a camera stands on its target.
        """
        positions = torch.as_tensor(positions)
        forward = positions.new_tensor(target) - positions
        distance = forward.norm(dim=-1, keepdim=True)
        if bool((distance < 1e-9).any()):
            raise DataError("cameras: a position coincides with the target; move it away")
        forward = forward / distance
        up = positions.new_tensor([0.0, 0.0, 1.0]).expand_as(forward)
        # Straight above or below the target, "up" is undefined: +y takes its place.
        vertical = forward[..., 2:].abs() > 1 - 1e-6
        up = torch.where(vertical, positions.new_tensor([0.0, 1.0, 0.0]), up)
        right = torch.nn.functional.normalize(torch.linalg.cross(forward, up), dim=-1)
        down = torch.linalg.cross(forward, right)
        camera_to_world = torch.zeros(*positions.shape[:-1], 4, 4, dtype=positions.dtype, device=positions.device)
        camera_to_world[..., :3, :3] = torch.stack([right, down, forward], -1)
        camera_to_world[..., :3, 3] = positions
        camera_to_world[..., 3, 3] = 1
        pixels = focal * width
        intrinsics = positions.new_tensor([[pixels, 0, width / 2], [0, pixels, height / 2], [0, 0, 1]])
        return cls.from_opencv(camera_to_world, intrinsics, width, height)

    @classmethod
    def orbit(
        cls,
        count: int,
        *,
        radius: float = 2.7,
        elevation: float = 25.0,
        start: float = 0.0,
        focal: float = 1.02,
        width: int = 128,
        height: int = 128,
    ) -> Cameras:
        """``count`` cameras on one full circle round the +z axis, anti-clockwise seen from above.

        Args:
            radius: distance to the origin in world units.
            elevation: degrees above the horizon.
            start: azimuth of the first camera in degrees from +x.
            focal: focal length divided by the image width.
        """
        azimuth = math.radians(start) + torch.arange(count) * (2 * math.pi / max(count, 1))
        tilt = math.radians(elevation)
        positions = torch.stack(
            [
                math.cos(tilt) * azimuth.cos(),
                math.cos(tilt) * azimuth.sin(),
                torch.full_like(azimuth, math.sin(tilt)),
            ],
            -1,
        )
        return cls.look_at(radius * positions, focal=focal, width=width, height=height)

    # Batch handling -----------------------------------------------------------------------------------------------

    @property
    def batch_shape(self) -> torch.Size:
        return self.camera_to_world.shape[:-2]

    @property
    def positions(self) -> Tensor:
        """Camera centres in the world, ``[*b, 3]``."""
        return self.camera_to_world[..., :3, 3]

    @property
    def forward(self) -> Tensor:
        """Unit viewing directions in the world, ``[*b, 3]``."""
        return self.camera_to_world[..., :3, 2]

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError("a single camera has no length; add a batch dimension with cameras[None]")
        return self.batch_shape[0]

    def __getitem__(self, index) -> Cameras:
        return replace(self, camera_to_world=self.camera_to_world[index], intrinsics=self.intrinsics[index])

    def to(self, *args, **kwargs) -> Cameras:
        return replace(
            self,
            camera_to_world=self.camera_to_world.to(*args, **kwargs),
            intrinsics=self.intrinsics.to(*args, **kwargs),
        )

    @staticmethod
    def concatenate(cameras: list[Cameras]) -> Cameras:
        """Join batches along their first dimension; all must have the same image size."""
        sizes = {(c.width, c.height) for c in cameras}
        if len(sizes) != 1:
            raise DataError(f"cameras: cannot join image sizes {sorted(sizes)}; resize them to one size first")
        return Cameras(
            torch.cat([c.camera_to_world for c in cameras]),
            torch.cat([c.intrinsics for c in cameras]),
            cameras[0].width,
            cameras[0].height,
        )

    def resized(self, width: int, height: int) -> Cameras:
        """The same views at another resolution: intrinsics scale with the image."""
        scale = self.intrinsics.new_tensor([[width / self.width], [height / self.height], [1.0]])
        return replace(self, intrinsics=self.intrinsics * scale, width=int(width), height=int(height))
