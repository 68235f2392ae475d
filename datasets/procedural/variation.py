"""The choices that make one object differ from the next."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Option = TypeVar("Option")
Color = tuple[float, float, float]

# Powers of the inverse of the generalised golden ratio of dimension 6 (the root of g^7 = g + 1): steps that fill a
# six-dimensional box evenly (Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
_GOLDEN = 1.1127756842787055
_STEPS = _GOLDEN ** -np.arange(1.0, 7.0)


class Variation:
    """Random choices of one object, the same for the same class, seed and index.

    What matters most to the looks (the kind, the main colour, the pattern) is taken from `spread`, which fills its
    range evenly as the index grows, so that neighbours in a data set are far apart in looks; all else is random.

    Args:
        class_name: seeds the stream together with the other two, so that classes do not share colours by index.
        index: number of the object, 0 or more.
        seed: 0 or more; another seed gives other objects.

    Example:
        >>> first, again = Variation("cars", 3, 0), Variation("cars", 3, 0)
        >>> first.uniform(0, 1) == again.uniform(0, 1)
        True
    """

    def __init__(self, class_name: str, index: int, seed: int) -> None:
        key = zlib.crc32(class_name.encode())
        offset = np.random.default_rng([seed, key]).random(len(_STEPS))
        self._spread = (offset + index * _STEPS) % 1.0
        self.random = np.random.default_rng([seed, key, index])

    def spread(self, dimension: int) -> float:
        """A number in [0, 1) that fills the range evenly as the index grows. Dimensions 0 to 5 are independent."""
        return float(self._spread[dimension])

    def spread_pick(self, dimension: int, options: Sequence[Option]) -> Option:
        """One of the options, each equally often as the index grows."""
        return options[int(self.spread(dimension) * len(options))]

    def uniform(self, low: float, high: float) -> float:
        """A random number between two limits."""
        return float(self.random.uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        """A random integer from ``low`` to ``high``, both included."""
        return int(self.random.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.random.random() < probability)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of the options, at random."""
        return options[int(self.random.integers(len(options)))]

    def palette(self) -> tuple[Color, Color, Color]:
        """Main colour, a second one that stands out from it, and an accent that stands out from both.

        Hue and lightness of the main colour come from `spread` (dimensions 1 and 2). Near white is left out: it
        vanishes on a white background.
        """
        hue, lightness = self.spread(1), self.spread(2)
        main = tone(hue, 0.08 + 0.70 * lightness, self.pick([0.9, 0.78, 0.62, 0.35]))
        # The second colour is light where the main one is dark.
        opposite = 0.08 + 0.72 * ((lightness + self.uniform(0.4, 0.6)) % 1.0)
        second = tone(hue + self.uniform(0.2, 0.8), opposite, self.pick([0.8, 0.65, 0.4, 0.1]))
        accent = tone(hue + self.pick([0.33, 0.5, 0.67]), self.uniform(0.4, 0.6), self.uniform(0.65, 0.9))
        return main, second, accent

    def wood(self) -> tuple[Color, Color]:
        """A wood colour between pine and ebony, and its darker grain."""
        lightness = self.uniform(0.12, 0.62)
        hue, saturation = self.uniform(0.03, 0.11), self.uniform(0.35, 0.7)
        return tone(hue, lightness, saturation), tone(hue, lightness * 0.62, saturation)

    def metal(self) -> Color:
        """Steel, brass, copper, gun metal or black."""
        steel, brass, copper = (0.66, 0.69, 0.73), (0.80, 0.64, 0.26), (0.78, 0.42, 0.27)
        return self.pick([steel, brass, copper, (0.30, 0.32, 0.36), (0.09, 0.09, 0.10)])


def tone(hue: float, lightness: float, saturation: float) -> Color:
    """An sRGB colour from hue (1 is a full turn), lightness and saturation in [0, 1]."""
    return colorsys.hls_to_rgb(hue % 1.0, min(max(lightness, 0.0), 1.0), min(max(saturation, 0.0), 1.0))


def shade(color: Color, factor: float) -> Color:
    """The colour made darker (factor below 1) or lighter (above 1, towards white)."""
    if factor <= 1:
        return tuple(channel * factor for channel in color)
    return tuple(1 - (1 - channel) / factor for channel in color)
