"""Stage 1: train shared parts and the planes of a class's objects together.

Three phases (Fused-Planes, section 3.2): the autoencoder on images alone, unless it is a published one; a warm-up of
the planes on random rays of its cached latents; a joint phase in which the image decoder learns to decode what the
planes render. Plain Tri-Planes have the second only, on colours.

A step works on a few objects (object-major): their planes are composed once, the optimiser touches their rows and the
shared parts, and nothing else, so a step costs the same for fifty objects as for a hundred thousand.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fusedplanes.autoencoders.pretrained import PretrainedAutoencoder
from fusedplanes.autoencoders.weight_files import load_weights
from fusedplanes.cameras import Cameras
from fusedplanes.fields import ObjectPlanes, compose_planes
from fusedplanes.images import composite_over
from fusedplanes.planes.banks import bank_mask
from fusedplanes.planes.config import ObjectOptimizer, PhaseConfig, RunConfig
from fusedplanes.planes.model import (
    DECODER_PREFIX,
    PlanesModel,
    SharedParts,
    initial_object,
    latent_cameras,
    object_from_record,
)
from fusedplanes.planes.views import RayTargets, TrainingViews, shift_views
from fusedplanes.rays import Rays
from fusedplanes.rendering.volume import render_rays
from fusedplanes.training.autoencoder import AutoencoderTrainer, AutoencoderTraining, sample_images
from fusedplanes.training.latent_cache import LatentCache
from fusedplanes.training.losses import total_variation
from fusedplanes.training.object_optimizer import ObjectAdam, ObjectTable
from fusedplanes.training.optimizer_state import load_optimizer_state
from fusedplanes.training.precision import fast_bfloat16

BETAS = (0.9, 0.99)
"""Adam's, of the shared parts; and of objects, which are met too rarely for a long memory of their second moments."""
SHORT_BETAS = (0.5, 0.9)
"""SOAP's. An object is in few steps, and what it is to become changes while the shared parts move: a long memory
points to where it was (cars at equal steps: 0.9 dB better than with ``BETAS``, rotation aside)."""
DATA_DIGEST = "data_digest"
"""Tensor of an object's record: what its images and cameras were, see `TrainingViews.digests`."""
PATCH_PIXELS = 256 * 128**2
"""Pixels of the images whose patches the autoencoder's linear start is computed from: 256 images of 128x128."""


@dataclass(frozen=True)
class Phase:
    """A named number of steps and the function that takes one."""

    name: str
    steps: int
    step: Callable[[int], Mapping[str, Tensor | float]]


def step_generator(seed: int, phase: str, step: int) -> torch.Generator:
    """The random numbers of one step, a function of where in the run it stands and of nothing that came before."""
    # Torch's CPU generator looks at 32 bits of its seed, so all three are mixed into those.
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}/{phase}/{step}".encode()))


def object_optimizer(name: ObjectOptimizer, table: ObjectTable) -> ObjectAdam:
    """A new optimiser of the objects' own tensors."""
    if name == "soap":
        return ObjectAdam(table, betas=SHORT_BETAS, rotated=("micro_planes",))
    return ObjectAdam(table, betas=BETAS)


class ObjectBatches:
    """Rows of the objects in each step: every object once per epoch, in an order drawn per epoch."""

    def __init__(self, objects: int, size: int, seed: int) -> None:
        self.objects, self.size, self.seed = objects, min(size, objects), seed

    def __call__(self, step: int) -> Tensor:
        first = step * self.size
        rows = []
        for position in range(first, first + self.size):
            epoch, place = divmod(position, self.objects)
            rows.append(self._order(epoch)[place])
        # The end of one epoch and the start of the next may name an object twice; once is enough.
        return torch.tensor(sorted(set(rows)))

    def _order(self, epoch: int) -> list[int]:
        if getattr(self, "_cached", (None,))[0] != epoch:
            order = torch.randperm(self.objects, generator=step_generator(self.seed, "epoch", epoch)).tolist()
            self._cached = (epoch, order)
        return self._cached[1]


def annealed(step: int, steps: int, final: float) -> float:
    """Cosine factor of the learning rates: 1 at the first step, ``final`` at the last, after a short linear rise."""
    rise = min(1.0, (step + 1) / min(50, max(steps // 10, 1)))
    return rise * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * step / max(steps, 1))))


class StageOne:
    """State of a stage-1 run: the model's shared parts, the objects' table, and the optimisers of both.

    Args:
        config: the run's configuration.
        views: training views of every object.
        device: where steps run.
        shared: trained shared parts to go on from, whose latent statistics stay as they are; fresh ones if not given.
    """

    def __init__(
        self,
        config: RunConfig,
        views: TrainingViews,
        *,
        device: str | torch.device = "cpu",
        shared: SharedParts | None = None,
    ) -> None:
        self.config, self.views, self.device = config, views, torch.device(device)
        # Said outright, MKL takes exactly so many: a run that goes on in a new process adds in the same order.
        torch.set_num_threads(torch.get_num_threads())
        if shared is None:
            torch.manual_seed(config.training.seed)
        self.model = PlanesModel(config, shared)
        self.shared = self.model.shared.to(self.device)
        self.keeps_statistics = shared is not None
        generator = torch.Generator().manual_seed(config.training.seed)
        first = [initial_object(config.model, generator) for _ in views.ids]
        self.own = self.trained = tuple(first[0])
        tensors = {name: torch.stack([item[name] for item in first]) for name in self.own}
        self.mixed = bank_mask(views.classes, config.model.base_planes, config.model.banks)
        if self.mixed is not None:
            # Fewer planes in a mix, as much variance.
            tensors["weights"] *= self.mixed * config.model.banks**0.5
        tensors["world_from_source"] = torch.stack([matrix.float() for matrix in views.world_from_source])
        tensors[DATA_DIGEST] = views.digests()
        self.table = ObjectTable(views.ids, tensors)
        self.object_adam = object_optimizer(config.training.object_optimizer, self.table)
        self.bfloat16 = fast_bfloat16(self.device)
        self.targets: RayTargets | None = None
        self.latents: LatentCache | None = None
        self._set_up_phases()

    def _set_up_phases(self) -> None:
        training = self.config.training
        self.phases: list[Phase] = []
        if self.shared.autoencoder is not None and training.autoencoder_steps:
            self.autoencoder_trainer = AutoencoderTrainer(
                self.shared.autoencoder,
                steps=training.autoencoder_steps,
                training=AutoencoderTraining(bfloat16=self.bfloat16),
            )
            self.phases.append(Phase("autoencoder", training.autoencoder_steps, self._autoencoder_step))
        if training.warm_up.steps:
            self.phases.append(Phase("warm-up", training.warm_up.steps, self._warm_up_step))
        if training.joint is not None:
            self.phases.append(Phase("joint", training.joint.steps, self._joint_step))
        self._batches = {
            name: ObjectBatches(len(self.views), phase.objects_per_batch, training.seed)
            for name, phase in (("warm-up", training.warm_up), ("joint", training.joint))
            if phase is not None
        }
        self._adams: dict[str, torch.optim.Adam] = {}

    def start_pretrained(self) -> None:
        """Set a pretrained autoencoder to its published weights; a run that goes on has its own.

        Raises:
            DataError: they are not where the configuration says, or damaged.
        """
        if isinstance(self.shared.autoencoder, PretrainedAutoencoder):
            load_weights(self.shared.autoencoder)

    # Phases -------------------------------------------------------------------------------------------------------

    def prepare(self, phase: str, first_step: int = 0) -> None:
        """Set up what a phase needs that no checkpoint holds: ray targets, from cached latents or from images.

        Args:
            phase: its name.
            first_step: where it begins; beyond 0 it is being resumed.
        """
        if first_step == 0:
            self.object_adam.drop(self.table.ids)
        background = self.config.model.background_color
        if phase == "autoencoder":
            if first_step == 0:
                generator = step_generator(self.config.training.seed, "patches", 0)
                width, height = self.views.size
                count = min(256, max(16, PATCH_PIXELS // (width * height)))
                images = sample_images(self.views.images, count, background, generator)
                self.shared.autoencoder.start_linear(images.to(self.device))
            return
        # Says which parameters are trained: known before the first step, they take part in it.
        self.shared_adam(phase)
        if self.shared.autoencoder is None:
            self.targets = RayTargets.colors(self.views, background)
            return
        if phase == "joint" and self.config.training.joint.shifted_views:
            self.model.forget_background()
            return
        self.latents = LatentCache.build(self.shared.autoencoder, self.views.images, background)
        self.model.forget_background()
        if first_step == 0 and not self.keeps_statistics:
            # An encoder that is being trained moves on, and the scale of its latents is part of what it is trained in.
            self.shared.latent_mean.copy_(self.latents.mean)
            self.shared.latent_scale.copy_(self.latents.scale)
        latents = [self._standardised(index) for index in range(len(self.views))]
        width, height = self.views.size
        empty = self.model.background(Cameras.orbit(1, width=width, height=height))
        self.targets = RayTargets.latents(self.views, latents, empty, self.config.model.autoencoder.downscale)

    def _autoencoder_step(self, step: int) -> Mapping[str, Tensor | float]:
        training = self.config.training
        generator = step_generator(training.seed, "autoencoder", step)
        background = self.config.model.background_color
        images = sample_images(self.views.images, training.autoencoder_batch, background, generator)
        return self.autoencoder_trainer.step(images.to(self.device), generator=generator)

    def _warm_up_step(self, step: int) -> Mapping[str, Tensor | float]:
        phase, training, model = self.config.training.warm_up, self.config.training, self.config.model
        generator = step_generator(training.seed, "warm-up", step)
        rows = self._batches["warm-up"](step)
        leaves, planes, decoder = self._compose(rows)
        rays, values, background = self.targets.sample(
            rows.tolist(), phase.rays_per_object, training.foreground_rays, generator
        )
        marched = render_rays(
            planes,
            decoder,
            rays,
            coarse_samples=model.coarse_samples,
            fine_samples=model.fine_samples,
            value_activation="sigmoid" if model.autoencoder is None else "linear",
            seed=_jitter_seed(generator),
        )
        predicted = marched.values + (1 - marched.alpha[..., None]) * background
        error = (predicted - values).square().mean()
        loss = error + training.total_variation * total_variation(planes)
        self._update("warm-up", phase, step, loss, leaves, rows)
        return {"loss": loss.detach(), "psnr": -10 * error.detach().log10()}

    def _joint_step(self, step: int) -> Mapping[str, Tensor | float]:
        phase, training, model = self.config.training.joint, self.config.training, self.config.model
        generator = step_generator(training.seed, "joint", step)
        rows = self._batches["joint"](step)
        leaves, planes, decoder = self._compose(rows)
        white = model.background_color
        images, cameras, targets = [], [], []
        for index in rows.tolist():
            count = len(self.views.cameras[index])
            chosen = torch.randperm(count, generator=generator)[: phase.views_per_object]
            views, view_cameras = self.views.images[index][chosen], self.views.cameras[index][chosen]
            if phase.shifted_views:
                views, view_cameras = shift_views(views, view_cameras, model.autoencoder.downscale // 2, generator)
            elif not phase.encoder_rate:
                targets.append(self._standardised(index)[chosen])
            images.append(composite_over(views.float() / 255, white))
            cameras.append(view_cameras)
        images = torch.stack(images)
        batch = latent_cameras(
            Cameras(
                torch.stack([c.camera_to_world for c in cameras]),
                torch.stack([c.intrinsics for c in cameras]),
                *self.views.size,
            ),
            model.autoencoder.downscale,
        )
        rays = Rays.from_cameras(batch)
        marched = render_rays(
            planes,
            decoder,
            rays.flatten(-2, -1),
            coarse_samples=model.coarse_samples,
            fine_samples=model.fine_samples,
            seed=_jitter_seed(generator),
        )
        shape = (*batch.batch_shape, batch.height, batch.width)
        alpha = marched.alpha.view(*shape, 1)
        if phase.encoder_rate:
            self.model.forget_background()
        background = self.model.background(cameras[0])
        rendered = marched.values.view(*shape, -1) + (1 - alpha) * background
        flat_images = images.flatten(0, 1)
        if phase.encoder_rate:
            mean, _ = self.shared.autoencoder.encode(flat_images)
            latents = (mean - self.shared.latent_mean) / self.shared.latent_scale
        else:
            latents = torch.stack(targets).flatten(0, 1) if targets else None
        rendered = rendered.flatten(0, 1)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            decoded = self.model.decode(rendered)
        color_error = (decoded - flat_images).square().mean()
        loss = training.color_loss * color_error
        metrics = {"psnr": -10 * color_error.detach().log10()}
        if latents is not None:
            latent_error = (rendered - latents).square().mean()
            loss = loss + training.latent_loss * latent_error
            metrics["latent"] = latent_error.detach()
            if training.autoencoder_loss:
                reconstruction = (self.model.decode(latents) - flat_images).square().mean()
                loss = loss + training.autoencoder_loss * reconstruction
        loss = loss + training.total_variation * total_variation(planes)
        self._update("joint", phase, step, loss, leaves, rows)
        return {"loss": loss.detach(), **metrics}

    def _standardised(self, index: int) -> Tensor:
        means, _ = self.latents.read(index)
        return (means - self.shared.latent_mean.cpu()) / self.shared.latent_scale.cpu()

    def object_planes(self, id: str) -> ObjectPlanes:
        """An object as it stands."""
        return object_from_record(self.table.record(id))

    # State --------------------------------------------------------------------------------------------------------

    def optimizer_state(self, phase: str) -> dict:
        """State of the shared parts' optimiser in a phase."""
        if phase == "autoencoder":
            return self.autoencoder_trainer.state_dict()
        adam = self.shared_adam(phase)
        return {} if adam is None else adam.state_dict()

    def load_optimizer_state(self, phase: str, state: dict) -> None:
        """Continue where `optimizer_state` was taken."""
        if phase == "autoencoder":
            self.autoencoder_trainer.load_state_dict(state)
        elif state:
            load_optimizer_state(self.shared_adam(phase), state)

    # Parameters ---------------------------------------------------------------------------------------------------

    def _compose(self, rows: Tensor) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
        leaves = {name: self.table.tensors[name][rows].to(self.device) for name in self.own}
        for name in self.trained:
            leaves[name].requires_grad_()
        planes = compose_planes(leaves["micro_planes"], leaves["weights"], self.shared.base_planes)
        if self.shared.decoder is not None:
            return leaves, planes, self.shared.decoder.tensors()
        own = {name.removeprefix(DECODER_PREFIX): leaves[name] for name in leaves if name.startswith(DECODER_PREFIX)}
        return leaves, planes, own

    def _update(
        self, name: str, phase: PhaseConfig, step: int, loss: Tensor, leaves: dict[str, Tensor], rows: Tensor
    ) -> None:
        adam = self.shared_adam(name)
        if adam is not None:
            adam.zero_grad(set_to_none=True)
        loss.backward()
        total = self.config.training.warm_up.steps if name == "warm-up" else phase.steps
        factor = annealed(step, total, phase.final_rate)
        if adam is not None:
            for group in adam.param_groups:
                group["lr"] = factor * group["base_lr"]
            adam.step()
        rates = {"micro_planes": phase.micro_rate, "weights": phase.weights_rate}
        for key, leaf in leaves.items():
            if leaf.grad is not None and leaf.numel():
                rate = rates.get(key, phase.decoder_rate)
                masked = key == "weights" and self.mixed is not None
                gradient = leaf.grad * self.mixed[rows].to(leaf.grad) if masked else leaf.grad
                self.object_adam.step(key, rows, gradient, factor * rate)

    def shared_adam(self, name: str) -> torch.optim.Adam | None:
        """The optimiser of the shared parts in a phase; every phase starts a fresh one."""
        phase = self.config.training.warm_up if name == "warm-up" else self.config.training.joint
        if name not in self._adams:
            groups = [([self.shared.base_planes], phase.base_rate)]
            if self.shared.decoder is not None:
                groups.append((list(self.shared.decoder.parameters()), phase.decoder_rate))
            if self.shared.autoencoder is not None:
                groups.append((list(self.shared.autoencoder.decoder_parameters()), phase.image_decoder_rate))
                groups.append((list(self.shared.autoencoder.encoder_parameters()), phase.encoder_rate))
            groups = [
                {"params": [p for p in parameters if p.numel()], "base_lr": rate, "lr": rate}
                for parameters, rate in groups
                if rate > 0 and any(p.numel() for p in parameters)
            ]
            trained = {id(p) for group in groups for p in group["params"]}
            for parameter in self.shared.parameters():
                parameter.requires_grad_(id(parameter) in trained)
            self._adams[name] = torch.optim.Adam(groups, betas=BETAS, fused=True) if groups else None
        return self._adams[name]


def _jitter_seed(generator: torch.Generator) -> int:
    return int(torch.randint(1 << 30, (), generator=generator))
