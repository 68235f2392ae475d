"""Objects of a class must differ enough that a model which answers with another object fails."""

from __future__ import annotations

import numpy as np
import pytest

from fusedplanes.datasets import camera_rigs, rasterize
from fusedplanes.datasets.procedural import CLASSES, make_mesh

COUNT, VIEWS = 24, 5


@pytest.fixture(scope="module", params=CLASSES)
def pictures(request) -> np.ndarray:
    """``[object, view, pixel, 3]``: the first objects of a class on white, seen from all round."""
    cameras = camera_rigs.rig("sphere", VIEWS, 32)
    views = [rasterize.render(make_mesh(request.param, index), cameras, samples=2)[0] for index in range(COUNT)]
    images = np.array(views, dtype=np.float64)
    on_white = images[..., :3] * images[..., 3:] + 1 - images[..., 3:]
    return on_white.reshape(COUNT, VIEWS, -1, 3)


def test_the_most_similar_other_object_stays_below_20_db(pictures):
    error = ((pictures[:, None] - pictures[None]) ** 2).mean((-2, -1))
    psnr = -10 * np.log10(np.maximum(error, 1e-10)).mean(-1)
    np.fill_diagonal(psnr, -np.inf)
    nearest = psnr.max(1)
    assert nearest.mean() < 18.5
    assert (nearest < 20).mean() > 0.9


def test_objects_fill_a_fair_part_of_the_picture(pictures):
    coverage = (pictures.min(-1) < 0.98).mean((1, 2))
    assert coverage.mean() > 0.14
    assert coverage.min() > 0.08
