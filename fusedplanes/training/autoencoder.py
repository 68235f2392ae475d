"""Training an image autoencoder on the views of a class, one step at a time, inside whichever loop calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fusedplanes.autoencoders.image import ImageAutoencoder, ResidualBlock
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import composite_over
from fusedplanes.training.muon import Muon
from fusedplanes.training.optimizer_state import load_optimizer_state


@dataclass(frozen=True)
class AutoencoderTraining:
    """How an image autoencoder is trained."""

    learning_rate: float = 2e-3
    """Adam's learning rate, for all but the hidden layers."""
    hidden_rate: float = 0.02
    """Muon's learning rate, for the weights of the hidden layers."""
    warm_up_steps: int = 20
    """Steps over which both rates rise to their full values (at most a tenth of all)."""
    final_rate: float = 0.02
    """Fraction of the rates left at the last step; a cosine leads there."""
    divergence_loss: float = 1e-4
    """Weight of the divergence from a standard normal (KL, mean over latent values, nats)."""
    warped_fraction: float = 0.5
    """Fraction of a batch whose latents are decoded after a random warp, to the image warped in the same way."""
    warp_shift: float = 1.0
    """Largest shift of a warp along each axis, in latent cells."""
    warp_strain: float = 0.15
    """Largest change of each entry of a warp's 2x2 matrix from the identity."""
    bfloat16: bool = False
    """Run the convolutions in bfloat16 (parameters and losses stay in float32)."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "hidden_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"autoencoder training: {name}={getattr(self, name)}; it must be above 0")
        for name in ("warm_up_steps", "final_rate", "divergence_loss", "warp_shift", "warp_strain"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"autoencoder training: {name}={getattr(self, name)}; it cannot be negative")
        if not 0 <= self.warped_fraction <= 1:
            raise ConfigError(f"autoencoder training: warped_fraction={self.warped_fraction}; it must be in [0, 1]")
        if not self.warp_strain < 0.5:
            raise ConfigError(f"autoencoder training: warp_strain={self.warp_strain}; it must be below 0.5")


class AutoencoderTrainer:
    """An autoencoder with its optimisers and its place in a run of known length.

    The loss is the mean squared error of decoded samples plus a small divergence::

        loss = mean((D(W z) - W x)^2) + divergence_loss * KL(N(mean, variance) || N(0, 1)),   z ~ N(mean, variance)

    where W, for part of the batch, is a random affine warp (Kouzelis et al. 2025, "EQ-VAE"). A field stores one code
    for a point of a surface and shows it moved, turned and foreshortened from every side; only latents that decode well
    after being warped can be rendered from a field. The noise z carries serves the same end.

    Args:
        autoencoder: trained in place, on the device it is on.
        steps: steps of the whole run; the learning rates are functions of the fraction done.
        training: settings.

    Example:
        >>> from fusedplanes.autoencoders.image import ImageAutoencoderConfig
        >>> trainer = AutoencoderTrainer(ImageAutoencoder(ImageAutoencoderConfig(width=16)), steps=10)
        >>> sorted(trainer.step(torch.rand(2, 16, 16, 3)))
        ['divergence', 'loss', 'psnr']
    """

    def __init__(
        self, autoencoder: ImageAutoencoder, *, steps: int, training: AutoencoderTraining | None = None
    ) -> None:
        if steps < 1:
            raise ConfigError(f"autoencoder training: steps={steps}; it must be at least 1")
        self.autoencoder, self.steps = autoencoder, steps
        self.training = AutoencoderTraining() if training is None else training
        self.steps_taken = 0
        hidden, rest = hidden_weights(autoencoder)
        self.optimizers = {"rest": torch.optim.Adam(rest, betas=(0.9, 0.99), fused=True)}
        if hidden:
            self.optimizers["hidden"] = Muon(hidden)

    def rate_factor(self, step: int) -> float:
        """What a step's learning rates are multiplied by: a linear rise, then a cosine."""
        training = self.training
        rise = min(training.warm_up_steps, self.steps // 10) + 1
        fraction = min(step / self.steps, 1.0)
        cosine = training.final_rate + (1 - training.final_rate) * (1 + math.cos(math.pi * fraction)) / 2
        return min((step + 1) / rise, 1.0) * cosine

    def step(self, images: Tensor, *, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Train on a batch of images.

        Args:
            images: ``[B, H, W, 3]`` sRGB in [0, 1], on the autoencoder's device.
            generator: on the CPU; source of the latents' noise and of the warps; torch's own if not given.

        Returns:
            Scalars: "loss" (what was minimised), "psnr" (dB, of unclamped decoded images, over the whole batch) and
            "divergence" (nats per latent value).
        """
        training, autoencoder, device = self.training, self.autoencoder, images.device
        rates = {"rest": training.learning_rate, "hidden": training.hidden_rate}
        for name, optimizer in self.optimizers.items():
            optimizer.param_groups[0]["lr"] = rates[name] * self.rate_factor(self.steps_taken)
        with torch.autocast(device.type, torch.bfloat16, enabled=training.bfloat16):
            mean, log_variance = autoencoder.encode(images)
            noise = torch.randn(mean.shape, generator=generator, dtype=torch.float32).to(device)
            latents = mean + noise * (log_variance / 2).exp()
            warped = round(training.warped_fraction * len(images))
            if warped:
                warps = self._random_warps(warped, latents, generator).to(device)
                latents = torch.cat([warp(latents[:warped], warps), latents[warped:]])
                images = torch.cat([warp(images[:warped], warps), images[warped:]])
            decoded = autoencoder.decode(latents)
        error = functional.mse_loss(decoded, images)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).mean() / 2
        loss = error + training.divergence_loss * divergence
        autoencoder.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in self.optimizers.values():
            optimizer.step()
        self.steps_taken += 1
        return {
            "loss": loss.detach(),
            "psnr": -10 * error.detach().log10(),
            "divergence": divergence.detach(),
        }

    def _random_warps(self, count: int, latents: Tensor, generator: torch.Generator | None) -> Tensor:
        height, width = latents.shape[1:3]
        uniform = 2 * torch.rand(count, 2, 3, generator=generator, dtype=torch.float32) - 1
        # Normalised coordinates: a grid of n cells is 2 wide.
        shift = 2 * self.training.warp_shift * torch.tensor([1 / width, 1 / height], dtype=torch.float32)
        matrix = torch.eye(2, dtype=torch.float32) + self.training.warp_strain * uniform[..., :2]
        return torch.cat([matrix, (shift * uniform[..., 2])[..., None]], -1)

    def state_dict(self) -> dict:
        """Optimiser states and the number of steps taken; the autoencoder's weights are not part of it."""
        states = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"optimizers": states, "steps_taken": self.steps_taken}

    def load_state_dict(self, state: dict) -> None:
        """Continue where `state_dict` was taken."""
        for name, optimizer in self.optimizers.items():
            load_optimizer_state(optimizer, state["optimizers"][name])
        self.steps_taken = int(state["steps_taken"])


def hidden_weights(network: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split a network's parameters into the weights of its residual blocks, which Muon trains best, and the rest."""
    hidden = [
        parameter
        for block in network.modules()
        if isinstance(block, ResidualBlock)
        for parameter in block.parameters()
        if parameter.dim() > 1
    ]
    known = {id(parameter) for parameter in hidden}
    return hidden, [parameter for parameter in network.parameters() if id(parameter) not in known]


def warp(images: Tensor, warps: Tensor) -> Tensor:
    """Resample images, or latents, bilinearly under affine maps; what lies outside repeats the border.

    Args:
        images: ``[B, H, W, C]``.
        warps: ``[B, 2, 3]``: where a place of the result is looked up, ``matrix @ (x, y) + shift``, with x and y from
            -1 to 1 over the image's width and height. One warp moves an image and its latents in the same way.
    """
    planes = images.permute(0, 3, 1, 2).float()
    grid = functional.affine_grid(warps, planes.shape, align_corners=False)
    moved = functional.grid_sample(planes, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return moved.permute(0, 2, 3, 1)


def sample_images(
    images: Tensor | Sequence[Tensor], count: int, background: Tensor, generator: torch.Generator
) -> Tensor:
    """Random views of random objects over a background colour.

    Args:
        images: per object ``[V, H, W, 4]`` uint8, straight alpha, all of one size; ``[N, V, H, W, 4]`` also serves.
        count: images drawn, with replacement; every object is as likely as every other.
        background: ``[3]`` sRGB in [0, 1].
        generator: on the CPU; it decides which.

    Returns:
        ``[count, H, W, 3]`` float32 in [0, 1].

    Raises:
        DataError: no objects, or an object without views.
    """
    if not len(images):
        raise DataError("autoencoder training: there are no images to draw from")
    chosen = []
    for index in torch.randint(len(images), (count,), generator=generator).tolist():
        views = images[index]
        if not len(views):
            raise DataError(f"autoencoder training: object number {index} has no views")
        chosen.append(views[int(torch.randint(len(views), (), generator=generator))])
    return composite_over(torch.stack(chosen).float() / 255, background)
