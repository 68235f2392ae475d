"""What every autoencoder of single images can do: the interface that training and rendering work with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from fusedplanes.errors import DataError


class LatentSpace(Protocol):
    """What anyone needs to know of an autoencoder's configuration."""

    @property
    def downscale(self) -> int:
        """Image pixels along a side of one latent cell (f)."""

    @property
    def latent_channels(self) -> int:
        """Channels of a latent cell (c)."""


class Autoencoder(nn.Module):
    """Base of the autoencoders: images and latents are channels-last and checked here, networks see channels first.

    A kind of autoencoder brings the two networks and, where they want other values or shapes than its own, overrides
    `moments_of` and `images_of`. Neither latents nor decoded images are clamped: gradients pass everywhere.

    Attributes:
        config: shape of the networks; it has ``downscale`` and ``latent_channels``.
        encoder: network of the encoder; training moves its parameters, and no others, under ``encoder_rate``.
        decoder: network of the decoder, likewise.
    """

    config: LatentSpace
    encoder: nn.Module
    decoder: nn.Module

    def moments_of(self, images: Tensor) -> Tensor:
        """Images ``[B, 3, H, W]`` in [0, 1] to the mean and log-variance of latents, ``[B, 2 * c, h, w]``."""
        return self.encoder(images)

    def images_of(self, latents: Tensor) -> Tensor:
        """Latents ``[B, c, h, w]`` to images ``[B, 3, H, W]`` around [0, 1]."""
        return self.decoder(latents)

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The distribution of an image's latents, independent normals.

        Args:
            images: ``[B, H, W, 3]`` sRGB in [0, 1]; both sides divisible by ``config.downscale``.

        Returns:
            Mean and log-variance, ``[B, H / f, W / f, c]`` each; neither is bounded.

        Raises:
            DataError: another shape, or sides that ``config.downscale`` does not divide.
        """
        moments = self.moments_of(self._checked(images)).permute(0, 2, 3, 1)
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
        images = self.images_of(latents.permute(0, 3, 1, 2))
        return (images.float() if images.dtype == torch.bfloat16 else images).permute(0, 2, 3, 1)

    def _checked(self, images: Tensor) -> Tensor:
        """Images ``[B, 3, H, W]``, once their shape is one that can be encoded."""
        factor = self.config.downscale
        if images.dim() != 4 or images.shape[-1] != 3:
            raise DataError(f"images have shape {tuple(images.shape)}; expected [B, H, W, 3]")
        _, height, width, _ = images.shape
        if height % factor or width % factor or not height or not width:
            raise DataError(f"image size {width}x{height}: both sides must be divisible by the autoencoder's {factor}")
        return images.permute(0, 3, 1, 2)

    def encoder_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the encoder that training may move."""
        return self.encoder.parameters()

    def decoder_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the decoder that training may move."""
        return self.decoder.parameters()

    def encoding_tensors(self) -> dict[str, Tensor]:
        """All tensors that latents depend on, by name: what a cache of latents is valid for."""
        return self.encoder.state_dict()
