"""Lamps: a base, a stem and a shade large enough to matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import (
    Shape,
    arc,
    box,
    cylinder,
    lathe,
    prism,
    rounded_box,
    smooth_curve,
    sphere,
    tube,
)
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

KINDS = ("table", "desk", "mushroom", "floor", "lantern", "table", "globes", "stained glass", "paper", "tripod", "lava",
         "box", "table", "arc", "candelabra", "spot")  # fmt: skip

WARM_LIGHT: Color = (1.0, 0.93, 0.72)


def build(variation: Variation) -> Assembly:
    """One lamp, about a metre high, standing on z = 0; what is not round faces +x."""
    assembly = Assembly()
    builders = {
        "table": _add_table_lamp,
        "desk": _add_desk_lamp,
        "mushroom": _add_mushroom_lamp,
        "floor": _add_floor_lamp,
        "lantern": _add_lantern,
        "globes": _add_globe_lamp,
        "stained glass": _add_stained_glass_lamp,
        "paper": _add_paper_lamp,
        "tripod": _add_tripod_lamp,
        "lava": _add_lava_lamp,
        "box": _add_box_lamp,
        "arc": _add_arc_lamp,
        "candelabra": _add_candelabra,
        "spot": _add_spot_lamp,
    }
    builders[variation.kind](assembly, variation, variation.palette())
    return assembly


Colors = tuple[Color, Color, Color]
Painter = Callable[[Texels], np.ndarray]


def _shade_paint(variation: Variation, colors: Colors, height: float, radius: float) -> Painter:
    """A pattern round a shade, with a border at both rims now and then."""
    kind = variation.spread_pick("pattern", patterns.BOLD_PATTERNS)
    # Whole numbers of the pattern go round: in units where the girth is 2 or 3 patterns wide.
    turns = variation.integer(4, 7)
    girth = 2 * np.pi * radius
    pattern = patterns.bold_pattern(variation, "plain" if kind == "columns" else kind, colors, height)
    rims = variation.chance(0.5)
    rim = variation.pick([colors[1], colors[2]])

    def paint(texels: Texels) -> np.ndarray:
        if kind == "columns":
            colored = patterns.mixed(patterns.stripes(texels.u * turns + 0 * texels.x, 1.0), colors[1], colors[0])
        else:
            # Folded at the seam, so that the pattern meets its mirror image there.
            a = np.abs(texels.u - 0.5) * girth + 0 * texels.x
            colored = pattern(a, (texels.v - 0.5) * height + 0 * a)
        if rims:
            colored[np.broadcast_to(np.abs(texels.v - 0.5) > 0.43, texels.x.shape)] = rim
        return colored

    return paint


def _add_shade(
    assembly: Assembly, variation: Variation, colors: Colors, bottom: float, top: float, radius: float, narrow: float
) -> None:
    """A shade open at the bottom, lit inside, round or many-sided.

    Args:
        bottom: height of the lower rim; ``top`` that of the upper one.
        radius: of the lower rim.
        narrow: radius of the upper rim relative to the lower one.
    """
    height = top - bottom
    form = variation.pick(["cone", "cone", "bell", "drum", "pagoda", "facets"])
    if form == "drum":
        narrow = variation.uniform(0.9, 1.0)
    if form in ("bell", "pagoda"):
        waist = 0.62 if form == "bell" else 0.45
        middle = narrow + (1 - narrow) * waist
        profile = smooth_curve([(radius, bottom), (radius * middle, bottom + 0.45 * height), (radius * narrow, top)], 9)
    else:
        profile = np.array([(radius, bottom), (radius * narrow, top)])
    segments = variation.pick([4, 6, 8]) if form in ("facets", "pagoda") else 28
    crease = 10.0 if form == "facets" else 40.0
    outside = lathe(profile, segments).rotated("z", 180 / segments)
    assembly.add(outside, _shade_paint(variation, colors, height, radius), crease)
    inside = lathe(profile[::-1] * (0.97, 1), segments).rotated("z", 180 / segments)
    assembly.add(inside, WARM_LIGHT, crease)
    assembly.add(sphere(0.09 * radius + 0.03, 10).moved(z=bottom + 0.4 * height), (1.0, 0.98, 0.9))
    if variation.chance(0.7):
        lid = lathe([(radius * narrow * 0.97, top - 0.01), (0, top + 0.01)], segments).rotated("z", 180 / segments)
        assembly.add(lid, shade(colors[0], 0.8))


def _base_profile(variation: Variation, height: float, radius: float) -> np.ndarray:
    """The outline of a turned base from the floor to the stem: ``[n, 2]``."""
    form = variation.spread_pick("form", ["gourd", "vase", "ball", "column", "cone", "bottle", "stack", "hour glass"])
    r, h = radius, height
    if form == "gourd":
        points = [(0.6, 0), (0.62, 0.04), (1.0, 0.28), (0.62, 0.52), (0.75, 0.68), (0.35, 0.88), (0.14, 1.0)]
    elif form == "vase":
        points = [(0.55, 0), (0.6, 0.03), (0.75, 0.3), (1.0, 0.62), (0.7, 0.82), (0.24, 0.92), (0.14, 1.0)]
    elif form == "ball":
        points = [(0.5, 0), (0.55, 0.03), (0.95, 0.25), (1.0, 0.48), (0.85, 0.72), (0.3, 0.92), (0.12, 1.0)]
    elif form == "column":
        points = [(1.0, 0), (1.0, 0.08), (0.5, 0.13), (0.42, 0.5), (0.45, 0.86), (0.6, 0.92), (0.2, 1.0)]
    elif form == "cone":
        points = [(1.0, 0), (1.0, 0.04), (0.75, 0.3), (0.5, 0.6), (0.28, 0.85), (0.14, 1.0)]
    elif form == "bottle":
        points = [(0.8, 0), (0.85, 0.03), (0.86, 0.3), (0.84, 0.52), (0.5, 0.68), (0.2, 0.78), (0.16, 1.0)]
    elif form == "stack":
        level = np.linspace(0, 1, 25)
        balls = variation.integer(2, 4)
        size = 1 - 0.35 * level
        wave = 0.35 + 0.65 * np.abs(np.sin(np.pi * balls * level))
        return np.stack([r * size * wave, h * level], -1)
    else:
        points = [(1.0, 0), (0.95, 0.06), (0.35, 0.48), (0.45, 0.6), (0.75, 0.86), (0.7, 0.94), (0.14, 1.0)]
    return smooth_curve(points, 22) * (r, h)


def _add_turned_base(assembly: Assembly, variation: Variation, colors: Colors, height: float, radius: float) -> None:
    profile = _base_profile(variation, height, radius)
    kind = variation.spread_pick("material", patterns.BOLD_PATTERNS)
    pattern = patterns.bold_pattern(variation, kind, colors, height * 0.8)
    paint = patterns.projected(lambda a, b: pattern(np.abs(a), b), "yz", (0.0, height / 2))
    assembly.add(lathe([(0, 0), *profile, (0, height)], 26), paint, 55.0)


def _add_table_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    base = variation.uniform(0.32, 0.6)
    radius = variation.uniform(0.12, 0.26)
    main, second, accent = colors
    _add_turned_base(assembly, variation, (second, accent, main), base, radius)
    if variation.chance(0.4):
        assembly.add(box(2 * radius, 2 * radius, 0.05).moved(z=0.0), shade(main, 0.6))
    gap = variation.uniform(-0.02, 0.08)
    height = variation.uniform(0.26, 0.48)
    stem = variation.metal()
    assembly.add(cylinder(0.02, height + gap, segments=8).moved(z=base + 0.5 * (gap + height)), stem)
    _add_shade(assembly, variation, colors, base + gap, base + gap + height, variation.uniform(0.24, 0.42),
               variation.uniform(0.35, 0.85))  # fmt: skip
    if variation.chance(0.4):
        assembly.add(sphere(0.035, 10).moved(z=base + gap + height + 0.03), accent)


def _add_floor_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A stout one: a column nearly as important as its shade."""
    base = variation.uniform(0.65, 0.85)
    main, second, accent = colors
    _add_turned_base(assembly, variation, (second, main, accent), base, variation.uniform(0.13, 0.22))
    foot = variation.uniform(0.18, 0.28)
    assembly.add(lathe([(0, 0), (foot, 0), (foot, 0.04), (foot * 0.5, 0.08), (0, 0.08)], 24), shade(second, 0.7))
    height = variation.uniform(0.3, 0.45)
    assembly.add(cylinder(0.02, height + 0.05, segments=8).moved(z=base + height / 2), variation.metal())
    _add_shade(assembly, variation, colors, base + 0.04, base + 0.04 + height, variation.uniform(0.3, 0.42),
               variation.uniform(0.4, 0.8))  # fmt: skip


def _add_desk_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """Two arms with joints and a conical head."""
    _, second, accent = colors
    thick = variation.uniform(0.025, 0.045)
    foot = variation.uniform(0.18, 0.28)
    if variation.chance(0.5):
        assembly.add(lathe([(0, 0), (foot, 0), (foot, 0.05), (foot * 0.7, 0.09), (0, 0.1)], 24), second)
    else:
        assembly.add(rounded_box(2 * foot, 1.6 * foot, 0.08, 0.03).moved(z=0.04), second)
    elbow = np.array([-variation.uniform(0.1, 0.35), 0, variation.uniform(0.42, 0.62)])
    head = np.array([variation.uniform(0.05, 0.3), 0, variation.uniform(0.72, 0.95)])
    assembly.add(tube([(0, 0, 0.08), elbow], thick, 8), accent)
    assembly.add(tube([elbow, head], thick, 8), accent)
    for joint in (elbow, head):
        assembly.add(cylinder(2 * thick, 3 * thick, segments=12).rotated("x", 90).moved(*joint), shade(second, 0.7))
    size = variation.uniform(0.2, 0.3)
    form = variation.pick(["cone", "dome", "can"])
    profile = {
        "cone": [(1.0, -0.9), (0.35, 0.3), (0.35, 0.6), (0.0, 0.65)],
        "dome": [(1.0, -0.6), (0.95, -0.2), (0.7, 0.25), (0.35, 0.5), (0.0, 0.58)],
        "can": [(0.7, -0.9), (0.7, 0.5), (0.5, 0.65), (0.0, 0.68)],
    }[form]
    tilt = -variation.uniform(15, 50)
    hood = lathe(np.array(profile) * size, 24).rotated("y", tilt).moved(*head).moved(0.12, 0, -0.05)
    style = variation.spread_pick("pattern", ["plain", "bands", "columns", "plain", "dots", "checks", "two tone"])
    pattern = patterns.bold_pattern(variation, style, colors, 2 * size)
    assembly.add(hood, patterns.wrapped(lambda a, b: pattern(np.abs(a - np.pi * size), b)))
    glow = lathe([(0, -0.86), (profile[0][0] * 0.96, profile[0][1] + 0.02)], 24).scaled(size, size, size)
    assembly.add(glow.rotated("y", tilt).moved(*head).moved(0.12, 0, -0.05), WARM_LIGHT)


def _add_mushroom_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A dome on a thick stem."""
    radius, stem = variation.uniform(0.36, 0.52), variation.uniform(0.3, 0.6)
    dome = variation.uniform(0.2, 0.45)
    main, second, accent = colors
    foot, waist = variation.uniform(0.16, 0.32), variation.uniform(0.08, 0.2)
    profile = smooth_curve([(foot, 0), (foot * 0.9, 0.05), (waist, stem * 0.5), (waist * 1.1, stem + 0.05)], 12)
    style = variation.spread_pick("material", ["plain", "bands", "gradient", "columns", "two tone"])
    stem_pattern = patterns.bold_pattern(variation, style, (second, accent, main), stem)
    assembly.add(lathe([(0, 0), *profile], 24), patterns.projected(stem_pattern, "yz", (0, stem / 2)))
    cap = arc(1.0, 0, 90, 9) * (radius, dome)
    cap[-1, 0] = 0
    paint = _shade_paint(variation, colors, dome + radius, radius)
    assembly.add(lathe([*cap], 28).moved(z=stem), paint, 50.0)
    assembly.add(lathe([(0, -0.02), (radius, 0)], 28).moved(z=stem), WARM_LIGHT)


def _add_lantern(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """Panes in a frame under a roof with a ring."""
    main, second, accent = colors
    sides = variation.pick([4, 4, 6, 8])
    radius, height = variation.uniform(0.22, 0.36), variation.uniform(0.4, 0.7)
    narrow = variation.uniform(0.7, 1.1)
    turn = 180 / sides
    assembly.add(
        lathe([(0, 0), (radius * 1.25, 0), (radius * 1.15, 0.07), (0, 0.07)], sides).rotated("z", turn), main, 20.0
    )
    glow = variation.pick([WARM_LIGHT, (1.0, 0.75, 0.35), second])
    grid = variation.integer(1, 3)
    bars = variation.uniform(0.08, 0.16)

    def panes(texels: Texels) -> np.ndarray:
        colored = patterns.mixed(texels.v + 0 * texels.x, glow, shade(glow, 0.82))
        across, up = (texels.u * sides) % 1.0 + 0 * texels.x, (texels.v * grid) % 1.0 + 0 * texels.x
        colored[(np.abs(across - 0.5) > 0.5 - bars) | (np.abs(up - 0.5) > 0.5 - 0.35 * bars * grid)] = main
        return colored

    body = lathe([(radius, 0.07), (radius * narrow, 0.07 + height)], sides).rotated("z", turn)
    assembly.add(body, panes, 20.0)
    top = 0.07 + height
    roof = variation.uniform(0.12, 0.3)
    eaves = radius * max(narrow, 0.9) * variation.uniform(1.1, 1.4)
    tip = top + roof + 0.02
    lid = lathe([(0, top - 0.01), (eaves, top), (eaves * 0.35, top + roof), (0.05, tip), (0, tip)], sides)
    assembly.add(lid.rotated("z", turn), variation.pick([main, second, accent]), 20.0)
    if variation.chance(0.7):
        angle = np.linspace(0, 2 * np.pi, 17)
        ring = np.stack([0 * angle, 0.09 * np.sin(angle), top + roof + 0.1 - 0.09 * np.cos(angle)], -1)
        ring[-1] = ring[0]
        assembly.add(tube(ring, 0.018, 6), accent)


def _add_globe_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """One big globe, or several on a stem."""
    _, second, accent = colors
    count = variation.integer(1, 5)
    style = variation.spread_pick("pattern", patterns.BOLD_PATTERNS)
    foot = variation.uniform(0.18, 0.3)
    assembly.add(lathe([(0, 0), (foot, 0), (foot, 0.05), (0.06, 0.12), (0.0, 0.12)], 24), second)
    if count == 1:
        radius, level = variation.uniform(0.3, 0.42), variation.uniform(0.3, 0.5)
        pattern = patterns.bold_pattern(variation, style, colors, 2 * radius)
        assembly.add(cylinder(0.05, level, segments=14).moved(z=level / 2), accent)
        paint = patterns.projected(lambda a, b: pattern(np.abs(a), b), "yz", (0, level + radius))
        assembly.add(sphere(radius, 26).moved(z=level + radius), paint)
        return
    level = variation.uniform(0.45, 0.6)
    assembly.add(cylinder(0.035, level, segments=12).moved(z=level / 2 + 0.05), accent)
    radius = variation.uniform(0.13, 0.19)
    reach = max(variation.uniform(0.2, 0.34), radius / np.sin(np.pi / count) * 0.9)
    pattern = patterns.bold_pattern(variation, style, colors, 2.5 * radius)
    for number in range(count):
        angle = 2 * np.pi * number / count + 0.4
        x, y = reach * np.cos(angle), reach * np.sin(angle)
        rise = level + 0.12 * (number % 2)
        assembly.add(
            tube(smooth_curve([(0, 0, level * 0.7), (x * 0.6, y * 0.6, level * 0.75), (x, y, rise)], 7), 0.022, 6),
            accent,
        )
        paint = patterns.projected(pattern, "yz", (y, rise + radius))
        assembly.add(sphere(radius, 16).moved(x, y, rise + radius), paint)
    if variation.chance(0.6):
        paint = patterns.projected(pattern, "yz", (0, level + 0.35))
        assembly.add(sphere(radius * 1.15, 16).moved(0, 0, level + 0.25), paint)


def _add_stained_glass_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A dome of coloured glass in dark lead over a cast foot."""
    radius, dome, stem = variation.uniform(0.38, 0.5), variation.uniform(0.22, 0.42), variation.uniform(0.42, 0.62)
    bronze = variation.pick([(0.25, 0.17, 0.1), (0.1, 0.1, 0.1), (0.42, 0.3, 0.12), (0.15, 0.25, 0.2)])
    profile = smooth_curve(
        [(0.24, 0), (0.22, 0.03), (0.06, 0.1), (0.09, stem * 0.45), (0.04, stem * 0.7), (0.03, stem)], 16
    )
    assembly.add(lathe([(0, 0), *profile], 20), bronze)
    sides = variation.pick([6, 8, 10, 12])
    levels = variation.integer(2, 4)
    lead = 0.06
    panes = np.array([*colors, shade(colors[1], 1.8), shade(colors[0], 0.6)], np.float32)
    chosen = variation.random.integers(0, len(panes), (levels, 2))
    leaning = variation.chance(0.5)

    def glass(texels: Texels) -> np.ndarray:
        level = np.minimum((texels.v * levels).astype(int), levels - 1)
        across = texels.u * sides + (0.5 * (level % 2) if leaning else 0.0)
        colored = panes[chosen[level + 0 * across.astype(int), across.astype(int) % 2]]
        edge = np.minimum(across % 1.0, 1 - across % 1.0)
        seam = np.minimum((texels.v * levels) % 1.0, 1 - (texels.v * levels) % 1.0)
        colored[(edge < lead) | (seam < lead)] = bronze
        return colored

    cap = smooth_curve([(radius, 0), (radius * 0.92, dome * 0.4), (radius * 0.6, dome * 0.82), (0.05, dome)], 10)
    segments = sides * (3 if sides < 8 else 2)
    assembly.add(lathe(cap, segments).moved(z=stem), glass, 50.0)
    assembly.add(lathe([(0, 0.1), (radius * 0.97, 0.0)], segments).moved(z=stem), WARM_LIGHT)
    assembly.add(sphere(0.06, 10).moved(z=stem + dome + 0.02), bronze)


def _add_paper_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A paper lantern on legs: ball, pear, pillow stack or spindle."""
    accent = colors[2]
    height, radius = variation.uniform(0.55, 0.95), variation.uniform(0.25, 0.42)
    form = variation.pick(["ball", "pear", "stack", "spindle", "tower"])
    level = np.linspace(0, 1, 29)
    round_ = np.sqrt(np.clip(1 - (2 * level - 1) ** 2, 0, 1))
    girth = {
        "ball": 0.25 + 0.75 * round_,
        "pear": 0.3 + 0.7 * round_ * (1.25 - level),
        "stack": 0.5 + 0.5 * np.abs(np.sin(np.pi * variation.integer(2, 4) * level)) * (1.1 - 0.4 * level),
        "spindle": 0.3 + 0.7 * (1 - np.abs(2 * level - 1)),
        "tower": 0.9 - 0.25 * level + 0.08 * np.sin(6 * np.pi * level),
    }[form]
    lift = variation.uniform(0.08, 0.3)
    pattern = patterns.bold_pattern(variation, variation.spread_pick("pattern", patterns.BOLD_PATTERNS), colors, height)
    ribs = variation.integer(8, 14)

    def paint(texels: Texels) -> np.ndarray:
        colored = pattern(np.abs(texels.u - 0.5) * 2 * np.pi * radius + 0 * texels.x, texels.z - lift - height / 2)
        colored[np.broadcast_to(patterns.stripes(texels.v, 1 / ribs, 0.18), texels.x.shape)] *= 0.72
        return colored

    profile = np.stack([radius * girth, lift + height * level], -1)
    assembly.add(lathe([(0, lift), *profile, (0, lift + height)], 26), paint, 60.0)
    legs = variation.integer(3, 4)
    for number in range(legs):
        angle = 2 * np.pi * number / legs
        foot = (radius * 0.9 * np.cos(angle), radius * 0.9 * np.sin(angle), 0)
        head = (radius * 0.4 * np.cos(angle), radius * 0.4 * np.sin(angle), lift + 0.1 * height)
        assembly.add(tube([foot, head], 0.02, 6), accent)


def _add_tripod_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    stem = variation.uniform(0.55, 0.8)
    reach = variation.uniform(0.28, 0.42)
    wood = variation.wood()[0]
    leg = variation.pick([wood, colors[1], colors[2]])
    thick = variation.uniform(0.025, 0.045)
    for number in range(3):
        angle = 2 * np.pi * number / 3 + 0.3
        assembly.add(
            tube([(reach * np.cos(angle), reach * np.sin(angle), 0), (0, 0, stem)], [thick * 0.7, thick], 8), leg
        )
    if variation.chance(0.5):
        assembly.add(cylinder(reach * 0.62, 0.03, segments=20).moved(z=stem * 0.35), colors[2])
    assembly.add(cylinder(0.05, 0.1, segments=12).moved(z=stem), variation.metal())
    height = variation.uniform(0.34, 0.5)
    _add_shade(assembly, variation, colors, stem + 0.04, stem + 0.04 + height, variation.uniform(0.32, 0.45),
               variation.uniform(0.5, 0.95))  # fmt: skip


def _add_lava_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A bottle of coloured wax between two metal cones."""
    main, second, accent = colors
    radius, height = variation.uniform(0.16, 0.36), variation.uniform(0.5, 0.75)
    metal = variation.pick([variation.metal(), accent, shade(main, 0.5), shade(second, 1.6), shade(accent, 0.4)])
    foot = variation.uniform(0.22, 0.34)
    assembly.add(lathe([(0, 0), (radius, 0), (radius * 0.75, foot * 0.5), (radius * 1.05, foot), (0, foot)], 24), metal)
    waves = patterns.random_waves(variation)
    fill = variation.uniform(-0.2, 0.3)

    def wax(texels: Texels) -> np.ndarray:
        field = patterns.blotches(np.abs(texels.y) + 0.6 * texels.x, texels.z, 0.3, waves)
        return patterns.mixed(field + 0.8 * np.abs(texels.v - 0.5) > fill, main, second)

    bulge = variation.uniform(0.0, 0.45)
    profile = [(radius * 0.98, foot), (radius * (1 + bulge), foot + variation.uniform(0.25, 0.5) * height),
               (radius * 0.55, foot + height)]  # fmt: skip
    assembly.add(lathe(smooth_curve(profile, 11), 26), wax, 60.0)
    top = foot + height
    assembly.add(lathe([(radius * 0.58, top), (radius * 0.42, top + 0.16), (0, top + 0.17)], 24), metal)


def _add_box_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """Square shade on a block, or the shade alone."""
    main, second, accent = colors
    width, height = variation.uniform(0.36, 0.62), variation.uniform(0.35, 0.8)
    depth = width * variation.uniform(0.5, 1.0)
    base = variation.uniform(0.06, 0.4)
    foot = variation.uniform(0.4, 0.9)
    base_paint = patterns.bold_pattern(
        variation, variation.spread_pick("material", patterns.BOLD_PATTERNS), (second, accent, main), 0.4
    )
    block = rounded_box(depth * foot, width * foot, base, 0.03, 1).moved(z=base / 2)
    assembly.add(block, lambda texels: base_paint(texels.x + texels.y, texels.z - base / 2), 30.0)
    pattern = patterns.bold_pattern(
        variation, variation.spread_pick("pattern", patterns.BOLD_PATTERNS), colors, max(width, height)
    )
    narrow = variation.uniform(0.6, 1.05)
    low, high = base + 0.03, base + 0.03 + height
    outline = np.array([(-depth, -width), (depth, -width), (depth, width), (-depth, width)]) / 2
    shade_shape = prism(outline, height, narrow).moved(z=0.5 * (low + high))
    lit = variation.chance(0.5)

    def paint(texels: Texels) -> np.ndarray:
        if texels.patch:
            return texels.filled(WARM_LIGHT if lit else shade(main, 0.8))
        colored = pattern(texels.x + texels.y, texels.z - 0.5 * (low + high))
        corner = np.minimum(texels.column % 1.0, 1 - texels.column % 1.0)
        colored[(corner < 0.05) & (texels.v >= 0)] = accent
        return colored

    assembly.add(shade_shape, paint, 20.0)
    assembly.add(cylinder(0.03, 0.06, segments=8).moved(z=base + 0.02), accent)


def _add_arc_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A curved pole from a heavy foot, the shade hanging at its end."""
    _, second, accent = colors
    height, reach = variation.uniform(0.85, 1.05), variation.uniform(0.55, 0.8)
    foot = variation.uniform(0.2, 0.28)
    if variation.chance(0.5):
        assembly.add(cylinder(foot, 0.12, segments=24).moved(-reach / 2, 0, 0.06), second)
    else:
        block = box(1.8 * foot, 1.8 * foot, 0.16).moved(-reach / 2, 0, 0.08)
        assembly.add(block, patterns.framed(lambda texels: texels.filled(second), accent, 0.035))
    path = smooth_curve([(-reach / 2, 0, 0.05), (-reach / 2 - 0.02, 0, height * 0.6), (-reach * 0.2, 0, height),
                         (reach * 0.3, 0, height * 0.97), (reach / 2, 0, height * 0.82)], 22)  # fmt: skip
    assembly.add(tube(path, variation.uniform(0.025, 0.045), 8), variation.pick([accent, variation.metal()]))
    radius = variation.uniform(0.26, 0.36)
    dome = variation.uniform(0.2, 0.34)
    form = variation.pick(["dome", "cone", "ball"])
    if form == "ball":
        profile = arc(radius, -90, 90, 13)
        profile[[0, -1], 0] = 0
        profile[:, 1] -= 0.8 * radius
    elif form == "dome":
        profile = arc(1.0, 0, 90, 8) * (radius, dome) - (0, dome)
        profile[-1, 0] = 0
    else:
        profile = np.array([(radius, -dome * 1.2), (radius * 0.3, 0.0), (0.0, 0.02)])
    paint = _shade_paint(variation, colors, dome + radius, radius)
    hanging = lathe(profile, 26).moved(reach / 2, 0, height * 0.82)
    assembly.add(hanging, paint, 50.0)
    if form != "ball":
        level = profile[0, 1]
        assembly.add(
            lathe([(0, level + 0.02), (radius * 0.98, level)], 26).moved(reach / 2, 0, height * 0.82), WARM_LIGHT
        )


def _add_candelabra(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """Fat candles on arms, or in a row on a board."""
    _, second, accent = colors
    count = variation.integer(3, 5)
    radius = variation.uniform(0.07, 0.1)
    wax_pattern = patterns.bold_pattern(
        variation, variation.spread_pick("pattern", patterns.BOLD_PATTERNS), colors, 0.4
    )
    on_board = variation.chance(0.5)
    spread = np.linspace(-1, 1, count) * variation.uniform(0.32, 0.5)
    if on_board:
        assembly.add(rounded_box(0.32, 1.25, 0.12, 0.04).moved(z=0.06), second)
        levels = np.full(count, 0.12)
    else:
        profile = smooth_curve([(0.26, 0), (0.25, 0.04), (0.06, 0.12), (0.08, 0.3), (0.05, 0.5)], 14)
        assembly.add(lathe([(0, 0), *profile, (0, 0.5)], 22), second)
        levels = 0.5 + 0.12 * np.abs(np.linspace(-1, 1, count))
        for y, level in zip(spread, levels):
            if abs(y) > 0.02:
                path = smooth_curve([(0, 0, 0.35), (0, 0.6 * y, 0.3), (0, y, level)], 9)
                assembly.add(tube(path, 0.03, 7), second)
            assembly.add(
                lathe([(0, level - 0.02), (radius * 1.3, level + 0.02), (0, level + 0.02)], 16).moved(y=y), accent
            )
    for y, level in zip(spread, levels):
        height = variation.uniform(0.25, 0.55)
        candle = cylinder(radius, height, segments=16).moved(0, y, level + height / 2)
        assembly.add(
            candle, lambda texels, y=y, level=level: wax_pattern(texels.y - y + texels.x, texels.z - level - 0.2)
        )
        flame = sphere(1.0, 10).scaled(0.03, 0.03, 0.07).moved(0, y, level + height + 0.07)
        assembly.add(flame, (1.0, 0.68, 0.12))


def _add_spot_lamp(assembly: Assembly, variation: Variation, colors: Colors) -> None:
    """A studio lamp: a large drum in a yoke, with barn doors."""
    _, second, accent = colors
    radius, length = variation.uniform(0.24, 0.34), variation.uniform(0.3, 0.55)
    level = variation.uniform(0.5, 0.7)
    tilt = variation.uniform(-10, 35)
    for number in range(3):
        angle = 2 * np.pi * number / 3 + np.pi / 3
        assembly.add(tube([(0.32 * np.cos(angle), 0.32 * np.sin(angle), 0), (0, 0, level * 0.45)], 0.03, 6), second)
    assembly.add(cylinder(0.035, level * 0.5, segments=10).moved(z=level * 0.4), second)
    yoke = [(0, -radius * 1.15, level), (0, -radius * 1.1, level - radius * 0.9), (0, 0, level - radius * 1.2),
            (0, radius * 1.1, level - radius * 0.9), (0, radius * 1.15, level)]  # fmt: skip
    assembly.add(tube(smooth_curve(yoke, 17), 0.028, 6), accent)
    drum = lathe([(0, -length / 2), (radius * 0.75, -length / 2), (radius, -length * 0.3), (radius, length / 2)], 26)
    paint = _shade_paint(variation, colors, length, radius)
    assembly.add(drum.rotated("y", 90 + tilt).moved(z=level), paint)
    lens = lathe([(radius * 0.97, length / 2 - 0.02), (0, length / 2 + 0.04)], 26)
    assembly.add(lens.rotated("y", 90 + tilt).moved(z=level), WARM_LIGHT)
    if variation.chance(0.6):
        flap = Shape((np.array([[(-0.2, 0, 0), (0.2, 0, 0)], [(-0.26, 0.2, 0.12), (0.26, 0.2, 0.12)]]),))
        for number in range(4):
            piece = flap.moved(0, radius, length / 2).rotated("z", 90 * number)
            assembly.add(piece.rotated("y", 90 + tilt).moved(z=level), shade(second, 0.7))
    rear = box(0.1, 0.12, 0.12)
    assembly.add(
        rear.rotated("y", tilt).moved(-length * 0.5, 0, level + length * 0.5 * np.sin(np.radians(tilt))), accent
    )
