"""A class of coloured ellipsoids, ray cast by a formula: the smallest data set a field can be trained on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from fusedplanes.autoencoders.image import ImageAutoencoderConfig
from fusedplanes.cameras import Cameras
from fusedplanes.multiview import MultiViewObject
from fusedplanes.planes.config import RunConfig, preset
from fusedplanes.planes.run import train
from fusedplanes.planes.stage_one import StageOne
from fusedplanes.planes.views import TrainingViews
from fusedplanes.rays import Rays
from fusedplanes.training.loop import TrainingInterrupted

SIZE = 16


def ellipsoid_views(index: int, cameras: Cameras) -> torch.Tensor:
    """``[V, H, W, 4]`` views of ellipsoid number ``index``: its axes and its two colours depend on the number."""
    generator = torch.Generator().manual_seed(index)
    radii = 0.4 + 0.45 * torch.rand(3, generator=generator)
    colors = torch.rand(2, 3, generator=generator)
    rays = Rays.from_cameras(cameras)
    origins, directions = rays.origins / radii, rays.directions / radii
    a = directions.square().sum(-1)
    b = (origins * directions).sum(-1)
    c = origins.square().sum(-1) - 1
    discriminant = b * b - a * c
    distance = (-b - discriminant.clamp_min(0).sqrt()) / a
    point = rays.origins + distance[..., None] * rays.directions
    color = torch.where(point[..., :1] > 0, colors[0], colors[1])
    alpha = (discriminant > 0).float()[..., None]
    image = torch.cat([color, alpha], -1)
    return image.view(len(cameras), cameras.height, cameras.width, 4)


class Ellipsoids:
    """Data set of ``count`` ellipsoids; every fifth view is held out."""

    def __init__(self, count: int, *, views: int = 15, size: int = SIZE) -> None:
        rings = [Cameras.orbit(views // 3, elevation=e, start=e, width=size, height=size) for e in (-30.0, 10.0, 50.0)]
        self.cameras = Cameras.concatenate(rings)
        self.ids = [f"ellipsoid_{index}" for index in range(count)]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key: int | str) -> MultiViewObject:
        index = self.ids.index(key) if isinstance(key, str) else key
        split = tuple("test" if view % 5 == 0 else "train" for view in range(len(self.cameras)))
        return MultiViewObject(self.ids[index], ellipsoid_views(index, self.cameras), self.cameras, split)

    def __iter__(self) -> Iterator[MultiViewObject]:
        return (self[index] for index in range(len(self)))


@pytest.fixture(scope="session", autouse=True)
def _short_probes():
    """How long a step takes is nothing that a test asks."""
    from fusedplanes.planes import plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "PROBE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="session")
def ellipsoids() -> Ellipsoids:
    return Ellipsoids(5)


@pytest.fixture(scope="session")
def ellipsoid_training_views(ellipsoids) -> TrainingViews:
    return TrainingViews.read(ellipsoids)


def small_config(method: str = "fused-planes", **model) -> RunConfig:
    """A configuration whose step takes milliseconds."""
    config = preset("tiny", method)
    changes = {"resolution": 8, "hidden": 16, "coarse_samples": 8, "fine_samples": 8}
    if config.model.autoencoder is not None:
        changes["autoencoder"] = ImageAutoencoderConfig(
            downscale=4, latent_channels=4, width=16, encoder_blocks=1, decoder_blocks=1
        )
    model = replace(config.model, **{**changes, **model})
    training = config.training
    joint = training.joint and replace(training.joint, steps=4, objects_per_batch=2)
    training = replace(
        training,
        autoencoder_steps=min(training.autoencoder_steps, 6),
        autoencoder_batch=4,
        warm_up=replace(training.warm_up, steps=6, objects_per_batch=2, rays_per_object=64),
        joint=joint,
    )
    return replace(config, model=model, training=training)


@pytest.fixture(scope="session", name="small_config")
def small_config_fixture():
    return small_config


@pytest.fixture
def stopped(tmp_path, ellipsoids, small_config, monkeypatch):
    """A run of plain tri-planes that was interrupted at its second step."""
    original = StageOne._warm_up_step
    seen = []

    def interrupted(self, index):
        seen.append(index)
        if index == 2 and seen.count(index) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, index)

    monkeypatch.setattr(StageOne, "_warm_up_step", interrupted)
    monkeypatch.setattr("fusedplanes.planes.plan.PROBE_SECONDS", 0.0)
    with pytest.raises(TrainingInterrupted):
        train(ellipsoids, tmp_path / "run", config=small_config("tri-planes"), watch_seconds=0, quiet=True)
    monkeypatch.undo()
    return tmp_path / "run"
