"""Settings of the planar models and of their training, and the presets.

A configuration is stored as JSON in the run folder (`config.json`) and read back from there: what was trained is never
guessed from tensor shapes.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fusedplanes.autoencoders.image import ImageAutoencoderConfig
from fusedplanes.autoencoders.pretrained import PretrainedAutoencoderConfig
from fusedplanes.errors import ConfigError, shown

Method = Literal["fused-planes", "ulw", "tri-planes"]
FitMode = Literal["weights", "weights+micro"]
"""What of a new object moves: its mix of base planes alone, or its micro planes too."""
ObjectOptimizer = Literal["adam", "soap"]
"""adam: as published. soap: Adam with the channels of micro planes rotated until they are independent, and a memory of
few steps; on 40 cars 2.5 dB better after the same 480 steps, and 4.7 dB for Tri-Planes after 1,200."""
FIT_SHARE = 0.25
"""Steps of a new object, as a share of those that stage 1 gave each of its own."""


LIMITS = {
    "resolution": 4096,
    "micro_channels": 1024,
    "macro_channels": 1024,
    "base_planes": 65536,
    "hidden": 4096,
    "coarse_samples": 4096,
    "fine_samples": 4096,
}
MOST_BASE_VALUES = 1 << 31
"""Largest sizes of a model: a configuration file from outside must not make anyone allocate without end."""


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a planar model. One class covers Fused-Planes, its ultra-lightweight variant and plain Tri-Planes."""

    resolution: int = 32
    """Cells along a side of every plane."""
    micro_channels: int = 10
    """Channels owned by each object (F_mic)."""
    macro_channels: int = 22
    """Channels mixed from the base planes (F_mac)."""
    base_planes: int = 16
    """Base planes shared by the class (M); 0 means no macro planes."""
    banks: int = 1
    """Groups that the base planes are split into, one for each class of a run over several; 1 lets all objects mix
    all base planes."""
    hidden: int = 64
    """Hidden units of the field decoder."""
    shared_decoder: bool = True
    """One field decoder for all objects; otherwise each object owns one."""
    autoencoder: ImageAutoencoderConfig | PretrainedAutoencoderConfig | None = field(
        default_factory=ImageAutoencoderConfig
    )
    """Latent space the field lives in, our own or a published one; none renders colours directly."""
    coarse_samples: int = 48
    """Stratified samples per ray."""
    fine_samples: int = 48
    """Importance samples per ray."""
    background: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """sRGB colour behind the objects, in [0, 1]."""

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise ConfigError("model: micro_channels and macro_channels are both 0; a plane needs at least one channel")
        if (self.base_planes == 0) != (self.macro_channels == 0):
            raise ConfigError(
                f"model: base_planes={self.base_planes} and macro_channels={self.macro_channels}; "
                "macro planes need both above 0, plain tri-planes need both 0"
            )
        for name, least in [("resolution", 2), ("hidden", 1), ("coarse_samples", 2), ("banks", 1)]:
            if getattr(self, name) < least:
                raise ConfigError(f"model: {name}={getattr(self, name)}; it must be at least {least}")
        for name in ("micro_channels", "macro_channels", "base_planes", "fine_samples"):
            if getattr(self, name) < 0:
                raise ConfigError(f"model: {name}={getattr(self, name)}; it cannot be negative")
        for name, most in LIMITS.items():
            if getattr(self, name) > most:
                raise ConfigError(f"model: {name}={getattr(self, name)}; it must be at most {most}")
        if self.base_planes % self.banks or (self.banks > 1 and self.base_planes == 0):
            raise ConfigError(f"model: banks={self.banks}; it must divide base_planes={self.base_planes}")
        if self.base_planes * 3 * self.resolution**2 * self.macro_channels > MOST_BASE_VALUES:
            raise ConfigError(
                f"model: the base planes hold more than {MOST_BASE_VALUES} values; make fewer or smaller ones"
            )
        if len(self.background) != 3 or not all(0 <= value <= 1 for value in self.background):
            raise ConfigError(f"model: background={self.background}; expected red, green and blue in [0, 1]")

    @property
    def channels(self) -> int:
        """Channels of a composed plane (F)."""
        return self.micro_channels + self.macro_channels

    @property
    def background_color(self) -> Tensor:
        """``background`` as a tensor ``[3]``."""
        return torch.tensor(self.background, dtype=torch.float32)

    @property
    def values(self) -> int:
        """What the field carries beside density: latent channels, or 3 colours."""
        return 3 if self.autoencoder is None else self.autoencoder.latent_channels

    @property
    def object_values(self) -> int:
        """Numbers stored for one object."""
        own = 3 * self.resolution**2 * self.micro_channels + self.base_planes
        if not self.shared_decoder:
            own += self.channels * self.hidden + self.hidden + (self.hidden + 1) * (1 + self.values)
        return own


@dataclass(frozen=True)
class PhaseConfig:
    """One phase of training with its batch and its Adam learning rates, annealed by a cosine to a tenth."""

    steps: int
    objects_per_batch: int = 8
    rays_per_object: int = 512
    """Random rays of one object in a step (phases that train on rays)."""
    views_per_object: int = 2
    """Whole views of one object in a step (phases that decode images)."""
    micro_rate: float = 1e-2
    weights_rate: float = 1e-2
    base_rate: float = 1e-2
    decoder_rate: float = 1e-2
    """Field decoder."""
    image_decoder_rate: float = 0.0
    """The autoencoder's decoder; 0 freezes it."""
    encoder_rate: float = 0.0
    """The autoencoder's encoder; 0 freezes it and keeps the cached latents valid."""
    shifted_views: bool = False
    """Move every view by a random whole number of pixels, at most half a latent cell, and its camera with it.

    The rays of a latent image are few and always the same; without this a field with large cells fits them, and not the
    object between them. Shifted views have no cached latents, so the latent term is left out.
    """
    final_rate: float = 0.1
    """Fraction of the learning rates left at the last step."""

    def __post_init__(self) -> None:
        _check_numbers("phase", self, at_least_one=("objects_per_batch", "rays_per_object", "views_per_object"))


@dataclass(frozen=True)
class TrainingConfig:
    """Training of a class: the autoencoder, a warm-up on cached latents, then jointly with the image decoder."""

    warm_up: PhaseConfig
    joint: PhaseConfig | None = None
    autoencoder_steps: int = 0
    autoencoder_batch: int = 32
    """Images in a step of the autoencoder's own training."""
    latent_loss: float = 1.0
    color_loss: float = 1.0
    """Weight of the mean squared error of decoded images in the joint phase."""
    autoencoder_loss: float = 0.0
    """Weight of the reconstruction of images from their own latents in the joint phase."""
    total_variation: float = 0.0
    """Weight of the total variation of the composed planes (mean over elements)."""
    object_optimizer: ObjectOptimizer = "adam"
    """What moves the objects' own tensors."""
    foreground_rays: float = 0.7
    """Fraction of random rays that start on the object, as far as they are found."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check_numbers("training", self, at_least_one=("autoencoder_batch",))
        if self.foreground_rays > 1:
            raise ConfigError(f"training: foreground_rays={self.foreground_rays}; expected a fraction up to 1")


LARGEST_NUMBER = 2**53


def _check_numbers(where: str, config: object, *, at_least_one: tuple[str, ...]) -> None:
    """Refuse numbers that are negative, not finite, or too large to be meant."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            least = 1 if item.name in at_least_one else 0
            if not least <= value <= LARGEST_NUMBER:
                raise ConfigError(
                    f"{where}: {item.name}={shown(value)}; expected a number from {least} to {LARGEST_NUMBER}"
                )


@dataclass(frozen=True)
class RunConfig:
    """All of a training run."""

    method: Method
    preset: str
    model: ModelConfig
    training: TrainingConfig

    def __post_init__(self) -> None:
        if isinstance(self.model.autoencoder, PretrainedAutoencoderConfig) and self.training.autoencoder_steps:
            raise ConfigError(
                f"training: autoencoder_steps={self.training.autoencoder_steps}; a pretrained autoencoder has no phase "
                "of its own, set 0 (with_autoencoder does)"
            )


MICRO_RATE = 0.08
"""Learning rate of micro planes under SOAP, which bears more than Adam."""


def _latent(preset: str) -> RunConfig:
    if preset == "tiny":
        # 32x32 images, six objects, under 30 seconds: what the tests train.
        return RunConfig(
            "fused-planes",
            preset,
            ModelConfig(
                resolution=16,
                micro_channels=6,
                macro_channels=10,
                base_planes=4,
                hidden=32,
                autoencoder=ImageAutoencoderConfig(downscale=2, latent_channels=6, width=32, detail_width=0),
                coarse_samples=16,
                fine_samples=16,
            ),
            TrainingConfig(
                autoencoder_steps=60,
                warm_up=PhaseConfig(steps=150, objects_per_batch=3, rays_per_object=256, micro_rate=MICRO_RATE),
                joint=PhaseConfig(
                    steps=200,
                    objects_per_batch=3,
                    micro_rate=MICRO_RATE,
                    image_decoder_rate=1e-3,
                    shifted_views=True,
                ),
                object_optimizer="soap",
            ),
        )
    if preset == "small":
        # Fits two CPU cores: 64x64 or 128x128 images, tens of objects, ten minutes; hence half the published samples.
        return RunConfig(
            "fused-planes",
            preset,
            ModelConfig(coarse_samples=24, fine_samples=24),
            TrainingConfig(
                autoencoder_steps=250,
                warm_up=PhaseConfig(steps=600, micro_rate=MICRO_RATE),
                joint=PhaseConfig(steps=4000, micro_rate=MICRO_RATE, image_decoder_rate=1e-3, shifted_views=True),
                object_optimizer="soap",
            ),
        )
    if preset == "paper":
        # Sizes, batches, rates and loss weights as published (Fused-Planes, section 4, and the released stage-1
        # settings). Two of the weights are odd, and kept: they were chosen for latents squashed by tanh(0.02 z), where
        # a unit error counts 4e-4, so the latent term weighs far more here, on standardised latents; and the published
        # total variation is a sum over elements divided by 64 + 64, while ours is a mean, so its 1e-4 is a whisper.
        # The autoencoder is our own, of the published shape of latents; `with_autoencoder` takes Stable Diffusion's.
        return RunConfig(
            "fused-planes",
            preset,
            ModelConfig(
                resolution=64,
                base_planes=50,
                autoencoder=ImageAutoencoderConfig(downscale=8, latent_channels=4),
            ),
            TrainingConfig(
                autoencoder_steps=20_000,
                warm_up=PhaseConfig(steps=7_050, objects_per_batch=128, rays_per_object=1024),
                joint=PhaseConfig(
                    steps=112_500,
                    objects_per_batch=32,
                    views_per_object=1,
                    micro_rate=1e-4,
                    decoder_rate=1e-4,
                    image_decoder_rate=1e-4,
                    encoder_rate=1e-4,
                    final_rate=0.09,
                ),
                autoencoder_loss=0.1,
                total_variation=1e-4,
            ),
        )
    raise ConfigError(f"preset '{preset}' does not exist; choose tiny, small or paper")


def preset(name: str, method: Method = "fused-planes") -> RunConfig:
    """A complete configuration by name.

    Args:
        name: "tiny" (tests), "small" (two CPU cores) or "paper" (published sizes).
        method: "fused-planes", "ulw" (no micro planes) or "tri-planes" (independent RGB planes, no latent space).

    Example:
        >>> preset("paper").model.object_values
        122930
    """
    config = _latent(name)
    model, training = config.model, config.training
    if method == "ulw":
        model = replace(model, micro_channels=0, macro_channels=model.channels)
    elif method == "tri-planes":
        model = replace(
            model,
            resolution=64 if name != "tiny" else model.resolution,
            micro_channels=model.channels,
            macro_channels=0,
            base_planes=0,
            shared_decoder=False,
            autoencoder=None,
        )
        training = replace(
            training,
            autoencoder_steps=0,
            warm_up=replace(training.warm_up, steps=sum(phase_steps(training).values()), decoder_rate=3e-3),
            joint=None,
            autoencoder_loss=0.0,
        )
    elif method != "fused-planes":
        raise ConfigError(f"method '{method}' does not exist; choose fused-planes, ulw or tri-planes")
    return RunConfig(method, name, model, training)


def phase_steps(training: TrainingConfig) -> dict[str, int]:
    """Steps of every phase by name, in order."""
    steps = {"autoencoder": training.autoencoder_steps, "warm-up": training.warm_up.steps}
    steps["joint"] = 0 if training.joint is None else training.joint.steps
    return {name: count for name, count in steps.items() if count}


def with_downscale(config: RunConfig, factor: int) -> RunConfig:
    """The same configuration with latent cells of ``factor`` pixels a side; methods without a latent space stay.

    Larger cells need more channels and a wider network to describe; smaller ones are many and simple.
    """
    if config.model.autoencoder is None:
        return config
    shapes = {
        2: {"latent_channels": 8, "width": 64, "decoder_blocks": 4, "detail_width": 0},
        4: {"latent_channels": 8},
        8: {"latent_channels": 16},
    }
    if factor not in shapes:
        raise ConfigError(f"downscale {factor}: choose 2, 4 or 8")
    if isinstance(config.model.autoencoder, PretrainedAutoencoderConfig):
        has = config.model.autoencoder.downscale
        raise ConfigError(f"downscale {factor}: latent cells of the pretrained autoencoder are {has} pixels a side")
    autoencoder = replace(config.model.autoencoder, downscale=factor, **shapes[factor])
    return replace(config, model=replace(config.model, autoencoder=autoencoder))


def with_banks(config: RunConfig, classes: int) -> RunConfig:
    """The same configuration with base planes for each of several classes: as many for each as for all before.

    Args:
        config: of a method with base planes.
        classes: how many data sets, each a class, the run is trained on.

    Raises:
        ConfigError: the method has no base planes, or there is one class only.
    """
    if config.model.base_planes == 0:
        raise ConfigError(f"method {config.method} has no base planes that could be banked")
    if classes < 2:
        raise ConfigError("banks of base planes need several data sets, each a class")
    return replace(config, model=replace(config.model, base_planes=classes * config.model.base_planes, banks=classes))


def with_autoencoder(config: RunConfig, autoencoder: PretrainedAutoencoderConfig) -> RunConfig:
    """The same configuration in the latent space of a published autoencoder, which needs no training of its own.

    With the preset "paper" and Stable Diffusion's autoencoder this is the published training: both its networks learn
    on in the joint phase, and the 1x1 convolutions between them stay. Two things differ: latents are the means of the
    encoder's distributions, not samples, and they are standardised where the authors squash them.

    Args:
        config: of a method with a latent space.
        autoencoder: from `fusedplanes.open_pretrained`.

    Raises:
        ConfigError: the method has no latent space.

    Example:
        >>> space = fusedplanes.open_pretrained("madebyollin/taesd")  # doctest: +SKIP
        >>> config = with_autoencoder(preset("paper"), space)  # doctest: +SKIP
    """
    if config.model.autoencoder is None:
        raise ConfigError(f"method {config.method} has no latent space; an autoencoder needs fused-planes or ulw")
    return replace(
        config,
        model=replace(config.model, autoencoder=autoencoder),
        training=replace(config.training, autoencoder_steps=0),
    )


def to_json(config: RunConfig) -> dict:
    """The configuration as plain JSON values."""
    return dataclasses.asdict(config)


def from_json(value: dict) -> RunConfig:
    """Rebuild a configuration from `to_json`.

    Raises:
        ConfigError: an unknown or missing field, or a value of the wrong type.
    """
    return _build(RunConfig, value, "config")


def _build(kind: type, value: object, where: str):
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected an object, found {type(value).__name__}")
    hints = _field_types(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ConfigError(f"{where}: unknown field '{unknown[0]}'; it may come from a newer version")
    arguments = {}
    for name, item in value.items():
        arguments[name] = _convert(hints[name], item, f"{where}.{name}")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _field_types(kind: type) -> dict[str, object]:
    """The fields of a configuration and their types; class variables are none."""
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _convert(hint, item, where: str):
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not types.NoneType]
        if item is None and len(options) < len(typing.get_args(hint)):
            return None
        return _convert(_likeliest(options, item), item, where)
    if dataclasses.is_dataclass(hint):
        return _build(hint, item, where)
    if origin is Literal:
        valid = item in typing.get_args(hint)
    elif origin is tuple:
        valid = isinstance(item, list | tuple) and all(isinstance(v, int | float) and abs(v) < 1e300 for v in item)
        item = tuple(item) if valid else item
    elif hint is float:
        valid = isinstance(item, int | float) and not isinstance(item, bool) and abs(item) < 1e300
    else:
        valid = isinstance(item, hint) and (hint is bool or not isinstance(item, bool))
    if not valid:
        raise ConfigError(f"{where}: {shown(item)} is not a valid value")
    return item


def _likeliest(options: list, item: object):
    """Of several kinds of configuration the one that knows most fields of a JSON object; the first, if none stands out.

    Its own checks then say what is wrong with the object, if anything.
    """

    def known(option) -> int:
        return len(item.keys() & _field_types(option).keys()) if dataclasses.is_dataclass(option) else 0

    return max(options, key=known) if isinstance(item, dict) else options[0]
