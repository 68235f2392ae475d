"""Cars, vans, buses and trucks: a lofted body with painted glass and lights, wheels, and what people put on top."""

from __future__ import annotations

import numpy as np

from fusedplanes.datasets.procedural import car_parts, patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.car_body import (
    CHROME,
    ROOF_EDGE,
    RUBBER,
    SHOULDER,
    SILL,
    TRIM,
    BodyPlan,
    CarBody,
    Finish,
)
from fusedplanes.datasets.procedural.shapes import box, loft, rounded_box, sphere, tube
from fusedplanes.datasets.procedural.variation import Color, Variation, shade, tone


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

KINDS = ("sedan", "truck", "hatchback", "bus", "sports", "suv", "racer", "van", "pickup", "beetle", "truck", "jeep",
         "wagon", "roadster", "camper", "coupe", "micro", "limousine")  # fmt: skip


def build(variation: Variation) -> Assembly:
    """One car, about 4 metres long, its nose towards +x and its wheels on z = 0."""
    kind = variation.kind
    assembly = Assembly()
    if kind == "racer":
        _add_racer(assembly, variation)
        return assembly
    plan = _proportioned(PLANS[kind], variation)
    finish = _finish(variation, plan)
    body = CarBody(plan)
    body.add_to(assembly, variation, finish)
    car_parts.add_wheels(assembly, variation, plan, finish.hub)
    car_parts.add_bumpers(assembly, variation, body, finish)
    if kind == "truck":
        car_parts.add_load(assembly, variation, body, finish)
    elif kind == "pickup":
        car_parts.add_cargo_bed(assembly, variation, body, finish)
    elif kind == "roadster":
        car_parts.add_open_cockpit(assembly, variation, body, finish)
    else:
        car_parts.add_roof_load(assembly, variation, kind, body, finish)
    if kind in ("jeep", "suv") and variation.chance(0.7):
        spare = car_parts.wheel(plan.wheel * 0.85, 0.22, 1.0).rotated("z", 90)
        assembly.add(spare.moved(-plan.size[0] / 2 - 0.1, 0, body.height_of(plan.deck, 0.98) * 0.85), RUBBER)
    if kind in ("sports", "coupe", "hatchback", "sedan", "roadster") and variation.chance(0.5):
        car_parts.add_spoiler(assembly, variation, body, finish)
    return assembly


def _proportioned(plan: BodyPlan, variation: Variation) -> BodyPlan:
    """The plan with its own length, width, heights and wheels."""
    length, width = plan.size[0] * variation.uniform(0.88, 1.08), plan.size[1] * variation.uniform(0.92, 1.18)
    height = variation.uniform(0.9, 1.25)
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
    style = variation.spread_pick("pattern", LIVERIES)
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


# A single-seater ------------------------------------------------------------------------------------------------------


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
        paint_at = car_parts.wheel_paint(variation, hub, radius)
        for side in (-1.0, 1.0):
            assembly.add(
                car_parts.wheel(radius, thickness, side).moved(x, side * track, radius), paint_at((x, radius)), 30.0
            )
            for offset in (-0.25, 0.2):
                assembly.add(tube([(x + offset, 0, 0.45), (x, side * track, radius)], 0.04, 5), TRIM)
