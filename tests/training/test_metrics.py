import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.training.metrics import (
    floor_class_mean,
    floor_mean_image,
    floor_nearest_view,
    foreground_mask,
    psnr,
    ssim,
)


def test_psnr_is_per_image_and_not_of_the_batch():
    targets = torch.zeros(3, 4, 5, 3)
    images = torch.stack([torch.full((4, 5, 3), value) for value in (1.0, 0.1, 0.0)])
    assert psnr(images, targets).tolist() == [pytest.approx(0), pytest.approx(20, abs=1e-6), math.inf]


def test_psnr_is_accumulated_in_float64():
    images = torch.full((1, 256, 256, 3), 0.5 + 1e-4)
    images[0, 0, 0] = 1.0
    error = (images.double() - 0.5).square().mean()
    assert psnr(images, torch.full_like(images, 0.5)).item() == pytest.approx(-10 * math.log10(error), abs=1e-9)


def test_a_mask_counts_its_pixels_alone_and_weights_count_as_much_as_they_say():
    images, targets = torch.rand(2, 6, 6, 3), torch.rand(2, 6, 6, 3)
    mask = torch.zeros(2, 6, 6, dtype=torch.bool)
    mask[:, 1:3, 2:5] = True
    inside = psnr(images[:, 1:3, 2:5], targets[:, 1:3, 2:5])
    torch.testing.assert_close(psnr(images, targets, mask), inside)
    torch.testing.assert_close(psnr(images, targets, 0.25 * mask), inside)
    images[:, 5] = 9.0
    torch.testing.assert_close(psnr(images, targets, mask), inside)
    assert psnr(images, targets, torch.zeros(2, 6, 6)).isnan().all()


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1), st.integers(0, 2**31))
def test_psnr_falls_by_six_decibels_when_the_error_doubles(scale, seed):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.rand(2, 5, 4, 3, generator=generator, dtype=torch.float64)
    error = scale * (torch.rand(2, 5, 4, 3, generator=generator, dtype=torch.float64) + 0.01)
    fall = psnr(targets + error, targets) - psnr(targets + 2 * error, targets)
    torch.testing.assert_close(fall, torch.full_like(fall, 20 * math.log10(2)))


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 4, 4, 3), (1, 4, 4, 4), None),
        ((4, 4, 3), (4, 4, 3), None),
        ((2, 4, 4, 3), (2, 4, 4, 3), (4, 4)),
        ((2, 4, 4, 3), (1, 4, 4, 3), None),
    ],
)
def test_psnr_refuses_shapes_that_would_broadcast(shapes):
    with pytest.raises(DataError, match="psnr"):
        psnr(*(None if shape is None else torch.zeros(shape) for shape in shapes))


def test_the_foreground_grows_by_two_pixels_and_stops_at_the_border():
    alpha = torch.zeros(2, 8, 8)
    alpha[0, 0, 4] = 0.51
    alpha[1, 3, 3] = 0.5
    mask = foreground_mask(alpha)
    expected = torch.zeros(2, 8, 8, dtype=torch.bool)
    expected[0, 0:3, 2:7] = True
    assert torch.equal(mask, expected)
    assert torch.equal(foreground_mask(alpha, dilate=0), alpha > 0.5)


def test_ssim_is_one_for_equal_images_per_image_and_falls_with_noise():
    targets = torch.rand(2, 24, 24, 3)
    images = targets.clone()
    images[1] += 0.2 * torch.randn(24, 24, 3)
    values = ssim(images, targets)
    assert values.shape == (2,)
    assert values[0].item() == pytest.approx(1, abs=1e-6)
    assert values[1].item() < 0.97


def views(colors, **options):
    cameras = Cameras.orbit(len(colors), width=4, height=4, **options)
    return torch.stack([torch.full((4, 4, 3), float(color)) for color in colors]), cameras


def test_the_nearest_view_is_the_one_from_the_nearest_direction():
    images, cameras = views([0.0, 0.1, 0.2, 0.3])
    # 80 degrees is nearest to the view at 90; distance from the object does not count.
    _, wanted = views([0, 0], start=80.0, radius=9.0)
    found = floor_nearest_view(images, cameras, wanted)
    assert found.shape == (2, 4, 4, 3)
    assert found[:, 0, 0, 0].tolist() == [pytest.approx(0.1), pytest.approx(0.3)]


def test_the_nearest_view_looks_at_elevation_too():
    low, low_cameras = views([0.1], elevation=0.0)
    high, high_cameras = views([0.9], elevation=80.0)
    cameras = Cameras.concatenate([low_cameras, high_cameras])
    _, wanted = views([0], start=90.0, elevation=75.0)
    assert floor_nearest_view(torch.cat([low, high]), cameras, wanted).mean().item() == pytest.approx(0.9)


def test_the_mean_image_is_one_guess_for_all_views():
    images, _ = views([0.0, 0.5, 1.0])
    mean = floor_mean_image(images)
    assert mean.shape == (1, 4, 4, 3)
    assert mean.expand(5, -1, -1, -1).mean().item() == pytest.approx(0.5)


def test_the_class_mean_averages_each_others_nearest_view():
    a, b = views([0.0, 0.2, 0.4, 0.6]), views([1.0, 0.8], start=90.0)
    _, wanted = views([0], start=85.0)
    assert floor_class_mean([a, b], wanted)[0, 0, 0, 0].item() == pytest.approx((0.2 + 1.0) / 2)


def test_floors_need_something_to_stand_on():
    images, cameras = views([0.0, 0.2])
    with pytest.raises(DataError, match="class needs at least two"):
        floor_class_mean([], cameras)
    with pytest.raises(DataError, match="0 training images with 0 cameras"):
        floor_nearest_view(images[:0], cameras[:0], cameras)
    with pytest.raises(DataError, match="1 training images with 2 cameras"):
        floor_nearest_view(images[:1], cameras, cameras)
