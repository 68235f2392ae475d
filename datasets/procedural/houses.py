"""Houses, towers, barns, shops and tents, with painted windows and doors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import Shape, box, cylinder, lathe, prism, sphere, tube
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

KINDS = ("cottage", "block", "villa", "church", "barn", "tower", "wing", "shop", "frame", "lighthouse", "modern", "hut",
         "castle", "row", "cottage", "mill", "pagoda", "greenhouse")  # fmt: skip


@dataclass(frozen=True)
class Style:
    """The materials of one house.

    Attributes:
        wall: colours of a wall from distance along it and height, before windows.
        roof: colours of a roof from distance along it and up the slope.
        glass: colour of window panes.
        frame: colour of window frames, corners and eaves.
        door: colour of doors.
        colors: the palette behind them.
    """

    wall: patterns.Pattern
    roof: patterns.Pattern
    glass: Color
    frame: Color
    door: Color
    colors: tuple[Color, Color, Color]


def build(variation: Variation) -> Assembly:
    """One house, some metres long, its door towards +x, standing on z = 0."""
    assembly = Assembly()
    style = _style(variation)
    builders = {
        "cottage": _add_cottage,
        "block": _add_block,
        "villa": _add_villa,
        "church": _add_church,
        "barn": _add_barn,
        "tower": _add_tower,
        "wing": _add_winged_house,
        "shop": _add_shop,
        "frame": _add_frame_house,
        "lighthouse": _add_lighthouse,
        "modern": _add_modern_house,
        "hut": _add_hut,
        "castle": _add_castle,
        "row": _add_row_of_houses,
        "mill": _add_mill,
        "pagoda": _add_pagoda,
        "greenhouse": _add_greenhouse,
    }
    builders[variation.kind](assembly, variation, style)
    return assembly


def _style(variation: Variation) -> Style:
    main, second, accent = colors = variation.palette()
    walls = variation.spread_pick("pattern", ("plain", "bricks", "boards", "half timber", "logs", "bands", "stones",
                                              "two tone", "upright boards"))  # fmt: skip
    waves = patterns.random_waves(variation)
    dark = shade(main, 0.55)
    course = variation.uniform(0.3, 0.6)

    def wall(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        colored = patterns.mixed(np.zeros(np.broadcast(a, b).shape), main, main)
        if walls == "bricks":
            colored[patterns.bricks(a, b, 2.0 * course, course, 0.1)] = shade(main, 1.7)
        elif walls == "boards":
            colored[patterns.stripes(b + 0 * a, course, 0.25)] = dark
        elif walls == "upright boards":
            colored[patterns.stripes(a + 0 * b, course, 0.3)] = second
        elif walls == "half timber":
            beams = patterns.stripes(b + 0 * a, 1.5, 0.14) | patterns.stripes(a + 0 * b, 1.5, 0.14)
            diagonal = np.abs(((a / 1.5) % 1.0) - ((b / 1.5) % 1.0)) < 0.1
            crossed = (np.floor(a / 1.5) + np.floor(b / 1.5)) % 2 == 0
            colored[beams | (diagonal & crossed)] = second
        elif walls == "logs":
            colored = patterns.mixed(patterns.stripes(b + 0 * a, 0.5, 0.5), dark, main)
        elif walls == "bands":
            colored[patterns.stripes(b + 0 * a, 1.6, 0.4)] = second
        elif walls == "stones":
            colored = patterns.mixed(patterns.blotches(a, b, 1.0, waves) > 0.2, dark, main)
        elif walls == "two tone":
            colored[b + 0 * a < 1.3] = second
        return colored

    tiles = variation.spread_pick(
        "material", ("courses", "scales", "plain", "stripes", "checks", "sheet", "zigzag", "thatch")
    )
    roof_color, roof_dark = variation.pick([(second, shade(second, 0.55)), (accent, shade(accent, 0.55)),
                                            (second, accent), (accent, shade(main, 0.5))])  # fmt: skip

    def roof(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        none = np.zeros(np.broadcast(a, b).shape, bool)
        mask = {
            "courses": lambda: patterns.stripes(b + 0 * a, 0.55, 0.3),
            "scales": lambda: ~patterns.dots(a, b, 0.75, 0.44),
            "plain": lambda: none,
            "stripes": lambda: patterns.stripes(a + 0 * b, 1.5, 0.5),
            "checks": lambda: patterns.checks(a, b, 1.4),
            "sheet": lambda: patterns.stripes(a + 0 * b, 0.6, 0.25),
            "zigzag": lambda: patterns.zigzag(a, b, 1.4),
            "thatch": lambda: patterns.blotches(3 * a, b, 1.8, waves) > 0.15,
        }[tiles]()
        return patterns.mixed(mask, roof_dark, roof_color)

    glass = variation.pick(
        [(0.16, 0.22, 0.32), (0.55, 0.75, 0.88), (1.0, 0.85, 0.45), (0.3, 0.42, 0.5), (0.1, 0.1, 0.12)]
    )
    frame = variation.pick([(0.95, 0.94, 0.9), second, accent, shade(main, 0.4), shade(main, 1.8)])
    door = variation.pick([accent, second, variation.wood()[0], shade(main, 0.35)])
    return Style(wall, roof, glass, frame, door, colors)


# Walls and roofs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facade:
    """The openings of a house's walls.

    Attributes:
        columns: windows along a front wall, and along a side wall.
        rows: storeys.
        size: width and height of a window as share of its cell.
        arched: round tops.
        door_at: place of the door along the front wall in [-1, 1], or None.
        shutters: paint shutters in the accent colour.
    """

    columns: tuple[int, int]
    rows: int
    size: tuple[float, float]
    arched: bool
    door_at: float | None
    shutters: bool


def _facade(variation: Variation, columns: tuple[int, int], rows: int, door: bool = True) -> Facade:
    return Facade(columns, rows, (variation.uniform(0.34, 0.6), variation.uniform(0.4, 0.62)), variation.chance(0.25),
                  variation.pick([-0.5, 0.0, 0.0, 0.5]) if door else None, variation.chance(0.3))  # fmt: skip


def _paint_openings(
    colored: np.ndarray, a: np.ndarray, b: np.ndarray, style: Style, facade: Facade, columns: int, width: float,
    height: float, door: bool,
) -> None:  # fmt: skip
    """Windows and a door on a wall: a from -width / 2 to width / 2, b from 0 to height."""
    cell_width, cell_height = width / columns, height / facade.rows
    u = ((a + width / 2) / cell_width) % 1.0 - 0.5
    v = (b / cell_height) % 1.0 - 0.52
    inside = (np.abs(a) < width / 2) & (b > 0) & (b < height)
    half_width, half_height = facade.size[0] / 2, facade.size[1] / 2
    reach = np.maximum(np.abs(u) / half_width, np.abs(v) / half_height)
    if facade.arched:
        dome = np.hypot(u / half_width, np.maximum(v - 0.3 * half_height, 0) / (0.7 * half_height))
        reach = np.maximum(dome, np.abs(v) / half_height)
    if facade.shutters:
        beside = (np.abs(u) < 1.75 * half_width) & (np.abs(v) < half_height) & inside
        colored[beside] = style.colors[2]
    colored[inside & (reach < 1.18)] = style.frame
    panes = inside & (reach < 0.92)
    colored[panes] = style.glass
    colored[panes & (v < u)] = shade(style.glass, 1.35)
    colored[panes & ((np.abs(u) < 0.035) | (np.abs(v) < 0.035))] = style.frame
    if door and facade.door_at is not None:
        place = facade.door_at * (width / 2 - 0.8)
        tall = min(cell_height * 0.82, 2.2)
        frame = (np.abs(a - place) < 0.72) & (b > -1) & (b < tall + 0.2)
        colored[(np.abs(a - place) < 1.0) & (b < min(cell_height, tall + 0.45))] = style.wall(a, b)[
            (np.abs(a - place) < 1.0) & (b < min(cell_height, tall + 0.45))
        ]
        colored[frame] = style.frame
        leaf = (np.abs(a - place) < 0.52) & (b < tall)
        colored[leaf] = style.door
        colored[leaf & (np.abs(np.abs(a - place) - 0.26) < 0.13) & (np.abs(b - 0.62 * tall) < 0.2 * tall)] = shade(
            style.door, 0.6
        )


def _add_body(
    assembly: Assembly, style: Style, facade: Facade, size: tuple[float, float, float],
    center: tuple[float, float] = (0.0, 0.0), base: float = 0.0,
) -> None:  # fmt: skip
    """Four walls with openings; ``size`` is depth (x), width (y) and height."""
    depth, width, height = size
    shape = box(*size).moved(center[0], center[1], base + height / 2)

    def paint(texels: Texels) -> np.ndarray:
        front = texels.patch < 2
        a = (texels.y - center[1]) if front else (texels.x - center[0])
        b = texels.z - base
        colored = style.wall(a, b)
        if texels.patch >= 4:
            return colored
        length = width if front else depth
        _paint_openings(
            colored, a, b, style, facade, facade.columns[0 if front else 1], length, height, texels.patch == 0
        )
        colored[np.abs(np.abs(a) - length / 2) < 0.1] = style.frame
        return colored

    assembly.add(shape, paint)


def _roof_paint(style: Style) -> Callable[[Texels], np.ndarray]:
    """Tiles in distance along a slope and up it."""

    def paint(texels: Texels) -> np.ndarray:
        length, height = texels.size
        a, b = np.broadcast_arrays((texels.u - 0.5) * length, texels.v * height)
        return style.roof(a, b)

    return paint


def _add_gable_roof(
    assembly: Assembly, style: Style, size: tuple[float, float, float], base: float,
    center: tuple[float, float] = (0.0, 0.0), ridge: str = "y", bend: float = 0.0, overhang: float = 0.35,
) -> None:  # fmt: skip
    """Two slopes and two gables.

    Args:
        size: depth (x), width (y), rise.
        base: height of the eaves.
        ridge: the axis along which the ridge runs.
        bend: 0 for straight slopes; above, a barn's broken slope.
    """
    depth, width, rise = size
    across, along = (depth, width) if ridge == "y" else (width, depth)
    half, run = across / 2 + overhang, along / 2 + overhang
    drop = overhang * rise / (across / 2)
    turn = 0.0 if ridge == "y" else -90.0
    knee = (half * (0.5 + 0.3 * bend), base - drop + (rise + drop) * (0.5 + 0.22 * bend))
    line = [(half, base - drop), knee, (0.0, base + rise)] if bend else [(half, base - drop), (0.0, base + rise)]
    thick = 0.16
    paint = _roof_paint(style)
    for side in (1, -1):
        # Seen from outside, columns run to the right and rows up the slope.
        grid = np.array([[(side * x, -side * run, z), (side * x, side * run, z)] for x, z in line])
        lower = grid[:, ::-1] - (0, 0, thick)
        slope = Shape((grid,)).rotated("z", turn).moved(center[0], center[1])
        assembly.add(slope, paint, 20.0)
        soffit = Shape((lower,)).rotated("z", turn).moved(center[0], center[1])
        assembly.add(soffit, style.frame, 20.0)
        edge = np.stack([grid[:, 1], lower[:, 0]], 1)
        rim = np.stack([lower[:, 1], grid[:, 0]], 1)
        eaves = np.stack([lower[0, ::-1], grid[0]])
        fascia = Shape((edge, rim, eaves)).rotated("z", turn).moved(center[0], center[1])
        assembly.add(fascia, style.frame, 20.0)

    def gable_paint(texels: Texels) -> np.ndarray:
        a = texels.y - center[1] if ridge == "x" else texels.x - center[0]
        b = texels.z - base
        colored = style.wall(a, b)
        hole = patterns.disc(a, b, (0.0, 0.38 * rise), 0.16 * rise + 0.12)
        colored[patterns.disc(a, b, (0.0, 0.38 * rise), 0.16 * rise + 0.24)] = style.frame
        colored[hole] = style.glass
        return colored

    profile = [(across / 2, base)]
    if bend:
        profile.append((knee[0] * 0.9, knee[1] - 0.05))
    profile.append((0.0, base + rise - 0.04))
    for side in (1, -1):
        y = side * along / 2
        # From eaves to ridge; the left column mirrors the right one.
        triangle = np.array([[(side * x, y, z), (-side * x, y, z)] for x, z in profile])
        gable = Shape((triangle,)).rotated("z", turn).moved(center[0], center[1])
        assembly.add(gable, gable_paint)


def _add_hip_roof(
    assembly: Assembly, style: Style, size: tuple[float, float, float], base: float,
    center: tuple[float, float] = (0.0, 0.0), top_share: float = 0.0, overhang: float = 0.35,
) -> None:  # fmt: skip
    """Four slopes to a ridge (``top_share`` 0) or to a smaller flat top."""
    depth, width, rise = size
    x, y = depth / 2 + overhang, width / 2 + overhang
    inner = max(y - x, 0.0) if top_share == 0 else y * top_share
    inner_x = max(x - y, 0.0) if top_share == 0 else x * top_share
    low = np.array([(x, -y), (x, y), (-x, y), (-x, -y)])
    high = np.array([(inner_x, -inner), (inner_x, inner), (-inner_x, inner), (-inner_x, -inner)])
    patches = []
    for side in range(4):
        after = (side + 1) % 4
        patches.append(np.array([
            [(*low[side], base), (*low[after], base)], [(*high[side], base + rise), (*high[after], base + rise)]
        ]))  # fmt: skip
    assembly.add(Shape(tuple(patches)).moved(*center), _roof_paint(style), 20.0)
    slab = box(2 * x, 2 * y, 0.16).moved(center[0], center[1], base - 0.06)
    assembly.add(slab, style.frame)
    if top_share:
        flat = box(2 * inner_x, 2 * inner, 0.1).moved(center[0], center[1], base + rise)
        assembly.add(flat, style.frame)


def _add_chimney(
    assembly: Assembly, variation: Variation, style: Style, x: float, y: float, base: float, top: float
) -> None:
    width = variation.uniform(0.5, 0.9)
    shape = box(width, width, top - base).moved(x, y, 0.5 * (top + base))
    brick = variation.pick([(0.6, 0.25, 0.18), style.colors[0], style.colors[2], (0.5, 0.5, 0.5)])
    assembly.add(shape, lambda texels: patterns.mixed(patterns.stripes(texels.z, 0.4, 0.2), shade(brick, 1.6), brick))
    assembly.add(box(width * 1.3, width * 1.3, 0.18).moved(x, y, top), style.frame)


def _add_garden(assembly: Assembly, variation: Variation, style: Style, depth: float, width: float) -> None:
    """Sometimes a lawn with a path, a fence or trees."""
    if variation.chance(0.45):
        return
    grass = variation.pick(
        [(0.35, 0.55, 0.2), (0.2, 0.4, 0.18), (0.75, 0.65, 0.4), (0.55, 0.55, 0.55), (0.85, 0.88, 0.92)]
    )
    path = variation.pick([(0.8, 0.75, 0.65), (0.45, 0.42, 0.4), style.colors[1]])
    reach_x, reach_y = depth / 2 + variation.uniform(0.6, 1.6), width / 2 + variation.uniform(0.6, 1.4)
    lawn = box(2 * reach_x, 2 * reach_y, 0.16).moved(z=-0.08)
    assembly.add(lawn, lambda texels: patterns.mixed((np.abs(texels.y) < 0.5) & (texels.x > 0), path, grass))
    for _ in range(variation.integer(0, 3)):
        x = variation.pick([-1, 1]) * (reach_x - 0.5)
        y = variation.uniform(0.5, 1.0) * variation.pick([-1, 1]) * (reach_y - 0.6)
        leaf = variation.pick([(0.15, 0.4, 0.15), (0.4, 0.6, 0.15), (0.8, 0.45, 0.1), (0.85, 0.55, 0.65)])
        high = variation.uniform(1.2, 2.6)
        assembly.add(cylinder(0.16, high * 0.5, segments=8).moved(x, y, high * 0.25), (0.35, 0.22, 0.12))
        if variation.chance(0.5):
            assembly.add(cylinder(0.65, high, 0.0, 10).moved(x, y, high * 0.95), leaf)
        else:
            assembly.add(sphere(0.7, 12).moved(x, y, high * 0.85), leaf)
    if variation.chance(0.4):
        white = variation.pick([(0.93, 0.93, 0.9), style.colors[2], (0.4, 0.26, 0.15)])
        for side in (-1, 1):
            for level in (0.3, 0.6):
                assembly.add(box(2 * reach_x, 0.08, 0.12).moved(0, side * (reach_y - 0.1), level), white)
            for x in np.linspace(-1, 1, 6) * (reach_x - 0.1):
                assembly.add(box(0.14, 0.14, 0.85).moved(x, side * (reach_y - 0.1), 0.42), white)


# Kinds ----------------------------------------------------------------------------------------------------------------


def _add_cottage(assembly: Assembly, variation: Variation, style: Style) -> None:
    depth, width = variation.uniform(3.6, 5.5), variation.uniform(4.5, 7.5)
    storeys = variation.integer(1, 2)
    height, rise = storeys * variation.uniform(2.4, 3.0), variation.uniform(1.5, 3.6)
    facade = _facade(variation, (variation.integer(2, 4), variation.integer(1, 3)), storeys)
    _add_body(assembly, style, facade, (depth, width, height))
    form = variation.pick(["along", "across", "hip", "half"])
    if form == "hip":
        _add_hip_roof(assembly, style, (depth, width, rise), height)
    else:
        _add_gable_roof(assembly, style, (depth, width, rise), height, ridge="x" if form == "across" else "y")
    if variation.chance(0.7):
        x, y = variation.uniform(-0.25, 0.25) * depth, variation.pick([-0.3, 0.3]) * width
        _add_chimney(assembly, variation, style, x, y, height, height + rise + variation.uniform(0.1, 0.8))
    if variation.chance(0.4) and form in ("along", "half"):
        # A dormer in the front slope.
        size = (depth * 0.4, 1.6, 1.0)
        place = (depth * 0.28, variation.pick([-0.2, 0.0, 0.2]) * width)
        _add_body(assembly, style, Facade((1, 1), 1, (0.6, 0.6), False, None, False), size, place, height)
        _add_gable_roof(assembly, style, (depth * 0.4, 1.6, 0.7), height + 1.0, place, "x", overhang=0.15)
    if variation.chance(0.4):
        assembly.add(box(1.2, 2.0, 0.14).rotated("y", 14).moved(depth / 2 + 0.5, 0, 2.3), style.colors[2])
        for side in (-0.85, 0.85):
            assembly.add(cylinder(0.1, 2.3, segments=8).moved(depth / 2 + 0.95, side, 1.1), style.frame)
    _add_garden(assembly, variation, style, depth, width)


def _add_block(assembly: Assembly, variation: Variation, style: Style) -> None:
    """A block of flats, sometimes with a stepped crown."""
    depth, width = variation.uniform(3.0, 5.0), variation.uniform(3.5, 7.0)
    storeys = variation.integer(3, 6)
    height = storeys * variation.uniform(1.6, 2.2)
    facade = _facade(variation, (variation.integer(3, 5), variation.integer(2, 4)), storeys)
    _add_body(assembly, style, facade, (depth, width, height))
    assembly.add(box(depth + 0.4, width + 0.4, 0.3).moved(z=height + 0.1), style.colors[1])
    crown = variation.pick(["tank", "step", "garden", "roof", "none"])
    if crown == "tank":
        assembly.add(cylinder(0.8, 1.3, segments=14).moved(0, width * 0.2, height + 0.9), style.colors[2])
        assembly.add(cylinder(0.9, 0.6, 0.0, 14).moved(0, width * 0.2, height + 1.8), style.frame)
    elif crown == "step":
        size = (depth * 0.65, width * 0.65, height * 0.35)
        _add_body(assembly, style, Facade((3, 2), 2, facade.size, False, None, False), size, base=height + 0.2)
        assembly.add(box(depth * 0.7, width * 0.7, 0.25).moved(z=height * 1.35 + 0.3), style.colors[1])
    elif crown == "garden":
        assembly.add(box(depth * 0.85, width * 0.85, 0.25).moved(z=height + 0.3), (0.3, 0.5, 0.2))
        for y in (-0.25, 0.2):
            assembly.add(sphere(0.7, 10).moved(0, y * width, height + 0.8), (0.2, 0.42, 0.18))
    elif crown == "roof":
        _add_hip_roof(assembly, style, (depth, width, variation.uniform(1.2, 2.2)), height + 0.2)
    if variation.chance(0.5):
        for storey in range(1, storeys):
            level = storey * height / storeys
            balcony = box(0.7, width * 0.8, 0.5).moved(depth / 2 + 0.3, 0, level + 0.2)
            assembly.add(balcony, style.colors[2] if storey % 2 else style.frame)


def _add_villa(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Two storeys, a hipped roof, columns in front."""
    depth, width = variation.uniform(4.0, 5.2), variation.uniform(5.5, 7.5)
    height, rise = variation.uniform(4.2, 5.4), variation.uniform(1.4, 2.6)
    _add_body(assembly, style, _facade(variation, (variation.pick([3, 4, 5]), 2), 2), (depth, width, height))
    _add_hip_roof(assembly, style, (depth, width, rise), height, top_share=variation.pick([0.0, 0.5]))
    porch, reach = width * variation.uniform(0.35, 0.6), 1.4
    count = variation.pick([2, 4])
    for y in np.linspace(-0.45, 0.45, count) * porch:
        assembly.add(
            cylinder(0.2, height * 0.9, segments=12).moved(depth / 2 + reach - 0.3, y, height * 0.45), style.frame
        )
    if variation.chance(0.6):
        roof_size = (2 * reach, porch, rise * 0.6)
        _add_gable_roof(assembly, style, roof_size, height * 0.9, (depth / 2 + 0.2, 0.0), "x", overhang=0.2)
    else:
        assembly.add(box(reach + 0.3, porch + 0.3, 0.3).moved(depth / 2 + reach / 2, 0, height * 0.9), style.frame)
    assembly.add(box(reach, porch, 0.3).moved(depth / 2 + reach / 2, 0, 0.15), style.colors[2])
    for side in (-0.35, 0.35):
        _add_chimney(assembly, variation, style, 0.0, side * width, height, height + rise * 1.2)
    _add_garden(assembly, variation, style, depth + 2, width)


def _add_church(assembly: Assembly, variation: Variation, style: Style) -> None:
    width, depth, height = variation.uniform(2.6, 3.4), variation.uniform(5.0, 7.0), variation.uniform(2.6, 3.6)
    rise = variation.uniform(1.8, 2.8)
    nave = Facade((2, variation.integer(3, 4)), 1, (0.34, 0.66), True, None, False)
    _add_body(assembly, style, nave, (depth, width, height), (-0.8, 0.0))
    _add_gable_roof(assembly, style, (depth, width, rise), height, (-0.8, 0.0), "x", overhang=0.25)
    side, tall = variation.uniform(1.6, 2.1), variation.uniform(4.6, 6.4)
    front = depth / 2 - 0.8 + side / 2 - 0.3
    _add_body(assembly, style, Facade((1, 1), 2, (0.4, 0.5), True, 0.0, False), (side, side, tall), (front, 0.0))
    cap = variation.pick(["spire", "onion", "hip"])
    if cap == "spire":
        spire = lathe([(side * 0.78, tall), (0.05, tall + variation.uniform(2.2, 3.6)), (0, tall + 3.6)], 4)
        assembly.add(spire.rotated("z", 45).moved(front), _roof_paint(style), 20.0)
    elif cap == "onion":
        onion = lathe(
            np.array([(0.7, 0), (0.95, 0.5), (0.9, 0.9), (0.4, 1.5), (0.08, 2.1), (0.0, 2.6)]) * (side * 0.6, 0.9), 16
        )
        assembly.add(onion.moved(front, 0, tall), style.colors[2], 60.0)
    else:
        _add_hip_roof(assembly, style, (side, side, 1.4), tall, (front, 0.0), overhang=0.2)


def _add_barn(assembly: Assembly, variation: Variation, style: Style) -> None:
    """A broken roof, big doors, sometimes a silo."""
    width, depth, height = variation.uniform(4.0, 5.4), variation.uniform(5.0, 7.5), variation.uniform(2.4, 3.2)
    rise = variation.uniform(2.2, 3.2)
    _add_body(assembly, style, Facade((3, variation.integer(2, 4)), 1, (0.3, 0.36), False, None, False),
              (depth, width, height))  # fmt: skip
    _add_gable_roof(assembly, style, (depth, width, rise), height, ridge="x", bend=1.0, overhang=0.3)
    door = box(0.12, width * 0.5, height * 0.85).moved(depth / 2 + 0.03, 0, height * 0.43)
    tall, wide = height * 0.85, width * 0.5

    def planks(texels: Texels) -> np.ndarray:
        colored = texels.filled(style.door)
        y, z = np.abs(texels.y), texels.z
        cross = np.abs(np.abs(y - wide / 4) / (wide / 4) - np.abs(z - tall / 2) / (tall / 2)) < 0.16
        edge = (y < 0.08) | (y > wide / 2 - 0.14) | (np.abs(z - tall / 2) > tall / 2 - 0.14)
        colored[cross | edge] = style.frame
        return colored

    assembly.add(door, planks)
    if variation.chance(0.6):
        radius, tall_silo = variation.uniform(0.9, 1.3), height + rise + variation.uniform(0, 1.6)
        silo = cylinder(radius, tall_silo, segments=20).moved(-depth * 0.2, width / 2 + radius + 0.2, tall_silo / 2)
        assembly.add(silo, lambda texels: patterns.mixed(patterns.stripes(texels.z, 1.3, 0.2), style.colors[2],
                                                         (0.75, 0.77, 0.8)))  # fmt: skip
        cap = sphere(radius, 16).moved(-depth * 0.2, width / 2 + radius + 0.2, tall_silo)
        assembly.add(cap, style.colors[1])


def _add_tower(assembly: Assembly, variation: Variation, style: Style) -> None:
    """A round tower under a pointed roof."""
    radius, height = variation.uniform(1.3, 2.2), variation.uniform(4.5, 7.5)
    taper = variation.uniform(0.75, 1.1)
    columns, rows = variation.integer(4, 7), variation.integer(2, 4)
    facade = _facade(variation, (columns, columns), rows)
    girth = 2 * np.pi * radius

    def paint(texels: Texels) -> np.ndarray:
        a = np.arctan2(texels.y, texels.x) / (2 * np.pi) * girth
        colored = style.wall(a, texels.z)
        _paint_openings(colored, a, texels.z, style, facade, columns, girth, height, True)
        return colored

    assembly.add(lathe([(radius, 0), (radius * taper, height)], 28), paint)
    eaves = radius * taper * variation.uniform(1.15, 1.5)
    rise = variation.uniform(1.6, 3.8)
    roof = lathe([(radius * taper * 0.9, height - 0.1), (eaves, height - 0.1), (eaves * 0.45, height + rise * 0.5),
                  (0, height + rise)], 28)  # fmt: skip
    assembly.add(roof, _roof_paint(style), 40.0)
    if variation.chance(0.6):
        size = variation.uniform(1.6, 2.4)
        annex = (radius * 2.4, size * 1.4, size * 1.1)
        place = (-0.4, radius + size * 0.5)
        _add_body(assembly, style, Facade((1, 2), 1, (0.4, 0.5), False, None, False), annex, place)
        _add_gable_roof(assembly, style, (annex[0], annex[1], size * 0.8), annex[2], place, "x", overhang=0.2)
    _add_garden(assembly, variation, style, 2 * radius, 2 * radius)


def _add_winged_house(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Two bodies at right angles, or a house with a garage."""
    depth, width = variation.uniform(3.4, 4.4), variation.uniform(5.0, 6.5)
    height, rise = variation.uniform(2.6, 4.6), variation.uniform(1.6, 2.6)
    storeys = 2 if height > 3.8 else 1
    _add_body(assembly, style, _facade(variation, (3, 2), storeys), (depth, width, height))
    _add_gable_roof(assembly, style, (depth, width, rise), height)
    side = variation.pick([-1, 1])
    wing = (variation.uniform(2.6, 3.6), variation.uniform(2.4, 3.2), height * variation.uniform(0.6, 1.0))
    place = (depth / 2 + wing[0] * 0.35, side * (width - wing[1]) / 2)
    if variation.chance(0.5):
        _add_body(assembly, style, _facade(variation, (1, 1), 1, door=False), wing, place)
    else:
        shape = box(*wing).moved(place[0], place[1], wing[2] / 2)

        def garage(texels: Texels) -> np.ndarray:
            colored = style.wall(texels.y + texels.x, texels.z)
            if texels.patch == 0:
                gate = (np.abs(texels.u - 0.5) < 0.38) & (texels.v < 0.78)
                colored[gate] = style.door
                colored[gate & (texels.v % 0.2 < 0.05)] = shade(style.door, 0.5)
            return colored

        assembly.add(shape, garage)
    _add_gable_roof(assembly, style, (wing[0], wing[1], rise * 0.75), wing[2], place, "x")
    _add_chimney(assembly, variation, style, -0.3, -side * width * 0.3, height, height + rise + 0.5)
    _add_garden(assembly, variation, style, depth + 2.5, width)


def _add_shop(assembly: Assembly, variation: Variation, style: Style) -> None:
    """A shop window under a striped awning, with a sign."""
    depth, width = variation.uniform(3.2, 4.4), variation.uniform(4.0, 6.0)
    storeys = variation.integer(1, 3)
    height = 2.6 + (storeys - 1) * 2.1
    main, second, accent = style.colors
    _add_body(
        assembly,
        style,
        Facade((3, 2), storeys, (0.45, 0.5), variation.chance(0.3), None, False),
        (depth, width, height),
    )
    front = box(0.16, width * 0.92, 2.0).moved(depth / 2 + 0.05, 0, 1.05)
    goods = patterns.bold_pattern(
        variation, variation.pick(["dots", "checks", "columns"]), (style.glass, accent, second), 3.0
    )

    def window(texels: Texels) -> np.ndarray:
        colored = texels.filled(second)
        y, z = texels.y, texels.z
        pane = (np.abs(y) < width * 0.42) & (z > 0.5) & (z < 1.85)
        colored[pane] = style.glass
        shelf = pane & (z < 1.15)
        colored[shelf] = goods(y, z)[shelf]
        colored[(np.abs(y) < 0.5) & (z < 1.9)] = style.door
        return colored

    assembly.add(front, window)
    awning = Shape((np.array([[(depth / 2 + 1.2, -width * 0.48, 2.0), (depth / 2 + 1.2, width * 0.48, 2.0)],
                              [(depth / 2, -width * 0.48, 2.6), (depth / 2, width * 0.48, 2.6)]]),))  # fmt: skip
    stripe = width * 0.96 / variation.pick([5, 7, 9]) * 2
    white = variation.pick([(0.95, 0.94, 0.9), main])
    assembly.add(awning, lambda texels: patterns.mixed(patterns.stripes(texels.y + width, stripe), accent, white))
    sign = box(0.2, width * 0.7, 0.7).moved(depth / 2 + 0.1, 0, height + 0.25)
    letters = patterns.random_waves(variation)

    def lettering(texels: Texels) -> np.ndarray:
        colored = texels.filled(second)
        block = patterns.stripes(texels.y, 0.42, 0.62) & (np.abs(texels.z - height - 0.25) < 0.22)
        colored[block & (np.sin(np.floor(texels.y / 0.42) * 7 + letters[0, 2]) > -0.6)] = accent
        return colored

    assembly.add(sign, lettering)
    if variation.chance(0.5):
        _add_hip_roof(assembly, style, (depth, width, variation.uniform(1.0, 2.0)), height, overhang=0.15)
    else:
        assembly.add(box(depth + 0.3, width + 0.3, 0.3).moved(z=height + 0.05), accent)


def _add_frame_house(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Roof down to the ground: an A-frame or a tent."""
    width, depth, rise = variation.uniform(3.4, 5.0), variation.uniform(4.0, 6.0), variation.uniform(3.8, 5.6)
    _add_gable_roof(assembly, style, (depth, width, rise), 0.05, ridge="x", overhang=0.3)
    face = box(0.1, width * 0.42, rise * 0.36).moved(depth / 2 + 0.03, 0, rise * 0.18)
    facade = Facade((2, 1), 1, (0.7, 0.7), False, None, False)

    def paint(texels: Texels) -> np.ndarray:
        colored = texels.filled(style.door)
        _paint_openings(colored, texels.y, texels.z, style, facade, 2, width * 0.42, rise * 0.36, False)
        return colored

    assembly.add(face, paint)
    if variation.chance(0.6):
        assembly.add(box(1.4, width, 0.2).moved(depth / 2 + 0.7, 0, 0.1), style.colors[2])
        for y in (-0.48, 0.48):
            assembly.add(box(1.4, 0.12, 0.7).moved(depth / 2 + 0.7, y * width, 0.45), style.frame)
    if variation.chance(0.5):
        _add_chimney(assembly, variation, style, -depth * 0.2, width * 0.14, rise * 0.5, rise * 1.08)
    _add_garden(assembly, variation, style, depth + 2, width)


def _add_lighthouse(assembly: Assembly, variation: Variation, style: Style) -> None:
    height, radius = variation.uniform(5.5, 8.0), variation.uniform(1.2, 1.8)
    top = radius * variation.uniform(0.5, 0.75)
    main, second, accent = style.colors
    bands = variation.integer(3, 6)
    spiral = variation.chance(0.4)

    def paint(texels: Texels) -> np.ndarray:
        turn = texels.u if spiral else 0 * texels.u
        colored = patterns.mixed(patterns.stripes(texels.v * bands / 2 + turn + 0 * texels.x, 1.0), second, main)
        around = np.arctan2(texels.y, texels.x)
        for level in (0.3, 0.6):
            colored[(np.abs(around) < 0.25) & (np.abs(texels.v - level) < 0.04)] = style.glass
        colored[(np.abs(around) < 0.32) & (texels.v < 0.16)] = style.door
        return colored

    assembly.add(lathe([(radius, 0), (top, height)], 26), paint)
    assembly.add(cylinder(top * 1.5, 0.25, segments=24).moved(z=height + 0.1), accent)
    lantern = cylinder(top * 0.8, 1.2, segments=12).moved(z=height + 0.8)
    assembly.add(lantern, lambda texels: patterns.mixed(patterns.stripes(texels.u * 8 + 0 * texels.x, 1.0, 0.2), accent,
                                                        (1.0, 0.9, 0.5)))  # fmt: skip
    dome = variation.uniform(0.6, 1.3)
    cap = lathe([(top * 1.1, 0), (top * 0.8, dome * 0.5), (0, dome)], 20).moved(z=height + 1.4)
    assembly.add(cap, accent, 60.0)
    if variation.chance(0.6):
        size = (2.4, 2.8, 1.9)
        place = (0.0, radius + 1.1)
        _add_body(assembly, style, Facade((2, 2), 1, (0.4, 0.5), False, 0.0, False), size, place)
        _add_gable_roof(assembly, style, (2.4, 2.8, 1.3), 1.9, place, overhang=0.25)
    rock = sphere(1.0, 14).scaled(radius * 1.7, radius * 1.9, 0.8)
    assembly.add(rock, variation.pick([(0.4, 0.38, 0.36), (0.3, 0.45, 0.2), (0.75, 0.68, 0.5)]))


def _add_modern_house(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Stacked boxes with broad windows."""
    main, second, accent = style.colors
    count = variation.integer(2, 4)
    base = 0.0
    paints = [main, second, accent, shade(main, 0.5)]
    for number in range(count):
        depth, width = variation.uniform(3.0, 4.6), variation.uniform(3.4, 6.5)
        height = variation.uniform(1.6, 2.6)
        x, y = variation.uniform(-0.8, 0.8), variation.uniform(-1.2, 1.2)
        color = paints[number]
        glass_width, left = variation.uniform(0.45, 0.85), variation.uniform(-0.1, 0.1)
        bars = variation.integer(2, 5)

        def paint(texels: Texels, color=color, glass_width=glass_width, left=left, bars=bars) -> np.ndarray:
            colored = texels.filled(color)
            if texels.patch < 4:
                u = texels.u - 0.5 - left
                pane = (np.abs(u) < glass_width / 2) & (np.abs(texels.v - 0.48) < 0.33)
                colored[pane] = style.glass
                colored[pane & (texels.v < 0.5 + u)] = shade(style.glass, 1.3)
                colored[pane & patterns.stripes(u / glass_width * bars + 0 * texels.v, 1.0, 0.1)] = style.frame
            return colored

        assembly.add(box(depth, width, height).moved(x, y, base + height / 2), paint)
        assembly.add(box(depth + 0.3, width + 0.3, 0.2).moved(x, y, base + height), style.frame)
        base += height + 0.1
    if variation.chance(0.5):
        pool = box(1.6, 3.4, 0.25).moved(3.2, 0, 0.12)
        assembly.add(pool, patterns.framed(lambda texels: texels.filled((0.2, 0.65, 0.85)), (0.85, 0.85, 0.85), 0.2))
    else:
        _add_garden(assembly, variation, style, 4.6, 6.0)


def _add_hut(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Round, under thatch: a hut, a yurt or a mushroom house."""
    radius, height = variation.uniform(1.6, 2.6), variation.uniform(1.4, 2.4)
    bulge = variation.uniform(0.9, 1.2)
    facade = Facade((4, 4), 1, (0.3, 0.42), True, 0.0, False)
    girth = 2 * np.pi * radius

    def paint(texels: Texels) -> np.ndarray:
        a = np.arctan2(texels.y, texels.x) / (2 * np.pi) * girth
        colored = style.wall(a, texels.z)
        _paint_openings(colored, a, texels.z, style, facade, 5, girth, height, True)
        return colored

    assembly.add(lathe([(radius, 0), (radius * bulge, height * 0.5), (radius, height)], 28), paint, 60.0)
    eaves, rise = radius * variation.uniform(1.2, 1.6), variation.uniform(1.4, 3.0)
    form = variation.pick(["cone", "dome", "bell"])
    share = {"cone": 0.5, "dome": 0.78, "bell": 0.3}[form]
    roof = [
        (radius * 0.95, height - 0.15),
        (eaves, height - 0.25),
        (eaves * share, height + rise * 0.5),
        (0, height + rise),
    ]
    if form == "dome":
        roof.insert(3, (eaves * 0.45, height + rise * 0.85))
    cap = lathe(roof, 28)
    spots = patterns.bold_pattern(variation, "dots", (style.colors[2], (0.95, 0.93, 0.88), style.colors[1]), 2.6)
    if variation.chance(0.35):
        assembly.add(cap, lambda texels: spots(texels.x, texels.y), 50.0)
    else:
        assembly.add(cap, _roof_paint(style), 50.0)
    if variation.chance(0.5):
        pipe = cylinder(0.16, 1.3, segments=8).moved(radius * 0.4, radius * 0.3, height + rise * 0.7)
        assembly.add(pipe, style.frame)
    _add_garden(assembly, variation, style, 2 * radius, 2 * radius)


def _add_castle(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Walls with battlements between round towers."""
    size, wall = variation.uniform(4.0, 5.5), variation.uniform(1.8, 2.6)
    tower, radius = wall * variation.uniform(1.3, 2.0), variation.uniform(0.6, 0.95)
    main, second, accent = style.colors
    facade = Facade((3, 3), 1, (0.18, 0.4), True, 0.0, False)
    _add_body(assembly, style, facade, (size, size, wall))
    for side in (-1, 1):
        for place in np.linspace(-0.4, 0.4, 5) * size:
            assembly.add(box(0.25, 0.42, 0.45).moved(side * (size / 2 - 0.12), place, wall + 0.2), main)
            assembly.add(box(0.42, 0.25, 0.45).moved(place, side * (size / 2 - 0.12), wall + 0.2), main)
    pointed = variation.chance(0.65)
    for x in (-1, 1):
        for y in (-1, 1):
            place = (x * size / 2, y * size / 2)
            shaft = cylinder(radius, tower, segments=16).moved(*place, tower / 2)
            assembly.add(shaft, lambda texels: style.wall(texels.u * 2 * np.pi * radius + 0 * texels.x, texels.z))
            if pointed:
                cone = lathe([(radius * 1.25, tower), (0, tower + 2.0 * radius)], 16)
                assembly.add(cone.moved(*place), accent)
            else:
                assembly.add(cylinder(radius * 1.2, 0.5, segments=16).moved(*place, tower), second)
    keep = (size * 0.4, size * 0.4, tower * variation.uniform(1.1, 1.5))
    _add_body(assembly, style, Facade((2, 2), 3, (0.3, 0.45), True, None, False), keep)
    if variation.chance(0.6):
        _add_hip_roof(assembly, style, (keep[0], keep[1], variation.uniform(1.2, 2.2)), keep[2], overhang=0.2)
    else:
        assembly.add(box(keep[0] * 1.15, keep[1] * 1.15, 0.4).moved(z=keep[2]), second)
    if variation.chance(0.6):
        assembly.add(cylinder(0.05, 1.8, segments=6).moved(z=keep[2] + 2.2), style.frame)
        assembly.add(box(0.9, 0.05, 0.55).moved(0.45, 0, keep[2] + 2.8), accent)


def _add_row_of_houses(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Narrow houses side by side, each of another colour."""
    count = variation.integer(3, 4)
    main, second, accent = style.colors
    depth = variation.uniform(2.6, 3.6)
    faces = [main, second, accent, shade(main, 1.7)]
    roofs = [second, main, shade(second, 0.5), accent]
    edge = -0.5 * count * 1.9
    for number in range(count):
        width, height = 1.9, variation.uniform(3.2, 5.6)
        y = edge + (number + 0.5) * width
        color = faces[number]
        storeys = 2 if height < 4.2 else 3
        own = Style(
            lambda a, b, color=color: patterns.mixed(np.zeros(np.broadcast(a, b).shape), color, color),
            lambda a, b, color=roofs[number]: patterns.mixed(
                patterns.stripes(b + 0 * a, 0.5, 0.3), shade(color, 0.6), color
            ),
            style.glass, style.frame, variation.pick([style.door, roofs[number]]), style.colors,
        )  # fmt: skip
        _add_body(
            assembly,
            own,
            Facade((2, 2), storeys, (0.5, 0.55), False, 0.0, False),
            (depth, width * 0.99, height),
            (0, y),
        )
        gable = variation.pick(["across", "along", "flat"])
        if gable == "flat":
            assembly.add(box(depth + 0.2, width, 0.35).moved(0, y, height + 0.1), roofs[number])
        else:
            axis = "x" if gable == "across" else "y"
            _add_gable_roof(
                assembly, own, (depth, width, variation.uniform(0.9, 1.8)), height, (0, y), axis, overhang=0.02
            )


def _add_mill(assembly: Assembly, variation: Variation, style: Style) -> None:
    """A windmill with four sails towards +x."""
    radius, height = variation.uniform(1.4, 1.9), variation.uniform(3.6, 5.0)
    _, second, accent = style.colors
    sides = variation.pick([8, 24])
    top = radius * variation.uniform(0.6, 0.75)
    girth = 2 * np.pi * radius
    facade = Facade((5, 5), 2, (0.3, 0.4), False, 0.0, False)

    def paint(texels: Texels) -> np.ndarray:
        a = np.arctan2(texels.y, texels.x) / (2 * np.pi) * girth
        colored = style.wall(a, texels.z)
        _paint_openings(colored, a, texels.z, style, facade, 5, girth, height, True)
        return colored

    assembly.add(lathe([(radius, 0), (top, height)], sides).rotated("z", 180 / sides), paint, 20.0)
    assembly.add(lathe([(top * 1.15, height), (top * 0.9, height + 0.7), (0, height + 1.4)], sides), accent, 40.0)
    hub = (top + 0.55, 0.0, height + 0.4)
    assembly.add(cylinder(0.14, 1.2, segments=10).rotated("y", 90).moved(hub[0] - 0.4, 0, hub[2]), style.frame)
    length, width = variation.uniform(2.3, 3.0), variation.uniform(0.6, 0.95)
    turn = variation.uniform(0, 90)
    cloth = variation.pick([second, (0.93, 0.9, 0.8), accent])
    for number in range(4):
        angle = turn + 90 * number
        spar = box(0.08, 0.12, length).moved(0, 0, length / 2).rotated("x", angle).moved(*hub)
        assembly.add(spar, style.frame)
        sail = box(0.05, width, length * 0.78).moved(0, width / 2, length * 0.6).rotated("x", angle).moved(*hub)
        assembly.add(
            sail,
            lambda texels: patterns.mixed(
                patterns.stripes(texels.v + 0 * texels.x, 0.2, 0.22) | (np.abs(texels.u - 0.5) > 0.42),
                style.frame,
                cloth,
            ),
        )
    if variation.chance(0.4):
        _add_garden(assembly, variation, style, 2 * radius, 2 * radius)


def _add_pagoda(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Storeys that shrink upwards under swept roofs."""
    sides = variation.pick([4, 4, 6, 8])
    storeys = variation.integer(2, 5)
    radius, base = variation.uniform(2.0, 2.6), 0.3
    turn = 180 / sides
    main, second, accent = style.colors
    assembly.add(
        lathe([(radius * 1.25, 0), (radius * 1.25, 0.3), (0, 0.3)], sides).rotated("z", turn), style.frame, 20.0
    )
    shrink = variation.uniform(0.74, 0.9)
    height = variation.uniform(1.1, 1.6)
    for _ in range(storeys):
        girth = 2 * sides * radius * np.sin(np.pi / sides)

        def paint(texels: Texels, base=base, girth=girth, height=height) -> np.ndarray:
            a = (texels.u * sides) % 1.0 + 0 * texels.x
            colored = texels.filled(main)
            opening = (np.abs(a - 0.5) < 0.22) & (np.abs(texels.v - 0.45) < 0.32)
            colored[opening] = style.glass
            colored[opening & patterns.stripes(a, 0.11, 0.3)] = style.frame
            colored[(np.minimum(a, 1 - a) < 0.07) | (texels.v > 0.88)] = second
            return colored

        walls = lathe([(radius, base), (radius, base + height)], sides).rotated("z", turn)
        assembly.add(walls, paint, 20.0)
        eaves = radius * variation.uniform(1.4, 1.6)
        top = base + height
        roof = lathe(
            [(radius, top - 0.12), (eaves, top), (eaves * 0.72, top + 0.2), (radius * shrink * 0.9, top + 0.75)], sides
        )
        assembly.add(roof.rotated("z", turn), _roof_paint(style), 20.0)
        base, radius, height = top + 0.7, radius * shrink, height * 0.94
    tip = lathe([(radius * 1.1, base - 0.1), (0.12, base + 0.4), (0.2, base + 0.7), (0, base + 1.3)], sides)
    assembly.add(tip.rotated("z", turn), accent)


def _add_greenhouse(assembly: Assembly, variation: Variation, style: Style) -> None:
    """Panes in frames over rows of plants, on a brick base."""
    depth, width = variation.uniform(3.2, 4.4), variation.uniform(5.0, 7.0)
    base, height, rise = variation.uniform(0.6, 1.0), variation.uniform(1.6, 2.4), variation.uniform(0.9, 1.8)
    assembly.add(box(depth, width, base).moved(z=base / 2), lambda texels: style.wall(texels.x + texels.y, texels.z))
    plants = patterns.random_waves(variation)
    leaf = variation.pick([(0.2, 0.5, 0.2), (0.45, 0.62, 0.2), (0.3, 0.45, 0.3)])
    bloom = style.colors[2]

    def panes(texels: Texels) -> np.ndarray:
        a = texels.y if texels.patch < 2 else texels.x
        b = texels.z - base
        colored = texels.filled(style.glass)
        field = patterns.blotches(a, b, 1.6, plants)
        colored[b < height * (0.5 + 0.2 * field)] = leaf
        colored[(b < height * (0.45 + 0.2 * field)) & (patterns.blotches(b, a, 0.8, plants) > 0.7)] = bloom
        colored[patterns.stripes(a + 10, width / 8, 0.14) | (np.abs(b - height) < 0.1)] = style.frame
        return colored

    assembly.add(box(depth, width, height).moved(z=base + height / 2), panes)
    round_top = variation.chance(0.4)
    turn = np.radians(np.linspace(0, 180, 13 if round_top else 3))
    line = np.stack([depth / 2 * np.cos(turn), base + height + rise * np.sin(turn)], -1)
    grid = np.array([[(x, -width / 2, z), (x, width / 2, z)] for x, z in line])

    def roof(texels: Texels) -> np.ndarray:
        colored = texels.filled(shade(style.glass, 1.3))
        bars = patterns.stripes(texels.y + 10, width / 8, 0.16) | patterns.stripes(texels.v + 0 * texels.x, 0.25, 0.1)
        colored[bars] = style.frame
        return colored

    assembly.add(Shape((grid,)), roof, 50.0)
    outline = [(x, z) for x, z in line]
    for side in (-1, 1):
        end = prism(outline, 0.06).rotated("x", 90).moved(y=side * (width / 2 - 0.03))
        assembly.add(end, style.glass if variation.chance(0.5) else style.frame)
    door = box(0.1, 1.0, base + height * 0.75).moved(depth / 2 + 0.02, 0, (base + height * 0.75) / 2)
    assembly.add(door, patterns.framed(lambda texels: texels.filled(style.glass), style.door, 0.18))
    if variation.chance(0.6):
        pipe = [
            (0, -width / 2 - 0.1, base),
            (0, -width / 2 - 0.6, base + 0.2),
            (0, -width / 2 - 0.6, base + height + rise),
        ]
        assembly.add(tube(pipe, 0.14, 8), style.colors[2])
