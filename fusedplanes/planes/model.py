"""Planar models of an object class: Fused-Planes, its ultra-lightweight variant, and plain Tri-Planes.

All three are one arrangement (`ModelConfig`) of the same field and the same renderer; `FusedPlanes` and `TriPlanes` are
the names under which they are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from fusedplanes.autoencoders.kinds import make_autoencoder
from fusedplanes.cameras import Cameras
from fusedplanes.errors import CheckpointError, ConfigError, DataError, shown
from fusedplanes.fields import FieldDecoder, ObjectPlanes, compose_planes, query_field
from fusedplanes.licences import LicenceRecord
from fusedplanes.planes.config import FIT_SHARE, FitMode, ModelConfig, RunConfig
from fusedplanes.rays import Rays
from fusedplanes.rendering.volume import RenderOutput, render_cameras
from fusedplanes.training.latent_cache import background_latents
from fusedplanes.training.object_store import MemoryObjectStore, ObjectStore
from fusedplanes.training.precision import single_precision

DECODER_PREFIX = "decoder."
VIEWS_AT_ONCE = 8


class SharedParts(nn.Module):
    """What all objects of a class share: base planes, field decoder, autoencoder and the statistics of its latents."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        side = config.resolution
        # Micro planes start at zero and weights at variance 1/M, so that both groups of channels start on one scale
        # (the published start, all standard normal, puts the macro planes sqrt(M) above the micro planes).
        self.base_planes = nn.Parameter(
            BASE_SCALE * torch.randn(config.base_planes, 3, side, side, config.macro_channels, dtype=torch.float32)
        )
        self.decoder = FieldDecoder(config.channels, config.hidden, config.values) if config.shared_decoder else None
        self.autoencoder = None if config.autoencoder is None else make_autoencoder(config.autoencoder)
        # Standardised latents have mean 0 and deviation 1 in every channel over the cached training views.
        self.register_buffer("latent_mean", torch.zeros(config.values, dtype=torch.float32))
        self.register_buffer("latent_scale", torch.ones(config.values, dtype=torch.float32))


BASE_SCALE = 0.3
MICRO_SCALE = 0.1


def initial_object(config: ModelConfig, generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """Starting values of one object's own tensors, by name."""
    side = config.resolution
    normal = partial(torch.randn, generator=generator, dtype=torch.float32)
    tensors = {
        "micro_planes": MICRO_SCALE * normal(3, side, side, config.micro_channels),
        "weights": normal(config.base_planes) / max(config.base_planes, 1) ** 0.5,
    }
    if not config.shared_decoder:
        decoder = FieldDecoder.initial(config.channels, config.hidden, config.values, generator)
        tensors |= {DECODER_PREFIX + name: value for name, value in decoder.items()}
    return tensors


@dataclass(frozen=True)
class Geometry:
    """Surface seen from cameras, marched from the density at full image resolution.

    Attributes:
        alpha: ``[V, H, W]`` coverage in [0, 1].
        depth: ``[V, H, W]`` expected camera-z depth in world units, 0 where ``alpha < 1e-4``.
        normals: ``[V, H, W, 3]`` unit world normals facing the camera, 0 where there is no depth.
    """

    alpha: Tensor
    depth: Tensor
    normals: Tensor


class PlanesModel:
    """A trained class: shared parts, and a store with one small record per object.

    Everywhere an object is asked for, its id or an `ObjectPlanes` is accepted.

    Args:
        config: the run's configuration.
        shared: shared parts; fresh ones if not given.
        store: where objects are read from; an empty one in memory if not given.
    """

    def __init__(self, config: RunConfig, shared: SharedParts | None = None, store: ObjectStore | None = None) -> None:
        self.config = config
        self.shared = SharedParts(config.model) if shared is None else shared
        self.store = MemoryObjectStore() if store is None else store
        self.stage_one_objects: int | None = None
        self.image_size: tuple[int, int] | None = None
        self.licences: tuple[LicenceRecord, ...] = ()
        self._background_latents: dict[tuple[int, int], Tensor] = {}

    @classmethod
    def load(cls, run: str | Path, *, device: str | torch.device = "cpu") -> PlanesModel:
        """Open a run folder written by `fusedplanes train`.

        Args:
            run: the folder.
            device: where the shared parts go and where objects are rendered.

        Raises:
            CheckpointError: no checkpoint there, a damaged one, or one of a newer version.
            ConfigError: the run holds another method than this class stands for.

        Example:
            >>> model = FusedPlanes.load("runs/cars")  # doctest: +SKIP
            >>> output = model.render("car_003", Cameras.orbit(8))  # doctest: +SKIP
        """
        from fusedplanes.planes.run_folder import licences_of, open_run, training_size

        config, shared, store, stage_one_objects = open_run(run)
        model = cls(config, shared.to(device).eval().requires_grad_(False), store)
        model.stage_one_objects, model.licences = stage_one_objects, licences_of(run)
        model.image_size = training_size(run)
        if config.method not in cls.METHODS:
            raise ConfigError(f"{run}: holds a {config.method} model; open it with fusedplanes.load")
        return model

    METHODS: tuple[str, ...] = ("fused-planes", "ulw", "tri-planes")

    # Objects ------------------------------------------------------------------------------------------------------

    @property
    def object_ids(self) -> list[str]:
        """Ids of the stored objects, in the order of the data set they were trained on."""
        return list(self.store.ids)

    @property
    def device(self) -> torch.device:
        return self.shared.latent_mean.device

    def object_planes(self, item: str | ObjectPlanes) -> ObjectPlanes:
        """The stored planes and weights of an object, on the model's device."""
        if isinstance(item, ObjectPlanes):
            return checked_object(item, self.config.model, self.device)
        if not isinstance(item, str):
            raise DataError(f"object: expected an id or ObjectPlanes, not {type(item).__name__}")
        if item not in self.store:
            raise DataError(f"object {shown(item)} is not in this model; {_known_ids(item, self.store.ids)}")
        try:
            return checked_object(object_from_record(self.store.read(item)), self.config.model, self.device)
        except DataError as error:
            raise CheckpointError(f"object '{item}': {error}; the run's files do not belong together") from error

    def interpolate(self, a: str | ObjectPlanes, b: str | ObjectPlanes, t: float) -> ObjectPlanes:
        """The object a fraction ``t`` of the way from ``a`` to ``b``: planes and weights are mixed linearly."""
        if not math.isfinite(t):
            raise DataError(f"interpolate: t is {t}; expected a finite number, 0 for a and 1 for b")
        return self.object_planes(a).interpolate(self.object_planes(b), t)

    def fit(
        self,
        images: Tensor,
        cameras: Cameras,
        *,
        mode: FitMode = "weights+micro",
        share: float = FIT_SHARE,
        seed: int = 0,
    ) -> ObjectPlanes:
        """Fit a new object to views of it; the model itself, and every object in it, stays as it is.

        The weights start from least squares over the base planes, with the weights of known objects as a prior; micro
        planes start from zero.

        Args:
            images: ``[V, H, W, 3 or 4]`` in [0, 1], sRGB, of the size the model was trained on; alpha is straight.
            cameras: ``V`` cameras, with the object inside the field's box [-1, 1]^3.
            mode: "weights" finds the mix of base planes alone, which is best for a single view; "weights+micro"
                the micro planes too.
            share: steps, as a share of those that training gave each object.
            seed: of the order of views and rays.

        Returns:
            The object, which every method accepts in place of an id.

        Raises:
            DataError: images and cameras do not fit each other or the model.
            ConfigError: ``mode`` is unknown, ``share`` or ``seed`` out of range.

        Example:
            >>> new = model.fit(images, cameras, mode="weights")  # doctest: +SKIP
            >>> model.render(new, Cameras.orbit(8)).color  # doctest: +SKIP
        """
        from fusedplanes.planes.add import fit

        return fit(self, images, cameras, mode=mode, share=share, seed=seed)

    def composed(self, item: str | ObjectPlanes) -> tuple[Tensor, dict[str, Tensor]]:
        """Composed planes ``[3, H, W, C]`` and the field decoder of an object."""
        item = self.object_planes(item)
        planes = compose_planes(item.micro_planes[None], item.weights[None], self.shared.base_planes)[0]
        return planes, self.shared.decoder.tensors() if item.decoder is None else item.decoder

    @torch.no_grad()
    def planes(self, item: str | ObjectPlanes, *, layout: str = "channels_first") -> Tensor:
        """An object's composed planes.

        Args:
            layout: "channels_first" gives ``[3*C, H, W]`` (contiguous, for 2D networks; XY, XZ, YZ one after another),
                "channels_last" gives ``[3, H, W, C]``.
        """
        planes, _ = self.composed(item)
        if layout == "channels_last":
            return planes
        if layout != "channels_first":
            raise ConfigError(f"layout '{layout}' does not exist; choose channels_first or channels_last")
        return planes.permute(0, 3, 1, 2).flatten(0, 1).contiguous()

    # Rendering ----------------------------------------------------------------------------------------------------

    def render(self, item: str | ObjectPlanes, cameras: Cameras) -> RenderOutput:
        """Render views of an object over the background the model was trained with.

        Args:
            item: id or planes.
            cameras: ``[V]`` or a single camera; width and height divisible by the autoencoder's factor.

        Returns:
            ``color [V, H, W, 3]`` in [0, 1]. A latent model's ``alpha`` and ``depth`` are marched at latent
            resolution; `geometry` gives them at any resolution.

        Raises:
            DataError: unknown id, or an image size the latent grid does not divide.
        """
        cameras, single = batched(cameras, self.device)
        with single_precision(self.device):
            planes, decoder = self.composed(item)
            parts = [
                self._render_views(planes, decoder, cameras[start : start + VIEWS_AT_ONCE])
                for start in range(0, len(cameras), VIEWS_AT_ONCE)
            ]
        color, alpha, depth = (torch.cat([getattr(p, name) for p in parts]) for name in ("color", "alpha", "depth"))
        output = RenderOutput(color.clamp(0, 1), alpha, depth)
        return RenderOutput(output.color[0], output.alpha[0], output.depth[0]) if single else output

    def _render_views(self, planes: Tensor, decoder: dict[str, Tensor], cameras: Cameras) -> RenderOutput:
        output = render_field_views(self.config.model, planes[None], decoder, cameras[None], self.background(cameras))
        color, alpha, depth = output.color[0], output.alpha[0], output.depth[0]
        if self.shared.autoencoder is not None:
            color = self.decode(color)
        return RenderOutput(color, alpha, depth)

    def decode(self, latents: Tensor) -> Tensor:
        """Standardised latents ``[B, h, w, c]`` to images ``[B, H, W, 3]``, not clamped."""
        return self.shared.autoencoder.decode(latents * self.shared.latent_scale + self.shared.latent_mean)

    def forget_background(self) -> None:
        """The encoder has changed: its code of an empty image is computed anew when it is next needed."""
        self._background_latents.clear()

    def background(self, cameras: Cameras) -> Tensor:
        """What lies behind the object: a colour, or the encoder's present code of an empty image."""
        color = self.config.model.background_color.to(self.device)
        if self.shared.autoencoder is None:
            return color
        size = (cameras.height, cameras.width)
        if size not in self._background_latents:
            latents = background_latents(self.shared.autoencoder, color, cameras.width, cameras.height)
            self._background_latents[size] = (latents - self.shared.latent_mean) / self.shared.latent_scale
        return self._background_latents[size]

    def geometry(self, item: str | ObjectPlanes, cameras: Cameras) -> Geometry:
        """March the density alone, at the cameras' own resolution.

        Args:
            item: id or planes.
            cameras: ``[V]`` or a single camera, of any size.
        """
        cameras, single = batched(cameras, self.device)
        with single_precision(self.device):
            planes, decoder = self.composed(item)
            # Copies, because tensors made in inference mode cannot take part in a gradient.
            planes, decoder = planes.clone(), {name: value.clone() for name, value in decoder.items()}
            parts = [self._surface(planes, decoder, cameras[index : index + 1]) for index in range(len(cameras))]
        alpha, depth, normals = (torch.stack(values) for values in zip(*parts, strict=True))
        return Geometry(alpha[0], depth[0], normals[0]) if single else Geometry(alpha, depth, normals)

    def _surface(self, planes: Tensor, decoder: dict[str, Tensor], view: Cameras) -> tuple[Tensor, Tensor, Tensor]:
        """Alpha, depth and normals of one view ``[1]``."""
        model, rays = self.config.model, Rays.from_cameras(view)
        output = render_cameras(
            planes[None],
            decoder,
            view[None],
            torch.zeros(model.values, device=self.device, dtype=torch.float32),
            rays=rays[None],
            coarse_samples=model.coarse_samples,
            fine_samples=model.fine_samples,
        )
        alpha, depth = output.alpha[0, 0], output.depth[0, 0]
        cosine = (rays.directions[0] * view.forward).sum(-1)
        points = rays.origins[0] + rays.directions[0] * (depth.flatten() / cosine)[:, None]
        points.requires_grad_(True)
        with torch.enable_grad():
            density, _ = query_field(planes, decoder, points)
            (gradient,) = torch.autograd.grad(density.sum(), points)
        normals = -nn.functional.normalize(gradient, dim=-1)
        toward = (normals * rays.directions[0]).sum(-1, keepdim=True)
        normals = torch.where(toward > 0, -normals, normals) * (depth.flatten()[:, None] > 0)
        return alpha, depth, normals.view(*depth.shape, 3)

    # Accounting ---------------------------------------------------------------------------------------------------

    def object_bytes(self, *, bytes_per_value: int = 4) -> int:
        """Payload of one object: its own numbers at the given precision, without file overhead."""
        return self.config.model.object_values * bytes_per_value

    def shared_bytes(self, *, encoder: bool = True, bytes_per_value: int = 4) -> int:
        """Payload of what the class shares; the encoder is not needed for rendering."""
        count = sum(p.numel() for p in self.shared.parameters())
        if not encoder and self.shared.autoencoder is not None:
            count -= sum(tensor.numel() for tensor in self.shared.autoencoder.encoding_tensors().values())
        return count * bytes_per_value


def _known_ids(item: str, ids: Sequence[str]) -> str:
    """The ids that are most like one that is not there, or the first few."""
    likely = get_close_matches(str(item), ids, n=3) or list(ids[:5])
    return f"of its {len(ids)} objects, try {', '.join(likely)}" if likely else "it has no objects"


def batched(cameras: Cameras, device: torch.device) -> tuple[Cameras, bool]:
    """Cameras ``[V]`` on a device, and whether it was a single one without a batch dimension."""
    if not isinstance(cameras, Cameras):
        raise DataError(f"cameras: expected fusedplanes.Cameras, not {type(cameras).__name__}; see Cameras.orbit")
    single = not cameras.batch_shape
    cameras = cameras[None] if single else cameras
    if len(cameras.batch_shape) != 1 or len(cameras) == 0:
        raise DataError(f"cameras: batch shape {tuple(cameras.batch_shape)}; expected one dimension, at least 1 long")
    return cameras.to(device, torch.float32), single


def object_from_record(record: dict[str, Tensor]) -> ObjectPlanes:
    """An object from its stored tensors by name."""
    decoder = {
        name.removeprefix(DECODER_PREFIX): value for name, value in record.items() if name.startswith(DECODER_PREFIX)
    }
    missing = {"micro_planes", "weights"} - record.keys()
    if missing:
        raise DataError(f"{min(missing)} is missing")
    return ObjectPlanes(record["micro_planes"], record["weights"], decoder or None, record.get("world_from_source"))


@lru_cache
def object_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of an object's own tensors by name."""
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in initial_object(config).items()}


def checked_object(item: ObjectPlanes, config: ModelConfig, device: torch.device) -> ObjectPlanes:
    """An object's tensors as float32 on ``device``, once they fit the model.

    Raises:
        DataError: a tensor is missing, of another shape, no floats, or not finite.
    """
    found = {"micro_planes": item.micro_planes, "weights": item.weights}
    found |= {DECODER_PREFIX + name: value for name, value in (item.decoder or {}).items()}
    shapes = object_shapes(config)
    if found.keys() != shapes.keys():
        raise DataError(f"has the tensors {', '.join(found)}; this model's objects have {', '.join(shapes)}")
    for name, value in found.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise DataError(f"{name} is {kind}; expected a tensor of floats")
        if tuple(value.shape) != shapes[name]:
            raise DataError(f"{name} has shape {tuple(value.shape)}; this model's objects have {shapes[name]}")
        found[name] = value.to(device, torch.float32)
        if not bool(torch.isfinite(found[name]).all()):
            raise DataError(f"{name} has values that are not finite")
    decoder = {name.removeprefix(DECODER_PREFIX): found[name] for name in found if name.startswith(DECODER_PREFIX)}
    return ObjectPlanes(found["micro_planes"], found["weights"], decoder or None, item.world_from_source)


def render_field_views(
    model: ModelConfig,
    planes: Tensor,
    decoder: dict[str, Tensor],
    cameras: Cameras,
    background: Tensor,
    *,
    seed: int | None = None,
) -> RenderOutput:
    """Render the field itself, colours or latents, for image cameras ``[B, V]``.

    A latent field is rendered on the autoencoder's grid: the cameras shrink by its factor.

    Raises:
        DataError: the factor does not divide the image size.
    """
    if model.autoencoder is not None:
        cameras = latent_cameras(cameras, model.autoencoder.downscale)
    return render_cameras(
        planes,
        decoder,
        cameras,
        background,
        coarse_samples=model.coarse_samples,
        fine_samples=model.fine_samples,
        value_activation="sigmoid" if model.autoencoder is None else "linear",
        seed=seed,
    )


def latent_cameras(cameras: Cameras, factor: int) -> Cameras:
    """The same views on the latent grid."""
    if cameras.width % factor or cameras.height % factor:
        raise DataError(
            f"image size {cameras.width}x{cameras.height}: both sides must be divisible by {factor}, "
            "the autoencoder's factor"
        )
    return cameras.resized(cameras.width // factor, cameras.height // factor)


class FusedPlanes(PlanesModel):
    """Fused-Planes and its ultra-lightweight variant: fields in a latent space, over shared base planes."""

    METHODS = ("fused-planes", "ulw")


class TriPlanes(PlanesModel):
    """Plain Tri-Planes: independent objects, each with its own planes and decoder, rendered as colours."""

    METHODS = ("tri-planes",)


def load(run: str | Path, *, device: str | torch.device = "cpu") -> PlanesModel:
    """Open a run folder whatever planar method it holds.

    Raises:
        CheckpointError: no checkpoint there, a damaged one, or one of a newer version.
    """
    from fusedplanes.planes.run_folder import read_config

    method = read_config(run).method
    kind = TriPlanes if method in TriPlanes.METHODS else FusedPlanes
    return kind.load(run, device=device)
