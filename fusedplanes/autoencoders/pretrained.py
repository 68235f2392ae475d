"""Published autoencoders as latent spaces: Stable Diffusion's (`AutoencoderKL`), and small TAESD (`AutoencoderTiny`).

The networks are those of the `diffusers` package, which is imported when the first one is built. A configuration holds
every size that the networks are built from, so that a trained run can be opened from its own folder alone;
`fusedplanes.autoencoders.weight_files` finds and reads the published weights that training starts from.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fusedplanes.autoencoders.interface import Autoencoder
from fusedplanes.errors import ConfigError, shown

TINY_LOG_VARIANCE = -10.0
"""Log-variance of `AutoencoderTiny`'s latents, which has none of its own: that of rounding to 8 bits over [-3, 3], the
form in which these latents are meant to be stored. It is exact in float16."""

LIMITS = {"width": 4096, "levels": 6, "blocks": 16, "latent_channels": 256}
MOST_VALUES = 1 << 29
"""Largest sizes of an architecture: a configuration file from outside must not make anyone allocate without end."""


def _check_number(name: str, value: object, most: int, least: int = 1) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(f"autoencoder: {name}={shown(value)}; expected a whole number from {least} to {most}")


def _check_numbers(name: str, values: object, most: int, least: int = 1) -> None:
    """Refuse what is no tuple with a number for each of 2 to 6 levels of resolution."""
    if not isinstance(values, tuple) or not 2 <= len(values) <= LIMITS["levels"]:
        raise ConfigError(f"autoencoder: {name}={shown(values)}; expected 2 to {LIMITS['levels']} whole numbers")
    for value in values:
        _check_number(name, value, most, least)


def _check_values(convolutions: int, width: int) -> None:
    """Refuse networks of more than `MOST_VALUES` numbers, by a bound: every convolution at the largest width."""
    if 9 * convolutions * width**2 > MOST_VALUES:
        raise ConfigError(f"autoencoder: its networks may hold more than {MOST_VALUES} values; make fewer or narrower")


@dataclass(frozen=True)
class KLArchitecture:
    """Shape of diffusers' `AutoencoderKL`, the kind that Stable Diffusion uses. Fields are named as in its config.json.

    Only what is needed for images of three channels is open; see ``FIXED``.
    """

    block_out_channels: tuple[int, ...]
    """Channels at each level of resolution, finest first; every level but the first halves it."""
    layers_per_block: int
    """Residual blocks of the encoder at each level; the decoder has one more."""
    latent_channels: int
    norm_num_groups: int
    """Groups of the group normalisations; they divide the channels."""
    mid_block_add_attention: bool = True
    """Attention at the coarsest level."""
    use_quant_conv: bool = True
    """A 1x1 convolution behind the encoder."""
    use_post_quant_conv: bool = True
    """A 1x1 convolution before the decoder."""
    class_name: Literal["AutoencoderKL"] = "AutoencoderKL"

    FIXED: ClassVar[dict[str, object]] = {"in_channels": 3, "out_channels": 3, "act_fn": "silu"}
    """Settings that have one value here."""
    IGNORED: ClassVar[frozenset[str]] = frozenset(
        ("sample_size", "scaling_factor", "shift_factor", "latents_mean", "latents_std", "force_upcast")
    )
    """Settings that only a diffusion model needs: latents here are standardised by statistics of their own."""

    def __post_init__(self) -> None:
        _check_numbers("block_out_channels", self.block_out_channels, LIMITS["width"])
        _check_number("layers_per_block", self.layers_per_block, LIMITS["blocks"])
        _check_number("latent_channels", self.latent_channels, LIMITS["latent_channels"])
        _check_number("norm_num_groups", self.norm_num_groups, LIMITS["width"])
        for name in ("mid_block_add_attention", "use_quant_conv", "use_post_quant_conv"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"autoencoder: {name}={shown(getattr(self, name))}; expected true or false")
        if any(width % self.norm_num_groups for width in self.block_out_channels):
            raise ConfigError(
                f"autoencoder: norm_num_groups={self.norm_num_groups} does not divide block_out_channels="
                f"{self.block_out_channels}"
            )
        blocks = len(self.block_out_channels) * (2 * self.layers_per_block + 1) + 4
        _check_values(2 * blocks, max(self.block_out_channels))

    @property
    def levels(self) -> int:
        """Levels of resolution."""
        return len(self.block_out_channels)

    @property
    def settings(self) -> dict[str, object]:
        """All that diffusers' class is built from."""
        return {
            **_open_settings(self),
            **self.FIXED,
            "down_block_types": ("DownEncoderBlock2D",) * self.levels,
            "up_block_types": ("UpDecoderBlock2D",) * self.levels,
        }


@dataclass(frozen=True)
class TinyArchitecture:
    """Shape of diffusers' `AutoencoderTiny`, the kind that TAESD is. Fields are named as in its config.json."""

    encoder_block_out_channels: tuple[int, ...]
    """Channels at each level, finest first; the class can only be run where all are the same."""
    decoder_block_out_channels: tuple[int, ...]
    """Channels at each level, coarsest first; all the same."""
    num_encoder_blocks: tuple[int, ...]
    num_decoder_blocks: tuple[int, ...]
    latent_channels: int
    class_name: Literal["AutoencoderTiny"] = "AutoencoderTiny"

    FIXED: ClassVar[dict[str, object]] = {
        "in_channels": 3,
        "out_channels": 3,
        "act_fn": "relu",
        "upsample_fn": "nearest",
        "upsampling_scaling_factor": 2,
    }
    IGNORED: ClassVar[frozenset[str]] = frozenset(
        ("latent_magnitude", "latent_shift", "scaling_factor", "shift_factor", "force_upcast", "block_out_channels")
    )

    def __post_init__(self) -> None:
        for half in ("encoder", "decoder"):
            widths, blocks = getattr(self, f"{half}_block_out_channels"), getattr(self, f"num_{half}_blocks")
            _check_numbers(f"{half}_block_out_channels", widths, LIMITS["width"])
            _check_numbers(f"num_{half}_blocks", blocks, LIMITS["blocks"], least=0)
            if len(set(widths)) > 1:
                raise ConfigError(f"autoencoder: {half}_block_out_channels={widths}; all must be the same")
            if len(widths) != self.levels or len(blocks) != self.levels:
                raise ConfigError(f"autoencoder: num_{half}_blocks={blocks}; every part must have {self.levels} levels")
            _check_values(3 * sum(blocks) + self.levels, widths[0])
        _check_number("latent_channels", self.latent_channels, LIMITS["latent_channels"])

    @property
    def levels(self) -> int:
        """Levels of resolution."""
        return len(self.encoder_block_out_channels)

    @property
    def settings(self) -> dict[str, object]:
        """All that diffusers' class is built from."""
        return {**_open_settings(self), **self.FIXED}


Architecture = KLArchitecture | TinyArchitecture
ARCHITECTURES: dict[str, type[Architecture]] = {"AutoencoderKL": KLArchitecture, "AutoencoderTiny": TinyArchitecture}


def _open_settings(architecture: Architecture) -> dict[str, object]:
    settings = dataclasses.asdict(architecture)
    del settings["class_name"]
    return settings


def architecture_from_json(value: dict) -> Architecture:
    """The architecture that a config.json of diffusers describes.

    Fields that begin with an underscore are diffusers' own notes and passed over.

    Raises:
        ConfigError: another class, an unknown or missing field, or a value that is not supported.
    """
    name = value.get("_class_name")
    kind = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ConfigError(f"_class_name is {shown(name)}; only {' and '.join(ARCHITECTURES)} are supported")
    names = {field.name for field in dataclasses.fields(kind)} - {"class_name"}
    found = {field: tuple(item) if isinstance(item, list) else item for field, item in value.items()}
    found = {field: item for field, item in found.items() if not field.startswith("_") and field not in kind.IGNORED}
    try:
        architecture = kind(**{field: item for field, item in found.items() if field in names})
    except TypeError:
        required = [item.name for item in dataclasses.fields(kind) if item.default is dataclasses.MISSING]
        missing = next(field for field in required if field not in found)
        raise ConfigError(f"{missing} is missing") from None
    for field in found.keys() - names:
        if field not in architecture.settings:
            raise ConfigError(f"unknown field {shown(field)}; it may come from a newer diffusers")
        if found[field] != architecture.settings[field]:
            expected = architecture.settings[field]
            raise ConfigError(f"{field} is {shown(found[field])}; only {shown(expected)} is supported")
    return architecture


@dataclass(frozen=True)
class PretrainedAutoencoderConfig:
    """A published autoencoder: how it is built, where its weights came from, and under which licence.

    Made by `fusedplanes.open_pretrained`.
    """

    architecture: KLArchitecture | TinyArchitecture
    source: str
    """Hub id, or path of a local folder. Read once, when training starts."""
    revision: str | None = None
    """Commit on the hub; none for a local folder."""
    licence: str = "unknown"
    """Of the weights; see `fusedplanes.licences`."""
    licence_accepted: bool = False
    """Whether the user said that they accept it."""

    @property
    def downscale(self) -> int:
        """Image pixels along a side of one latent cell (f)."""
        return 2 ** (self.architecture.levels - 1)

    @property
    def latent_channels(self) -> int:
        """Channels of a latent cell (c)."""
        return self.architecture.latent_channels


class PretrainedAutoencoder(Autoencoder):
    """The networks of a published autoencoder, behind the interface of our own.

    New ones have random weights. diffusers' classes work on images in [-1, 1]; ours are in [0, 1]. Latents are in the
    encoder's own scale: neither its scaling factor nor anything that is meant for a diffusion model is applied. The 1x1
    convolutions between networks and latents are nobody's parameters: training leaves them as published.

    Args:
        config: architecture and origin.

    Raises:
        ConfigError: diffusers is not installed.

    Example:
        >>> widths = dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
        >>> architecture = KLArchitecture(**widths, latent_channels=4)
        >>> autoencoder = PretrainedAutoencoder(PretrainedAutoencoderConfig(architecture, "someone/something"))
        >>> mean, log_variance = autoencoder.encode(torch.rand(1, 8, 6, 3))
        >>> mean.shape, autoencoder.decode(mean).shape
        (torch.Size([1, 4, 3, 4]), torch.Size([1, 8, 6, 3]))
    """

    def __init__(self, config: PretrainedAutoencoderConfig) -> None:
        super().__init__()
        self.config = config
        network = _diffusers_class(config.architecture.class_name)(**config.architecture.settings)
        self.encoder, self.decoder = network.encoder, network.decoder
        self.quant_conv: nn.Module | None = getattr(network, "quant_conv", None)
        self.post_quant_conv: nn.Module | None = getattr(network, "post_quant_conv", None)
        # Not whatever torch.set_default_dtype says: latents and kernels are single precision.
        self.float()
        if not next(self.parameters()).is_meta:
            self.to(memory_format=torch.channels_last)

    def moments_of(self, images: Tensor) -> Tensor:
        """Images ``[B, 3, H, W]`` in [0, 1] to the mean and log-variance of latents, ``[B, 2 * c, h, w]``."""
        moments = self.encoder(2 * images - 1)
        if isinstance(self.config.architecture, TinyArchitecture):
            return torch.cat([moments, torch.full_like(moments, TINY_LOG_VARIANCE)], 1)
        return moments if self.quant_conv is None else self.quant_conv(moments)

    def images_of(self, latents: Tensor) -> Tensor:
        """Latents ``[B, c, h, w]`` to images ``[B, 3, H, W]`` around [0, 1]."""
        if self.post_quant_conv is not None:
            latents = self.post_quant_conv(latents)
        return (self.decoder(latents) + 1) / 2

    def encoding_tensors(self) -> dict[str, Tensor]:
        """All tensors that latents depend on, by name."""
        behind = {} if self.quant_conv is None else self.quant_conv.state_dict(prefix="quant_conv.")
        return {**super().encoding_tensors(), **behind}


def _diffusers_class(name: str) -> type[nn.Module]:
    try:
        import diffusers
    except ImportError as error:
        raise ConfigError(
            "pretrained autoencoders need diffusers; install it with: pip install 'fusedplanes[diffusers]'"
        ) from error
    return getattr(diffusers, name)
