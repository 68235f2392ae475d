"""Patterns by hand-computed places, and the painters made of them."""

from __future__ import annotations

import numpy as np
import pytest

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly
from fusedplanes.datasets.procedural.shapes import box
from fusedplanes.datasets.procedural.variation import Variation

RED, GREEN, BLUE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def test_stripes():
    a = np.array([0.0, 0.4, 0.6, 1.1, -0.9])
    np.testing.assert_array_equal(patterns.stripes(a, 1.0), [True, True, False, True, True])
    np.testing.assert_array_equal(patterns.stripes(a, 1.0, 0.5, 0.5), [False, False, True, False, False])


def test_checks():
    a, b = np.array([0.1, 0.6, 0.6, 0.1]), np.array([0.1, 0.1, 0.6, 0.6])
    np.testing.assert_array_equal(patterns.checks(a, b, 1.0), [False, True, False, True])


def test_dots_are_shifted_in_every_other_row():
    a, b = np.array([0.5, 0.0, 0.5, 0.0]), np.array([0.5, 0.5, 1.5, 1.5])
    np.testing.assert_array_equal(patterns.dots(a, b, 1.0, 0.3), [True, False, False, True])


def test_bricks():
    a, b = np.array([1.0, 1.0, 0.05, 0.05]), np.array([0.5, 0.05, 0.5, 1.5])
    np.testing.assert_array_equal(patterns.bricks(a, b, 2.0, 1.0, 0.1), [False, True, True, False])


def test_disc_and_rectangle():
    a, b = np.array([1.0, 1.4, 1.6]), np.array([2.0, 2.0, 2.0])
    np.testing.assert_array_equal(patterns.disc(a, b, (1.0, 2.0), 0.5), [True, True, False])
    np.testing.assert_array_equal(patterns.rectangle(a, b, (1.0, 2.0), (1.0, 0.1)), [True, True, False])


def test_mixed_takes_masks_and_weights():
    np.testing.assert_array_equal(patterns.mixed(np.array([True, False]), RED, BLUE), [RED, BLUE])
    np.testing.assert_allclose(patterns.mixed(np.array([0.25]), RED, BLUE), [(0.25, 0.0, 0.75)])


def test_blotches_are_centred_with_unit_size():
    waves = patterns.random_waves(Variation("cars", 0, 0, ("van",)))
    a, b = np.meshgrid(np.linspace(0, 40, 300), np.linspace(0, 40, 300))
    field = patterns.blotches(a, b, 1.0, waves)
    assert abs(field.mean()) < 0.1
    assert 0.8 < field.std() < 1.2


@pytest.mark.parametrize("kind", patterns.BOLD_PATTERNS)
def test_bold_patterns_mix_the_given_colours(kind):
    a, b = np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64))
    pattern = patterns.bold_pattern(Variation("cars", 1, 0, ("van",)), kind, (RED, GREEN, BLUE), 2.0)
    colored = pattern(a, b)
    assert colored.shape == (64, 64, 3)
    np.testing.assert_allclose(colored.sum(-1), 1, atol=1e-6)
    figure = colored[..., 1].mean()
    assert figure == 0 if kind == "plain" else 0.05 < figure < 0.95


def texture_of(paint, patch: int) -> np.ndarray:
    """What a painter puts on one face of a cube: ``[h, w, 3]`` in [0, 1]."""
    assembly = Assembly()
    assembly.add(box(2, 2, 2), paint)
    return assembly.build().materials[1 + patch].texture[..., :3] / 255


def test_projected_looks_along_one_axis():
    paint = patterns.projected(lambda a, b: patterns.mixed((a > 0) & (b > 0), RED, BLUE), "xz")
    side = texture_of(paint, 3)
    assert tuple(side[0, -1]) == RED
    assert tuple(side[-1, -1]) == BLUE
    assert tuple(side[0, 0]) == BLUE


def test_on_sides_paints_faces_apart():
    paint = patterns.on_sides(RED, top=GREEN, front=lambda texels: texels.filled(BLUE))
    assert [tuple(texture_of(paint, patch)[0, 0]) for patch in range(6)] == [BLUE, RED, RED, RED, GREEN, RED]


def test_framed_draws_a_border():
    face = texture_of(patterns.framed(lambda texels: texels.filled(RED), BLUE, 0.25), 0)
    size = len(face)
    assert tuple(face[size // 2, size // 2]) == RED
    assert tuple(face[size // 2, 0]) == tuple(face[0, size // 2]) == BLUE
    border = (face[size // 2] == BLUE).all(-1).mean()
    assert abs(border - 0.25) < 0.03


def test_wrapped_measures_from_the_left_and_from_the_middle():
    face = texture_of(patterns.wrapped(lambda a, b: np.stack([a / 2, b / 2 + 0.5, 0 * a], -1)), 0)
    np.testing.assert_allclose(face[-1, 0], [0, 0, 0], atol=0.01)
    np.testing.assert_allclose(face[0, -1], [1, 1, 0], atol=0.01)
