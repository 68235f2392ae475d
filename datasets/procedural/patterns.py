"""Surface patterns: functions of two coordinates that say where a colour goes, and painters made of them.

Masks take coordinates in the object's own unit (arrays of one shape) and return booleans of that shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusedplanes.datasets.procedural.assembly import Texels
from fusedplanes.datasets.procedural.variation import Color, Variation

Pattern = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From coordinates ``a, b`` of one shape to sRGB colours ``[*shape, 3]``."""


# Masks ----------------------------------------------------------------------------------------------------------------


def stripes(a: np.ndarray, period: float, duty: float = 0.5, phase: float = 0.0) -> np.ndarray:
    """True on bands ``duty * period`` wide; the first starts at ``phase * period``."""
    return (a / period - phase) % 1.0 < duty


def checks(a: np.ndarray, b: np.ndarray, period: float) -> np.ndarray:
    """True on every other square of a board; a square is half a period wide."""
    return stripes(a, period) ^ stripes(b, period)


def dots(a: np.ndarray, b: np.ndarray, period: float, radius: float) -> np.ndarray:
    """True inside discs of a radius given in periods, in rows that are shifted by half a period each."""
    line = np.floor(b / period)
    across = (a / period + 0.5 * (line % 2)) % 1.0 - 0.5
    return across**2 + (b / period - line - 0.5) ** 2 < radius**2


def zigzag(a: np.ndarray, b: np.ndarray, period: float) -> np.ndarray:
    """True on bands along a that go up and down with b."""
    return stripes(b + period * np.abs((a / period) % 1.0 - 0.5), period)


def bricks(a: np.ndarray, b: np.ndarray, width: float, height: float, joint: float) -> np.ndarray:
    """True on the joints of a wall of bricks."""
    line = np.floor(b / height)
    along = (a / width + 0.5 * (line % 2)) % 1.0
    return (b / height - line < joint / height) | (along < joint / width)


def disc(a: np.ndarray, b: np.ndarray, center: tuple[float, float], radius: float) -> np.ndarray:
    """True inside a circle."""
    return (a - center[0]) ** 2 + (b - center[1]) ** 2 < radius**2


def rectangle(a: np.ndarray, b: np.ndarray, center: tuple[float, float], size: tuple[float, float]) -> np.ndarray:
    """True inside a rectangle of this whole width and height."""
    return (np.abs(a - center[0]) < size[0] / 2) & (np.abs(b - center[1]) < size[1] / 2)


def blotches(a: np.ndarray, b: np.ndarray, period: float, waves: np.ndarray) -> np.ndarray:
    """A smooth random field in [-1, 1], roughly, made of waves.

    Args:
        period: mean wavelength.
        waves: ``[n, 3]`` direction (radians), relative frequency and phase (radians) of each wave.
    """
    angle, frequency, phase = waves.T
    place = np.multiply.outer(a, np.cos(angle) * frequency) + np.multiply.outer(b, np.sin(angle) * frequency)
    return np.sin(2 * np.pi / period * place + phase).sum(-1) / np.sqrt(len(waves) / 2)


def random_waves(variation: Variation, count: int = 5) -> np.ndarray:
    """``[count, 3]`` waves for `blotches`."""
    random = variation.random
    return np.stack(
        [random.uniform(0, np.pi, count), random.uniform(0.6, 1.5, count), random.uniform(0, 2 * np.pi, count)], -1
    )


# Patterns -------------------------------------------------------------------------------------------------------------


def mixed(mask: np.ndarray, first: Color, second: Color) -> np.ndarray:
    """The first colour where the mask is true, the second elsewhere: ``[*shape, 3]``. A mask of weights blends."""
    weight = np.asarray(mask)[..., None]
    first, second = np.asarray(first, np.float32), np.asarray(second, np.float32)
    if weight.dtype == bool:
        return np.where(weight, first, second)
    return weight.astype(np.float32) * (first - second) + second


def wood_grain(colors: tuple[Color, Color], waves: np.ndarray, period: float = 0.1) -> Pattern:
    """Long streaks along a."""

    def paint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bent = b / period + 0.7 * blotches(a * 0.35, b, 6 * period, waves)
        return mixed(stripes(bent, 1.0, 0.35), colors[1], colors[0])

    return paint


BOLD_PATTERNS = (
    "plain",
    "bands",
    "columns",
    "diagonal",
    "checks",
    "dots",
    "zigzag",
    "blotches",
    "two tone",
    "gradient",
)


def bold_pattern(variation: Variation, kind: str, colors: tuple[Color, Color, Color], extent: float) -> Pattern:
    """One of `BOLD_PATTERNS` with random proportions, coarse enough to be seen from a distance.

    Args:
        colors: ground, figure and accent.
        extent: size of the surface: coordinates are taken to run from about ``-extent / 2`` to ``extent / 2``.
    """
    ground, figure, accent = colors
    period = extent * variation.uniform(0.22, 0.5)
    phase, duty = variation.uniform(0, 1), variation.uniform(0.35, 0.65)
    slope = variation.pick([-1.0, 1.0]) * variation.uniform(0.5, 1.6)
    split = extent * variation.uniform(-0.18, 0.18)
    waves = random_waves(variation)
    trimmed = variation.chance(0.5)

    def paint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if kind == "plain":
            colored = mixed(np.zeros(np.broadcast(a, b).shape), figure, ground)
        elif kind == "bands":
            colored = mixed(stripes(b + 0 * a, period, duty, phase), figure, ground)
            if trimmed:
                colored[stripes(b + 0 * a, period, 0.15, phase + duty)] = accent
        elif kind == "columns":
            colored = mixed(stripes(a + 0 * b, period, duty, phase), figure, ground)
        elif kind == "diagonal":
            colored = mixed(stripes(b + slope * a, 1.4 * period, duty, phase), figure, ground)
            if trimmed:
                colored[stripes(b + slope * a, 1.4 * period, 0.15, phase + duty)] = accent
        elif kind == "checks":
            colored = mixed(checks(a, b, period), figure, ground)
        elif kind == "dots":
            colored = mixed(dots(a, b, 0.8 * period, 0.22 + 0.2 * duty), figure, ground)
        elif kind == "zigzag":
            colored = mixed(zigzag(a, b, 1.3 * period), figure, ground)
        elif kind == "blotches":
            field = blotches(a, b, 2 * period, waves)
            colored = mixed(field > 0.35, figure, ground)
            colored[field < -0.6] = accent
        elif kind == "two tone":
            colored = mixed(b + 0 * a < split, figure, ground)
            colored[np.abs(b + 0 * a - split) < 0.06 * extent] = accent if trimmed else figure
        else:
            colored = mixed(np.clip((b + 0 * a) / extent + 0.5, 0, 1), figure, ground)
        return colored

    return paint


# Painters -------------------------------------------------------------------------------------------------------------


def projected(pattern: Pattern, axes: str, center: tuple[float, float] = (0.0, 0.0)) -> Callable[[Texels], np.ndarray]:
    """Lay a pattern on a shape along one axis: ``axes`` names the two coordinates it is a function of, such as "xy"."""
    first, second = ("xyz".index(axis) for axis in axes)
    return lambda texels: pattern(texels.points[..., first] - center[0], texels.points[..., second] - center[1])


def wrapped(pattern: Pattern) -> Callable[[Texels], np.ndarray]:
    """Lay a pattern along a patch: a is the distance along its rows, b the height up its columns from the middle."""

    def paint(texels: Texels) -> np.ndarray:
        length, height = texels.size
        return pattern(*np.broadcast_arrays(texels.u * length, (texels.v - 0.5) * height))

    return paint


def on_sides(side: Callable[[Texels], np.ndarray], **others) -> Callable[[Texels], np.ndarray]:
    """Paint the patches of a box apart: keyword ``top``, ``bottom``, ``front``, ``back`` is a colour or a painter."""
    names = {0: "front", 1: "back", 4: "top", 5: "bottom"}

    def paint(texels: Texels) -> np.ndarray:
        chosen = others.get(names.get(texels.patch, ""), side)
        return chosen(texels) if callable(chosen) else texels.filled(chosen)

    return paint


def framed(painter: Callable[[Texels], np.ndarray], color: Color, width: float) -> Callable[[Texels], np.ndarray]:
    """A border of this width (in the object's own unit) round every patch."""

    def paint(texels: Texels) -> np.ndarray:
        colored = painter(texels)
        across = np.minimum(texels.u, 1 - texels.u) * texels.size[0]
        up = np.minimum(texels.v, 1 - texels.v) * texels.size[1]
        colored[np.minimum(across, up) < width] = color
        return colored

    return paint
