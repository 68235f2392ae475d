"""Choices: reproducible, and spread where looks depend on them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fusedplanes.datasets.procedural.variation import Variation, shade, tone

KINDS = ("van", "bus", "van", "truck")


def test_each_round_shows_every_kind_as_often_as_it_is_named():
    for start in (0, 4, 400):
        kinds = Counter(Variation("cars", start + place, 0, KINDS).kind for place in range(4))
        assert kinds == {"van": 2, "bus": 1, "truck": 1}


def test_rounds_differ_in_order():
    orders = {tuple(Variation("cars", 4 * turn + place, 0, KINDS).kind for place in range(4)) for turn in range(20)}
    assert len(orders) > 3


def spread_of(kind: str, name: str) -> np.ndarray:
    variations = [Variation("cars", index, 0, KINDS) for index in range(80)]
    return np.array([item.spread(name) for item in variations if item.kind == kind])


@pytest.mark.parametrize("name", ["pattern", "material", "form"])
@pytest.mark.parametrize("kind, count", [("van", 40), ("bus", 20)])
def test_spread_leaves_no_gap_among_the_objects_of_a_kind(name, kind, count):
    values = np.sort(spread_of(kind, name))
    assert len(values) == count
    gaps = np.diff(np.concatenate([values, values[:1] + 1]))
    # Random numbers would leave gaps of log(count) times the mean, and nearly coinciding pairs.
    assert gaps.max() < 2.7 / count
    assert gaps.min() > 0.2 / count


@pytest.mark.parametrize("kind, count", [("van", 40), ("bus", 20)])
def test_no_two_objects_of_a_kind_come_close_in_hue_and_lightness(kind, count):
    colors = np.stack([spread_of(kind, "hue"), spread_of(kind, "lightness")], -1)
    apart = np.abs(colors[:, None] - colors[None])
    distance = np.linalg.norm(np.minimum(apart, 1 - apart), axis=-1) + np.eye(count)
    # The closest of random pairs are about 0.5 / count apart; no arrangement has more than 1.07 / sqrt(count).
    assert distance.min() > 0.55 / np.sqrt(count)


def test_spread_pick_takes_options_evenly():
    picked = Counter(Variation("cars", index, 0, ("van",)).spread_pick("pattern", "abc") for index in range(300))
    assert max(picked.values()) - min(picked.values()) <= 3


def test_streams_depend_on_class_seed_and_index():
    def first(*arguments):
        return Variation(*arguments, KINDS).uniform(0, 1)

    values = {first("cars", 0, 0), first("mugs", 0, 0), first("cars", 1, 0), first("cars", 0, 1)}
    assert len(values) == 4
    assert first("cars", 5, 2) == first("cars", 5, 2)


def test_ranges():
    variation = Variation("cars", 0, 0, KINDS)
    assert all(2 <= variation.uniform(2, 3) < 3 for _ in range(100))
    assert {variation.integer(1, 3) for _ in range(100)} == {1, 2, 3}
    assert {variation.pick("xy") for _ in range(50)} == {"x", "y"}
    assert not any(variation.chance(0.0) for _ in range(20))
    assert all(variation.chance(1.0) for _ in range(20))


def test_palettes_contrast_and_cover_dark_and_light():
    palettes = np.array([Variation("cars", index, 0, KINDS).palette() for index in range(120)])
    assert palettes.min() >= 0
    assert palettes.max() <= 1
    distance = np.linalg.norm(palettes[:, 0] - palettes[:, 1], axis=-1)
    assert np.quantile(distance, 0.05) > 0.25
    main = palettes[:, 0].mean(-1)
    assert main.min() < 0.15
    assert main.max() > 0.65


def test_tone_and_shade():
    assert tone(0.0, 0.5, 1.0) == pytest.approx((1, 0, 0))
    assert tone(1.0 + 1 / 3, 0.5, 1.0) == pytest.approx((0, 1, 0))
    assert tone(0.2, 2.0, 1.0) == pytest.approx((1, 1, 1))
    assert shade((0.8, 0.4, 0.2), 0.5) == pytest.approx((0.4, 0.2, 0.1))
    assert shade((0.8, 0.4, 0.2), 2.0) == pytest.approx((0.9, 0.7, 0.6))
