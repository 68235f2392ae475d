"""Image quality, per image, and the floors that any model has to clear.

Everything is measured on images in [0, 1], each image by itself, and only then averaged. (The published Fused-Planes
protocol takes the PSNR of whole batches in [-1, 1] and averages those, which is a different number.)
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError


def psnr(images: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Peak signal-to-noise ratio of each image in decibels, accumulated in float64.

    Args:
        images: ``[V, H, W, C]`` in [0, 1]; values outside are counted as they are.
        targets: ``[V, H, W, C]``.
        mask: optional ``[V, H, W]``, boolean or weights from 0 up: the error is averaged over these pixels alone. With
            `foreground_mask` this is the foreground PSNR.

    Returns:
        ``[V]`` float64; infinite where an image equals its target, NaN where its mask is empty.

    Raises:
        DataError: shapes that do not belong together.

    Example:
        >>> import torch
        >>> psnr(torch.zeros(1, 4, 4, 3), torch.full((1, 4, 4, 3), 0.1))
        tensor([20.0000], dtype=torch.float64)
    """
    if images.dim() != 4 or images.shape != targets.shape:
        raise DataError(
            f"psnr: images {tuple(images.shape)} against targets {tuple(targets.shape)}; expected both [V, H, W, C]"
        )
    if mask is not None and mask.shape != images.shape[:3]:
        raise DataError(f"psnr: mask {tuple(mask.shape)} for images {tuple(images.shape)}; expected [V, H, W]")
    error = (images.double() - targets.double()).square().mean(-1)
    if mask is None:
        return -10 * error.mean((1, 2)).log10()
    weights = mask.double()
    return -10 * ((error * weights).sum((1, 2)) / weights.sum((1, 2))).log10()


def foreground_mask(alpha: Tensor, *, dilate: int = 2) -> Tensor:
    """Pixels on or near the object: coverage above one half, grown by ``dilate`` pixels in all eight directions.

    Args:
        alpha: ``[V, H, W]`` coverage in [0, 1].
        dilate: pixels to grow by.

    Returns:
        ``[V, H, W]`` boolean.

    Example:
        >>> import torch
        >>> alpha = torch.zeros(1, 9, 9)
        >>> alpha[0, 4, 4] = 1
        >>> foreground_mask(alpha).sum()
        tensor(25)
    """
    covered = (alpha > 0.5).float()[:, None]
    return functional.max_pool2d(covered, 2 * dilate + 1, stride=1, padding=dilate)[:, 0] > 0


def ssim(images: Tensor, targets: Tensor) -> Tensor:
    """Structural similarity of each image (Wang et al. 2004): 11 x 11 Gaussian window of deviation 1.5, range 1.

    Args:
        images: ``[V, H, W, C]`` in [0, 1].
        targets: ``[V, H, W, C]``.

    Returns:
        ``[V]``, 1 where an image equals its target.

    Example:
        >>> import torch
        >>> ssim(torch.rand(2, 16, 16, 3), torch.rand(2, 16, 16, 3)).shape
        torch.Size([2])
    """
    from fusedplanes.kernels import ssim

    return ssim(images, targets)


# Floors ---------------------------------------------------------------------------------------------------------------
#
# What can be had without a model. Each returns images, so that they are measured exactly as a model's are.


def floor_nearest_view(images: Tensor, cameras: Cameras, test_cameras: Cameras) -> Tensor:
    """For each test view the training image of the same object taken from the nearest direction.

    Args:
        images: ``[V, H, W, C]`` training images of one object.
        cameras: their ``V`` cameras.
        test_cameras: ``T`` cameras.

    Returns:
        ``[T, H, W, C]``. Nearness is the angle between camera positions seen from the origin; of two equally near
        views the first is taken.

    Example:
        >>> import torch
        >>> cameras = Cameras.orbit(4)
        >>> floor_nearest_view(torch.rand(4, 8, 8, 3), cameras, cameras[:1]).shape
        torch.Size([1, 8, 8, 3])
    """
    if len(images) == 0 or len(images) != len(cameras):
        raise DataError(
            f"floor_nearest_view: {len(images)} training images with {len(cameras)} cameras; each needs one"
        )
    directions, wanted = (functional.normalize(c.positions.double(), dim=-1) for c in (cameras, test_cameras))
    return images[(wanted @ directions.T).argmax(1).to(images.device)]


def floor_mean_image(images: Tensor) -> Tensor:
    """The mean of an object's training images, ``[1, H, W, C]`` from ``[V, H, W, C]``: one guess for every test view.

    Example:
        >>> import torch
        >>> floor_mean_image(torch.rand(4, 8, 8, 3)).shape
        torch.Size([1, 8, 8, 3])
    """
    return images.mean(0, keepdim=True)


def floor_class_mean(others: Sequence[tuple[Tensor, Cameras]], test_cameras: Cameras) -> Tensor:
    """For each test view the mean, over the other objects of the class, of their image nearest to it.

    Each other object gives its training image from the direction nearest to the test camera, as in
    `floor_nearest_view`. The object under test must not be among them.

    Args:
        others: training images ``[V, H, W, C]`` and cameras of each other object; all of one image size.
        test_cameras: ``T`` cameras.

    Returns:
        ``[T, H, W, C]``.

    Example:
        >>> import torch
        >>> others = [(torch.rand(4, 8, 8, 3), Cameras.orbit(4)) for _ in range(3)]
        >>> floor_class_mean(others, Cameras.orbit(2)).shape
        torch.Size([2, 8, 8, 3])
    """
    if not others:
        raise DataError("floor_class_mean: no other object; the mean of a class needs at least two objects")
    total = sum(floor_nearest_view(images, cameras, test_cameras).double() for images, cameras in others)
    return (total / len(others)).to(others[0][0].dtype)
