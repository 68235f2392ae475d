"""Training an image autoencoder on the views of a class, one step at a time, inside whichever loop calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fusedplanes.autoencoders.image import ImageAutoencoder
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import composite_over
from fusedplanes.training.optimizer_state import load_optimizer_state


@dataclass(frozen=True)
class AutoencoderTraining:
    """How an image autoencoder is trained."""

    learning_rate: float = 2e-3
    """Adam's learning rate after the warm-up; a cosine takes it to ``final_rate`` of that."""
    warm_up_steps: int = 20
    """Steps over which the learning rate rises to its full value (at most a tenth of all)."""
    final_rate: float = 0.02
    """Fraction of the learning rate left at the last step."""
    divergence_loss: float = 1e-5
    """Weight of the divergence from a standard normal (KL, mean over latent values, nats)."""
    bfloat16: bool = False
    """Run the convolutions in bfloat16 (parameters and losses stay in float32)."""

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ConfigError(f"autoencoder training: learning_rate={self.learning_rate}; it must be above 0")
        for name in ("warm_up_steps", "final_rate", "divergence_loss"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"autoencoder training: {name}={getattr(self, name)}; it cannot be negative")


class AutoencoderTrainer:
    """An autoencoder with its optimiser and its place in a run of known length.

    The loss is the mean squared error of decoded samples plus a small divergence::

        loss = mean((D(z) - x)^2) + divergence_loss * KL(N(mean, variance) || N(0, 1)),   z ~ N(mean, variance)

    Args:
        autoencoder: trained in place, on the device it is on.
        steps: steps of the whole run; the learning rate is a function of the fraction done.
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
        self.optimizer = torch.optim.Adam(
            autoencoder.parameters(), lr=self.training.learning_rate, betas=(0.9, 0.99), fused=True
        )

    def learning_rate(self, step: int) -> float:
        """Learning rate of a step: a linear rise, then a cosine; constant at its end beyond the last step."""
        training = self.training
        rise = min(training.warm_up_steps, self.steps // 10) + 1
        fraction = min(step / self.steps, 1.0)
        cosine = training.final_rate + (1 - training.final_rate) * (1 + math.cos(math.pi * fraction)) / 2
        return training.learning_rate * min((step + 1) / rise, 1.0) * cosine

    def step(self, images: Tensor, *, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Train on a batch of images.

        Args:
            images: ``[B, H, W, 3]`` sRGB in [0, 1], on the autoencoder's device.
            generator: source of the latents' noise, on the same device; torch's own if not given.

        Returns:
            Scalars: "loss" (what was minimised), "psnr" (dB, of unclamped reconstructions, over the whole batch) and
            "divergence" (nats per latent value).
        """
        training, autoencoder = self.training, self.autoencoder
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.steps_taken)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=training.bfloat16):
            mean, log_variance = autoencoder.encode(images)
            noise = torch.randn(mean.shape, generator=generator, device=mean.device)
            decoded = autoencoder.decode(mean + noise * (log_variance / 2).exp())
        error = functional.mse_loss(decoded, images)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).mean() / 2
        loss = error + training.divergence_loss * divergence
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.steps_taken += 1
        return {
            "loss": loss.detach(),
            "psnr": -10 * error.detach().log10(),
            "divergence": divergence.detach(),
        }

    def state_dict(self) -> dict:
        """Optimiser state and the number of steps taken; the autoencoder's weights are not part of it."""
        return {"optimizer": self.optimizer.state_dict(), "steps_taken": self.steps_taken}

    def load_state_dict(self, state: dict) -> None:
        """Continue where `state_dict` was taken."""
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.steps_taken = int(state["steps_taken"])


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
