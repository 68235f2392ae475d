"""Watching a run: a few held-out views, rendered at intervals into one picture and one number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.images import composite_over, save
from fusedplanes.multiview import MultiViewDataset, classes_of
from fusedplanes.reports.contact_sheet import contact_sheet
from fusedplanes.training.metrics import foreground_mask, psnr


class HeldOutViews:
    """A fixed handful of held-out views.

    Args:
        dataset: the run's data set.
        objects: at most so many objects, spread over the data set and its classes; one of each class at least.
        views: held-out views of each, spread over its own.
    """

    def __init__(self, dataset: MultiViewDataset, *, objects: int = 6, views: int = 2, background=(1.0, 1.0, 1.0)):
        self.items = []
        for name in _spread(dataset, objects):
            held_out = dataset[name].views("test")
            count = len(held_out.split)
            if count == 0:
                raise DataError(f"object '{name}': no view in split 'test' to preview; hold one out, or pass --watch 0")
            chosen = torch.linspace(0, count - 1, min(views, count)).round().long()
            images = composite_over(held_out.images[chosen], torch.tensor(background, dtype=torch.float32))
            self.items.append((name, held_out.cameras[chosen], images, held_out.alpha[chosen]))

    def measure(
        self, render: Callable[[str, Cameras, Tensor], Tensor], path: Path | None = None, *, heading: str = "render"
    ) -> dict[str, float]:
        """Render the views, truth beside render, into ``path``, and return their average PSNR in decibels.

        Args:
            render: makes ``[V, H, W, 3]`` in [0, 1] from an object's id, cameras and true images.
            path: picture to write.
            heading: stands above what was rendered.
        """
        scores, foreground, rows, captions = [], [], [], []
        for name, cameras, images, alpha in self.items:
            rendered = render(name, cameras, images).cpu()
            values = psnr(rendered, images)
            scores.append(values)
            foreground.append(psnr(rendered, images, foreground_mask(alpha)))
            pictures: list[Tensor] = []
            for truth, picture in zip(images, rendered, strict=True):
                pictures += [truth, picture]
            rows.append(pictures)
            captions.append([text for value in values.tolist() for text in ("", f"{value:.1f} dB")])
        if path is not None:
            columns = ["truth", heading] * (len(rows[0]) // 2)
            scale = max(1, 128 // rows[0][0].shape[0])
            save(path, contact_sheet(rows, columns=columns, captions=captions, scale=scale))
        return {
            "held_out_psnr": torch.cat(scores).mean().item(),
            "held_out_psnr_foreground": torch.cat(foreground).mean().item(),
        }


def _spread(dataset: MultiViewDataset, objects: int) -> list[str]:
    """Ids of a few objects, as many of each class, in the order of the data set."""
    members: dict[str, list[str]] = {}
    for name in dataset.ids:
        members.setdefault(classes_of(dataset).get(name, ""), []).append(name)
    each = max(1, objects // max(len(members), 1))
    return [name for ids in members.values() for name in ids[:: max(1, len(ids) // each)][:each]]
