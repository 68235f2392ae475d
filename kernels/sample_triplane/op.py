"""The public `sample_triplane`, its registration with torch and its derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.kernels.dispatch import resolve_backend
from fusedplanes.kernels.sample_triplane.reference import PLANE_AXES, sample_triplane_reference

REDUCTIONS = ("sum", "product", "concat")
PADDINGS = ("zeros", "border")


def sample_triplane(
    planes: Tensor,
    points: Tensor,
    *,
    reduce: str = "sum",
    layout: str = "orthogonal",
    padding: str = "zeros",
    align_corners: bool = False,
    backend: str | None = None,
) -> Tensor:
    """Interpolate three planes bilinearly at points and combine the three features.

    Plane XY holds x along its width and y along its height, XZ holds x and z, YZ holds y and z; index 0 is the -1 side.
    Cells are laid out as in ``torch.nn.functional.grid_sample``. A point with a non-finite coordinate has zero features
    and passes no gradient.

    Args:
        planes: ``[*b, 3, H, W, C]``, channels last.
        points: ``[*b, N, 3]`` x, y, z; the planes cover [-1, 1].
        reduce: "sum" or "product" of the planes, or "concat" (XY's channels first).
        layout: "orthogonal", or "eg3d" for old weights whose third plane is ZX (width = z, height = x) instead of YZ.
        padding: features outside the planes are "zeros" or those at the nearest "border".
        align_corners: whether -1 and 1 are the centres of the outermost cells instead of their outer edges.
        backend: "reference" or "cpu"; None chooses. The reference can be differentiated twice.

    Returns:
        ``[*b, N, C]``, or ``[*b, N, 3 * C]`` for "concat", in the planes' dtype.

    Raises:
        DataError: shapes do not fit.
        ConfigError: an option is unknown.
        BackendUnavailable: the backend cannot take these tensors.

    Example:
        >>> planes = torch.ones(3, 8, 8, 4)
        >>> sample_triplane(planes, torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]]))
        tensor([[3., 3., 3., 3.],
                [1., 1., 1., 1.]])
    """
    _check(planes, points, reduce, layout, padding)
    if resolve_backend(planes, backend) == "cpu":
        return _sample_triplane(planes, points.to(torch.float32), reduce, layout, padding, align_corners)
    return sample_triplane_reference(planes, points, reduce, layout, padding, align_corners)


def _check(planes: Tensor, points: Tensor, reduce: str, layout: str, padding: str) -> None:
    if planes.ndim < 4 or planes.shape[-4] != 3:
        raise DataError(f"sample_triplane: planes must be [*b, 3, H, W, C], not {list(planes.shape)}")
    if points.ndim < 2 or points.shape[-1] != 3 or points.shape[:-2] != planes.shape[:-4]:
        expected = ", ".join([*map(str, planes.shape[:-4]), "N", "3"])
        raise DataError(
            f"sample_triplane: points must be [{expected}] for planes {list(planes.shape)}, not {list(points.shape)}"
        )
    if 0 in planes.shape[-3:-1]:
        raise DataError(f"sample_triplane: planes {list(planes.shape)} have no cells to sample")
    for name, value, choices in (
        ("reduce", reduce, REDUCTIONS),
        ("layout", layout, tuple(PLANE_AXES)),
        ("padding", padding, PADDINGS),
    ):
        if value not in choices:
            raise ConfigError(f"sample_triplane: {name} is {value!r}; choose one of {', '.join(choices)}")


@torch.library.custom_op("fusedplanes::sample_triplane", mutates_args=(), device_types="cpu")
def _sample_triplane(
    planes: Tensor, points: Tensor, reduce: str, layout: str, padding: str, align_corners: bool
) -> Tensor:
    from fusedplanes.kernels.sample_triplane import cpu

    return cpu.forward(planes, points, reduce, layout, padding, align_corners)


@torch.library.custom_op("fusedplanes::sample_triplane_backward_planes", mutates_args=(), device_types="cpu")
def _backward_planes(
    grad_features: Tensor,
    planes: Tensor,
    points: Tensor,
    reduce: str,
    layout: str,
    padding: str,
    align_corners: bool,
) -> Tensor:
    from fusedplanes.kernels.sample_triplane import cpu

    return cpu.backward_planes(grad_features, planes, points, reduce, layout, padding, align_corners)


@torch.library.custom_op("fusedplanes::sample_triplane_backward_points", mutates_args=(), device_types="cpu")
def _backward_points(
    grad_features: Tensor,
    planes: Tensor,
    points: Tensor,
    reduce: str,
    layout: str,
    padding: str,
    align_corners: bool,
) -> Tensor:
    from fusedplanes.kernels.sample_triplane import cpu

    return cpu.backward_points(grad_features, planes, points, reduce, layout, padding, align_corners)


@_sample_triplane.register_fake
def _(planes, points, reduce, layout, padding, align_corners):
    channels = planes.shape[-1] * (3 if reduce == "concat" else 1)
    return planes.new_empty(*points.shape[:-1], channels)


@_backward_planes.register_fake
def _(grad_features, planes, points, reduce, layout, padding, align_corners):
    return torch.empty_like(planes, memory_format=torch.contiguous_format)


@_backward_points.register_fake
def _(grad_features, planes, points, reduce, layout, padding, align_corners):
    return torch.empty_like(points, memory_format=torch.contiguous_format)


def _setup_context(ctx, inputs, output):
    planes, points, *ctx.options = inputs
    ctx.save_for_backward(planes, points)


def _backward(ctx, grad_features):
    planes, points = ctx.saved_tensors
    grad_planes = grad_points = None
    if ctx.needs_input_grad[0]:
        grad_planes = _backward_planes(grad_features, planes, points, *ctx.options)
    if ctx.needs_input_grad[1]:
        grad_points = _backward_points(grad_features, planes, points, *ctx.options)
    return grad_planes, grad_points, None, None, None, None


_sample_triplane.register_autograd(_backward, setup_context=_setup_context)
