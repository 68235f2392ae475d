"""A small image autoencoder that works at latent resolution, so that a CPU can train it.

Both halves fold ``f x f`` pixels into channels and do nearly all of their work on the grid of latents: a residual
network between a patch-to-channels step and its inverse. Only a thin last stage of the decoder, on a grid twice as
fine, smooths what neighbouring cells disagree on. Nothing is ever convolved at full resolution.

Beside each network runs a linear map from patch to code or back. `ImageAutoencoder.start_linear` sets the two to the
principal components of the images, which no training has to find again; the networks learn a correction.

There is no normalisation layer. Every residual block starts as the identity, so a new network stays trainable without
one, and a cell's code depends on its surroundings only, never on statistics of the whole image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fusedplanes.autoencoders.interface import Autoencoder
from fusedplanes.errors import ConfigError


@dataclass(frozen=True)
class ImageAutoencoderConfig:
    """Shape of an image autoencoder."""

    downscale: Literal[2, 4, 8] = 4
    """Image pixels along a side of one latent cell (f)."""
    latent_channels: int = 8
    """Channels of a latent cell (c)."""
    width: int = 128
    """Channels of the hidden layers."""
    encoder_blocks: int = 3
    """Residual blocks of the encoder."""
    decoder_blocks: int = 5
    """Residual blocks of the decoder, which is what every rendered view pays for."""
    kernel_size: int = 3
    """Latent cells along a side of the residual blocks' kernels; odd."""
    detail_width: int = 32
    """Channels of the decoder's last stage, on a grid twice as fine as the latents; 0 leaves the stage out."""

    def __post_init__(self) -> None:
        if self.downscale not in (2, 4, 8):
            raise ConfigError(f"autoencoder: downscale={self.downscale}; choose 2, 4 or 8")
        for name in ("latent_channels", "width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"autoencoder: {name}={getattr(self, name)}; it must be at least 1")
        for name in ("encoder_blocks", "decoder_blocks", "detail_width"):
            if getattr(self, name) < 0:
                raise ConfigError(f"autoencoder: {name}={getattr(self, name)}; it cannot be negative")
        for name, most in LIMITS.items():
            if getattr(self, name) > most:
                raise ConfigError(f"autoencoder: {name}={getattr(self, name)}; it must be at most {most}")
        blocks = self.encoder_blocks + self.decoder_blocks
        if blocks * self.width**2 * (self.kernel_size**2 + 1) > MOST_VALUES:
            raise ConfigError(f"autoencoder: its blocks hold more than {MOST_VALUES} values; make fewer")
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ConfigError(f"autoencoder: kernel_size={self.kernel_size}; it must be odd, such as 3 or 5")


LIMITS = {
    "latent_channels": 256,
    "width": 4096,
    "encoder_blocks": 64,
    "decoder_blocks": 64,
    "kernel_size": 31,
    "detail_width": 1024,
}
MOST_VALUES = 1 << 29
"""Largest sizes of an autoencoder: a configuration file from outside must not make anyone allocate without end."""

# Principal components of smaller variance (of values in [-1, 1]) are rounding, not signal.
MINIMUM_VARIANCE = 1e-8
IMAGES_AT_ONCE = 8
"""Images whose patches are taken in at once."""


class ResidualBlock(nn.Module):
    """``x + pointwise(silu(convolution(x)))`` on ``[B, width, h, w]``; the identity when new."""

    def __init__(self, width: int, kernel_size: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, kernel_size, padding=kernel_size // 2)
        self.pointwise = nn.Conv2d(width, width, 1)
        nn.init.zeros_(self.pointwise.weight)
        nn.init.zeros_(self.pointwise.bias)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.pointwise(functional.silu(self.convolution(features)))


def _blocks(count: int, config: ImageAutoencoderConfig) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(config.width, config.kernel_size) for _ in range(count)))


# What a network's last layer is scaled by at the start, so that it begins as a small correction of the linear map.
CORRECTION = 0.2
# Log-variance of a new encoder's latents: a deviation of 0.14 beside the linear map's 1.
LOG_VARIANCE = -4.0


class ImageEncoder(nn.Module):
    """Images ``[B, 3, H, W]`` to the mean and log-variance of latents, ``[B, 2 * c, h, w]``."""

    def __init__(self, config: ImageAutoencoderConfig) -> None:
        super().__init__()
        patch, channels = 3 * config.downscale**2, config.latent_channels
        self.downscale = config.downscale
        self.linear = nn.Conv2d(patch, channels, 1)
        self.stem = nn.Conv2d(patch, config.width, 3, padding=1)
        self.blocks = _blocks(config.encoder_blocks, config)
        self.head = nn.Conv2d(config.width, 2 * channels, 1)
        with torch.no_grad():
            self.head.weight.mul_(CORRECTION)
            self.head.bias.copy_(torch.cat([torch.zeros(channels), torch.full((channels,), LOG_VARIANCE)]))

    def forward(self, images: Tensor) -> Tensor:
        patches = functional.pixel_unshuffle(2 * images - 1, self.downscale)
        patches = patches.contiguous(memory_format=torch.channels_last)
        correction, log_variance = self.head(functional.silu(self.blocks(self.stem(patches)))).chunk(2, 1)
        return torch.cat([self.linear(patches) + correction, log_variance], 1)


class ImageDecoder(nn.Module):
    """Latents ``[B, c, h, w]`` to images ``[B, 3, H, W]``."""

    def __init__(self, config: ImageAutoencoderConfig) -> None:
        super().__init__()
        patch, width, finer = 3 * config.downscale**2, config.width, config.detail_width
        self.downscale = config.downscale
        self.linear = nn.Conv2d(config.latent_channels, patch, 1)
        self.stem = nn.Conv2d(config.latent_channels, width, 3, padding=1)
        self.blocks = _blocks(config.decoder_blocks, config)
        self.spread = nn.Conv2d(width, 4 * finer, 1) if finer else None
        self.detail = ResidualBlock(finer, 3) if finer else None
        self.head = nn.Conv2d(finer, patch // 4, 3, padding=1) if finer else nn.Conv2d(width, patch, 3, padding=1)
        with torch.no_grad():
            self.head.weight.mul_(CORRECTION)
            self.head.bias.zero_()

    def forward(self, latents: Tensor) -> Tensor:
        features, factor = functional.silu(self.blocks(self.stem(latents))), self.downscale
        if self.spread is not None:
            features = functional.silu(self.detail(functional.pixel_shuffle(self.spread(features), 2)))
            factor //= 2
        correction = functional.pixel_shuffle(self.head(features), factor)
        return (functional.pixel_shuffle(self.linear(latents), self.downscale) + correction + 1) / 2


class ImageAutoencoder(Autoencoder):
    """Variational autoencoder of single images (Kingma and Welling 2014), convolutional, for any image size.

    Inside, convolutions run in torch's channels-last memory format, which is the faster one on CPUs.

    Args:
        config: the network's shape.

    Example:
        >>> autoencoder = ImageAutoencoder(ImageAutoencoderConfig(downscale=8, latent_channels=16, width=32))
        >>> mean, log_variance = autoencoder.encode(torch.rand(2, 64, 48, 3))
        >>> mean.shape, autoencoder.decode(mean).shape
        (torch.Size([2, 8, 6, 16]), torch.Size([2, 64, 48, 3]))
    """

    def __init__(self, config: ImageAutoencoderConfig | None = None) -> None:
        super().__init__()
        self.config = ImageAutoencoderConfig() if config is None else config
        self.encoder = ImageEncoder(self.config)
        self.decoder = ImageDecoder(self.config)
        # Not whatever torch.set_default_dtype says: latents and kernels are single precision.
        self.float()
        if not self.encoder.head.weight.is_meta:
            self.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def start_linear(self, images: Tensor) -> None:
        """Set the linear maps to the principal components of the images' patches: the best linear autoencoder, at once.

        Latents then have unit variance. Meant for a new autoencoder, whose networks add little yet.

        Args:
            images: ``[B, H, W, 3]`` typical images, sRGB in [0, 1]; some hundreds serve.

        Raises:
            DataError: images that `encode` would refuse.
        """
        mean, covariance = self._patch_statistics(images)
        values, vectors = torch.linalg.eigh(covariance)
        values, vectors = values.flip(0), vectors.flip(1)
        # Patches may have fewer dimensions than a code has channels; what is left over then stays zero.
        kept = min(self.config.latent_channels, int((values > MINIMUM_VARIANCE).sum()))
        deviation = values[:kept].sqrt()
        for parameter in (*self.encoder.linear.parameters(), *self.decoder.linear.parameters()):
            parameter.zero_()
        encode = (vectors[:, :kept] / deviation).T
        self.encoder.linear.weight[:kept, :, 0, 0] = encode.float()
        self.encoder.linear.bias[:kept] = -(encode @ mean).float()
        self.decoder.linear.weight[:, :kept, 0, 0] = (vectors[:, :kept] * deviation).float()
        self.decoder.linear.bias.copy_(mean)

    def _patch_statistics(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of the images' patches, float64; a few images at a time to spare memory."""
        patch = 3 * self.config.downscale**2
        count = 0
        total = torch.zeros(patch, dtype=torch.float64, device=images.device)
        squares = torch.zeros(patch, patch, dtype=torch.float64, device=images.device)
        for part in self._checked(images).split(IMAGES_AT_ONCE):
            patches = functional.pixel_unshuffle(2 * part - 1, self.config.downscale)
            patches = patches.permute(0, 2, 3, 1).flatten(0, 2).double()
            count += len(patches)
            total += patches.sum(0)
            squares += patches.T @ patches
        mean = total / count
        return mean, squares / count - torch.outer(mean, mean)
