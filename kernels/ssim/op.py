"""The public `ssim`."""

from __future__ import annotations

from torch import Tensor

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.kernels.dispatch import resolve_backend
from fusedplanes.kernels.ssim.reference import ssim_reference

PADDINGS = ("valid", "same")


def ssim(
    images: Tensor,
    targets: Tensor,
    *,
    data_range: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
    padding: str = "valid",
    backend: str | None = None,
) -> Tensor:
    """Mean structural similarity of pairs of images, Gaussian-weighted (Wang et al. 2004), over pixels and channels.

    Local means, variances and the covariance are taken under a Gaussian window that sums to 1 (variances divide by 1,
    not by n - 1)::

        ssim = (2 mx my + c1) (2 cov + c2) / ((mx^2 + my^2 + c1) (vx + vy + c2)),  c1 = (0.01 L)^2,  c2 = (0.03 L)^2

    Differentiable in both arguments.

    Args:
        images: ``[*b, H, W, C]``.
        targets: the same shape.
        data_range: L, the span of the values: 1 for images in [0, 1].
        window: taps of the window along each axis, odd.
        sigma: its standard deviation in pixels.
        padding: "valid" averages where the window lies inside the image; "same" over all pixels, with zeros outside.
        backend: "reference" or "cpu", which are one: torch's convolution is compiled code already.

    Returns:
        ``[*b]`` in [-1, 1], 1 for equal images.

    Raises:
        DataError: shapes differ, or the image is smaller than the window.
        ConfigError: the window is even or not positive, or an option is unknown.
        BackendUnavailable: the backend cannot take these tensors.

    Example:
        >>> image = torch.rand(16, 16, 3)
        >>> ssim(image, image).item()
        1.0
    """
    if images.ndim < 3 or images.shape != targets.shape:
        raise DataError(
            f"ssim: images and targets must both be [*b, H, W, C], not {list(images.shape)} and {list(targets.shape)}"
        )
    if window < 1 or window % 2 == 0:
        raise ConfigError(f"ssim: window is {window}; it must be odd and positive")
    if sigma <= 0 or data_range <= 0:
        raise ConfigError(f"ssim: sigma is {sigma} and data_range {data_range}; both must be positive")
    if padding not in PADDINGS:
        raise ConfigError(f"ssim: padding is {padding!r}; choose one of {', '.join(PADDINGS)}")
    smallest = window if padding == "valid" else 1
    if min(images.shape[-3:-1]) < smallest or images.shape[-1] < 1:
        raise DataError(f"ssim: images {list(images.shape)} are smaller than {smallest} pixels; use padding='same'")
    resolve_backend(images, backend)
    return ssim_reference(images, targets, data_range, window, sigma, padding)
