"""The choices that make one object differ from the next."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Option = TypeVar("Option")
Color = tuple[float, float, float]

# Steps that fill an interval evenly however long one walks (fractional parts of the multiples of an irrational number);
# those of hue and lightness fill the square of both: powers of the inverse of the plastic number, the root of
# g^3 = g + 1 (Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
_STEPS = {
    "hue": 0.7548776662466927,
    "lightness": 0.5698402909980532,
    "pattern": 0.6180339887498949,
    "material": 0.4142135623730951,
    "form": 0.7320508075688772,
}


class Variation:
    """Random choices of one object, the same for the same class, seed and index.

    Kinds take turns: every round of as many objects as there are kinds shows each of them once, in a random order. What
    matters most to the looks comes from `spread`: among the objects of one kind it fills its range evenly, so that
    those which share a silhouette differ in colours. All else is random.

    Args:
        class_name: seeds the stream together with the other two, so that classes do not share colours by index.
        index: number of the object, 0 or more.
        seed: 0 or more; another seed gives other objects.
        kinds: what the class has to offer; a name that occurs twice comes up twice as often.

    Attributes:
        kind: the object's kind.
        random: generator of everything that is not spread.

    Example:
        >>> first, again = Variation("cars", 3, 0, ("van", "bus")), Variation("cars", 3, 0, ("van", "bus"))
        >>> first.kind == again.kind, first.uniform(0, 1) == again.uniform(0, 1)
        (True, True)
    """

    def __init__(self, class_name: str, index: int, seed: int, kinds: Sequence[str]) -> None:
        key = zlib.crc32(class_name.encode())
        rounds, place = divmod(index, len(kinds))
        order = np.random.default_rng([seed, key, 0, rounds]).permutation(len(kinds))
        slot = int(order[place])
        self.kind = kinds[slot]
        # How many objects of this kind the earlier rounds, and the earlier slots of each round, account for.
        turn = rounds * kinds.count(self.kind) + kinds[:slot].count(self.kind)
        start = np.random.default_rng([seed, key, 1, zlib.crc32(self.kind.encode())]).random(len(_STEPS))
        self._spread = dict(zip(_STEPS, (start + turn * np.array(list(_STEPS.values()))) % 1.0))
        self.random = np.random.default_rng([seed, key, 2, index])

    def spread(self, name: str) -> float:
        """A number in [0, 1) that fills the range evenly from one object of the kind to the next.

        Args:
            name: "hue", "lightness", "pattern", "material" or "form", independent of each other.
        """
        return float(self._spread[name])

    def spread_pick(self, name: str, options: Sequence[Option]) -> Option:
        """One of the options, each equally often from one object of the kind to the next; see `spread`."""
        return options[int(self.spread(name) * len(options))]

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

        Hue and lightness of the main colour come from `spread`. Near white is left out: it vanishes on a white
        background.
        """
        hue, lightness = self.spread("hue"), self.spread("lightness")
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
