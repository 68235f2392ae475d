"""The defects of the released research code, one test each: none of them may come back."""

from dataclasses import replace

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.fields import compose_planes, query_field
from fusedplanes.planes.config import preset
from fusedplanes.planes.model import FusedPlanes, SharedParts, initial_object
from fusedplanes.planes.run import train
from fusedplanes.planes.stage_one import StageOne
from fusedplanes.rays import Rays
from fusedplanes.rendering.volume import render_rays
from fusedplanes.training.losses import total_variation


def stage_at(config, views, phase: str) -> StageOne:
    stage = StageOne(config, views)
    stage.prepare(phase)
    return stage


def test_defect_1_the_third_plane_is_yz_and_not_a_second_xz():
    planes = torch.randn(3, 8, 8, 4, dtype=torch.float64)
    decoder = {
        "hidden_weight": torch.eye(4, dtype=torch.float64),
        "hidden_bias": torch.zeros(4, dtype=torch.float64),
        "output_weight": torch.randn(3, 4, dtype=torch.float64),
        "output_bias": torch.zeros(3, dtype=torch.float64),
    }
    points = torch.tensor([[0.1, -0.4, 0.3], [0.1, 0.2, 0.3]], dtype=torch.float64)
    only = {name: torch.zeros_like(planes) for name in ("xy", "xz", "yz")}
    for index, name in enumerate(only):
        only[name][index] = planes[index]
    changed = {}
    for name, value in only.items():
        density, _ = query_field(value, decoder, points)
        changed[name] = bool((density[0] - density[1]).abs() > 1e-9)
    assert changed == {"xy": True, "xz": False, "yz": True}


def test_defect_2_cached_latents_are_used_and_the_encoder_never_runs_in_the_warm_up(
    ellipsoid_training_views, small_config, monkeypatch
):
    stage = stage_at(small_config(), ellipsoid_training_views, "warm-up")
    monkeypatch.setattr(stage.shared.autoencoder, "encode", None)
    loss = [float(stage._warm_up_step(step)["loss"]) for step in range(3)]
    assert all(value > 0 for value in loss)


def test_defect_3_base_planes_and_decoder_are_reused_and_not_drawn_anew(tmp_path, ellipsoids, small_config):
    train(ellipsoids, tmp_path / "run", config=small_config(), watch_seconds=0, quiet=True)
    first, second = FusedPlanes.load(tmp_path / "run"), FusedPlanes.load(tmp_path / "run")
    fresh = SharedParts(first.config.model)
    for name, value in first.shared.state_dict().items():
        torch.testing.assert_close(value, second.shared.state_dict()[name], rtol=0, atol=0)
    assert not torch.equal(first.shared.base_planes, fresh.base_planes)


def test_defect_4_no_object_is_left_stale_when_the_shared_parts_move_on(
    tmp_path, ellipsoids, ellipsoid_training_views, small_config
):
    # Objects share what was trained after them: what the run folder renders is what training ended with, for each.
    train(ellipsoids, tmp_path / "run", config=small_config(), watch_seconds=0, quiet=True)
    model = FusedPlanes.load(tmp_path / "run")
    stage = StageOne(model.config, ellipsoid_training_views)
    for phase in stage.phases:
        stage.prepare(phase.name)
        for step in range(phase.steps):
            phase.step(step)
    cameras = Cameras.orbit(2, width=16, height=16)
    for name in ellipsoids.ids:
        ours = model.render(name, cameras).color
        torch.testing.assert_close(ours, stage.model.render(stage.object_planes(name), cameras).color, rtol=0, atol=0)


def test_defect_5_only_the_objects_in_the_batch_move(ellipsoid_training_views, small_config):
    stage = stage_at(small_config(), ellipsoid_training_views, "warm-up")
    for step in range(3):
        before = {name: value.clone() for name, value in stage.table.tensors.items()}
        rows = set(stage._batches["warm-up"](step).tolist())
        stage._warm_up_step(step)
        for row in range(len(stage.table)):
            same = all(torch.equal(before[name][row], stage.table.tensors[name][row]) for name in stage.trained)
            assert same == (row not in rows)


@pytest.mark.parametrize("name", ["tiny", "small", "paper"])
def test_defect_6_micro_and_macro_planes_start_on_one_scale(name):
    model = preset(name).model
    generator = torch.Generator().manual_seed(0)
    objects = [initial_object(model, generator) for _ in range(4)]
    shared = SharedParts(model)
    weights = torch.stack([item["weights"] for item in objects])
    micro_planes = torch.stack([item["micro_planes"] for item in objects])
    planes = compose_planes(micro_planes, weights, shared.base_planes.detach())
    micro, macro = planes[..., : model.micro_channels], planes[..., model.micro_channels :]
    assert 1 / 4 < float(macro.std() / micro.std()) < 4


def test_defect_6_total_variation_does_not_grow_with_batch_channels_or_size():
    torch.manual_seed(0)
    small, large = torch.randn(1, 3, 16, 16, 4), torch.randn(8, 3, 64, 64, 32)
    assert float(total_variation(large)) == pytest.approx(float(total_variation(small)), rel=0.1)


RATES = ("micro_rate", "weights_rate", "base_rate", "decoder_rate", "image_decoder_rate")


@pytest.mark.parametrize("frozen", [None, *RATES])
@pytest.mark.parametrize("micro", [0, 3])
def test_defect_7_every_part_can_be_frozen_and_left_out(ellipsoid_training_views, small_config, frozen, micro):
    config = small_config(micro_channels=micro)
    joint = replace(config.training.joint, **({frozen: 0.0} if frozen else {}))
    config = replace(config, training=replace(config.training, joint=joint, total_variation=1e-3, autoencoder_loss=0.1))
    stage = stage_at(config, ellipsoid_training_views, "joint")
    before = {name: value.clone() for name, value in stage.table.tensors.items()}
    shared = {name: value.clone() for name, value in stage.shared.state_dict().items()}
    for step in range(2):
        assert torch.isfinite(stage._joint_step(step)["loss"])
    moved = {name: not torch.equal(value, before[name]) for name, value in stage.table.tensors.items()}
    moved |= {name: not torch.equal(value, shared[name]) for name, value in stage.shared.state_dict().items()}
    assert moved["weights"] == (frozen != "weights_rate")
    assert moved["micro_planes"] == (frozen != "micro_rate" and micro > 0)
    assert moved["base_planes"] == (frozen != "base_rate")
    assert moved["decoder.hidden_weight"] == (frozen != "decoder_rate")
    trained = {name for name in moved if name.startswith("autoencoder.") and moved[name]}
    assert bool(trained) == (frozen != "image_decoder_rate")


@pytest.mark.parametrize("method", ["fused-planes", "ulw", "tri-planes"])
@pytest.mark.parametrize("shared_decoder", [True, False])
@pytest.mark.parametrize("latent", [True, False])
def test_defect_7_every_combination_of_parts_trains(
    ellipsoid_training_views, small_config, method, shared_decoder, latent
):
    config = small_config(method)
    autoencoder = small_config().model.autoencoder if latent else None
    model = replace(config.model, shared_decoder=shared_decoder, autoencoder=autoencoder)
    training = replace(config.training, autoencoder_steps=2 if latent else 0, joint=small_config().training.joint)
    if not latent:
        training = replace(training, joint=None)
    stage = StageOne(replace(config, model=model, training=training), ellipsoid_training_views)
    for phase in stage.phases:
        stage.prepare(phase.name)
        for step in range(2):
            assert torch.isfinite(torch.as_tensor(phase.step(step)["loss"]))


def test_defect_8_evaluation_is_deterministic(ellipsoid_training_views, small_config):
    stage = stage_at(small_config(), ellipsoid_training_views, "joint")
    cameras = Cameras.orbit(2, width=16, height=16)
    item = stage.object_planes("ellipsoid_0")
    torch.manual_seed(1)
    first = stage.model.render(item, cameras)
    torch.manual_seed(2)
    second = stage.model.render(item, cameras)
    for name in ("color", "alpha", "depth"):
        torch.testing.assert_close(getattr(first, name), getattr(second, name), rtol=0, atol=0)


def test_defect_10_the_latent_background_follows_the_encoder(ellipsoid_training_views, small_config):
    stage = stage_at(small_config(), ellipsoid_training_views, "warm-up")
    camera = Cameras.orbit(1, width=16, height=16)
    before = stage.model.background(camera).clone()
    with torch.no_grad():
        for parameter in stage.shared.autoencoder.encoder_parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    stage.prepare("joint")
    after = stage.model.background(camera)
    mean, _ = stage.shared.autoencoder.encode(torch.ones(1, 16, 16, 3))
    expected = (mean[0] - stage.shared.latent_mean) / stage.shared.latent_scale
    torch.testing.assert_close(after, expected.detach())
    assert not torch.allclose(before, after)


def test_defect_10_nothing_on_the_training_path_is_clamped(ellipsoid_training_views, small_config):
    stage = stage_at(small_config(), ellipsoid_training_views, "warm-up")
    latents = (100 * torch.randn(1, 4, 4, 4)).requires_grad_()
    decoded = stage.model.decode(latents)
    assert decoded.min() < 0 and decoded.max() > 1
    decoded.sum().backward()
    assert (latents.grad != 0).all()


def test_defect_11_latents_are_standardised_and_not_squashed(ellipsoid_training_views, small_config):
    stage = stage_at(small_config(), ellipsoid_training_views, "warm-up")
    latents = torch.cat([values.flatten(0, 1) for values in stage.targets.values])
    torch.testing.assert_close(latents.mean(0), torch.zeros(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(latents.std(0), torch.ones(4), atol=1e-2, rtol=0)


def test_defect_12_limits_follow_the_box_and_nothing_outside_it_is_drawn():
    torch.manual_seed(0)
    planes = torch.randn(1, 3, 8, 8, 4)
    decoder = {
        "hidden_weight": torch.randn(8, 4),
        "hidden_bias": torch.zeros(8),
        "output_weight": torch.randn(3, 8),
        "output_bias": torch.full((3,), 5.0),  # dense wherever the decoder is asked, with or without a feature
    }
    cameras = Cameras.orbit(1, radius=9.0, width=8, height=8)
    rays = Rays.from_cameras(cameras)
    missed = rays.far == 0
    assert missed.any() and not missed.all()
    marched = render_rays(planes, decoder, rays, coarse_samples=8, fine_samples=8)
    assert (marched.alpha[missed] == 0).all() and (marched.values[missed] == 0).all()
    assert (marched.alpha[~missed] > 0).all()
