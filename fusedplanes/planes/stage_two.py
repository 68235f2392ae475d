"""Stage 2: new objects against trained shared parts.

Base planes, field decoder and autoencoder stand still, so that no object that was trained before can go stale
(Fused-Planes, section 3.2, trains them on; the released code even starts them anew). What moves is a new object's
weights, which start from least squares, and its micro planes, which start from zero: on cached latents first, where
stage 1 kept to the encoder's latents, then through the image decoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from fusedplanes.errors import ConfigError
from fusedplanes.images import composite_over
from fusedplanes.planes.config import FIT_SHARE, FitMode, PhaseConfig, RunConfig
from fusedplanes.planes.model import SharedParts
from fusedplanes.planes.stage_one import StageOne, step_generator
from fusedplanes.planes.views import TrainingViews
from fusedplanes.planes.weights_start import least_squares_weights

MICRO_RATE, WEIGHTS_RATE, VIEWS_PER_OBJECT = 0.2, 0.02, 12
"""Learning rates, and views of an object in a step: where the shared parts stand still, an object can move faster."""


def check_mode(mode: str) -> None:
    """Refuse what is no `FitMode`.

    Raises:
        ConfigError: it is none.
    """
    if mode not in get_args(FitMode):
        raise ConfigError(f"mode '{mode}' does not exist; choose {' or '.join(get_args(FitMode))}")


def stage_two_config(
    config: RunConfig, *, old: int, new: int, share: float = FIT_SHARE, train_shared: bool = False
) -> RunConfig:
    """The run's configuration with the steps and rates of stage 2.

    Args:
        config: what stage 1 was trained with.
        old: objects of stage 1.
        new: objects that are trained together.
        share: see ``FIT_SHARE``.
        train_shared: also train what the class shares, as published; otherwise it is frozen.
    """

    training = config.training

    def phase(of: PhaseConfig, visits: float) -> PhaseConfig:
        steps = round(share * visits * new / min(of.objects_per_batch, new))
        if train_shared:
            return replace(of, steps=max(1, steps), encoder_rate=0.0)
        if not config.model.base_planes:
            # Independent objects share nothing that could stand still: they are trained as those of stage 1 were.
            return replace(of, steps=max(1, steps))
        return replace(
            of,
            steps=max(1, steps),
            micro_rate=MICRO_RATE,
            weights_rate=WEIGHTS_RATE,
            base_rate=0.0,
            decoder_rate=0.0,
            image_decoder_rate=0.0,
            encoder_rate=0.0,
        )

    def visits(of: PhaseConfig) -> float:
        return of.steps * min(of.objects_per_batch, old) / old

    warm_up, joint = training.warm_up, training.joint
    if joint is not None and joint.shifted_views:
        # Nothing held the joint phase to the encoder's latents: they are no target any more.
        joint = replace(phase(joint, visits(joint) + visits(warm_up)), views_per_object=VIEWS_PER_OBJECT)
        warm_up = replace(warm_up, steps=0)
    else:
        joint = None if joint is None else phase(joint, visits(joint))
        warm_up = phase(warm_up, visits(warm_up))
    training = replace(training, autoencoder_steps=0, autoencoder_loss=0.0, warm_up=warm_up, joint=joint)
    if config.model.base_planes and not train_shared:
        training = replace(training, object_optimizer="soap")
    return replace(config, training=training)


class StageTwo(StageOne):
    """State of stage 2: new objects in a table of their own, and trained shared parts.

    Args:
        config: from `stage_two_config`.
        views: training views of the new objects.
        shared: trained shared parts.
        known: ``[K, M]`` weights of trained objects, the prior of new ones.
        mode: "weights" moves the mix of base planes alone, "weights+micro" the micro planes too.
        device: where steps run.
    """

    def __init__(
        self,
        config: RunConfig,
        views: TrainingViews,
        *,
        shared: SharedParts,
        known: Tensor,
        mode: FitMode = "weights+micro",
        device: str | torch.device = "cpu",
    ) -> None:
        check_mode(mode)
        super().__init__(config, views, device=device, shared=shared)
        self.known = known
        self.mixed = None  # A new object may mix from every bank.
        # A class that shares its decoder has base planes; independent objects start as they do in stage 1.
        self.starts = config.model.base_planes > 0
        if self.starts:
            self.table.tensors["micro_planes"].zero_()
            self.table.tensors["weights"].copy_(known.mean(0))
            if mode == "weights":
                self.trained = ("weights",)

    def prepare(self, phase: str, first_step: int = 0) -> None:
        super().prepare(phase, first_step)
        if self.starts and first_step == 0 and phase == self.phases[0].name:
            background = self.config.model.background_color
            for row, cameras in enumerate(self.views.cameras):
                images = composite_over(self.views.images[row].float() / 255, background)
                generator = step_generator(self.config.training.seed, "start", row)
                weights = least_squares_weights(self.model, images, cameras, self.known, generator)
                self.table.tensors["weights"][row] = weights
