"""The body of a car: its lines, how it is painted, and the loft through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import Shape
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

RUBBER: Color = (0.06, 0.06, 0.07)
TRIM: Color = (0.13, 0.13, 0.15)
CHROME: Color = (0.78, 0.80, 0.83)
TAIL_LIGHT: Color = (0.85, 0.05, 0.06)
INDICATOR: Color = (0.98, 0.55, 0.08)

# Positions on half a cross-section, from the middle of the floor over the flank to the middle of the roof.
SILL, SHOULDER, ROOF_EDGE = 1.0, 5.0, 6.0


@dataclass(frozen=True)
class BodyPlan:
    """Lengths in metres; places along the car as fractions from the nose (0) to the tail (1).

    Attributes:
        size: length, width.
        floor: height of the floor above the ground.
        wheel: radius of the wheels.
        axles: places of the axles, front to rear.
        deck: (place, height) of the line where the windows begin: bonnet, window sills, boot.
        top: (place, height) of the outline: the deck where there is no cabin, else windscreen, roof and rear window.
        roof_width: width of the roof relative to the body.
        pillars: places of the posts between the side windows; a negative place closes the windows behind it.
        rounding: length of nose and tail that is rounded in plan, relative to the width.
    """

    size: tuple[float, float]
    floor: float
    wheel: float
    axles: tuple[float, ...]
    deck: tuple[tuple[float, float], ...]
    top: tuple[tuple[float, float], ...]
    roof_width: float
    pillars: tuple[float, ...] = ()
    rounding: float = 0.3


@dataclass(frozen=True)
class Finish:
    """How one car is painted.

    Attributes:
        colors: body, second colour, accent.
        livery: sRGB colours of the paint for texels whose position along half a cross-section is given.
        glass: colour of the windows.
        lamp: colour of the headlights.
        bumper: colour of bumpers, grille surround and mirrors.
        hub: colour of the wheels.
    """

    colors: tuple[Color, Color, Color]
    livery: Callable[[Texels, np.ndarray], np.ndarray]
    glass: Color
    lamp: Color
    bumper: Color
    hub: Color


class CarBody:
    """The closed body of a plan as a loft along x."""

    def __init__(self, plan: BodyPlan) -> None:
        self.plan = plan
        length, width = plan.size
        keys = np.array([place for line in (plan.deck, plan.top) for place, _ in line])
        ends = np.array([0.0, 0.012, 0.03, 0.06])
        places = np.unique(np.round(np.concatenate([keys, np.linspace(0, 1, 19), ends, 1 - ends]).clip(0, 1), 4))[::-1]
        # Rounded in plan: a quarter ellipse at either end.
        inset = np.clip(np.minimum(places, 1 - places) * length / (plan.rounding * width), 0, 1)
        half_width = 0.5 * width * (1 - 0.22 * (1 - np.sqrt(1 - (1 - inset) ** 2)))
        tuck = np.clip(np.minimum(places, 1 - places) / 0.03, 0, 1)
        floor = plan.floor + 0.10 * (1 - tuck)
        deck, top = self.height_of(plan.deck, places), self.height_of(plan.top, places)
        rise = np.maximum(top - deck, 0)
        self.cabin_height = max(float(rise.max()), 1e-9)
        self._places, self._rise = places, rise
        cabin = np.clip(rise / max(self.cabin_height, 0.2), 0, 1)
        top = np.maximum(top, deck + 0.035 * tuck) - 0.03 * (1 - tuck)
        deck = deck - 0.05 * (1 - tuck)

        def blend(bonnet: float, roof: float) -> np.ndarray:
            return half_width * (bonnet + (roof - bonnet) * cabin)

        def level(share: float) -> np.ndarray:
            return floor + share * (deck - floor)

        half = [
            (0 * places, floor),
            (0.86 * half_width, floor),
            (0.97 * half_width, level(0.12)),
            (1.0 * half_width, level(0.5)),
            (0.985 * half_width, level(0.86)),
            (0.93 * half_width, deck),
            (blend(0.84, plan.roof_width), deck + 0.88 * (top - deck)),
            (blend(0.6, plan.roof_width - 0.12), deck + 0.98 * (top - deck)),
            (0 * places, top),
        ]
        self._half = np.array(half).transpose(0, 2, 1)
        self.x = length * (0.5 - places)

    @staticmethod
    def height_of(line: tuple[tuple[float, float], ...], place):
        """Height of a line of the plan at places from the nose (0) to the tail (1)."""
        return np.interp(place, *np.array(line).T)

    @property
    def roof(self) -> tuple[float, float, float]:
        """Front and rear end of the roof along x, and its height."""
        length = self.plan.size[0]
        high = self._places[self._rise > 0.93 * self.cabin_height]
        return length * (0.5 - high.min()), length * (0.5 - high.max()), max(level for _, level in self.plan.top)

    @property
    def windscreen_foot(self) -> float:
        """Front end of the cabin along x."""
        return float(self.x[self._rise > 0.05].max())

    def add_to(self, assembly: Assembly, variation: Variation, finish: Finish) -> None:
        """Add the painted body."""
        y, z = self._half[..., 0], self._half[..., 1]
        x = np.broadcast_to(self.x, y.shape)
        right, left = np.stack([x, -y, z], -1), np.stack([x, y, z], -1)
        side = np.concatenate([right, left[-2::-1]])
        bulge = np.stack([x, 0 * y, z], -1)
        nose = np.stack([right[:, -1], bulge[:, -1] + (0.05, 0, 0), left[:, -1]], 1)
        tail = np.stack([left[:, 0], bulge[:, 0] - (0.03, 0, 0), right[:, 0]], 1)
        assembly.add(Shape((side, nose, tail)), self._painter(variation, finish), 35.0)

    def _painter(self, variation: Variation, finish: Finish) -> Callable[[Texels], np.ndarray]:
        plan = self.plan
        length, width = plan.size
        last = 2 * len(self._half) - 2
        has_cabin = self.cabin_height > 0.2
        posts = [length * (0.5 - post) for post in plan.pillars if post > 0]
        closed_behind = max([length * (0.5 + post) for post in plan.pillars if post < 0], default=-length)
        if closed_behind > -length and variation.chance(0.4):
            closed_behind = -length
        doors = sorted({*posts, length * (0.5 - plan.axles[0]) - plan.wheel * 1.35})
        axles = [length * (0.5 - axle) for axle in plan.axles]
        cladding = variation.chance(0.3)
        chassis = variation.pick([
            (shade(finish.colors[1], 0.8), TRIM), (finish.colors[2], shade(finish.colors[2], 0.4)),
            (shade(finish.colors[0], 0.7), finish.colors[1]), ((0.55, 0.57, 0.6), TRIM), (TRIM, CHROME),
            (finish.colors[1], finish.colors[2]),
        ])  # fmt: skip
        lamp_shape = variation.pick(["round", "box", "slit"])
        lamp_at, lamp_size = variation.uniform(0.58, 0.8) * width / 2, variation.uniform(0.11, 0.17)
        tail_style = variation.pick(["pair", "bar", "upright"])
        grille = variation.pick(["bars", "mesh", "wide", "none"])
        grille_color = variation.pick([TRIM, CHROME, shade(finish.colors[0], 0.35)])
        nose_level = float(self.height_of(plan.deck, 0.0))
        tail_level = float(self.height_of(plan.deck, 1.0))
        plate = variation.pick([(0.95, 0.95, 0.92), (0.97, 0.80, 0.15)])

        def paint(texels: Texels) -> np.ndarray:
            x, y, z = texels.x, texels.y, texels.z
            if texels.patch == 0:
                ring = np.minimum(texels.row, last - texels.row) + 0 * x
            else:
                ring = texels.row + 0 * x
            colored = finish.livery(texels, ring)
            if cladding:
                colored[(ring < 2.4) & (ring >= SILL)] = TRIM
            below = ring < SILL
            colored[below] = chassis[0]
            colored[below & (np.abs(y) < 0.16 * width)] = chassis[1]
            for axle in axles:
                colored[below & (np.abs(x - axle) < 0.12)] = chassis[1]
            if texels.patch == 0:
                self._paint_flank(texels, ring, colored, doors, axles)
                if has_cabin:
                    rise = np.interp(x, self.x, self._rise) / self.cabin_height
                    side_glass = (np.abs(ring - 5.5) < 0.36) & (rise > 0.12) & (x > closed_behind)
                    for post in posts:
                        side_glass &= np.abs(x - post) > 0.05
                    screens = (ring > ROOF_EDGE + 0.12) & (rise > 0.06) & (rise < 0.94)
                    glass = side_glass | screens
                    colored[glass] = finish.glass
                    colored[glass & patterns.stripes(x + y + 0.8 * z, 1.3, 0.25, 0.2)] = shade(finish.glass, 1.3)
            front, back = x > length / 2 - 0.09, x < -length / 2 + 0.07
            self._paint_front(y, z, front & (ring < ROOF_EDGE + 0.6), colored, nose_level, grille, grille_color)
            lamp_level = plan.floor + 0.68 * (nose_level - plan.floor)
            across = np.abs(y)
            if lamp_shape == "round":
                colored[front & patterns.disc(across, z, (lamp_at, lamp_level), lamp_size * 1.25)] = TRIM
                lamps = patterns.disc(across, z, (lamp_at, lamp_level), lamp_size)
            elif lamp_shape == "box":
                lamps = patterns.rectangle(across, z, (lamp_at + 0.05, lamp_level), (3 * lamp_size, 1.5 * lamp_size))
            else:
                lamps = patterns.rectangle(across, z - 0.3 * (across - lamp_at), (lamp_at, lamp_level), (0.7, 0.11))
            colored[front & lamps] = finish.lamp
            rear_level = plan.floor + 0.72 * (tail_level - plan.floor)
            if tail_style == "pair":
                lights = patterns.rectangle(across, z, (0.36 * width, rear_level), (0.34, 0.17))
            elif tail_style == "bar":
                lights = np.abs(z - rear_level) < 0.07
            else:
                lights = patterns.rectangle(across, z, (0.41 * width, rear_level), (0.16, 0.44))
            colored[back & lights] = TAIL_LIGHT
            if tail_style != "bar":
                colored[back & lights & (z < rear_level - 0.05)] = INDICATOR
            for end, level in ((front, plan.floor + 0.27), (back, plan.floor + 0.3 * (tail_level - plan.floor))):
                colored[end & patterns.rectangle(y, z, (0, level), (0.5, 0.15))] = plate
            return colored

        return paint

    def _paint_flank(self, texels: Texels, ring: np.ndarray, colored: np.ndarray, doors, axles) -> None:
        """Door gaps, handles and wheel arches."""
        x, z, plan = texels.x, texels.z, self.plan
        flank = (ring > 1.5) & (ring < SHOULDER + 0.1)
        for door in doors:
            colored[flank & (np.abs(x - door) < 0.018)] *= 0.4
            colored[flank & patterns.rectangle(x, ring, (door - 0.22, 4.4), (0.18, 0.35))] = TRIM
        for axle in axles:
            outside = (ring < SHOULDER - 0.1) & (np.abs(texels.y) > 0.3 * plan.size[1])
            colored[outside & patterns.disc(x, z, (axle, plan.wheel), 1.16 * plan.wheel)] = RUBBER

    def _paint_front(self, y, z, front, colored, nose_level: float, grille: str, color: Color) -> None:
        """The grille."""
        plan = self.plan
        level = plan.floor + 0.62 * (nose_level - plan.floor)
        half = plan.size[1] * {"bars": 0.2, "mesh": 0.24, "wide": 0.42, "none": 0.0}[grille]
        inside = front & patterns.rectangle(y, z, (0, level), (2 * half, 0.5 * (nose_level - plan.floor)))
        colored[inside] = color
        if grille == "bars":
            colored[inside & patterns.stripes(y, 0.12, 0.4)] = RUBBER
        elif grille == "mesh":
            colored[inside & patterns.stripes(z, 0.11, 0.45)] = RUBBER
