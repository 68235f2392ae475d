"""A small image autoencoder that works at latent resolution, so that a CPU can train it.

Both halves fold ``f x f`` pixels into channels and do all of their work on the grid of latents: a residual network
between a patch-to-channels step and its inverse. Nothing is ever convolved at full resolution, which is what makes a
step cheap and is no loss: the last convolution sees neighbouring cells and writes all pixels of a cell at once.

There is no normalisation layer. Every residual branch starts at zero, so the network starts as a linear map and stays
trainable without one, and a cell's code depends on its surroundings only, never on statistics of the whole image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fusedplanes.errors import ConfigError, DataError


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

    def __post_init__(self) -> None:
        if self.downscale not in (2, 4, 8):
            raise ConfigError(f"autoencoder: downscale={self.downscale}; choose 2, 4 or 8")
        for name, least in [("latent_channels", 1), ("width", 1), ("encoder_blocks", 0), ("decoder_blocks", 0)]:
            if getattr(self, name) < least:
                raise ConfigError(f"autoencoder: {name}={getattr(self, name)}; it must be at least {least}")
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ConfigError(f"autoencoder: kernel_size={self.kernel_size}; it must be odd, such as 3 or 5")


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


class ImageEncoder(nn.Module):
    """Images ``[B, 3, H, W]`` to the mean and log-variance of latents, ``[B, 2 * c, h, w]``."""

    def __init__(self, config: ImageAutoencoderConfig) -> None:
        super().__init__()
        self.downscale = config.downscale
        self.stem = nn.Conv2d(3 * config.downscale**2, config.width, 3, padding=1)
        self.blocks = _blocks(config.encoder_blocks, config)
        self.head = nn.Conv2d(config.width, 2 * config.latent_channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        patches = functional.pixel_unshuffle(2 * images - 1, self.downscale)
        patches = patches.contiguous(memory_format=torch.channels_last)
        return self.head(functional.silu(self.blocks(self.stem(patches))))


class ImageDecoder(nn.Module):
    """Latents ``[B, c, h, w]`` to images ``[B, 3, H, W]``."""

    def __init__(self, config: ImageAutoencoderConfig) -> None:
        super().__init__()
        self.downscale = config.downscale
        self.stem = nn.Conv2d(config.latent_channels, config.width, 3, padding=1)
        self.blocks = _blocks(config.decoder_blocks, config)
        self.head = nn.Conv2d(config.width, 3 * config.downscale**2, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        patches = self.head(functional.silu(self.blocks(self.stem(latents))))
        return (functional.pixel_shuffle(patches, self.downscale) + 1) / 2


class ImageAutoencoder(nn.Module):
    """Variational autoencoder of single images (Kingma and Welling 2014), convolutional, for any image size.

    The interface is channels-last; inside, convolutions run in torch's channels-last memory format, which is the faster
    one on CPUs. Neither latents nor decoded images are squashed or clamped: gradients pass everywhere.

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
        self.to(memory_format=torch.channels_last)

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The distribution of an image's latents, independent normals.

        Args:
            images: ``[B, H, W, 3]`` sRGB in [0, 1]; both sides divisible by ``config.downscale``.

        Returns:
            Mean and log-variance, ``[B, H / f, W / f, c]`` each; neither is bounded.

        Raises:
            DataError: another shape, or sides that ``config.downscale`` does not divide.
        """
        factor = self.config.downscale
        if images.dim() != 4 or images.shape[-1] != 3:
            raise DataError(f"images have shape {tuple(images.shape)}; expected [B, H, W, 3]")
        _, height, width, _ = images.shape
        if height % factor or width % factor or not height or not width:
            raise DataError(f"image size {width}x{height}: both sides must be divisible by the autoencoder's {factor}")
        moments = self.encoder(images.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        mean, log_variance = moments.float().chunk(2, -1) if moments.dtype == torch.bfloat16 else moments.chunk(2, -1)
        return mean, log_variance

    def decode(self, latents: Tensor) -> Tensor:
        """Images from latents.

        Args:
            latents: ``[B, h, w, c]``, in the encoder's own scale.

        Returns:
            ``[B, f * h, f * w, 3]`` sRGB, meant to lie in [0, 1] but not clamped.

        Raises:
            DataError: another shape or another number of channels.
        """
        channels = self.config.latent_channels
        if latents.dim() != 4 or latents.shape[-1] != channels:
            raise DataError(f"latents have shape {tuple(latents.shape)}; expected [B, h, w, {channels}]")
        images = self.decoder(latents.permute(0, 3, 1, 2))
        return (images.float() if images.dtype == torch.bfloat16 else images).permute(0, 2, 3, 1)

    def encoder_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that encoding needs."""
        return self.encoder.parameters()

    def decoder_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that decoding needs; rendering needs no others."""
        return self.decoder.parameters()
