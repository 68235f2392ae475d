"""Quality on held-out views, per image and then averaged, beside floors that need no model.

Protocol: every held-out view of every object is rendered deterministically at the data set's size; PSNR and SSIM are
computed per image in [0, 1] (the published protocol averages over batches, which gives another number), then averaged
per object, then over objects. Foreground PSNR counts only the object's mask dilated by 2 pixels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean

from torch import Tensor

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import composite_over
from fusedplanes.multiview import MultiViewDataset, MultiViewObject, classes_of
from fusedplanes.planes.model import PlanesModel
from fusedplanes.training.metrics import (
    floor_class_mean,
    floor_mean_image,
    floor_nearest_view,
    foreground_mask,
    psnr,
    ssim,
)


@dataclass(frozen=True)
class Quality:
    """Averages over images, in decibels except ``ssim``."""

    psnr: float
    psnr_foreground: float
    ssim: float


@dataclass(frozen=True)
class ObjectRow:
    """Measurements of one object: its quality, and that of the floors by name."""

    id: str
    views: int
    quality: Quality
    floors: Mapping[str, Quality]


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`.

    Attributes:
        objects: one row per object.
        seconds: wall time of rendering all views, without metrics.
        object_bytes, shared_bytes, shared_bytes_without_encoder: payload at 4 bytes a number.
        classes: quality by class, where the data set has several.
    """

    method: str
    objects: tuple[ObjectRow, ...]
    seconds: float
    object_bytes: int
    shared_bytes: int
    shared_bytes_without_encoder: int
    classes: Mapping[str, Quality] = field(default_factory=dict)
    average: Quality = field(init=False)
    floors: Mapping[str, Quality] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "average", _average([row.quality for row in self.objects]))
        names = self.objects[0].floors
        floors = {name: _average([row.floors[name] for row in self.objects]) for name in names}
        object.__setattr__(self, "floors", floors)

    def to_json(self) -> dict:
        """One flat object: `psnr`, `psnr_foreground`, `ssim`, `floors`, `objects`, `seconds`, bytes."""
        value = asdict(self)
        return {"method": value.pop("method"), **value.pop("average"), **value}

    def table(self) -> str:
        """A short text table."""
        lines = [f"{'':<29}{'PSNR':>8}{'foreground':>12}{'SSIM':>8}"]
        rows = [(self.method, self.average), *((f"  {name}", quality) for name, quality in self.classes.items())]
        rows += [(f"floor: {k}", v) for k, v in self.floors.items()]
        for name, quality in rows:
            lines.append(f"{name:<29}{quality.psnr:>8.2f}{quality.psnr_foreground:>12.2f}{quality.ssim:>8.3f}")
        views = sum(row.views for row in self.objects)
        lines.append(
            f"{len(self.objects)} objects, {views} held-out views rendered in {self.seconds:.1f} s; "
            f"{self.object_bytes:,} bytes per object, {self.shared_bytes:,} shared"
        )
        return "\n".join(lines)


def _average(qualities: list[Quality]) -> Quality:
    return Quality(
        fmean(q.psnr for q in qualities), fmean(q.psnr_foreground for q in qualities), fmean(q.ssim for q in qualities)
    )


def quality(images: Tensor, targets: Tensor, alpha: Tensor) -> Quality:
    """Average quality of ``images [V, H, W, 3]`` against ``targets`` whose coverage is ``alpha [V, H, W]``."""
    mask = foreground_mask(alpha)
    return Quality(
        psnr(images, targets).mean().item(),
        psnr(images, targets, mask).mean().item(),
        ssim(images, targets).mean().item(),
    )


def evaluate(
    model: PlanesModel,
    dataset: MultiViewDataset,
    *,
    split: str = "test",
    objects: int | None = None,
    only: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure a model on the held-out views of the objects it holds.

    Args:
        dataset: the data set the objects come from.
        split: which views to render.
        objects: only the first so many; None takes all.
        only: only these ids.
        progress: called with (done, total) after every object.

    Raises:
        DataError: the data set and the model share no object, or an object has no view in the split.
        ConfigError: ``objects`` is below 1.

    Example:
        >>> evaluate(model, fusedplanes.datasets.load("cars")).average.psnr  # doctest: +SKIP
    """
    if objects is not None and objects < 1:
        raise ConfigError(f"objects {objects}: evaluate at least 1, or all")
    ids = [name for name in dataset.ids if name in model.store and (only is None or name in only)]
    if not ids:
        raise DataError("evaluate: the data set holds none of the model's objects; give the one it was trained on")
    background = model.config.model.background_color
    everything = {name: _over(dataset[name], background) for name in ids}
    for name, (item, _) in everything.items():
        if split not in item.split or "train" not in item.split:
            raise DataError(f"object '{name}': it needs views in the splits 'train' and '{split}'")
    training = {
        name: (images[_rows(item, "train")], item.cameras[_rows(item, "train")])
        for name, (item, images) in everything.items()
    }
    rows, seconds, classes = [], 0.0, classes_of(dataset)
    chosen = ids[:objects]
    for done, name in enumerate(chosen):
        item, images = everything[name]
        held_out = _rows(item, split)
        cameras, targets, alpha = item.cameras[held_out], images[held_out], item.alpha[held_out]
        start = time.perf_counter()
        rendered = model.render(name, cameras).color.cpu()
        seconds += time.perf_counter() - start
        own_images, own_cameras = training[name]
        others = [training[other] for other in ids if other != name and classes.get(other) == classes.get(name)]
        mean_image = floor_mean_image(own_images).expand_as(targets)
        floors = {
            "nearest training view": floor_nearest_view(own_images, own_cameras, cameras),
            "mean image": mean_image,
            "class mean": floor_class_mean(others, cameras) if others else mean_image,
        }
        rows.append(
            ObjectRow(
                name,
                len(held_out),
                quality(rendered, targets, alpha),
                {key: quality(value, targets, alpha) for key, value in floors.items()},
            )
        )
        if progress is not None:
            progress(done + 1, len(chosen))
    return Evaluation(
        model.config.method,
        tuple(rows),
        seconds,
        model.object_bytes(),
        model.shared_bytes(),
        model.shared_bytes(encoder=False),
        _by_class(rows, classes),
    )


def _by_class(rows: Sequence[ObjectRow], classes: Mapping[str, str]) -> dict[str, Quality]:
    """Average quality of every class, where there are several."""
    names = dict.fromkeys(classes[row.id] for row in rows if row.id in classes)
    if len(names) < 2:
        return {}
    return {name: _average([row.quality for row in rows if classes.get(row.id) == name]) for name in names}


def _over(item: MultiViewObject, background: Tensor) -> tuple[MultiViewObject, Tensor]:
    return item, composite_over(item.images, background)


def _rows(item: MultiViewObject, split: str) -> list[int]:
    return [index for index, name in enumerate(item.split) if name == split]
