"""Pinhole cameras.

World frame: right-handed, +z up. Camera axes are OpenCV's: x right, y down, z forward; the centre of the first pixel is
at (0.5, 0.5). A matrix in another convention enters through the constructor that names it, never as it is.
"""

from __future__ import annotations

import math
import numbers
import operator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fusedplanes.errors import DataError, shown

_RIGID_TOLERANCE = 1.1e-3
"""A little above the 1e-3 of the loaders, which can name the file."""

_SMALLEST_FOCAL, _LARGEST = 1e-6, 1e9
"""Beyond these, in pixels or world units, float32 does not hold what is computed from a camera."""


@dataclass(frozen=True, eq=False)
class Cameras:
    """A batch of pinhole cameras that share one image size.

    The class checks types and shapes; the constructors check the values too. Everything but float64 becomes float32
    there, so lists, integers and numpy arrays may be given. Compare cameras field by field: ``==`` is identity.

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
        # No value is looked at: slices and copies must stay free of waiting for a GPU.
        pose = _floats("camera_to_world", self.camera_to_world, keep_half=True)
        intrinsics = _floats("intrinsics", self.intrinsics, keep_half=True)
        if pose.shape[-2:] != (4, 4):
            raise DataError(f"cameras: camera_to_world has shape {tuple(pose.shape)}; expected [*batch, 4, 4]")
        expected = (*pose.shape[:-2], 3, 3)
        if intrinsics.shape != expected:
            raise DataError(f"cameras: intrinsics has shape {tuple(intrinsics.shape)}; expected {expected}")
        if intrinsics.dtype != pose.dtype or intrinsics.device != pose.device:
            intrinsics = intrinsics.to(pose)
        fields = {"camera_to_world": pose, "intrinsics": intrinsics}
        for side in ("width", "height"):
            fields[side] = _whole(side, getattr(self, side))
        for name, value in fields.items():
            if value is not getattr(self, name):
                object.__setattr__(self, name, value)

    # Constructors -------------------------------------------------------------------------------------------------

    @classmethod
    def from_opencv(cls, camera_to_world: Tensor, intrinsics: Tensor, width: int, height: int) -> Cameras:
        """Cameras from camera-to-world matrices with OpenCV axes (x right, y down, z forward).

        Args:
            camera_to_world: ``[*b, 4, 4]``.
            intrinsics: ``[*b, 3, 3]``, or ``[3, 3]`` for all.

        Raises:
            DataError: not finite, a pose that is no rotation and shift, or intrinsics of no pinhole.
        """
        camera_to_world = _floats("camera_to_world", camera_to_world)
        _check_shape("camera_to_world", camera_to_world, (4, 4))
        batch = camera_to_world.shape[:-2]
        intrinsics = _floats("intrinsics", intrinsics, like=camera_to_world)
        _check_shape("intrinsics", intrinsics, (3, 3), batch=batch)
        cameras = cls(camera_to_world, intrinsics.expand(*batch, 3, 3), width, height)
        _check_values(cameras.camera_to_world, cameras.intrinsics)
        return cameras

    @classmethod
    def from_opengl(cls, camera_to_world: Tensor, intrinsics: Tensor, width: int, height: int) -> Cameras:
        """Cameras from camera-to-world matrices with OpenGL axes (x right, y up, z backward) (Blender, nerfstudio).

        Raises:
            DataError: as `from_opencv`.
        """
        camera_to_world = _floats("camera_to_world", camera_to_world)
        _check_shape("camera_to_world", camera_to_world, (4, 4))
        flip = camera_to_world.new_tensor([1.0, -1.0, -1.0, 1.0])
        return cls.from_opencv(camera_to_world * flip, intrinsics, width, height)

    @classmethod
    def from_colmap(
        cls, quaternions_wxyz: Tensor, translations: Tensor, intrinsics: Tensor, width: int, height: int
    ) -> Cameras:
        """Cameras from COLMAP's world-to-camera rotations ``[*b, 4]`` (w, x, y, z) and translations ``[*b, 3]``.

        Raises:
            DataError: a quaternion that is zero or not finite, and as `from_opencv`.
        """
        q = _floats("quaternions_wxyz", quaternions_wxyz)
        translations = _floats("translations", translations, like=q)
        _check_shape("quaternions_wxyz", q, (4,))
        _check_shape("translations", translations, (3,), batch=q.shape[:-1])
        _check_finite("quaternions_wxyz", q)
        _check_finite("translations", translations)
        length = q.norm(dim=-1, keepdim=True)
        if _has_values(length) and bool((length < 1e-6).any()):
            place = _place(length[..., 0] < 1e-6)
            raise DataError(f"cameras: quaternions_wxyz {place}is zero; no turn at all is 1 0 0 0")
        w, x, y, z = (q / length).unbind(-1)
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
        world_to_camera = torch.stack([torch.stack(row, -1) for row in rows], -2)
        camera_to_world = torch.zeros(*q.shape[:-1], 4, 4, dtype=q.dtype, device=q.device)
        rotation = world_to_camera.transpose(-1, -2)
        camera_to_world[..., :3, :3] = rotation
        camera_to_world[..., :3, 3] = -(rotation * translations[..., None, :]).sum(-1)
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
            DataError: a camera stands on its target, a number is not finite, or ``focal`` is not above 0.
        """
        positions = _floats("positions", positions)
        target = _floats("target", target, like=positions)
        _check_shape("positions", positions, (3,))
        _check_shape("target", target, (3,), batch=positions.shape[:-1])
        _check_finite("positions", positions)
        _check_finite("target", target)
        focal = _number("focal", focal, above_zero=True)
        width, height = _whole("width", width), _whole("height", height)
        forward = target - positions
        distance = forward.norm(dim=-1, keepdim=True)
        if _has_values(distance) and bool((distance < 1e-9).any()):
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

        Raises:
            DataError: ``count`` is no whole number from 1, ``radius`` or ``focal`` is not above 0, or a number is not
                finite.
        """
        count = _whole("count", count)
        radius = _number("radius", radius, above_zero=True)
        elevation, start = _number("elevation", elevation), _number("start", start)
        azimuth = math.radians(start) + torch.arange(count, dtype=torch.float32) * (2 * math.pi / count)
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
        camera_to_world = self.camera_to_world.to(*args, **kwargs)
        if not camera_to_world.is_floating_point():
            raise DataError(f"cameras: to({camera_to_world.dtype}) would cut numbers off; choose a floating-point type")
        return replace(self, camera_to_world=camera_to_world, intrinsics=self.intrinsics.to(*args, **kwargs))

    @staticmethod
    def concatenate(cameras: list[Cameras]) -> Cameras:
        """Join batches along their first dimension; all must have the same image size.

        Raises:
            DataError: nothing to join, or cameras that differ in size, device or the batch dimensions behind the first.
        """
        if not isinstance(cameras, list | tuple) or not all(isinstance(item, Cameras) for item in cameras):
            raise DataError(f"cameras: cannot join {shown(cameras)}; expected a list of cameras")
        if not cameras:
            raise DataError("cameras: nothing to join; expected at least one batch of cameras")
        sizes = {(c.width, c.height) for c in cameras}
        if len(sizes) != 1:
            raise DataError(f"cameras: cannot join image sizes {sorted(sizes)}; resize them to one size first")
        shapes = [tuple(c.batch_shape) for c in cameras]
        if () in shapes:
            raise DataError("cameras: cannot join a single camera; add a batch dimension with cameras[None]")
        if len({shape[1:] for shape in shapes}) != 1:
            raise DataError(f"cameras: cannot join batch shapes {shapes}; only the first dimension may differ")
        devices = sorted({str(c.camera_to_world.device) for c in cameras})
        if len(devices) != 1:
            raise DataError(f"cameras: cannot join cameras on {', '.join(devices)}; move them to one device first")
        return Cameras(
            torch.cat([c.camera_to_world for c in cameras]),
            torch.cat([c.intrinsics for c in cameras]),
            cameras[0].width,
            cameras[0].height,
        )

    def resized(self, width: int, height: int) -> Cameras:
        """The same views at another resolution: intrinsics scale with the image.

        Raises:
            DataError: a side is no whole number from 1.
        """
        width, height = _whole("width", width), _whole("height", height)
        scale = self.intrinsics.new_tensor([[width / self.width], [height / self.height], [1.0]])
        return replace(self, intrinsics=self.intrinsics * scale, width=width, height=height)


# Checks -------------------------------------------------------------------------------------------------------------


def _floats(name: str, value: object, *, like: Tensor | None = None, keep_half: bool = False) -> Tensor:
    """A tensor of ``like``'s type and device; else float64 and, where kept, half stay, the rest is float32."""
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise DataError(f"cameras: {name} is a tensor of {value.dtype}; expected numbers")
        if like is not None:
            return value.to(like)
        kept = value.is_floating_point() if keep_half else value.dtype in (torch.float32, torch.float64)
        return value if kept else value.to(torch.float32)
    if torch.compiler.is_compiling():  # which does not follow numpy's types
        return torch.tensor(value, dtype=torch.float32) if like is None else like.new_tensor(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        array = np.asarray(None)  # ragged, or a list of tensors that need gradients or lie on a GPU
    if array.dtype.kind not in "iuf":
        raise DataError(f"cameras: {name} is {shown(value)}; expected a tensor, an array or lists of numbers")
    given_double = isinstance(value, np.ndarray | np.generic) and array.dtype == np.float64
    double = given_double if like is None else like.dtype == torch.float64
    with np.errstate(over="ignore"):  # what does not fit becomes inf and is refused as such
        tensor = torch.tensor(array.astype(np.float64 if double else np.float32))
    return tensor if like is None else tensor.to(like)


def _whole(name: str, value: object) -> int:
    """A whole number from 1."""
    if isinstance(value, torch.SymInt):
        return value
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except (TypeError, RuntimeError):
        number = None
    if number is None or number < 1:
        raise DataError(f"cameras: {name} is {shown(value)}; expected a whole number of at least 1")
    return number


def _number(name: str, value: object, *, above_zero: bool = False) -> float | Tensor:
    """A finite number, or one above 0; a tensor of one number stays one, for its gradient."""
    if torch.compiler.is_compiling() or (isinstance(value, Tensor) and not _has_values(value)):
        return value
    number = math.nan
    if isinstance(value, Tensor | np.ndarray):
        number = (
            float(value.detach() if isinstance(value, Tensor) else value) if math.prod(value.shape) == 1 else number
        )
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not abs(number) <= _LARGEST or (above_zero and number <= 0):
        wanted = "a number above 0" if above_zero else "a finite number"
        raise DataError(f"cameras: {name} is {shown(value)}; expected {wanted}, at most {_LARGEST:g}")
    return value if isinstance(value, Tensor) else number


def _check_shape(name: str, tensor: Tensor, last: tuple[int, ...], *, batch: torch.Size | None = None) -> None:
    """Refuse a tensor that is not ``[*b, *last]``, or whose batch does not broadcast to ``batch``."""
    shape = tuple(tensor.shape)
    found = shape[: len(shape) - len(last)]
    fits = shape[len(found) :] == last
    if fits and batch is not None:
        fits = len(found) <= len(batch) and all(a in (1, b) for a, b in zip(found[::-1], batch[::-1]))
    if not fits:
        wanted = ", ".join(
            str(side) for side in ("*batch" if batch is None else "", *(batch or ()), *last) if side != ""
        )
        raise DataError(f"cameras: {name} has shape {shape}; expected [{wanted}]")


def _has_values(tensor: Tensor) -> bool:
    """Whether the numbers can be looked at: not while a graph is traced, nor for meta, fake and vmapped tensors."""
    return not (
        torch.compiler.is_compiling()
        or tensor.is_meta
        or type(tensor) not in (Tensor, torch.nn.Parameter)
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _check_finite(name: str, tensor: Tensor) -> None:
    if not _has_values(tensor):
        return
    tensor = tensor.detach()
    good = tensor.abs() <= _LARGEST
    if not bool(good.all()):
        place = tuple((~good).nonzero()[0].tolist())
        at = ", ".join(str(index) for index in place)
        raise DataError(
            f"cameras: {name}[{at}] is {tensor[place].item():g}; expected finite numbers of at most {_LARGEST:g}"
        )


@torch.no_grad()
def _check_values(camera_to_world: Tensor, intrinsics: Tensor) -> None:
    """Refuse poses that are no rotation and shift, and intrinsics that are none of a pinhole."""
    if not (_has_values(camera_to_world) and _has_values(intrinsics)) or not camera_to_world.numel():
        return
    pose, k = camera_to_world.detach(), intrinsics.detach()
    rotation = pose[..., :3, :3]
    # Written out, because autocast and TF32 would take a matrix product to lower precision than is tested for.
    product = (rotation[..., :, None, :] * rotation[..., None, :, :]).sum(-1)
    off = (product - torch.eye(3, dtype=pose.dtype, device=pose.device)).abs().amax((-1, -2))
    determinant = (torch.linalg.cross(rotation[..., 0], rotation[..., 1]) * rotation[..., 2]).sum(-1)
    last = (pose[..., 3, :] - pose.new_tensor([0.0, 0.0, 0.0, 1.0])).abs().amax(-1)
    focal = torch.stack([k[..., 0, 0], k[..., 1, 1]], -1)
    below = torch.stack([k[..., 1, 0], k[..., 2, 0], k[..., 2, 1], k[..., 2, 2] - 1], -1).abs().amax(-1)
    # NaN fails every comparison. One question to the device where all is well.
    good = (
        (pose.abs() <= _LARGEST).all()
        & (k.abs() <= _LARGEST).all()
        & ((off <= _RIGID_TOLERANCE) & (determinant > 0) & (last <= 1e-4) & (below <= 1e-6)).all()
        & (focal >= _SMALLEST_FOCAL).all()
    )
    if bool(good):
        return
    _check_finite("camera_to_world", pose)
    _check_finite("intrinsics", k)
    if bool((off > _RIGID_TOLERANCE).any()):
        raise DataError(
            f"cameras: camera_to_world {_place(off > _RIGID_TOLERANCE)}is scaled or sheared (R R^T is off by "
            f"{off.max().item():.3g}); expected a rotation and a shift"
        )
    if bool((determinant <= 0).any()):
        raise DataError(
            f"cameras: camera_to_world {_place(determinant <= 0)}is mirrored (its determinant is -1); flip one axis"
        )
    if bool((last > 1e-4).any()):
        row = pose[..., 3, :].reshape(-1, 4)[int(last.flatten().argmax())].tolist()
        raise DataError(f"cameras: camera_to_world {_place(last > 1e-4)}ends in {row}; expected 0 0 0 1")
    if bool((focal < _SMALLEST_FOCAL).any()):
        raise DataError(
            f"cameras: intrinsics {_place((focal < _SMALLEST_FOCAL).any(-1))}has the focal length "
            f"{focal.min().item():g}; expected pixels, above 0"
        )
    raise DataError(
        f"cameras: intrinsics {_place(below > 1e-6)}is no pinhole's; expected [[fx, s, cx], [0, fy, cy], [0, 0, 1]]"
    )


def _place(wrong: Tensor) -> str:
    """``[2] `` or ``[0, 2] ``: the first camera that is wrong; nothing for a single one."""
    return f"{wrong.nonzero()[0].tolist()} " if wrong.dim() else ""
