"""Chairs, armchairs and stools: a seat, what carries it, a back and sometimes arms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Paint, Texels
from fusedplanes.datasets.procedural.shapes import (
    Shape,
    box,
    cylinder,
    lathe,
    loft,
    rounded_box,
    smooth_curve,
    sphere,
    torus,
    tube,
)
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

KINDS = ("dining", "armchair", "shell", "stool", "office", "club", "windsor", "tub", "cantilever", "dining", "throne",
         "rocker", "armchair", "deck", "bean bag", "school")  # fmt: skip


@dataclass(frozen=True)
class Upholstery:
    """The materials of one chair.

    Attributes:
        frame: paint of legs and rails.
        frame_color: their plain colour, for thin parts.
        fabric: paint of seat and back.
        colors: the palette behind them.
    """

    frame: Paint
    frame_color: Color
    fabric: Callable[[Texels], np.ndarray]
    colors: tuple[Color, Color, Color]


def build(variation: Variation) -> Assembly:
    """One chair, about a metre high, facing +x, its feet on z = 0."""
    assembly = Assembly()
    kind = variation.kind
    upholstery = _upholstery(variation)
    builders = {
        "dining": _add_dining_chair,
        "armchair": _add_armchair,
        "shell": _add_shell_chair,
        "stool": _add_stool,
        "office": _add_office_chair,
        "club": _add_club_chair,
        "windsor": _add_windsor_chair,
        "tub": _add_tub_chair,
        "cantilever": _add_cantilever_chair,
        "throne": _add_throne,
        "rocker": _add_rocking_chair,
        "deck": _add_deck_chair,
        "bean bag": _add_bean_bag,
        "school": _add_school_chair,
    }
    builders[kind](assembly, variation, upholstery)
    return assembly


def _upholstery(variation: Variation) -> Upholstery:
    colors = variation.palette()
    style = variation.spread_pick("pattern", patterns.BOLD_PATTERNS)
    pattern = patterns.bold_pattern(variation, style, colors, variation.uniform(0.42, 0.75))

    def fabric(texels: Texels) -> np.ndarray:
        # Height and depth in one coordinate: the pattern runs on from the seat up the back.
        return pattern(texels.y, texels.z - 0.45 - texels.x)

    # The frame is picked against the fabric: light with dark, dark with light.
    material = variation.spread_pick("material", ["wood", "lacquer", "metal", "lacquer", "wood"])
    if material == "wood":
        grain = variation.wood()
        frame_color, frame = grain[0], grain[0]
    elif material == "metal":
        frame_color = frame = variation.metal()
    else:
        frame_color = frame = variation.pick([colors[1], colors[2], shade(colors[0], 0.45)])
    return Upholstery(frame, frame_color, fabric, colors)


# Parts ----------------------------------------------------------------------------------------------------------------


def board(width: float, height: float, thickness: float, bend: float = 0.0, crown: float = 0.0, rows: int = 9) -> Shape:
    """An upright board across y with its foot at z = 0, hollow towards +x.

    Args:
        width: along y.
        height: along z at the sides.
        thickness: along x.
        bend: how far the edges stand in front of the middle.
        crown: how far the middle of the upper edge stands above its ends.
    """
    place = np.linspace(-1, 1, rows)
    x0 = bend * place**2
    top = height + crown * (1 - place**2)
    half, cut = thickness / 2, thickness * 0.3
    # Clockwise seen from -y: over the top towards the front, down, back under, up.
    outline = [(-half + cut, 0, 1), (half - cut, 0, 1), (half, -cut, 1), (half, cut, 0), (half - cut, 0, 0),
               (-half + cut, 0, 0), (-half, cut, 0), (-half, -cut, 1), (-half + cut, 0, 1)]  # fmt: skip
    rings = [np.stack([x0 + x, 0.5 * width * place, offset + at_top * top], -1) for x, offset, at_top in outline]
    return loft(np.stack(rings, 1))


def _legs(
    assembly: Assembly,
    upholstery: Upholstery,
    feet: tuple[float, float],
    heads: tuple[float, float],
    height: float,
    thickness: tuple[float, float],
    square: bool,
    center: float = 0.0,
) -> None:
    """Four legs.

    Args:
        feet: half the distance of the feet along x and y.
        heads: the same where the legs meet the seat.
        thickness: radius at the foot and at the head.
        center: x of the middle.
    """
    for side_x in (-1, 1):
        for side_y in (-1, 1):
            foot = np.array([center + side_x * feet[0], side_y * feet[1], 0])
            head = np.array([center + side_x * heads[0], side_y * heads[1], height])
            if square:
                corner = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0], [-1, -1, 0]], dtype=float)
                leg = loft(np.stack([foot + thickness[0] * corner, head + thickness[1] * corner]))
            else:
                corner = np.concatenate([_circle(10), np.zeros((11, 1))], 1)
                leg = loft(np.stack([foot + thickness[0] * corner, head + thickness[1] * corner]))
            assembly.add(leg, upholstery.frame)


def _circle(count: int) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, count + 1)
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    circle[-1] = circle[0]
    return circle


def _cushion_buttons(assembly: Assembly, color: Color, x: float, height: float, width: float, size: float) -> None:
    """A row of buttons on a back."""
    for place in (-0.5, 0, 0.5):
        assembly.add(sphere(size, 8).scaled(0.5, 1, 1).moved(x, place * width, height), color)


# Kinds ----------------------------------------------------------------------------------------------------------------


def _add_dining_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    width, depth = variation.uniform(0.42, 0.58), variation.uniform(0.42, 0.54)
    seat, back = variation.uniform(0.42, 0.52), variation.uniform(0.35, 0.75)
    thick = variation.uniform(0.02, 0.038)
    square = variation.chance(0.6)
    splay = variation.pick([0.0, 0.0, 0.06])
    inset = thick + 0.01
    heads = (depth / 2 - inset, width / 2 - inset)
    taper = variation.uniform(0.55, 1.0)
    _legs(assembly, upholstery, (heads[0] + splay, heads[1] + splay), heads, seat, (thick * taper, thick), square)
    pad = variation.uniform(0.05, 0.12)
    assembly.add(rounded_box(depth, width, pad, 0.03, 2).moved(z=seat + pad / 2 - 0.02), upholstery.fabric)
    if variation.chance(0.4):
        for side in (-1, 1):
            rail = box(2 * heads[0], thick * 1.2, thick * 1.6).moved(0, side * heads[1], seat * 0.4)
            assembly.add(rail, upholstery.frame)
    tilt = -variation.uniform(4, 12)
    style = variation.spread_pick("form", ["board", "slats", "ladder", "padded", "frame", "splat"])
    parts: list[tuple[Shape, Paint]] = []
    post = box(2 * thick, 2 * thick, back) if square else cylinder(thick, back, thick * 0.8, 10)
    if style != "board":
        parts += [(post.moved(0, side * heads[1], back / 2), upholstery.frame) for side in (-1, 1)]
    inner = 2 * heads[1]
    bend = 0.04
    if style == "board":
        crown = variation.pick([0.0, 0.06, 0.15])
        shape = board(width, back, 0.05, bend, crown)
        parts.append((shape, upholstery.fabric))
    elif style == "slats":
        count = variation.integer(3, 6)
        for y in np.linspace(-0.5, 0.5, count + 2)[1:-1]:
            parts.append(
                (box(0.025, inner / count * 0.45, back * 0.8).moved(0, y * inner, back * 0.5), upholstery.frame)
            )
        parts.append((board(inner + 0.04, 0.1, 0.04, bend).moved(z=back - 0.06), upholstery.fabric))
    elif style == "ladder":
        count = variation.integer(2, 5)
        for level in np.linspace(0.2, 1.0, count):
            rung = board(inner + 0.03, 0.55 * back / count, 0.035, bend, 0.03).moved(
                z=level * back - 0.5 * back / count
            )
            parts.append((rung, upholstery.fabric))
    elif style == "padded":
        parts.append((rounded_box(0.09, inner - 0.02, back * 0.75, 0.04).moved(0.02, 0, back * 0.6), upholstery.fabric))
        parts.append((box(0.04, inner, 0.06).moved(0, 0, back), upholstery.frame))
    elif style == "frame":
        parts.append((board(inner + 0.06, 0.08, 0.05, 0, 0.05).moved(z=back - 0.05), upholstery.frame))
        disc = cylinder(min(inner, back) * 0.38, 0.05, segments=18).rotated("y", 90).moved(0, 0, back * 0.55)
        parts.append((disc, upholstery.fabric))
    else:
        parts.append((board(inner * 0.45, back, 0.035, 0.01), upholstery.fabric))
        parts.append((board(inner + 0.08, 0.09, 0.05, bend, 0.06).moved(z=back - 0.06), upholstery.frame))
    for shape, paint in parts:
        assembly.add(shape.rotated("y", tilt).moved(-heads[0], 0, seat), paint)


def _add_armchair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    width, depth = variation.uniform(0.75, 1.25), variation.uniform(0.7, 0.9)
    seat, back = variation.uniform(0.34, 0.45), variation.uniform(0.35, 0.65)
    arm, arm_height = variation.uniform(0.12, 0.22), variation.uniform(0.12, 0.28)
    foot = variation.uniform(0.06, 0.16)
    soft = variation.uniform(0.03, 0.09)
    _legs(assembly, upholstery, (depth * 0.4, width * 0.42), (depth * 0.4, width * 0.42), foot + 0.05, (0.025, 0.04),
          variation.chance(0.5))  # fmt: skip
    second = upholstery.colors[1]
    contrasting = variation.chance(0.55)
    shell: Paint = second if contrasting else upholstery.fabric
    base = seat - foot - 0.1
    assembly.add(rounded_box(depth, width, base, soft * 0.6).moved(z=foot + base / 2), shell)
    inner = width - 2 * arm
    cushions = 1 if inner < 0.75 else 2
    for number in range(cushions):
        y = inner * ((number + 0.5) / cushions - 0.5)
        cushion = rounded_box(depth * 0.85, inner / cushions * 0.98, 0.18, 0.07).moved(0.08, y, seat - 0.02)
        assembly.add(cushion, upholstery.fabric)
    back_shape = rounded_box(0.24, inner + 0.06, back + 0.2, min(0.1, soft * 1.5))
    assembly.add(back_shape.rotated("y", -8).moved(-depth / 2 + 0.1, 0, seat + back / 2), upholstery.fabric)
    round_arms = variation.chance(0.4)
    for side in (-1, 1):
        y = side * (width - arm) / 2
        height = seat + arm_height - foot
        arm_shape = rounded_box(depth * 0.98, arm, height, soft).moved(0, y, foot + height / 2)
        assembly.add(arm_shape, shell)
        if round_arms:
            roll = cylinder(arm * 0.62, depth, segments=14).rotated("y", 90).moved(0.02, y, seat + arm_height)
            assembly.add(roll, shell)
    if variation.chance(0.5):
        pillow = rounded_box(0.14, 0.4, 0.36, 0.07).rotated("y", -18).rotated("x", variation.uniform(-25, 25))
        assembly.add(pillow.moved(-depth / 2 + 0.3, variation.uniform(-0.3, 0.3) * inner, seat + 0.24),
                     upholstery.colors[2])  # fmt: skip


def _add_club_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """A high back with wings, buttoned."""
    width, depth = variation.uniform(0.62, 0.8), variation.uniform(0.62, 0.75)
    seat, back = variation.uniform(0.4, 0.46), variation.uniform(0.65, 0.9)
    _legs(assembly, upholstery, (depth * 0.42, width * 0.42), (depth * 0.38, width * 0.38), 0.24, (0.02, 0.035), False)
    assembly.add(rounded_box(depth, width, 0.2, 0.05).moved(z=0.3), upholstery.fabric)
    assembly.add(rounded_box(depth * 0.9, width * 0.74, 0.16, 0.06).moved(0.04, 0, seat), upholstery.colors[1])
    crown = variation.uniform(0.0, 0.15)
    back_shape = board(width * 0.95, back, 0.14, 0.05, crown).rotated("y", -9)
    assembly.add(back_shape.moved(-depth / 2 + 0.08, 0, seat - 0.06), upholstery.fabric)
    wing = board(0.3, back * variation.uniform(0.55, 0.8), 0.07, 0, 0.12)
    for side in (-1, 1):
        piece = wing.rotated("z", 90).rotated("y", -9).moved(-depth / 2 + 0.18, side * width * 0.45, seat + 0.2)
        assembly.add(piece, upholstery.fabric)
        arm = rounded_box(depth * 0.85, 0.11, 0.3, 0.05).moved(0.03, side * width * 0.45, seat + 0.06)
        assembly.add(arm, upholstery.fabric)
    if variation.chance(0.6):
        for level in (0.35, 0.6):
            x = -depth / 2 + 0.16 - 0.16 * level * back
            _cushion_buttons(assembly, upholstery.colors[2], x, seat + level * back, width * 0.6, 0.03)


def _add_shell_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """A moulded shell on slender legs."""
    width, depth = variation.uniform(0.52, 0.66), variation.uniform(0.5, 0.6)
    seat, back = variation.uniform(0.38, 0.46), variation.uniform(0.3, 0.55)
    curve = smooth_curve([(depth * 0.55, -0.05), (depth * 0.42, 0.0), (0.0, -0.03), (-depth * 0.36, 0.03),
                          (-depth * 0.5, 0.2), (-depth * 0.56, back)], 15)  # fmt: skip
    across = np.linspace(-1, 1, 11)
    wings = variation.uniform(0.1, 0.3)
    along = np.linspace(0, 1, len(curve))
    half = 0.5 * width * np.interp(along, [0, 0.3, 0.65, 1], [0.85, 1.0, 1.05, variation.uniform(0.6, 0.95)])
    lift = wings * np.interp(along, [0, 0.3, 0.55, 0.85, 1], [0.0, 0.35, 0.9, 0.25, 0.0])
    forward = wings * np.interp(along, [0, 0.5, 0.8, 1], [0.0, 0.2, 0.8, 0.6])
    points = np.stack(
        [
            curve[:, :1] + forward[:, None] * across**2 * 0.6,
            half[:, None] * across,
            seat + curve[:, 1:] + lift[:, None] * np.abs(across) ** 3,
        ],
        -1,
    )
    assembly.add(Shape((points,)), upholstery.fabric, 60.0)
    assembly.add(Shape((points[:, ::-1] - np.array([0.02, 0, 0.025]),)), upholstery.colors[1], 60.0)
    style = variation.pick(["splayed", "pedestal", "sled"])
    if style == "splayed":
        _legs(assembly, upholstery, (depth * 0.45, width * 0.42), (depth * 0.22, width * 0.2), seat - 0.04,
              (0.016, 0.028), False)  # fmt: skip
    elif style == "pedestal":
        profile = smooth_curve([(0.26, 0), (0.22, 0.03), (0.05, 0.12), (0.035, seat * 0.6), (0.1, seat - 0.03)], 12)
        assembly.add(lathe([(0, 0), *profile], 20), upholstery.frame)
    else:
        for side in (-1, 1):
            y = side * width * 0.4
            path = [(depth * 0.1, y * 0.6, seat - 0.05), (depth * 0.42, y, 0.02), (-depth * 0.42, y, 0.02),
                    (-depth * 0.1, y * 0.6, seat - 0.05)]  # fmt: skip
            assembly.add(tube(path, 0.022, 6), upholstery.frame)


def _add_stool(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    height, radius = variation.uniform(0.45, 0.8), variation.uniform(0.17, 0.27)
    pad = variation.uniform(0.06, 0.16)
    style = variation.spread_pick("form", ["round", "square", "drum", "hour glass"])
    if style == "drum":
        profile = [(0, 0), (radius * 1.1, 0), (radius * 1.25, height * 0.25), (radius * 1.25, height * 0.5),
                   (radius * 1.1, height * 0.75), (0, height * 0.75)]  # fmt: skip
        pattern = patterns.bold_pattern(variation, variation.pick(patterns.BOLD_PATTERNS[1:]), upholstery.colors, 0.5)
        assembly.add(lathe(profile, 24), patterns.wrapped(pattern))
        assembly.add(cylinder(radius * 1.12, 0.05, segments=24).moved(z=height * 0.75), upholstery.frame)
        return
    if style == "hour glass":
        profile = smooth_curve(
            [(radius, 0), (radius * 0.85, 0.05), (radius * 0.35, height / 2), (radius * 0.85, height - 0.05),
             (radius, height)], 16)  # fmt: skip
        pattern = patterns.bold_pattern(variation, variation.pick(patterns.BOLD_PATTERNS), upholstery.colors, 0.5)
        assembly.add(lathe([(0, 0), *profile, (0, height)], 24), patterns.wrapped(pattern), 50.0)
        return
    spread = radius * variation.uniform(0.8, 1.4)
    heads = radius * 0.6
    _legs(assembly, upholstery, (spread, spread), (heads, heads), height, (0.022, 0.032), style == "square")
    if style == "square":
        seat = rounded_box(2 * radius, 2.3 * radius, pad, 0.04)
        ring_level = height * variation.uniform(0.25, 0.45)
        for side in (-1, 1):
            assembly.add(box(0.03, 2 * spread, 0.03).moved(side * spread * 0.87, 0, ring_level), upholstery.frame)
            assembly.add(box(2 * spread, 0.03, 0.03).moved(0, side * spread * 0.87, ring_level), upholstery.frame)
    else:
        profile = [(0, 0), (radius, 0), (radius * 1.05, pad * 0.3), (radius * 1.05, pad * 0.7), (radius * 0.9, pad),
                   (0, pad * 1.05)]  # fmt: skip
        seat = lathe(profile, 24).moved(z=-pad / 2)
        level = height * variation.uniform(0.25, 0.45)
        reach = np.sqrt(2) * (spread + (heads - spread) * level / height)
        assembly.add(torus(reach, 0.018, 20, 6).moved(z=level), upholstery.frame)
    assembly.add(seat.moved(z=height + pad / 2), upholstery.fabric)
    if variation.chance(0.4):
        rest = board(2 * radius, variation.uniform(0.12, 0.3), 0.05, 0.06, 0.03)
        assembly.add(rest.moved(-radius, 0, height + pad + 0.08), upholstery.fabric)
        for side in (-0.5, 0.5):
            assembly.add(cylinder(0.018, 0.2, segments=8).moved(-radius + 0.01, side * radius, height + pad + 0.06),
                         upholstery.frame)  # fmt: skip


def _add_office_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    width, seat = variation.uniform(0.48, 0.62), variation.uniform(0.42, 0.55)
    back = variation.uniform(0.4, 0.85)
    spokes, reach = variation.pick([4, 5, 5, 6]), variation.uniform(0.3, 0.38)
    for number in range(spokes):
        angle = 360 * number / spokes + 18
        spoke = loft(np.stack([[(x, y, z) for y, z in ((-w, 0.06), (w, 0.06), (w, h), (-w, h), (-w, 0.06))]
                               for x, w, h in ((0.0, 0.04, 0.14), (reach, 0.025, 0.1))]))  # fmt: skip
        assembly.add(spoke.rotated("z", angle), upholstery.frame)
        wheel = cylinder(0.05, 0.05, segments=10).rotated("x", 90).moved(reach, 0, 0.05).rotated("z", angle)
        assembly.add(wheel, (0.1, 0.1, 0.11))
    assembly.add(cylinder(0.04, seat - 0.1, segments=12).moved(z=0.06 + seat / 2), upholstery.frame_color)
    assembly.add(rounded_box(0.5, width, 0.12, 0.05).moved(0, 0, seat + 0.02), upholstery.fabric)
    shape = variation.pick(["board", "oval", "split"])
    if shape == "oval":
        rest = sphere(1.0, 18).scaled(0.06, width * 0.5, back * 0.5).moved(0, 0, back * 0.55)
        assembly.add(rest.rotated("y", -8).moved(-0.27, 0, seat + 0.1), upholstery.fabric)
    elif shape == "board":
        rest = board(width * 0.95, back, 0.09, 0.07, 0.06).rotated("y", -8)
        assembly.add(rest.moved(-0.3, 0, seat + 0.12), upholstery.fabric)
    else:
        for low, share in ((0.0, 0.55), (0.62, 0.36)):
            rest = board(width * 0.9, back * share, 0.08, 0.06).moved(z=low * back).rotated("y", -8)
            assembly.add(rest.moved(-0.3, 0, seat + 0.15), upholstery.fabric)
    assembly.add(box(0.05, 0.14, back * 0.8).rotated("y", -8).moved(-0.34, 0, seat + 0.35 * back),
                 upholstery.frame)  # fmt: skip
    if variation.chance(0.65):
        for side in (-1, 1):
            y = side * (width / 2 + 0.04)
            assembly.add(box(0.05, 0.04, 0.24).moved(0, y, seat + 0.12), upholstery.frame)
            assembly.add(rounded_box(0.3, 0.08, 0.05, 0.02, 1).moved(0.02, y, seat + 0.25), upholstery.frame)


def _add_windsor_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """Turned legs, a saddle seat, spindles under a bow."""
    width, seat = variation.uniform(0.46, 0.58), variation.uniform(0.42, 0.48)
    back = variation.uniform(0.42, 0.75)
    _legs(assembly, upholstery, (0.25, width * 0.5), (0.15, width * 0.3), seat, (0.018, 0.03), False)
    assembly.add(box(0.03, width * 0.75, 0.03).moved(0, 0, seat * 0.4), upholstery.frame)
    saddle = lathe([(0, -0.03), (0.9, -0.03), (1.0, 0.0), (0.97, 0.03), (0, 0.02)], 24)
    assembly.add(saddle.scaled(0.27, width * 0.52, 1.0).moved(z=seat + 0.02), upholstery.fabric)
    half = width * 0.46
    angle = np.linspace(0, np.pi, 15)
    bow = np.stack([-0.2 - 0.12 * np.sin(angle), half * np.cos(angle), seat + 0.03 + back * np.sin(angle) ** 0.7], -1)
    bow_color = variation.pick([upholstery.frame_color, upholstery.colors[0], upholstery.colors[1]])
    assembly.add(tube(bow, 0.026, 7), bow_color)
    count = variation.integer(4, 8)
    for y in np.linspace(-0.75, 0.75, count):
        top = seat + 0.03 + back * np.sqrt(1 - y**2) ** 0.7
        lean = -0.12 * np.sqrt(1 - y**2)
        assembly.add(tube([(-0.2, 0.85 * y * half, seat + 0.03), (-0.2 + lean, y * half, top)], 0.016, 6),
                     upholstery.frame)  # fmt: skip
    if variation.chance(0.6):
        rim = np.stack([0.05 - 0.3 * np.sin(angle), half * 1.12 * np.cos(angle), np.full(15, seat + 0.24)], -1)
        assembly.add(
            tube([(0.16, half * 1.12, seat + 0.24), *rim, (0.16, -half * 1.12, seat + 0.24)], 0.028, 6), bow_color
        )
        for side in (-1, 1):
            assembly.add(tube([(0.1, side * half * 0.9, seat), (0.1, side * half * 1.12, seat + 0.24)], 0.018, 6),
                         upholstery.frame)  # fmt: skip
    if variation.chance(0.5):
        assembly.add(rounded_box(0.4, width * 0.8, 0.07, 0.03).moved(0.02, 0, seat + 0.06), upholstery.colors[2])


def _add_tub_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """A cylinder cut open in front."""
    radius, thick = variation.uniform(0.36, 0.48), variation.uniform(0.06, 0.12)
    seat = variation.uniform(0.36, 0.44)
    back, front = seat + variation.uniform(0.3, 0.5), seat + variation.uniform(0.08, 0.24)
    foot = variation.uniform(0.0, 0.14)
    opening = np.radians(variation.uniform(45, 75))
    angle = np.linspace(opening, 2 * np.pi - opening, 25)
    height = front + (back - front) * np.sin(0.5 * (angle - opening) / (np.pi - opening) * np.pi) ** 2
    flare = variation.uniform(1.0, 1.2)
    direction = np.stack([np.cos(angle), np.sin(angle)], -1)

    def line(distance: float, level: np.ndarray, widen: float = 1.0) -> np.ndarray:
        return np.concatenate([distance * widen * direction, np.broadcast_to(level, len(angle))[:, None]], 1)

    outline = [line(radius, foot), line(radius, height, flare), line(radius - thick / 2, height + 0.03, flare),
               line(radius - thick, height, flare), line(radius - thick, foot), line(radius, foot)]  # fmt: skip
    # Seen from the right arm the outline runs anti-clockwise: outside up, inside down.
    assembly.add(loft(np.stack(outline, 1)[::-1]), upholstery.fabric, 50.0)
    seat_color = upholstery.colors[1]
    disc = cylinder(radius - thick * 0.7, seat - foot, segments=24).moved(0.02, 0, 0.5 * (seat + foot))
    assembly.add(disc, seat_color)
    if foot > 0.03:
        reach = radius * 0.68
        _legs(assembly, upholstery, (reach, reach), (reach, reach), foot + 0.02, (0.02, 0.03), False)
    if variation.chance(0.4):
        pillow = rounded_box(0.13, 0.38, 0.34, 0.06).rotated("y", -15)
        assembly.add(pillow.moved(-radius * 0.55, 0, seat + 0.18), upholstery.colors[2])


def _add_cantilever_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """Bent steel tube without hind legs."""
    width, depth = variation.uniform(0.46, 0.58), variation.uniform(0.44, 0.54)
    seat, back = variation.uniform(0.42, 0.48), variation.uniform(0.35, 0.6)
    thick = variation.uniform(0.018, 0.032)
    half = width / 2
    for side in (-1, 1):
        y = side * half
        path = smooth_curve(
            [
                (-depth * 0.5, y, thick),
                (depth * 0.4, y, thick),
                (depth * 0.5, y, seat * 0.5),
                (depth * 0.42, y, seat),
                (-depth * 0.4, y, seat),
                (-depth * 0.55, y, seat + back),
            ],
            26,
        )
        assembly.add(tube(path, thick, 7), upholstery.frame)  # fmt: skip
    assembly.add(tube([(-depth * 0.5, -half, thick), (-depth * 0.5, half, thick)], thick, 6), upholstery.frame)
    pad = variation.uniform(0.04, 0.1)
    assembly.add(rounded_box(depth * 0.92, width * 1.02, pad, 0.03).moved(0.01, 0, seat + 0.02), upholstery.fabric)
    rest = board(width * 1.02, back * variation.uniform(0.5, 0.8), pad, 0.02, variation.uniform(0, 0.05))
    assembly.add(rest.moved(z=back * 0.3).rotated("y", -14).moved(-depth * 0.43, 0, seat), upholstery.fabric)
    if variation.chance(0.4):
        for side in (-1, 1):
            arm = rounded_box(depth * 0.7, 0.06, 0.04, 0.02, 1).moved(-0.04, side * half, seat + 0.2)
            assembly.add(arm, upholstery.colors[2])


def _add_throne(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """A box with a tall back, solid arms and knobs."""
    width, depth, seat = variation.uniform(0.6, 0.78), variation.uniform(0.55, 0.68), variation.uniform(0.4, 0.5)
    back = variation.uniform(0.6, 1.05)
    paint = patterns.framed(lambda texels: texels.filled(upholstery.frame_color), upholstery.colors[2], 0.045)
    assembly.add(box(depth, width, seat).moved(z=seat / 2), paint)
    assembly.add(rounded_box(depth * 0.85, width * 0.72, 0.1, 0.04).moved(0.03, 0, seat + 0.04), upholstery.fabric)
    crown = variation.pick([0.0, 0.12, 0.25])
    assembly.add(board(width, back, 0.1, 0, crown).moved(-depth / 2 + 0.05, 0, seat), upholstery.frame)
    assembly.add(board(width * 0.74, back * 0.84, 0.04, 0, crown).moved(-depth / 2 + 0.11, 0, seat + 0.06),
                 upholstery.fabric)  # fmt: skip
    arm_height = variation.uniform(0.2, 0.32)
    for side in (-1, 1):
        assembly.add(
            box(depth * 0.95, 0.1, arm_height).moved(0.01, side * (width / 2 - 0.05), seat + arm_height / 2), paint
        )
        knob = sphere(0.075, 12)
        assembly.add(knob.moved(depth / 2 - 0.06, side * (width / 2 - 0.05), seat + arm_height + 0.05),
                     upholstery.colors[2])  # fmt: skip
        assembly.add(knob.moved(-depth / 2 + 0.05, side * (width / 2 - 0.05), seat + back + 0.06),
                     upholstery.colors[2])  # fmt: skip


def _add_rocking_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    width, seat, back = variation.uniform(0.5, 0.62), 0.42, variation.uniform(0.55, 0.8)
    _legs(assembly, upholstery, (0.25, width * 0.45), (0.2, width * 0.42), seat, (0.028, 0.03), variation.chance(0.5))
    angle = np.radians(np.linspace(-118, -62, 13))
    for side in (-1, 1):
        runner = np.stack([1.0 * np.cos(angle), np.full(13, side * width * 0.45), 1.0 + np.sin(angle)], -1)
        assembly.add(tube(runner, 0.03, 6), upholstery.colors[2])
    assembly.add(rounded_box(0.5, width, 0.08, 0.03).moved(0, 0, seat), upholstery.fabric)
    count = variation.integer(3, 6)
    slanted = []
    for y in np.linspace(-0.42, 0.42, count):
        slanted.append(box(0.03, width / count * 0.6, back).moved(0, y * width, back / 2))
    for slat in slanted:
        assembly.add(slat.rotated("y", -14).moved(-0.22, 0, seat), upholstery.fabric)
    rail = board(width, 0.13, 0.05, 0.02, variation.uniform(0.0, 0.08)).moved(z=back - 0.04)
    assembly.add(rail.rotated("y", -14).moved(-0.22, 0, seat), upholstery.frame)
    for side in (-1, 1):
        y = side * width * 0.5
        assembly.add(box(0.52, 0.08, 0.04).moved(-0.05, y, seat + 0.22), upholstery.frame)
        assembly.add(cylinder(0.024, 0.24, segments=8).moved(0.16, y, seat + 0.11), upholstery.frame)


def _add_deck_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """A cloth slung in a folding frame."""
    width = variation.uniform(0.55, 0.75)
    head, foot = variation.uniform(0.85, 1.1), variation.uniform(0.28, 0.4)
    curve = smooth_curve(
        [(0.62, foot), (0.3, foot * 0.8), (-0.02, foot * 0.75), (-0.3, head * 0.55), (-0.55, head)], 18
    )
    across = np.linspace(-0.5, 0.5, 5) * width
    points = np.stack(np.broadcast_arrays(curve[:, None, 0], across, curve[:, None, 1]), -1)
    assembly.add(Shape((points,)), upholstery.fabric, 80.0)
    for side in (-1, 1):
        y = side * (width / 2 + 0.02)
        for start, end in (((0.66, foot), (-0.5, 0.0)), ((0.4, 0.0), (-0.57, head))):
            path = [(start[0], y, start[1] + 0.02), (end[0], y, end[1] + 0.02)]
            assembly.add(tube(path, 0.03, 6), upholstery.frame)
    for x, z in ((0.64, foot), (-0.56, head), (-0.48, 0.03), (0.38, 0.03)):
        assembly.add(cylinder(0.026, width, segments=8).rotated("x", 90).moved(x, 0, z), upholstery.frame)
    if variation.chance(0.5):
        pillow = rounded_box(0.12, width * 0.7, 0.22, 0.05).rotated("y", -24)
        assembly.add(pillow.moved(-0.4, 0, head * 0.9), upholstery.colors[2])


def _add_bean_bag(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    radius, back = variation.uniform(0.42, 0.52), variation.uniform(0.55, 0.95)
    profile = smooth_curve([(0.02, 0), (0.85, 0.02), (1.0, 0.18), (0.88, 0.36), (0.5, 0.5), (0.02, 0.52)], 14)
    profile[[0, -1], 0] = 0
    shape = lathe(profile, 24).scaled(radius, radius, 1.0)
    patch = shape.patches[0].copy()
    # The back is drawn up, the front sat down.
    rear = np.clip(-patch[..., 0] / radius + 0.25, 0, 1.2)
    patch[..., 2] *= 0.75 + rear * (back / 0.52 - 0.75)
    patch[..., 0] -= 0.12 * rear * patch[..., 2]
    pieces, colors = variation.pick([6, 8]), upholstery.colors
    style = variation.pick(["segments", "fabric", "fabric"])

    def paint(texels: Texels) -> np.ndarray:
        if style == "fabric":
            return upholstery.fabric(texels)
        return patterns.mixed(patterns.stripes(texels.u * pieces + 0 * texels.x, 2.0), colors[1], colors[0])

    assembly.add(Shape((patch,)), paint, 80.0)
    knot = sphere(0.06, 10).moved(*patch[-1, 0])
    assembly.add(knot, colors[2])


def _add_school_chair(assembly: Assembly, variation: Variation, upholstery: Upholstery) -> None:
    """Plain boards on a bent tube, sometimes with a writing tablet."""
    width, seat, back = variation.uniform(0.42, 0.5), variation.uniform(0.4, 0.5), variation.uniform(0.3, 0.42)
    thick = variation.uniform(0.016, 0.026)
    for side in (-1, 1):
        y = side * width * 0.44
        assembly.add(
            tube([(0.22, y, 0.0), (0.18, y, seat), (-0.18, y, seat), (-0.24, y, 0.0)], thick, 6), upholstery.frame
        )
        assembly.add(tube([(-0.18, y, seat), (-0.28, y, seat + back)], thick, 6), upholstery.frame)
    assembly.add(rounded_box(0.44, width, 0.05, 0.02).moved(0, 0, seat + 0.03), upholstery.fabric)
    rest = board(width * 1.04, back * variation.uniform(0.45, 0.75), 0.04, 0.05, variation.uniform(0, 0.04))
    assembly.add(rest.moved(z=back * 0.35).rotated("y", -13).moved(-0.18, 0, seat), upholstery.fabric)
    if variation.chance(0.6):
        tablet = rounded_box(0.36, width * 0.8, 0.04, 0.02, 1).moved(0.24, width * 0.12, seat + 0.26)
        grain = variation.wood()
        assembly.add(tablet, patterns.framed(lambda texels: texels.filled(grain[0]), grain[1], 0.03))
        assembly.add(tube([(0.1, width * 0.46, seat), (0.2, width * 0.44, seat + 0.25)], thick, 6), upholstery.frame)
    if variation.chance(0.4):
        assembly.add(box(0.34, width * 0.75, 0.1).moved(0, 0, seat - 0.08), upholstery.colors[2])
