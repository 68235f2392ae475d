"""What is sampled for training: rays that pass where their targets were seen, and views moved with their cameras."""

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.planes.stage_one import ObjectBatches, annealed, step_generator
from fusedplanes.planes.views import RayTargets, TrainingViews, shift_views
from fusedplanes.rays import Rays


def test_sampled_rays_pass_through_the_pixels_their_targets_come_from(ellipsoid_training_views):
    views = ellipsoid_training_views
    white = torch.ones(3)
    targets = RayTargets.colors(views, white)
    rays, values, background = targets.sample([1, 3], 50, 0.7, torch.Generator().manual_seed(0))
    assert values.shape == background.shape == (2, 50, 3)
    for place, index in enumerate([1, 3]):
        every = Rays.from_cameras(views.cameras[index])
        colors = views.colors(index, torch.arange(len(views.cameras[index])), white).flatten(1, 2)
        for ray in range(50):
            origin, direction = rays.origins[place, ray], rays.directions[place, ray]
            distance = (every.origins - origin).norm(dim=-1) + (every.directions - direction).norm(dim=-1)
            view, pixel = divmod(int(distance.argmin()), distance.shape[1])
            assert distance[view, pixel] < 1e-5
            torch.testing.assert_close(values[place, ray], colors[view, pixel])


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_the_wanted_share_of_rays_starts_on_the_object(ellipsoid_training_views, fraction):
    targets = RayTargets.colors(ellipsoid_training_views, torch.zeros(3))
    covered = targets.covered[0].float().mean()
    generator = torch.Generator().manual_seed(0)
    _, values, _ = targets.sample([0], 2000, fraction, generator)
    on_object = (values[0] > 0).any(-1).float().mean().item()
    # With no wish at all, rays are whatever was drawn first; a wish is met as far as three times as many draws allow.
    expected = float(covered) if fraction == 0 else min(fraction, 3 * float(covered))
    assert on_object == pytest.approx(expected, abs=0.06)


def test_shifting_moves_picture_and_camera_together():
    torch.manual_seed(0)
    images = torch.zeros(3, 12, 16, 4, dtype=torch.uint8)
    images[:, 5, 7] = 255
    cameras = Cameras.orbit(3, width=16, height=12)
    shifted, moved = shift_views(images, cameras, 2, torch.Generator().manual_seed(3))
    offsets = moved.intrinsics[:, :2, 2] - cameras.intrinsics[:, :2, 2]
    assert (offsets.abs() <= 2).all() and (offsets != 0).any()
    for view in range(3):
        row, column = (shifted[view, ..., 3] == 255).nonzero()[0].tolist()
        assert [column - 7, row - 5] == offsets[view].tolist()
    assert shifted[..., 3].sum() == images[..., 3].sum()  # transparent where something new enters


def test_every_object_is_met_once_per_epoch_and_batches_depend_on_the_step_alone():
    batches = ObjectBatches(10, 4, seed=0)
    met = torch.cat([batches(step) for step in range(5)])
    assert sorted(met.tolist()) == sorted([*range(10), *range(10)]) or len(met) <= 20
    again = ObjectBatches(10, 4, seed=0)
    assert torch.equal(again(3), batches(3))
    assert all(len(set(batches(step).tolist())) == len(batches(step)) for step in range(50))


def test_rates_rise_then_fall_to_their_final_fraction():
    factors = [annealed(step, 1000, 0.1) for step in range(1000)]
    assert factors[0] < 0.1 and max(factors) > 0.98 and factors[-1] == pytest.approx(0.1, abs=0.01)


def test_random_numbers_differ_between_phases_and_steps_and_repeat():
    draws = {
        (seed, phase, step): torch.rand(1, generator=step_generator(seed, phase, step)).item()
        for seed in (0, 1)
        for phase in ("warm-up", "joint")
        for step in range(3)
    }
    assert len(set(draws.values())) == len(draws)
    assert torch.rand(1, generator=step_generator(1, "joint", 2)).item() == draws[(1, "joint", 2)]


def test_reading_a_split_keeps_bytes(ellipsoids):
    views = TrainingViews.read(ellipsoids, split="test")
    assert views.ids == ellipsoids.ids and views.size == (16, 16)
    assert views.images[0].dtype == torch.uint8 and views.images[0].shape == (3, 16, 16, 4)
