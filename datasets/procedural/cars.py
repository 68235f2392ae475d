"""Cars, vans, buses and trucks: a lofted body with painted glass and lights, wheels, and what people put on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import (
    Shape,
    box,
    cylinder,
    lathe,
    loft,
    panel,
    rounded_box,
    sphere,
    torus,
    tube,
)
from fusedplanes.datasets.procedural.variation import Color, Variation, shade, tone

RUBBER: Color = (0.06, 0.06, 0.07)
TRIM: Color = (0.13, 0.13, 0.15)
CHROME: Color = (0.78, 0.80, 0.83)
TAIL_LIGHT: Color = (0.85, 0.05, 0.06)
INDICATOR: Color = (0.98, 0.55, 0.08)

# Positions on half a cross-section, from the middle of the floor over the flank to the middle of the roof.
SILL, SHOULDER, ROOF_EDGE, ROOF_MIDDLE = 1.0, 5.0, 6.0, 8.0


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


def _cabin(nose: float, sill: float, tail: float, roof: float, places: tuple[float, float, float, float]) -> dict:
    """Deck and outline of a closed car: ``places`` are windscreen foot, roof front, roof rear, rear window foot."""
    foot, front, rear, boot = places
    return {
        "deck": ((0.0, nose), (foot, sill), (boot, sill), (1.0, tail)),
        "top": ((0.0, nose), (foot, sill), (front, roof * 0.985), (0.5 * (front + rear), roof), (rear, roof * 0.97),
                (boot, sill), (1.0, tail)),
    }  # fmt: skip


PLANS = {
    "sedan": BodyPlan((4.5, 1.85), 0.28, 0.36, (0.18, 0.80), **_cabin(0.74, 0.98, 0.92, 1.50, (0.27, 0.42, 0.68, 0.83)),
                      roof_width=0.72, pillars=(0.54,)),
    "hatchback": BodyPlan((3.8, 1.80), 0.26, 0.36, (0.19, 0.81),
                          **_cabin(0.76, 1.02, 0.86, 1.62, (0.25, 0.43, 0.84, 0.97)), roof_width=0.74, pillars=(0.62,)),
    "wagon": BodyPlan((4.7, 1.85), 0.28, 0.37, (0.18, 0.79), **_cabin(0.76, 1.00, 0.90, 1.55, (0.26, 0.39, 0.91, 0.98)),
                      roof_width=0.75, pillars=(0.51, 0.72)),
    "suv": BodyPlan((4.4, 2.00), 0.42, 0.47, (0.18, 0.80), **_cabin(1.02, 1.22, 1.08, 1.90, (0.25, 0.37, 0.90, 0.98)),
                    roof_width=0.80, pillars=(0.53, 0.74), rounding=0.2),
    "van": BodyPlan((4.6, 2.00), 0.30, 0.40, (0.17, 0.80), **_cabin(0.95, 1.25, 0.98, 2.25, (0.08, 0.24, 0.96, 0.985)),
                    roof_width=0.84, pillars=(0.40, -0.42), rounding=0.2),
    "camper": BodyPlan((4.3, 1.90), 0.28, 0.37, (0.20, 0.78),
                       **_cabin(1.05, 1.22, 1.10, 2.10, (0.02, 0.12, 0.95, 0.985)), roof_width=0.80,
                       pillars=(0.30, 0.52, 0.74), rounding=0.35),
    "bus": BodyPlan((6.4, 2.25), 0.35, 0.46, (0.17, 0.76),
                    **_cabin(1.05, 1.35, 1.20, 2.85, (0.012, 0.035, 0.975, 0.99)), roof_width=0.90,
                    pillars=(0.16, 0.32, 0.48, 0.64, 0.80), rounding=0.12),
    "sports": BodyPlan((4.3, 1.95), 0.18, 0.39, (0.19, 0.79),
                       **_cabin(0.52, 0.82, 0.84, 1.18, (0.34, 0.51, 0.62, 0.88)), roof_width=0.66, rounding=0.5),
    "coupe": BodyPlan((4.4, 1.90), 0.24, 0.40, (0.20, 0.79), **_cabin(0.78, 0.98, 0.90, 1.42, (0.36, 0.50, 0.66, 0.86)),
                      roof_width=0.68, rounding=0.18),
    "beetle": BodyPlan((3.7, 1.75), 0.26, 0.40, (0.19, 0.80),
                       deck=((0.0, 0.55), (0.1, 0.80), (0.26, 1.0), (0.80, 1.0), (0.92, 0.85), (1.0, 0.5)),
                       top=((0.0, 0.56), (0.1, 0.82), (0.26, 1.02), (0.35, 1.42), (0.46, 1.60), (0.58, 1.62),
                            (0.70, 1.46), (0.80, 1.10), (0.92, 0.86), (1.0, 0.5)), roof_width=0.70, pillars=(0.60,),
                       rounding=0.6),
    "micro": BodyPlan((2.6, 1.65), 0.25, 0.34, (0.20, 0.81), **_cabin(0.80, 1.00, 0.90, 1.66, (0.16, 0.36, 0.82, 0.95)),
                      roof_width=0.76, rounding=0.35),
    "limousine": BodyPlan((6.0, 1.90), 0.28, 0.37, (0.14, 0.84),
                          **_cabin(0.80, 1.00, 0.95, 1.55, (0.20, 0.31, 0.80, 0.89)), roof_width=0.75,
                          pillars=(0.42, 0.55, 0.66)),
    "pickup": BodyPlan((4.8, 1.95), 0.40, 0.44, (0.18, 0.78),
                       deck=((0.0, 0.95), (0.26, 1.15), (0.57, 1.15), (0.585, 0.88), (1.0, 0.88)),
                       top=((0.0, 0.95), (0.26, 1.15), (0.36, 1.78), (0.54, 1.78), (0.57, 1.17), (0.585, 0.89),
                            (1.0, 0.89)), roof_width=0.78, pillars=(0.47,), rounding=0.18),
    "jeep": BodyPlan((3.6, 1.80), 0.48, 0.50, (0.19, 0.80),
                     deck=((0.0, 1.10), (0.36, 1.18), (0.95, 1.18), (1.0, 1.15)),
                     top=((0.0, 1.10), (0.36, 1.18), (0.40, 1.95), (0.96, 1.98), (0.985, 1.2), (1.0, 1.15)),
                     roof_width=0.90, pillars=(0.62,), rounding=0.06),
    "roadster": BodyPlan((3.9, 1.80), 0.22, 0.38, (0.20, 0.80),
                         deck=((0.0, 0.60), (0.40, 0.88), (0.70, 0.90), (1.0, 0.72)),
                         top=((0.0, 0.60), (0.40, 0.88), (0.70, 0.90), (1.0, 0.72)), roof_width=0.7, rounding=0.55),
    "truck": BodyPlan((5.6, 2.15), 0.45, 0.50, (0.14, 0.62, 0.82),
                      deck=((0.0, 1.20), (0.03, 1.50), (0.27, 1.50), (0.275, 0.85), (1.0, 0.85)),
                      top=((0.0, 1.20), (0.03, 1.50), (0.09, 2.45), (0.265, 2.45), (0.27, 1.50), (0.275, 0.86),
                           (1.0, 0.86)), roof_width=0.88, pillars=(-0.2,), rounding=0.12),
}  # fmt: skip

# A name that occurs twice comes up twice as often.
KINDS = ("sedan", "truck", "hatchback", "bus", "sports", "suv", "racer", "van", "pickup", "beetle", "truck", "jeep",
         "wagon", "roadster", "camper", "coupe", "micro", "limousine")  # fmt: skip


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


def build(variation: Variation) -> Assembly:
    """One car, about 4 metres long, its nose towards +x and its wheels on z = 0."""
    kind = variation.spread_pick(0, KINDS)
    assembly = Assembly()
    if kind == "racer":
        _add_racer(assembly, variation)
        return assembly
    plan = _proportioned(PLANS[kind], variation)
    finish = _finish(variation, plan)
    body = CarBody(plan)
    body.add_to(assembly, variation, finish)
    _add_wheels(assembly, variation, plan, finish.hub)
    _add_bumpers(assembly, variation, body, finish)
    if kind == "truck":
        _add_load(assembly, variation, body, finish)
    elif kind == "pickup":
        _add_cargo_bed(assembly, variation, body, finish)
    elif kind == "roadster":
        _add_open_cockpit(assembly, variation, body, finish)
    else:
        _add_roof_load(assembly, variation, kind, body, finish)
    if kind in ("jeep", "suv") and variation.chance(0.7):
        spare = _wheel(plan.wheel * 0.85, 0.22, 1.0).rotated("z", 90)
        assembly.add(spare.moved(-plan.size[0] / 2 - 0.1, 0, body.height_of(plan.deck, 0.98) * 0.85), RUBBER)
    if kind in ("sports", "coupe", "hatchback", "sedan", "roadster") and variation.chance(0.5):
        _add_spoiler(assembly, variation, body, finish)
    return assembly


def _proportioned(plan: BodyPlan, variation: Variation) -> BodyPlan:
    """The plan with its own length, width, heights and wheels."""
    length, width = (edge * variation.uniform(0.9, 1.1) for edge in plan.size)
    height = variation.uniform(0.9, 1.14)
    shift = variation.uniform(-0.02, 0.02)

    def varied(line):
        return tuple((place + shift * (0.1 < place < 0.9), level * height) for place, level in line)

    return BodyPlan(
        size=(length, width),
        floor=plan.floor * variation.uniform(0.85, 1.2),
        wheel=plan.wheel * variation.uniform(0.9, 1.15),
        axles=tuple(axle + variation.uniform(-0.015, 0.015) for axle in plan.axles),
        deck=varied(plan.deck),
        top=varied(plan.top),
        roof_width=plan.roof_width * variation.uniform(0.92, 1.06),
        pillars=plan.pillars,
        rounding=plan.rounding * variation.uniform(0.5, 1.4),
    )


# Paint ----------------------------------------------------------------------------------------------------------------

LIVERIES = (
    "plain",
    "two tone",
    "bold",
    "roof",
    "stripes",
    "halves",
    "bold",
    "band",
    "roundel",
    "fade",
    "bold",
    "lower",
)


def _finish(variation: Variation, plan: BodyPlan) -> Finish:
    colors = variation.palette()
    style = variation.spread_pick(3, LIVERIES)
    blue, brown = variation.uniform(0.5, 0.65), variation.uniform(0.06, 0.12)
    glass = tone(variation.pick([blue, blue, blue, brown]), variation.uniform(0.05, 0.72), variation.uniform(0.15, 0.5))
    return Finish(
        colors=colors,
        livery=_livery(variation, style, plan, colors),
        glass=glass,
        lamp=variation.pick([(0.98, 0.97, 0.90), (0.99, 0.90, 0.55), (0.80, 0.90, 1.0)]),
        bumper=variation.pick([TRIM, CHROME, colors[0], colors[1], shade(colors[0], 0.6)]),
        hub=variation.pick([CHROME, TRIM, colors[0], colors[1], colors[2], (0.85, 0.72, 0.35), (0.95, 0.95, 0.93)]),
    )


def _livery(variation: Variation, style: str, plan: BodyPlan, colors: tuple[Color, Color, Color]):
    """The paint of the body: a function of texels and their place along half a cross-section."""
    main, second, accent = colors
    length, width = plan.size
    belt = float(np.interp(0.5, *np.array(plan.deck).T))
    middle = 0.5 * (belt + plan.floor)
    share = variation.uniform(0.25, 0.75)
    lean = variation.uniform(-0.7, 0.7)
    stripe = width * variation.uniform(0.07, 0.16)
    gap = variation.pick([0.0, 0.03, 0.05]) * width
    bold = patterns.bold_pattern(
        variation, variation.pick(patterns.BOLD_PATTERNS[2:8]), colors, length * variation.uniform(0.35, 0.7)
    )
    place = length * variation.uniform(-0.12, 0.08)

    def paint(texels: Texels, ring: np.ndarray) -> np.ndarray:
        x, y, z = texels.x, texels.y, texels.z
        colored = texels.filled(main)
        if style == "two tone":
            colored[z < plan.floor + share * (belt - plan.floor) + 0.05 * x] = second
        elif style == "lower":
            colored[z < plan.floor + 0.4 * (belt - plan.floor)] = second
            colored[ring > ROOF_EDGE] = second
        elif style == "bold":
            # Height and width run on round the shoulder, so that the pattern does not stretch there.
            colored = bold(x, z + (width / 2 - np.abs(y)))
        elif style == "roof":
            colored[(ring > SHOULDER) & (z > belt + 0.04)] = second
        elif style == "stripes":
            colored[(np.abs(y) > gap) & (np.abs(y) < gap + stripe) & (ring > SHOULDER)] = second
            colored[np.abs(z - plan.floor - 0.15 * (belt - plan.floor)) < 0.07] = second
        elif style == "halves":
            colored[x + lean * z < length * (share - 0.5)] = second
            colored[np.abs(x + lean * z - length * (share - 0.5)) < 0.06] = accent
        elif style == "band":
            inside = (np.abs(z - middle - 0.1) < 0.16) & (ring > SILL)
            checked = patterns.checks(x, z, 0.32) if gap else np.ones_like(inside)
            colored[inside] = second
            colored[inside & ~checked] = accent
            colored[ring > ROOF_EDGE + 0.5] = second
        elif style == "roundel":
            for center, across in (((place, middle), z), ((length * 0.36, 0.0), y + 9 * (ring < SHOULDER))):
                colored[patterns.disc(x, across, center, 0.36)] = (0.96, 0.96, 0.94)
                colored[patterns.rectangle(x, across, center, (0.14, 0.4))] = second
            colored[(ring > SHOULDER) & (np.abs(y) < stripe)] = second
        elif style == "fade":
            colored = patterns.mixed(np.clip(x / length * 1.3 + 0.5, 0, 1), main, second)
        return colored

    return paint


# Body -----------------------------------------------------------------------------------------------------------------


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
            colored[ring < SILL] = RUBBER
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


# Wheels and attachments -----------------------------------------------------------------------------------------------


def _wheel(radius: float, width: float, side: float) -> Shape:
    """A wheel whose axle lies along y; ``side`` +1 or -1 is the way the hub faces."""
    profile = [(0.6, -0.5), (0.9, -0.5), (1.0, -0.28), (1.0, 0.28), (0.9, 0.5), (0.64, 0.5), (0.58, 0.36), (0.0, 0.44)]
    return lathe([(radius * r, width * z) for r, z in profile], 18).rotated("x", -90 * side)


def _wheel_paint(variation: Variation, hub: Color, radius: float) -> Callable[[tuple[float, float]], Callable]:
    """A function from a wheel's centre (x, z) to its painter; all wheels of a car match."""
    style = variation.pick(["spokes", "disc", "dish", "star"])
    spokes = variation.integer(4, 7)
    white_wall = variation.chance(0.2)

    def at(center: tuple[float, float]):
        def paint(texels: Texels) -> np.ndarray:
            x, z = texels.x - center[0], texels.z - center[1]
            distance = np.hypot(x, z) / radius
            colored = texels.filled(RUBBER)
            face = texels.row > 3.9
            if white_wall:
                colored[face & (distance < 0.9) & (distance > 0.66)] = (0.93, 0.92, 0.88)
            rim = face & (distance < 0.64)
            colored[rim] = hub
            turn = (np.arctan2(z, x) / (2 * np.pi) * spokes) % 1.0
            if style == "spokes":
                colored[rim & (turn > 0.45) & (distance > 0.2) & (distance < 0.54)] = RUBBER
            elif style == "star":
                colored[rim & (np.abs(turn - 0.5) > 0.9 * (0.62 - distance) + 0.08)] = shade(hub, 0.25)
            elif style == "dish":
                colored[rim & (distance > 0.3) & (distance < 0.5)] = shade(hub, 0.5)
            return colored

        return paint

    return at


def _add_wheels(assembly: Assembly, variation: Variation, plan: BodyPlan, hub: Color) -> None:
    length, width = plan.size
    thickness = variation.uniform(0.22, 0.32)
    paint_at = _wheel_paint(variation, hub, plan.wheel)
    for axle in plan.axles:
        x = length * (0.5 - axle)
        for side in (-1.0, 1.0):
            wheel = _wheel(plan.wheel, thickness, side).moved(
                x, side * (width / 2 - 0.5 * thickness + 0.05), plan.wheel
            )
            assembly.add(wheel, paint_at((x, plan.wheel)), 30.0)


def _add_bumpers(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    length, width = body.plan.size
    level = body.plan.floor + 0.12
    if variation.chance(0.75):
        thickness = variation.uniform(0.12, 0.24)
        for end in (-1, 1):
            bumper = rounded_box(0.2, width * 0.86, thickness, 0.06, 1)
            assembly.add(bumper.moved(end * (length / 2 - 0.01), 0, level), finish.bumper)
    if body.cabin_height > 0.2:
        x = body.roof[0] + 0.35 * (body.x[np.argmax(body._rise > 0.05)] - body.roof[0]) + 0.1
        sill = float(np.interp(0.5 - x / length, *np.array(body.plan.deck).T))
        for side in (-1, 1):
            assembly.add(rounded_box(0.1, 0.22, 0.15, 0.04, 1).moved(x, side * (width / 2 + 0.05), sill + 0.08),
                         finish.bumper)  # fmt: skip


def _add_spoiler(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    length, width = body.plan.size
    color = variation.pick([finish.colors[0], finish.colors[1], TRIM])
    tail = float(body.height_of(body.plan.top, 0.96))
    height = variation.uniform(0.15, 0.45)
    x = -length / 2 + 0.2
    assembly.add(box(0.32, width * 0.9, 0.05).rotated("y", -8).moved(x, 0, tail + height), color)
    for side in (-0.3, 0.3):
        assembly.add(box(0.14, 0.06, height + 0.1).moved(x, side * width, tail + height / 2), TRIM)


def _add_roof_load(assembly: Assembly, variation: Variation, kind: str, body: CarBody, finish: Finish) -> None:
    """What stands on the roof of a closed car."""
    front, rear, top = body.roof
    length, middle = front - rear, 0.5 * (front + rear)
    width = body.plan.size[1] * body.plan.roof_width
    loads = ["none", "none", "rack", "sign", "beacon", "board", "kayak", "ladder"]
    if kind in ("sports", "coupe"):
        loads = ["none", "none", "none", "sign", "beacon"]
    if kind in ("beetle", "micro", "limousine"):
        loads = ["none", "none", "rack", "sign", "beacon", "board"]
    load = variation.pick(loads)
    second, accent = finish.colors[1], finish.colors[2]
    if load in ("rack", "board", "kayak", "ladder"):
        for x in (front - 0.12 * length, rear + 0.12 * length):
            assembly.add(box(0.07, width * 0.95, 0.1).moved(x, 0, top + 0.03), TRIM)
    if load == "rack":
        places = variation.integer(1, 3)
        for number in range(places):
            size = (0.8 * length / places, width * variation.uniform(0.5, 0.85), variation.uniform(0.2, 0.45))
            x = rear + length * (number + 0.5) / places
            color = variation.pick([second, accent, (0.55, 0.36, 0.2), (0.25, 0.27, 0.3)])
            assembly.add(rounded_box(*size, 0.05, 1).moved(x, 0, top + 0.08 + size[2] / 2), color)
    elif load == "sign":
        sign = rounded_box(0.3, width * 0.55, 0.26, 0.06, 1).moved(middle, 0, top + 0.13)
        assembly.add(sign, patterns.framed(lambda texels: texels.filled((0.98, 0.82, 0.12)), (0.1, 0.1, 0.1), 0.05))
    elif load == "beacon":
        color = variation.pick([(0.1, 0.25, 0.95), (0.98, 0.55, 0.05)])
        bar = rounded_box(0.24, width * 0.8, 0.16, 0.05, 1).moved(middle, 0, top + 0.08)
        assembly.add(bar, lambda texels: patterns.mixed(texels.y > 0, color, (0.9, 0.08, 0.08)))
    elif load == "board":
        board = sphere(1.0, 14).scaled(0.52 * length + 0.25, width * 0.28, 0.06).moved(middle, 0, top + 0.13)
        assembly.add(board, lambda texels: patterns.mixed(np.abs(texels.y) < 0.08, second, accent))
    elif load == "kayak":
        boat = sphere(1.0, 14).scaled(0.55 * length + 0.3, width * 0.24, 0.2).moved(middle, 0, top + 0.24)
        assembly.add(boat, lambda texels: patterns.mixed(texels.z > top + 0.28, second, accent))
    elif load == "ladder":
        for side in (-1, 1):
            assembly.add(box(length, 0.07, 0.09).moved(middle, side * width * 0.22, top + 0.12), CHROME)
        for x in np.linspace(rear + 0.15, front - 0.15, 7):
            assembly.add(box(0.07, width * 0.44, 0.06).moved(x, 0, top + 0.12), CHROME)


def _add_open_cockpit(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    """Windscreen, dark interior and seats of a car without a roof."""
    length, width = body.plan.size
    level = float(body.height_of(body.plan.top, 0.55)) + 0.03
    leather = variation.pick([(0.55, 0.25, 0.12), (0.9, 0.85, 0.75), finish.colors[1], finish.colors[2], TRIM])
    front, rear = 0.08 * length, -0.2 * length
    tub = box(front - rear, width * 0.72, 0.06).moved(0.5 * (front + rear), 0, level)
    assembly.add(tub, patterns.framed(lambda texels: texels.filled(RUBBER), leather, 0.07))
    for side in (-0.17, 0.17):
        x = rear + 0.38
        assembly.add(rounded_box(0.46, 0.5, 0.16, 0.06, 1).moved(x + 0.22, side * width, level + 0.06), leather)
        assembly.add(rounded_box(0.16, 0.5, 0.55, 0.06, 1).rotated("y", -12).moved(x - 0.1, side * width, level + 0.25),
                     leather)  # fmt: skip
    half, height = 0.36 * width, variation.uniform(0.28, 0.42)
    foot, head = front + 0.12, front - 0.08
    screen = panel([(foot, -half, level), (foot, half, level), (head, half * 0.9, level + height),
                    (head, -half * 0.9, level + height)])  # fmt: skip
    assembly.add(screen, patterns.framed(lambda texels: texels.filled(finish.glass), finish.bumper, 0.04))
    steering = torus(0.17, 0.03, 12, 5).rotated("y", -65).moved(front - 0.2, 0.17 * width, level + 0.18)
    assembly.add(steering, TRIM)


def _add_cargo_bed(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    """Walls and goods of a pickup's bed."""
    length, width = body.plan.size
    floor = float(body.height_of(body.plan.deck, 0.8)) + 0.03
    height = variation.uniform(0.26, 0.42)
    front, rear = -0.085 * length, -0.49 * length
    middle, run = 0.5 * (front + rear), front - rear

    def livery(texels: Texels) -> np.ndarray:
        return finish.livery(texels, np.full(texels.points.shape[:2], 4.0))

    for side in (-1, 1):
        wall = box(run, 0.1, height).moved(middle, side * width * 0.435, floor + height / 2 - 0.02)
        assembly.add(wall, livery)
    assembly.add(box(0.1, width * 0.86, height).moved(rear + 0.05, 0, floor + height / 2 - 0.02), livery)
    assembly.add(box(run, width * 0.78, 0.03).moved(middle, 0, floor + 0.02), (0.2, 0.2, 0.22))
    goods = variation.pick(["empty", "crates", "logs", "cover", "barrels"])
    if goods == "crates":
        for number in range(variation.integer(2, 4)):
            size = variation.uniform(0.4, 0.6)
            wood = variation.wood()
            crate = box(size, size, size).moved(
                rear + 0.35 + 0.45 * number, variation.uniform(-0.3, 0.3), floor + size / 2
            )
            assembly.add(crate, patterns.framed(lambda texels, wood=wood: texels.filled(wood[0]), wood[1], 0.07))
    elif goods == "logs":
        for y, z in ((-0.4, 0.2), (0.0, 0.2), (0.4, 0.2), (-0.2, 0.52), (0.2, 0.52)):
            log = cylinder(0.19, run * 1.05, segments=10).rotated("y", 90).moved(middle - 0.05, y, floor + z)
            wood = variation.wood()
            assembly.add(log, lambda texels, wood=wood: texels.filled(wood[texels.patch == 0]))
    elif goods == "cover":
        cover = rounded_box(run, width * 0.84, 0.55, 0.2).moved(middle, 0, floor + height + 0.05)
        assembly.add(cover, patterns.on_sides(finish.colors[1]))
    elif goods == "barrels":
        for number in range(3):
            barrel = cylinder(0.27, 0.75, segments=12).moved(rear + 0.4 + 0.58 * number, 0, floor + 0.38)
            color = variation.pick([finish.colors[1], finish.colors[2], (0.1, 0.35, 0.7)])
            assembly.add(
                barrel, lambda texels, color=color: patterns.mixed(texels.z % 0.3 < 0.07, shade(color, 0.5), color)
            )


def _add_load(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    """What a truck carries behind its cab."""
    length, width = body.plan.size
    floor = float(body.height_of(body.plan.deck, 0.7)) + 0.03
    cab_top = body.roof[2]
    front, rear = 0.5 * length * 0.42, -0.49 * length
    middle, run = 0.5 * (front + rear), front - rear
    main, second, accent = finish.colors
    load = variation.spread_pick(4, ["box", "tank", "dump", "mixer", "crates", "box", "fire"])
    if load == "box":
        height = variation.uniform(1.5, 2.2)
        pattern = patterns.bold_pattern(variation, variation.pick(patterns.BOLD_PATTERNS), (second, accent, main), run)
        shape = box(run, width * 1.02, height).moved(middle, 0, floor + height / 2)
        side = patterns.projected(pattern, "xz", (middle, floor + height / 2))
        back = patterns.projected(pattern, "yz", (0, floor + height / 2))
        assembly.add(shape, patterns.framed(patterns.on_sides(side, front=back, back=back, top=second), main, 0.07))
    elif load == "tank":
        radius = 0.46 * width
        tank = lathe([(0, -0.5), (0.75, -0.5), (1, -0.44), (1, 0.44), (0.75, 0.5), (0, 0.5)], 20)
        tank = tank.scaled(radius, radius, run).rotated("y", 90).moved(middle, 0, floor + radius)
        pattern = patterns.bold_pattern(variation, variation.pick(["plain", "bands", "zigzag"]), finish.colors, run)
        assembly.add(tank, patterns.projected(pattern, "yx", (0, middle)))
    elif load == "dump":
        height = variation.uniform(0.7, 1.1)
        rim = np.array([[1, 1, -1, -1, 1], [1, -1, -1, 1, 1]])[:, ::-1].T
        low = np.concatenate([rim * (0.42 * run, 0.44 * width), np.zeros((5, 1))], 1)
        high = np.concatenate([rim * (0.5 * run, 0.52 * width), np.full((5, 1), height)], 1)
        tub = Shape((loft(np.stack([low, high])).patches[0],))
        assembly.add(
            tub.moved(middle, 0, floor + 0.1),
            lambda texels: patterns.mixed(patterns.stripes(texels.x, 0.7, 0.15), shade(second, 0.6), second),
        )
        heap = sphere(1.0, 14).scaled(0.47 * run, 0.48 * width, variation.uniform(0.35, 0.8))
        earth = variation.pick([(0.35, 0.22, 0.12), (0.80, 0.68, 0.42), (0.25, 0.25, 0.27), (0.55, 0.55, 0.55)])
        assembly.add(heap.moved(middle, 0, floor + 0.1 + 0.8 * height), earth)
    elif load == "mixer":
        drum = lathe([(0, -0.5), (0.55, -0.5), (1, -0.1), (0.95, 0.15), (0.45, 0.5), (0.3, 0.5)], 18)
        drum = drum.scaled(0.52 * width, 0.52 * width, run).rotated("y", -78).moved(middle, 0, floor + 0.62 * width)
        angle = variation.uniform(0.5, 0.8)
        assembly.add(
            drum,
            lambda texels: patterns.mixed(
                patterns.stripes(texels.u + angle * texels.v * 2, 0.5, 0.45) + 0 * texels.x, accent, second
            ),
        )
    elif load == "crates":
        count = variation.integer(2, 3)
        for number in range(count):
            size = np.array([run / count * 0.94, width * 0.94, variation.uniform(0.7, 1.7)])
            color = variation.pick([second, accent, tone(variation.uniform(0, 1), 0.45, 0.7)])
            x = rear + run * (number + 0.5) / count
            assembly.add(
                box(*size).moved(x, 0, floor + size[2] / 2),
                patterns.framed(
                    lambda texels, color=color: patterns.mixed(
                        patterns.stripes(texels.points.sum(-1), 0.3), shade(color, 0.75), color
                    ),
                    shade(color, 0.5),
                    0.08,
                ),
            )
    else:
        height = 1.0
        assembly.add(
            box(run, width, height).moved(middle, 0, floor + height / 2),
            patterns.on_sides(
                lambda texels: patterns.mixed(
                    patterns.stripes(texels.x, 0.8, 0.85) & (np.abs(texels.z - floor - 0.5) < 0.36), CHROME, main
                ),
                top=TRIM,
            ),
        )
        for side in (-1, 1):
            ladder = box(run * 1.3, 0.1, 0.12).rotated("y", -3).moved(middle + 0.3, side * 0.3, cab_top + 0.12)
            assembly.add(ladder, accent)
        for x in np.linspace(rear + 0.2, front + 0.6, 8):
            assembly.add(box(0.08, 0.6, 0.08).moved(x, 0, cab_top + 0.12), accent)
        assembly.add(box(0.25, width * 0.7, 0.2).moved(0.36 * length, 0, cab_top + 0.05), (0.1, 0.25, 0.95))
    if variation.chance(0.5):
        for side in (-1, 1):
            stack = cylinder(0.08, cab_top - floor + 0.4, segments=8)
            assembly.add(stack.moved(0.22 * length, side * 0.42 * width, 0.5 * (cab_top + floor + 0.4)), CHROME)


def _add_racer(assembly: Assembly, variation: Variation) -> None:
    """A single-seater with open wheels and wings."""
    colors = variation.palette()
    main, second, accent = colors
    width, tail = variation.uniform(0.8, 1.4), variation.uniform(0.85, 1.4)
    nose_width, nose_top = variation.uniform(0.2, 0.7), variation.uniform(0.36, 0.6)
    track = variation.uniform(0.85, 1.15)
    # (x, half width, floor, top) from tail to nose.
    stations = np.array(
        [(-1.7, 0.2, 0.35, 0.6), (-1.0, 0.32, 0.2, tail), (-0.5, 0.4, 0.18, tail + 0.05), (-0.1, 0.42, 0.18, 0.78),
         (0.5, 0.38, 0.18, 0.76), (1.2, 0.3, 0.2, 0.6), (2.0, nose_width / 2, 0.22, nose_top)]
    )  # fmt: skip
    angle = np.linspace(0, 2 * np.pi, 21)
    round_y = np.sign(np.sin(angle)) * np.abs(np.sin(angle)) ** 0.7
    round_z = -np.sign(np.cos(angle)) * np.abs(np.cos(angle)) ** 0.7
    round_y[-1], round_z[-1] = round_y[0], round_z[0]
    x, half, low, high = stations.T[:, :, None]
    rings = np.stack(
        np.broadcast_arrays(x, width * half * round_y, 0.5 * (low + high) + 0.5 * (high - low) * round_z), -1
    )
    pattern = patterns.bold_pattern(variation, variation.pick(patterns.BOLD_PATTERNS), colors, 2.6)
    plain = variation.chance(0.3)

    def livery(texels: Texels) -> np.ndarray:
        colored = pattern(texels.x, texels.z + np.abs(texels.y))
        if plain:
            colored = texels.filled(main)
            colored[np.abs(texels.y) < 0.12] = second
        return colored

    assembly.add(loft(rings), livery, 50.0)
    pod = rounded_box(1.5, 0.5, variation.uniform(0.3, 0.55), 0.15)
    for side in (-1, 1):
        assembly.add(pod.moved(-0.45, side * 0.55, 0.42), livery)
    assembly.add(sphere(0.2, 12).scaled(1.3, 1, 0.6).moved(0.1, 0, 0.78), RUBBER)
    assembly.add(sphere(0.19, 12).moved(0.0, 0, 0.93), accent)
    rear_wing, front_wing = variation.uniform(0.85, 1.25), variation.uniform(1.5, 1.9)
    chord = variation.uniform(0.35, 0.65)
    assembly.add(box(chord, 1.5, 0.07).rotated("y", -10).moved(-1.75, 0, rear_wing), second)
    for side in (-1, 1):
        assembly.add(box(0.6, 0.05, 0.5).moved(-1.75, side * 0.75, rear_wing - 0.12), main)
        assembly.add(box(0.5, 0.05, 0.25).moved(2.0, side * front_wing / 2, 0.27), main)
    assembly.add(box(0.1, 0.1, rear_wing - 0.4).moved(-1.65, 0, 0.5 * (rear_wing + 0.45)), TRIM)
    assembly.add(box(0.42, front_wing, 0.06).moved(2.0, 0, 0.2), second)
    hub = variation.pick([CHROME, accent, second, (0.9, 0.75, 0.2)])
    big = variation.uniform(0.38, 0.56)
    for x, radius, thickness in ((-1.3, big, 0.48), (1.25, big * variation.uniform(0.75, 1.0), 0.36)):
        paint_at = _wheel_paint(variation, hub, radius)
        for side in (-1.0, 1.0):
            assembly.add(_wheel(radius, thickness, side).moved(x, side * track, radius), paint_at((x, radius)), 30.0)
            for offset in (-0.25, 0.2):
                assembly.add(tube([(x + offset, 0, 0.45), (x, side * track, radius)], 0.04, 5), TRIM)
