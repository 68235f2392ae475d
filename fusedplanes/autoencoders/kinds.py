"""The kinds of autoencoder there are, and the one place that chooses between them."""

from __future__ import annotations

from fusedplanes.autoencoders.image import ImageAutoencoder, ImageAutoencoderConfig
from fusedplanes.autoencoders.interface import Autoencoder
from fusedplanes.autoencoders.pretrained import PretrainedAutoencoder, PretrainedAutoencoderConfig

AutoencoderConfig = ImageAutoencoderConfig | PretrainedAutoencoderConfig


def make_autoencoder(config: AutoencoderConfig) -> Autoencoder:
    """A new autoencoder with random weights.

    Raises:
        ConfigError: a pretrained kind, and diffusers is not installed.

    Example:
        >>> type(make_autoencoder(ImageAutoencoderConfig(width=16))).__name__
        'ImageAutoencoder'
    """
    if isinstance(config, PretrainedAutoencoderConfig):
        return PretrainedAutoencoder(config)
    return ImageAutoencoder(config)
