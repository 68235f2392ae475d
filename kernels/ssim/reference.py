"""`ssim` in plain torch: the definition the other implementations are held to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d

LUMINANCE_STABILISER, CONTRAST_STABILISER = 0.01, 0.03
"""K1 and K2 of Wang et al. 2004."""


def ssim_reference(
    images: Tensor,
    targets: Tensor,
    data_range: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
    padding: str = "valid",
) -> Tensor:
    """See `fusedplanes.kernels.ssim`; any device, any float dtype, differentiable any number of times."""
    *batch, height, width, channels = images.shape
    kernel = gaussian_window(window, sigma).to(images.device, images.dtype)
    x, y = (tensor.reshape(-1, height, width, channels).movedim(-1, 1) for tensor in (images, targets.to(images.dtype)))
    moments = torch.stack([x, y, x * x, y * y, x * y])
    mean_x, mean_y, square_x, square_y, product = _blur(moments, kernel, window // 2 if padding == "same" else 0)
    c1, c2 = (LUMINANCE_STABILISER * data_range) ** 2, (CONTRAST_STABILISER * data_range) ** 2
    variances = square_x + square_y - mean_x**2 - mean_y**2
    covariance = product - mean_x * mean_y
    similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    similarity = similarity / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))
    return similarity.flatten(1).mean(-1).view(batch)


def gaussian_window(window: int, sigma: float) -> Tensor:
    """A sampled Gaussian ``[window]`` in float64 that sums to 1."""
    offset = torch.arange(window, dtype=torch.float64) - (window - 1) / 2
    kernel = torch.exp(-(offset**2) / (2 * sigma**2))
    return kernel / kernel.sum()


def _blur(maps: Tensor, kernel: Tensor, padding: int) -> Tensor:
    """Filter the last two axes of ``maps [..., H, W]`` with a separable kernel, zeros outside."""
    planes = maps.reshape(-1, 1, *maps.shape[-2:])
    planes = conv2d(planes, kernel.view(1, 1, -1, 1), padding=(padding, 0))
    planes = conv2d(planes, kernel.view(1, 1, 1, -1), padding=(0, padding))
    return planes.view(*maps.shape[:-2], *planes.shape[-2:])
