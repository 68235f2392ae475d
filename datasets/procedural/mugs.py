"""Mugs, cups, jugs and teapots: a turned body with a handle, decorated, mostly full of something."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import Shape, lathe, smooth_curve, sphere, tube
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

KINDS = ("straight", "tulip", "bowl", "stein", "barrel", "square", "travel", "teapot", "cone", "jug", "saucer",
         "waisted", "straight", "face")  # fmt: skip

DRINKS: tuple[Color, ...] = (
    (0.20, 0.11, 0.06),
    (0.55, 0.33, 0.17),
    (0.80, 0.62, 0.42),
    (0.70, 0.16, 0.10),
    (0.45, 0.60, 0.20),
    (0.95, 0.92, 0.84),
    (0.95, 0.60, 0.12),
)


def build(variation: Variation) -> Assembly:
    """One mug, about 1 high, its handle towards +y and its picture towards +x, standing on z = 0."""
    assembly = Assembly()
    kind = variation.kind
    colors = variation.palette()
    profile, segments = _body_profile(variation, kind)
    decor = _decor(variation, kind, colors, profile)
    body = lathe(profile, segments)
    if segments < 12:
        body = body.rotated("z", 180 / segments)
    assembly.add(body, decor, 20.0 if segments < 12 else 55.0)
    top_radius, top = profile[-1]
    _add_inside(assembly, variation, kind, colors, segments, top_radius, top)
    _add_handle(assembly, variation, kind, colors, profile)
    if kind in ("teapot", "jug"):
        _add_spout(assembly, variation, kind, colors, profile)
    if kind == "saucer" or (kind in ("bowl", "tulip") and variation.chance(0.5)):
        reach = float(profile[:, 0].max()) * variation.uniform(1.35, 1.7)
        plate = lathe(
            [(0, -0.02), (reach * 0.55, -0.02), (reach, 0.10), (reach * 0.97, 0.13), (reach * 0.5, 0.02), (0, 0.02)], 32
        )
        pattern = patterns.bold_pattern(
            variation, variation.pick(patterns.BOLD_PATTERNS), (colors[1], colors[0], colors[2]), reach
        )

        def rings(texels: Texels) -> np.ndarray:
            distance = np.hypot(texels.x, texels.y)
            return pattern(np.abs(np.arctan2(texels.y, texels.x)) * reach, distance - reach / 2)

        assembly.add(plate, rings)
    return assembly


def _body_profile(variation: Variation, kind: str) -> tuple[np.ndarray, int]:
    """The outside from the foot to the rim, ``[n, 2]`` (radius, z) without the bottom, and the number of sides."""
    wide, high = variation.uniform(0.85, 1.2), variation.uniform(0.8, 1.25)
    segments = 32
    if kind in ("straight", "face"):
        points = [(0.40, 0), (0.45, 0.03), (0.46, 0.5), (0.46, 0.95), (0.45, 1.0)]
    elif kind == "tulip":
        points = [(0.28, 0), (0.30, 0.05), (0.42, 0.3), (0.38, 0.65), (0.50, 1.0)]
    elif kind in ("bowl", "saucer"):
        points = [(0.22, 0), (0.25, 0.06), (0.45, 0.25), (0.58, 0.55), (0.62, 0.78)]
    elif kind == "stein":
        points = [(0.48, 0), (0.48, 0.12), (0.42, 0.2), (0.38, 1.1), (0.42, 1.18), (0.42, 1.28)]
    elif kind == "barrel":
        points = [(0.36, 0), (0.46, 0.25), (0.50, 0.5), (0.46, 0.8), (0.38, 1.0)]
    elif kind == "square":
        segments = variation.pick([4, 4, 6, 8])
        points = [(0.50, 0), (0.54, 0.04), (0.56, 0.96), (0.54, 1.0)]
    elif kind == "travel":
        points = [(0.30, 0), (0.31, 0.3), (0.38, 0.7), (0.40, 1.35), (0.38, 1.4)]
    elif kind == "teapot":
        points = [(0.34, 0), (0.38, 0.05), (0.62, 0.32), (0.64, 0.55), (0.50, 0.82), (0.30, 0.95)]
    elif kind == "cone":
        points = [(variation.uniform(0.24, 0.32), 0), (0.56, 0.98), (0.56, 1.0)]
    elif kind == "jug":
        points = [(0.38, 0), (0.42, 0.05), (0.50, 0.4), (0.36, 0.9), (0.30, 1.15), (0.38, 1.35)]
    else:
        points = [(0.42, 0), (0.44, 0.06), (0.33, 0.5), (0.40, 0.85), (0.45, 1.0)]
    curved = kind not in ("stein", "square", "cone")
    line = smooth_curve(points, 20) if curved else np.array(points)
    return np.concatenate([[(0.0, line[0, 1])], line]) * (wide, high), segments


# Decoration -----------------------------------------------------------------------------------------------------------

MOTIFS = ("heart", "star", "flower", "disc", "letter", "cat", "tree", "fish")


def _motif(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """True inside a picture that fills the square ``[-1, 1]^2``."""
    angle, distance = np.arctan2(b, a), np.hypot(a, b)
    if name == "heart":
        return (a**2 + (1.15 * b + 0.2 - 0.75 * np.sqrt(np.abs(a) + 1e-9)) ** 2) < 0.62
    if name == "star":
        return distance < 0.62 + 0.36 * np.cos(5 * (angle - np.pi / 2))
    if name == "flower":
        return (distance < 0.66 + 0.3 * np.cos(6 * angle)) & (distance > 0.2)
    if name == "disc":
        return (distance < 0.95) & ~((distance < 0.68) & (distance > 0.38))
    if name == "letter":
        return (np.abs(a) < 0.75) & (np.abs(b) < 0.95) & ((a < -0.35) | (np.abs(b) > 0.6) | (np.abs(b) < 0.18))
    if name == "cat":
        ears = (b > 0.25) & (b < 1.0 - 1.6 * np.abs(np.abs(a) - 0.55))
        eyes = np.hypot(np.abs(a) - 0.3, b) < 0.13
        return ((np.hypot(a, 1.15 * (b + 0.15)) < 0.8) | ears) & ~eyes
    if name == "tree":
        return ((np.abs(a) < 0.7 * (((0.95 - b) * 1.3) % 0.75) + 0.12 * (0.95 - b)) & (np.abs(b - 0.15) < 0.8)) | (
            (np.abs(a) < 0.12) & (np.abs(b + 0.8) < 0.2)
        )
    tail = (a < -0.45) & (np.abs(b) < -0.9 * (a + 0.45) + 0.05) & (a > -0.95)
    return ((((a - 0.15) / 0.75) ** 2 + (b / 0.45) ** 2 < 1) | tail) & (np.hypot(a - 0.55, b - 0.12) > 0.1)


def _decor(
    variation: Variation, kind: str, colors: tuple[Color, Color, Color], profile: np.ndarray
) -> Callable[[Texels], np.ndarray]:
    main, second, accent = colors
    radius, height = float(profile[:, 0].max()), float(profile[-1, 1])
    styles = ("motif", "row of motifs", *patterns.BOLD_PATTERNS, "dip", "panels")
    style = "face" if kind == "face" else variation.spread_pick("pattern", styles)
    pattern = patterns.bold_pattern(variation, style, colors, height)
    name, count = variation.pick(MOTIFS), variation.integer(4, 6)
    size = min(0.62 * radius, 0.34 * height) * variation.uniform(0.8, 1.1)
    level = height * variation.uniform(0.45, 0.6)
    turn = variation.integer(3, 6)
    mouth = variation.uniform(-0.5, 0.9)
    rim, foot = variation.chance(0.4), variation.chance(0.3)
    waves = patterns.random_waves(variation)

    def paint(texels: Texels) -> np.ndarray:
        z = texels.z
        around = np.arctan2(texels.y, texels.x)
        a = around * radius
        colored = texels.filled(main)
        if style == "motif":
            # Once towards +x and once towards -x.
            facing = np.where(np.abs(around) < np.pi / 2, a, -np.sign(a) * (np.pi * radius - np.abs(a)))
            colored[patterns.disc(facing, z, (0, level), 1.35 * size)] = second
            colored[_motif(name, facing / size, (z - level) / size)] = accent
        elif style == "row of motifs":
            cell = 2 * np.pi * radius / count
            place = (a / cell) % 1.0 - 0.5
            small = min(cell, height) * 0.4
            colored[np.abs(z - level) < 1.25 * small] = second
            colored[_motif(name, place * cell / small, (z - level) / small)] = accent
        elif style == "dip":
            edge = height * (
                0.45 + 0.12 * patterns.blotches(np.cos(around) * radius, np.sin(around) * radius, 0.7, waves)
            )
            colored[z > edge] = second
            colored[np.abs(z - edge) < 0.03] = accent
        elif style == "panels":
            sector = np.floor((around / (2 * np.pi) * turn * 2) % 3).astype(int)
            colored = np.array([main, second, accent], np.float32)[sector]
        elif style == "face":
            eye = patterns.disc(np.abs(a), z, (0.34 * radius, 0.62 * height), 0.15)
            colored[patterns.disc(np.abs(a), z, (0.34 * radius, 0.62 * height), 0.21)] = (0.96, 0.96, 0.94)
            colored[eye] = (0.08, 0.08, 0.09)
            smile = 0.32 * height + mouth * (a**2 - 0.05)
            colored[(np.abs(z - smile) < 0.045) & (np.abs(a) < 0.55 * radius)] = accent
            colored[patterns.disc(np.abs(a), z, (0.72 * radius, 0.42 * height), 0.12)] = second
            colored[z > 0.86 * height] = second
        else:
            colored = pattern(np.abs(a), z - height / 2)
        if rim:
            colored[z > 0.93 * height] = accent
        if foot:
            colored[z < 0.1 * height] = second
        return colored

    return paint


# Parts ----------------------------------------------------------------------------------------------------------------


def _add_inside(
    assembly: Assembly, variation: Variation, kind: str, colors: tuple[Color, Color, Color], segments: int,
    radius: float, top: float,
) -> None:  # fmt: skip
    """Rim and drink, or a lid."""
    main, second, accent = colors
    turn = 180 / segments if segments < 12 else 0.0
    if kind in ("travel", "teapot") or (kind == "stein" and variation.chance(0.4)):
        color = variation.pick([second, accent, shade(main, 0.6)])
        dome = variation.uniform(0.06, 0.22)
        lid = lathe([(radius * 1.03, top), (radius * 1.0, top + 0.06), (radius * 0.5, top + 0.06 + dome * 0.7),
                     (0, top + 0.06 + dome)], segments)  # fmt: skip
        assembly.add(lid, color, 50.0)
        assembly.add(sphere(0.09, 12).moved(z=top + 0.12 + dome), accent)
        return
    lip = variation.pick([main, second, accent])
    fill = top - variation.uniform(0.05, 0.3) * top
    inner = radius * 0.9
    wall = lathe([(radius, top), (inner, top), (inner * 0.97, fill)], segments).rotated("z", turn)
    assembly.add(wall, lip)
    drink = variation.pick(DRINKS)
    froth = variation.pick(["plain", "plain", "swirl", "cream", "foam"])

    def surface(texels: Texels) -> np.ndarray:
        distance, angle = np.hypot(texels.x, texels.y), np.arctan2(texels.y, texels.x)
        if froth == "swirl":
            return patterns.mixed(patterns.stripes(distance * 4 + angle / np.pi, 1.0, 0.4), shade(drink, 1.8), drink)
        if froth == "cream":
            return patterns.mixed(distance < 0.5 * inner + 0.05 * np.sin(7 * angle), (0.97, 0.93, 0.85), drink)
        return texels.filled(drink)

    if froth == "foam":
        bubble = lathe(
            [(inner, fill), (inner * 1.05, top + 0.03), (inner * 0.6, top + 0.13), (0, top + 0.16)], segments
        )
        assembly.add(bubble.rotated("z", turn), (0.97, 0.95, 0.88), 70.0)
    else:
        assembly.add(lathe([(inner * 0.97, fill), (0, fill)], segments).rotated("z", turn), surface)
    if variation.chance(0.25):
        straw = tube([(0.1, -0.1, fill), (0.25, -0.25, top + variation.uniform(0.35, 0.6))], 0.045, 8)
        assembly.add(straw, lambda texels: patterns.mixed(patterns.stripes(texels.z, 0.16), accent, (0.96, 0.96, 0.96)))


def _add_handle(
    assembly: Assembly, variation: Variation, kind: str, colors: tuple[Color, Color, Color], profile: np.ndarray
) -> None:
    height = float(profile[-1, 1])
    if kind == "travel" and variation.chance(0.6):
        grip = float(np.interp(0.45 * height, profile[1:, 1], profile[1:, 0]))
        band = lathe([(grip * 0.98, 0.3 * height), (grip * 1.12, 0.33 * height), (grip * 1.18, 0.62 * height),
                      (grip * 1.05, 0.66 * height)], 28)  # fmt: skip
        assembly.add(band, colors[1])
        return
    low, high = variation.uniform(0.16, 0.3) * height, variation.uniform(0.72, 0.88) * height
    radius_low, radius_high = (float(np.interp(level, profile[1:, 1], profile[1:, 0])) for level in (low, high))
    if kind == "square":
        radius_low, radius_high = 0.75 * radius_low, 0.75 * radius_high
    reach = variation.uniform(0.28, 0.5)
    form = variation.pick(["round", "square", "ear", "loop", "low"])
    outer = max(radius_low, radius_high) + reach
    if form == "square":
        line = np.array([(radius_low - 0.05, low), (outer - 0.1, low), (outer, low + 0.1), (outer, high - 0.1),
                         (outer - 0.1, high), (radius_high - 0.05, high)])  # fmt: skip
    else:
        points = {
            "round": [(radius_low - 0.05, low), (outer * 0.97, low + 0.12), (outer, 0.5 * (low + high)),
                      (outer * 0.95, high - 0.06), (radius_high - 0.05, high)],
            "ear": [(radius_low - 0.05, low), (outer * 0.82, low + 0.08), (outer * 0.95, 0.5 * (low + high)),
                    (outer * 1.06, high + 0.02), (outer * 0.9, high + 0.12), (radius_high - 0.05, high)],
            "loop": [(radius_low - 0.05, 0.5 * (low + high)), (outer, low), (outer * 1.05, high),
                     (radius_high - 0.05, high)],
            "low": [(radius_low - 0.05, low), (outer, low + 0.05), (outer * 0.98, low + 0.3),
                    (radius_high - 0.05, low + 0.4)],
        }[form]  # fmt: skip
        line = smooth_curve(points, 15)
    thick = variation.uniform(0.055, 0.095)
    path = np.stack([0 * line[:, 0], line[:, 0], line[:, 1]], -1)
    paint = variation.pick([colors[0], colors[1], colors[2]])
    handle = tube(path, thick, 10).scaled(variation.uniform(1.0, 1.6), 1, 1)
    assembly.add(handle, paint, 60.0)
    if kind == "saucer" and variation.chance(0.3):
        assembly.add(handle.mirrored("y"), paint, 60.0)


def _add_spout(
    assembly: Assembly, variation: Variation, kind: str, colors: tuple[Color, Color, Color], profile: np.ndarray
) -> None:
    height = float(profile[-1, 1])
    paint = variation.pick([colors[0], colors[1], colors[2]])
    if kind == "jug":
        top = float(profile[-1, 0])
        angle = np.radians(np.linspace(-75, 75, 9))
        rim = np.stack([0.5 * np.sin(angle), -0.7 - 0.6 * np.cos(angle), 0 * angle], -1) * top + (0, 0, height + 0.03)
        foot = np.stack([0.25 * np.sin(angle), 0 * angle - 0.97, 0 * angle], -1) * top + (0, 0, height - 0.3)
        back = np.broadcast_to((0.0, -0.3 * top, height - 0.1), rim.shape)
        assembly.add(Shape((np.stack([foot, rim]), np.stack([rim, back]))), paint, 60.0)
        return
    radius = float(np.interp(0.35 * height, profile[1:, 1], profile[1:, 0]))
    reach = radius * variation.uniform(1.5, 1.9)
    path = smooth_curve([(radius * 0.8, 0.3 * height), (radius * 1.2, 0.4 * height), (reach * 0.9, 0.75 * height),
                         (reach, variation.uniform(0.85, 1.0) * height)], 11)  # fmt: skip
    points = np.stack([0 * path[:, 0], -path[:, 0], path[:, 1]], -1)
    assembly.add(tube(points, np.linspace(0.16, 0.07, 11), 12), paint, 60.0)
