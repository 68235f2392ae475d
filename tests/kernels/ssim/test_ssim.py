"""`ssim` against hand-computed values, an independent computation with scipy, and finite differences."""

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate1d

from fusedplanes.errors import BackendUnavailable, ConfigError, DataError
from fusedplanes.kernels import ssim


def through_scipy(x, y, *, data_range=1.0, window=11, sigma=1.5, padding="valid"):
    """Mean similarity of two ``[H, W, C]`` float64 arrays."""
    taps = np.exp(-((np.arange(window) - window // 2) ** 2) / (2 * sigma**2))
    taps /= taps.sum()

    def blur(image):
        for axis in (0, 1):
            image = correlate1d(image, taps, axis=axis, mode="constant")
        edge = window // 2
        return image if padding == "same" else image[edge : image.shape[0] - edge, edge : image.shape[1] - edge]

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    return (((2 * mx * my + c1) * (2 * cov + c2)) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean()


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("height", "width", "channels"), [(17, 33, 1), (12, 11, 3), (40, 13, 7)])
def test_values_equal_those_of_an_independent_computation(height, width, channels, padding):
    x = torch.rand(2, height, width, channels, dtype=torch.float64)
    y = (x + 0.2 * torch.randn_like(x)).clamp(0, 1)
    expected = [through_scipy(a.numpy(), b.numpy(), padding=padding) for a, b in zip(x, y)]
    assert ssim(x, y, padding=padding).tolist() == pytest.approx(expected, abs=1e-12)
    assert ssim(x.float(), y.float(), padding=padding).tolist() == pytest.approx(expected, abs=1e-5)


def test_window_sigma_and_range_are_those_asked_for():
    x, y = torch.rand(2, 20, 20, 3, dtype=torch.float64) * 255
    options = {"data_range": 255.0, "window": 7, "sigma": 1.1}
    assert ssim(x, y, **options).item() == pytest.approx(through_scipy(x.numpy(), y.numpy(), **options), abs=1e-12)


def test_two_flat_images_compare_by_brightness_alone():
    x, y = (torch.full((16, 16, 3), value, dtype=torch.float64) for value in (0.2, 0.6))
    assert ssim(x, y).item() == pytest.approx((2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4), abs=1e-9)


def test_equal_images_are_one_opposite_images_negative_and_order_does_not_matter():
    x = torch.rand(4, 20, 20, 3)
    assert torch.allclose(ssim(x, x), torch.ones(4))
    assert (ssim(x, 1 - x) < 0).all()
    y = torch.rand(4, 20, 20, 3)
    torch.testing.assert_close(ssim(x, y), ssim(y, x))


def test_leading_dimensions_are_kept():
    x, y = torch.rand(2, 3, 12, 14, 3), torch.rand(2, 3, 12, 14, 3)
    assert ssim(x, y).shape == (2, 3)
    assert ssim(x[0, 0], y[0, 0]).shape == ()
    torch.testing.assert_close(ssim(x, y)[1, 2], ssim(x[1, 2], y[1, 2]))
    assert ssim(x[:0], y[:0]).shape == (0, 3)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_gradients_match_finite_differences(padding):
    x, y = (torch.rand(2, 5, 6, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda x, y: ssim(x, y, window=5, padding=padding), (x, y))


def test_it_compiles_as_one_graph():
    x, y = torch.rand(2, 12, 12, 3), torch.rand(2, 12, 12, 3)
    compiled = torch.compile(ssim, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), ssim(x, y))


@pytest.mark.parametrize(
    ("images", "targets", "options", "error", "words"),
    [
        ((16, 16, 3), (16, 16, 1), {}, DataError, "[16, 16, 1]"),
        ((16, 16), (16, 16), {}, DataError, "[*b, H, W, C]"),
        ((16, 10, 3), (16, 10, 3), {}, DataError, "padding='same'"),
        ((16, 16, 3), (16, 16, 3), {"window": 10}, ConfigError, "odd"),
        ((16, 16, 3), (16, 16, 3), {"sigma": 0.0}, ConfigError, "positive"),
        ((16, 16, 3), (16, 16, 3), {"padding": "full"}, ConfigError, "valid, same"),
        ((16, 16, 3), (16, 16, 3), {"backend": "gpu"}, BackendUnavailable, "Triton"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(images, targets, options, error, words):
    with pytest.raises(error) as caught:
        ssim(torch.zeros(images), torch.zeros(targets), **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
