import math

import pytest
import torch
from torch.nn import functional

from fusedplanes.autoencoders.image import ImageAutoencoder, ImageAutoencoderConfig
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.training.autoencoder import AutoencoderTrainer, AutoencoderTraining, sample_images, warp

WHITE = torch.ones(3)
TINY = ImageAutoencoderConfig(latent_channels=3, width=8, encoder_blocks=1, decoder_blocks=1, detail_width=4)


def discs(objects: int, views: int, side: int, seed: int) -> list[torch.Tensor]:
    """Views of coloured discs with a stripe, ``[views, side, side, 4]`` uint8 per object, transparent around them."""
    generator = torch.Generator().manual_seed(seed)
    ys, xs = torch.meshgrid(torch.arange(side) + 0.5, torch.arange(side) + 0.5, indexing="ij")
    result = []
    for _ in range(objects):
        colors = torch.rand(2, 3, generator=generator)
        images = []
        for _ in range(views):
            x, y, angle, radius = torch.rand(4, generator=generator)
            x, y = side * (0.35 + 0.3 * x), side * (0.35 + 0.3 * y)
            alpha = (side * (0.15 + 0.15 * radius) - ((xs - x) ** 2 + (ys - y) ** 2).sqrt() + 0.5).clamp(0, 1)
            across = (xs - x) * torch.cos(6.3 * angle) + (ys - y) * torch.sin(6.3 * angle)
            stripe = (across + 0.5).clamp(0, 1)[..., None]
            images.append(torch.cat([colors[0] * stripe + colors[1] * (1 - stripe), alpha[..., None]], -1))
        result.append((torch.stack(images) * 255 + 0.5).to(torch.uint8))
    return result


HALF_A_CELL = torch.tensor([[1, 0, 4 / 32], [0, 1, 4 / 32]]).expand(32, 2, 3)


def psnr_after_training(steps: int, **changes) -> tuple[float, float]:
    """Held-out PSNR of decoded latents, and of decoded latents that were moved by half a cell."""
    torch.manual_seed(0)
    config = ImageAutoencoderConfig(latent_channels=6, width=32, encoder_blocks=1, decoder_blocks=1, detail_width=8)
    autoencoder = ImageAutoencoder(config)
    images, generator = discs(8, 16, 32, seed=0), torch.Generator().manual_seed(0)
    autoencoder.start_linear(sample_images(images, 64, WHITE, generator))
    if steps:
        trainer = AutoencoderTrainer(autoencoder, steps=steps, training=AutoencoderTraining(**changes))
        for _ in range(steps):
            trainer.step(sample_images(images, 16, WHITE, generator), generator=generator)
    held_out = sample_images(discs(4, 8, 32, seed=1), 32, WHITE, generator)
    with torch.no_grad():
        latents, _ = autoencoder.encode(held_out)
        errors = [
            functional.mse_loss(autoencoder.decode(latents), held_out),
            functional.mse_loss(autoencoder.decode(warp(latents, HALF_A_CELL)), warp(held_out, HALF_A_CELL)),
        ]
    return tuple(-10 * math.log10(error) for error in errors)


def test_training_improves_on_the_linear_start_and_on_moved_latents():
    start, moved_start = psnr_after_training(0)
    plain, moved_plain = psnr_after_training(80, warped_fraction=0.0)
    warped, moved_warped = psnr_after_training(80)
    assert plain > start + 1.5 and warped > start + 1  # decibels
    assert moved_plain > moved_start and moved_warped > moved_start


def tiny_trainer(steps: int = 20, **changes) -> AutoencoderTrainer:
    torch.manual_seed(0)
    return AutoencoderTrainer(ImageAutoencoder(TINY), steps=steps, training=AutoencoderTraining(**changes))


def test_the_learning_rate_rises_then_falls_with_the_fraction_done():
    trainer = tiny_trainer(steps=1000, warm_up_steps=20, final_rate=0.05)
    factors = [trainer.rate_factor(step) for step in range(1001)]
    peak = max(range(1001), key=factors.__getitem__)
    assert 15 <= peak <= 25 and factors[peak] == pytest.approx(1, rel=0.01)
    assert factors[0] < 0.1
    assert factors[500] == pytest.approx(0.525, rel=1e-6)
    assert factors[1000] == pytest.approx(0.05) == trainer.rate_factor(5000)
    short = tiny_trainer(steps=10)
    assert max(short.rate_factor(step) for step in range(10)) > 0.9
    trainer.step(torch.rand(2, 16, 16, 3))
    assert trainer.optimizers["rest"].param_groups[0]["lr"] == pytest.approx(2e-3 / 21)
    assert trainer.optimizers["hidden"].param_groups[0]["lr"] == pytest.approx(0.02 / 21)


def test_steps_with_the_same_seeds_are_the_same():
    images = torch.rand(4, 16, 16, 3, generator=torch.Generator().manual_seed(0))
    runs = []
    for _ in range(2):
        trainer, generator = tiny_trainer(), torch.Generator().manual_seed(5)
        runs.append([trainer.step(images, generator=generator)["loss"].item() for _ in range(4)])
    assert runs[0] == runs[1]


def test_a_resumed_run_takes_the_same_steps():
    images = torch.rand(4, 16, 16, 3, generator=torch.Generator().manual_seed(0))

    def advance(trainer, first, last):
        for step in range(first, last):
            trainer.step(images, generator=torch.Generator().manual_seed(step))

    whole = tiny_trainer()
    advance(whole, 0, 6)
    first = tiny_trainer()
    advance(first, 0, 3)
    second = tiny_trainer()
    second.autoencoder.load_state_dict(first.autoencoder.state_dict())
    second.load_state_dict(first.state_dict())
    advance(second, 3, 6)
    assert second.steps_taken == 6
    for name, value in whole.autoencoder.state_dict().items():
        assert torch.equal(value, second.autoencoder.state_dict()[name]), name


def test_a_step_reports_what_it_minimised():
    trainer = tiny_trainer(divergence_loss=0.5, warped_fraction=0.0)
    images = torch.rand(4, 16, 16, 3)
    with torch.no_grad():
        mean, log_variance = trainer.autoencoder.encode(images)
        noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(3))
        error = functional.mse_loss(trainer.autoencoder.decode(mean + noise * (log_variance / 2).exp()), images)
        normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
        divergence = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).mean()
    result = trainer.step(images, generator=torch.Generator().manual_seed(3))
    assert all(value.dim() == 0 and not value.requires_grad for value in result.values())
    assert result["psnr"].item() == pytest.approx(-10 * math.log10(error.item()), rel=1e-5)
    assert result["divergence"].item() == pytest.approx(divergence.item(), rel=1e-5)
    assert result["loss"].item() == pytest.approx((error + 0.5 * divergence).item(), rel=1e-5)


def test_every_parameter_is_trained_by_one_optimiser():
    trainer = tiny_trainer()
    groups = [group["params"] for optimizer in trainer.optimizers.values() for group in optimizer.param_groups]
    trained = [id(parameter) for group in groups for parameter in group]
    assert sorted(trained) == sorted(id(parameter) for parameter in trainer.autoencoder.parameters())
    hidden = trainer.optimizers["hidden"].param_groups[0]["params"]
    assert hidden and all(parameter.dim() == 4 for parameter in hidden)
    without = ImageAutoencoderConfig(latent_channels=3, width=8, encoder_blocks=0, decoder_blocks=0, detail_width=0)
    AutoencoderTrainer(ImageAutoencoder(without), steps=3).step(torch.rand(2, 16, 16, 3))


@pytest.mark.parametrize("cell", [(0, 0), (1, 0), (0, -2)])
def test_warps_move_images_and_latents_alike(cell):
    """Looking up whole cells to the right and below is a shift, of patches and of what they stand for."""
    right, below = cell
    latents = torch.rand(2, 6, 8, 3)
    images = latents.repeat_interleave(4, 1).repeat_interleave(4, 2)
    warps = torch.tensor([[1, 0, 2 * right / 8], [0, 1, 2 * below / 6]]).expand(2, 2, 3)
    moved = warp(latents, warps)
    assert torch.allclose(moved[:, 2:-2, 1:-1], latents.roll((-below, -right), (1, 2))[:, 2:-2, 1:-1], atol=1e-5)
    expected = moved.repeat_interleave(4, 1).repeat_interleave(4, 2)
    assert torch.allclose(warp(images, warps), expected, atol=1e-5)


def test_warps_stay_within_their_limits():
    trainer = tiny_trainer(warp_shift=1.5, warp_strain=0.1)
    warps = trainer._random_warps(500, torch.zeros(1, 6, 8, 3), torch.Generator().manual_seed(0))
    strain = (warps[..., :2] - torch.eye(2)).abs()
    cells = warps[..., 2].abs() * torch.tensor([8, 6]) / 2
    assert 0.09 < strain.max() <= 0.1 + 1e-6
    assert (cells.amax(0) > 1.4).all() and (cells.amax(0) <= 1.5 + 1e-6).all()


def test_bfloat16_leaves_parameters_and_latents_in_single_precision():
    trainer = tiny_trainer(bfloat16=True)
    before = [parameter.detach().clone() for parameter in trainer.autoencoder.parameters()]
    result = trainer.step(torch.rand(4, 16, 16, 3))
    assert result["loss"].dtype == torch.float32 and result["loss"].isfinite()
    assert all(parameter.dtype == torch.float32 for parameter in trainer.autoencoder.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.autoencoder.parameters()))


def test_sampled_images_lie_over_the_background_and_come_from_everywhere():
    images = torch.zeros(5, 3, 2, 2, 4, dtype=torch.uint8)
    images[..., 0] = 50 * torch.arange(5)[:, None, None, None]
    images[..., 1] = 80 * torch.arange(3)[:, None, None]
    images[..., :, 1, 3] = 255
    background = torch.tensor([0.25, 0.5, 0.75])
    batch = sample_images(images, 200, background, torch.Generator().manual_seed(0))
    assert batch.shape == (200, 2, 2, 3)
    assert torch.equal(batch[:, :, 0], background.expand(200, 2, 3))
    drawn = {(round(255 * red.item()) // 50, round(255 * green.item()) // 80) for red, green, _ in batch[:, 0, 1]}
    assert drawn == {(index, view) for index in range(5) for view in range(3)}
    ragged = [images[0], images[1, :1]]
    again = [sample_images(ragged, 9, background, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*again)


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="learning_rate=0"):
        AutoencoderTraining(learning_rate=0)
    with pytest.raises(ConfigError, match="divergence_loss=-1"):
        AutoencoderTraining(divergence_loss=-1)
    with pytest.raises(ConfigError, match="warped_fraction=1"):
        AutoencoderTraining(warped_fraction=1.5)
    with pytest.raises(ConfigError, match="warp_strain=0"):
        AutoencoderTraining(warp_strain=0.7)
    with pytest.raises(ConfigError, match="steps=0"):
        tiny_trainer(steps=0)
    generator = torch.Generator()
    with pytest.raises(DataError, match="no images"):
        sample_images([], 2, WHITE, generator)
    with pytest.raises(DataError, match="number 0 has no views"):
        sample_images([torch.zeros(0, 4, 4, 4, dtype=torch.uint8)], 2, WHITE, generator)
