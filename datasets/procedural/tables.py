"""Tables and desks: a top worth looking at, what carries it, and sometimes what stands on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.shapes import (
    Shape,
    arc,
    box,
    cylinder,
    lathe,
    loft,
    prism,
    rounded_box,
    smooth_curve,
    sphere,
    tube,
)
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

KINDS = ("legs", "pedestal", "desk", "cloth", "trestle", "coffee", "picnic", "sideboard", "legs", "games", "dressing",
         "nightstand", "slab", "cloth", "workbench")  # fmt: skip


@dataclass(frozen=True)
class Finish:
    """The materials of one table.

    Attributes:
        top: paint of the top, from plan coordinates.
        body: colour of what carries it.
        trim: colour of edges, handles and feet.
        colors: the palette behind them.
    """

    top: Callable[[Texels], np.ndarray]
    body: Color
    trim: Color
    colors: tuple[Color, Color, Color]


def build(variation: Variation) -> Assembly:
    """One table, under two metres long, its front towards +x, its feet on z = 0."""
    assembly = Assembly()
    builders = {
        "legs": _add_four_legged_table,
        "pedestal": _add_pedestal_table,
        "desk": _add_desk,
        "cloth": _add_clothed_table,
        "trestle": _add_trestle_table,
        "coffee": _add_coffee_table,
        "picnic": _add_picnic_table,
        "sideboard": _add_sideboard,
        "games": _add_games_table,
        "dressing": _add_dressing_table,
        "nightstand": _add_nightstand,
        "slab": _add_slab_table,
        "workbench": _add_workbench,
    }
    builders[variation.kind](assembly, variation, _finish(variation))
    return assembly


def _finish(variation: Variation) -> Finish:
    colors = variation.palette()
    main, second, accent = colors
    style = variation.spread_pick("pattern", ("wood", "planks", "marble", *patterns.BOLD_PATTERNS))
    waves = patterns.random_waves(variation)
    grain = variation.wood()
    plank = variation.uniform(0.12, 0.22)
    bold = patterns.bold_pattern(variation, style, colors, variation.uniform(0.5, 1.0))
    wood = patterns.wood_grain(grain, waves, 0.13)

    def top(texels: Texels) -> np.ndarray:
        # The edge takes the colours of the top above it.
        x, y = texels.x, texels.y
        if style == "wood":
            return wood(y, x)
        if style == "planks":
            colored = patterns.mixed(patterns.stripes(x, 2 * plank), main, second)
            colored[patterns.stripes(x, plank, 0.12)] = shade(main, 0.35)
            return colored
        if style == "marble":
            veins = np.abs(patterns.blotches(x, y, 0.55, waves))
            return patterns.mixed(veins < 0.16, second, main)
        return bold(y, x)

    body = variation.spread_pick(
        "material", [second, variation.wood()[0], accent, variation.metal(), shade(main, 0.55)]
    )
    return Finish(top, body, variation.pick([accent, second, variation.metal()]), colors)


# Parts ----------------------------------------------------------------------------------------------------------------


def _outline(variation: Variation, form: str, depth: float, width: float) -> np.ndarray:
    """``[n, 2]`` corners of a table top in plan, anti-clockwise."""
    if form == "round":
        corners = arc(0.5, 0, 360, 29)[:-1]
    elif form == "rounded":
        turn = np.radians(np.linspace(0, 360, 33)[:-1])
        power = 0.45
        corners = 0.5 * np.stack([np.sign(f(turn)) * np.abs(f(turn)) ** power for f in (np.cos, np.sin)], -1)
    elif form == "facets":
        corners = arc(0.5, 22.5, 382.5, variation.pick([6, 8]) + 1)[:-1]
    elif form == "bean":
        turn = np.linspace(0, 2 * np.pi, 33)[:-1]
        lobes, depth_of_lobes, phase = variation.pick([2, 3]), 0.12, variation.uniform(0, 6.28)
        corners = (0.42 + depth_of_lobes * 0.5 * np.sin(lobes * turn + phase))[:, None] * np.stack(
            [np.cos(turn), np.sin(turn)], -1
        )
    else:
        corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    return corners * (depth, width)


def _add_top(
    assembly: Assembly, finish: Finish, outline: np.ndarray, height: float, thickness: float, edged: bool
) -> None:
    """A top whose upper face lies at ``height``."""

    def paint(texels: Texels) -> np.ndarray:
        if texels.patch == 0 and edged:
            return texels.filled(finish.trim)
        colored = finish.top(texels)
        if texels.patch == 1 and edged:
            colored[np.broadcast_to(texels.v < 0.1, texels.x.shape)] = finish.trim
        return colored

    assembly.add(prism(outline, thickness).moved(z=height - thickness / 2), paint)


def _add_legs(
    assembly: Assembly, variation: Variation, finish: Finish, reach: tuple[float, float], height: float
) -> None:
    """Four legs at ``(+-reach[0], +-reach[1])`` up to ``height``."""
    style = variation.spread_pick("form", ["square", "round", "taper", "splay", "turned", "hairpin"])
    thick = variation.uniform(0.035, 0.07)
    splay = 0.12 if style in ("splay", "hairpin") else 0.0
    turned = np.array([(0.6, 0), (0.9, 0.05), (0.55, 0.2), (0.8, 0.4), (1.1, 0.6), (0.6, 0.72), (1.0, 0.8), (1.0, 1.0)])
    for side_x in (-1, 1):
        for side_y in (-1, 1):
            head = np.array([side_x * (reach[0] - 0.5 * splay), side_y * (reach[1] - 0.5 * splay), height])
            foot = np.array([side_x * (reach[0] + 0.3 * splay), side_y * (reach[1] + 0.3 * splay), 0.0])
            if style == "square":
                assembly.add(box(2 * thick, 2 * thick, height).moved(head[0], head[1], height / 2), finish.body)
            elif style == "turned":
                leg = lathe(smooth_curve(turned, 22) * (thick, height), 12).moved(head[0], head[1])
                assembly.add(leg, finish.body)
            elif style == "hairpin":
                for shift in (-0.09, 0.09):
                    assembly.add(tube([head + np.array([shift, 0, 0]), foot], 0.022, 6), finish.body)
            else:
                sizes = {"round": (1.0, 1.0), "taper": (0.5, 1.1), "splay": (0.55, 1.0)}[style]
                leg = tube([foot, head], [thick * sizes[0], thick * sizes[1]], 10)
                assembly.add(leg, finish.body)


def _drawers(finish: Finish, columns: int, rows: int, face: Color, center_y: float = 0.0):
    """Painter of a box whose front (+x) is divided into drawers with knobs."""

    def paint(texels: Texels) -> np.ndarray:
        colored = texels.filled(finish.body)
        if texels.patch == 0:
            across = (texels.u * columns) % 1.0 - 0.5 + 0 * texels.x
            up = (texels.v * rows) % 1.0 - 0.5 + 0 * texels.x
            colored[(np.abs(across) < 0.45) & (np.abs(up) < 0.43)] = face
            cell = np.array([texels.size[0] / columns, texels.size[1] / rows])
            colored[np.hypot(across * cell[0], up * cell[1]) < 0.14 * cell.min() + 0.008] = finish.trim
        elif texels.patch == 1:
            colored[(np.abs(texels.u - 0.5) < 0.44) & (np.abs(texels.v - 0.5) < 0.42)] = shade(finish.body, 0.8)
        return colored

    return paint


def _add_objects(
    assembly: Assembly, variation: Variation, finish: Finish, height: float, room: tuple[float, float]
) -> None:
    """Something on the table: a vase, books, a bowl of fruit, a cake, a plant, plates."""
    main, second, accent = finish.colors
    count = variation.pick([0, 1, 1, 2])
    for number in range(count):
        x = variation.uniform(-0.25, 0.25) * room[0]
        y = (number - 0.5 * (count - 1)) * 0.55 * room[1] + variation.uniform(-0.08, 0.08) * room[1]
        thing = variation.pick(["vase", "books", "fruit", "cake", "plant", "plates"])
        if thing == "vase":
            size = variation.uniform(0.1, 0.16)
            profile = smooth_curve([(0.5, 0), (1.0, 0.9), (0.7, 1.9), (0.35, 2.3), (0.55, 2.7)], 14) * size
            pattern = patterns.bold_pattern(variation, "bands", (accent, second, main), 3 * size)
            vase = lathe([(0, 0), *profile], 16).moved(x, y, height)
            assembly.add(vase, patterns.projected(pattern, "xz", (0, height)))
        elif thing == "books":
            level = height
            for _ in range(variation.integer(2, 4)):
                thick = variation.uniform(0.04, 0.08)
                book = box(0.22, 0.3, thick).rotated("z", variation.uniform(-30, 30)).moved(x, y, level + thick / 2)
                assembly.add(book, variation.pick([main, second, accent, (0.75, 0.15, 0.12), (0.1, 0.3, 0.5)]))
                level += thick
        elif thing == "fruit":
            bowl = lathe([(0, 0), (0.08, 0), (0.2, 0.1), (0.18, 0.1), (0, 0.04)], 18)
            assembly.add(bowl.moved(x, y, height), second)
            for angle in (0.3, 2.4, 4.5):
                fruit = sphere(0.075, 10).moved(x + 0.09 * np.cos(angle), y + 0.09 * np.sin(angle), height + 0.12)
                assembly.add(fruit, variation.pick([(0.85, 0.12, 0.1), (0.95, 0.6, 0.08), (0.45, 0.7, 0.15)]))
        elif thing == "cake":
            radius = variation.uniform(0.13, 0.2)
            cake = cylinder(radius, 0.16, segments=20).moved(x, y, height + 0.08)
            icing, crumb = variation.pick([accent, (0.95, 0.6, 0.7), (0.4, 0.22, 0.12)]), (0.85, 0.7, 0.45)
            assembly.add(
                cake,
                lambda texels, icing=icing, crumb=crumb: patterns.mixed(
                    texels.z > height + 0.09 + 0.02 * np.sin(80 * texels.x), icing, crumb
                ),
            )
        elif thing == "plant":
            assembly.add(cylinder(0.09, 0.16, 0.12, 14).moved(x, y, height + 0.08), accent)
            green = variation.pick([(0.12, 0.42, 0.15), (0.35, 0.6, 0.2), (0.1, 0.3, 0.2)])
            for angle in np.linspace(0, 5.2, 6):
                leaf = sphere(1.0, 8).scaled(0.05, 0.09, 0.2).rotated("y", 28).rotated("z", np.degrees(angle))
                assembly.add(leaf.moved(x + 0.1 * np.cos(angle), y + 0.1 * np.sin(angle), height + 0.32), green)
        else:
            for side in (-1, 1):
                plate = lathe([(0, 0), (0.09, 0), (0.15, 0.03), (0.09, 0.015), (0, 0.015)], 20)
                place = plate.moved(side * 0.28 * room[0], y, height)
                assembly.add(place, lambda texels: patterns.mixed(texels.row > 2.5, (0.95, 0.95, 0.93), accent))


# Kinds ----------------------------------------------------------------------------------------------------------------


def _add_four_legged_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    form = variation.pick(["square", "square", "rounded", "round", "facets"])
    width = variation.uniform(0.9, 1.7)
    depth = width * (variation.uniform(0.85, 1.0) if form in ("round", "facets") else variation.uniform(0.5, 1.0))
    height, thickness = variation.uniform(0.6, 0.9), variation.uniform(0.05, 0.11)
    _add_top(assembly, finish, _outline(variation, form, depth, width), height, thickness, variation.chance(0.5))
    inset = 0.32 if form in ("round", "facets", "rounded") else 0.42
    reach = (depth * inset, width * inset)
    _add_legs(assembly, variation, finish, reach, height - thickness)
    if variation.chance(0.6):
        apron = variation.uniform(0.08, 0.16)
        frame = box(2 * reach[0], 2 * reach[1], apron).moved(z=height - thickness - apron / 2)
        assembly.add(frame, _drawers(finish, variation.integer(1, 3), 1, finish.colors[0]))
    if variation.chance(0.25):
        assembly.add(box(2 * reach[0], 2 * reach[1], 0.05).moved(z=height * 0.28), finish.body)
    _add_objects(assembly, variation, finish, height, (depth, width))


def _add_pedestal_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    form = variation.pick(["round", "round", "rounded", "facets", "square"])
    width = variation.uniform(0.9, 1.4)
    height, thickness = variation.uniform(0.65, 1.0), variation.uniform(0.05, 0.1)
    _add_top(assembly, finish, _outline(variation, form, width * variation.uniform(0.75, 1), width), height, thickness,
             variation.chance(0.5))  # fmt: skip
    stem = variation.pick(["tulip", "column", "barrel", "claw"])
    top = height - thickness
    if stem == "tulip":
        profile = smooth_curve([(0.36, 0), (0.3, 0.03), (0.08, 0.2), (0.07, 0.5 * top), (0.22, top)], 16)
        assembly.add(lathe([(0, 0), *profile], 22), finish.body)
    elif stem == "column":
        turned = smooth_curve([(0.14, 0.08), (0.08, 0.2), (0.13, 0.4), (0.06, 0.6), (0.1, top)], 18)
        assembly.add(lathe(turned, 16), finish.body)
        assembly.add(prism(_outline(variation, form, 0.7, 0.7), 0.08).moved(z=0.04), finish.trim)
    elif stem == "barrel":
        profile = smooth_curve([(0.24, 0), (0.34, top / 2), (0.24, top)], 11)

        def staves(texels: Texels) -> np.ndarray:
            colored = patterns.mixed(patterns.stripes(texels.u + 0 * texels.x, 1 / 14, 0.12), shade(finish.body, 0.5),
                                     finish.body)  # fmt: skip
            colored[np.broadcast_to(np.abs(np.abs(texels.v - 0.5) - 0.28) < 0.05, texels.x.shape)] = finish.trim
            return colored

        assembly.add(lathe(profile, 24), staves, 50.0)
    else:
        assembly.add(cylinder(0.1, top - 0.2, 0.07, 14).moved(z=0.2 + (top - 0.2) / 2), finish.body)
        for number in range(variation.pick([3, 4])):
            angle = number * 2 * np.pi / 3 + 0.5
            path = smooth_curve([(0, 0.3), (0.2, 0.26), (0.36, 0.1), (0.46, 0.03)], 8)
            points = np.stack([path[:, 0] * np.cos(angle), path[:, 0] * np.sin(angle), path[:, 1]], -1)
            assembly.add(tube(points, np.linspace(0.07, 0.04, 8), 8), finish.body)
    _add_objects(assembly, variation, finish, height, (width * 0.7, width * 0.7))


def _add_desk(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    width, depth = variation.uniform(1.2, 1.6), variation.uniform(0.6, 0.8)
    height, thickness = variation.uniform(0.7, 0.8), variation.uniform(0.05, 0.08)
    _add_top(assembly, finish, _outline(variation, "square", depth, width), height, thickness, variation.chance(0.5))
    both = variation.chance(0.5)
    body = width * variation.uniform(0.28, 0.36)
    rows = variation.integer(2, 4)
    low = variation.pick([0.0, 0.1])
    top = height - thickness
    for side in (-1, 1) if both else (1,):
        cabinet = box(depth * 0.92, body, top - low).moved(0, side * (width - body) / 2 * 0.96, 0.5 * (top + low))
        assembly.add(cabinet, _drawers(finish, 1, rows, finish.colors[1]))
    if not both:
        assembly.add(box(depth * 0.92, 0.07, top).moved(0, -width / 2 + 0.06, top / 2), finish.body)
    panel_height = variation.uniform(0.25, 0.6)
    assembly.add(box(0.05, width * 0.92, panel_height).moved(-depth * 0.4, 0, top - panel_height / 2), finish.trim)
    extra = variation.pick(["computer", "shelf", "lamp", "none"])
    if extra == "computer":
        size = variation.uniform(0.4, 0.65)
        screen = rounded_box(0.05, size, size * 0.62, 0.02, 1).moved(-0.12, 0, height + 0.1 + size * 0.31)
        glow = variation.pick([(0.15, 0.5, 0.85), (0.1, 0.12, 0.15), (0.85, 0.9, 0.95), finish.colors[2]])
        blank = patterns.framed(lambda texels: texels.filled(glow), (0.1, 0.1, 0.12), 0.03)
        assembly.add(screen, patterns.on_sides((0.1, 0.1, 0.12), front=blank))
        assembly.add(box(0.05, 0.08, 0.14).moved(-0.14, 0, height + 0.05), (0.1, 0.1, 0.12))
        assembly.add(box(0.13, 0.38, 0.03).moved(0.16, 0, height + 0.015), (0.85, 0.85, 0.87))
    elif extra == "shelf":
        rise = variation.uniform(0.3, 0.5)
        cells = variation.integer(2, 4)
        hutch = box(0.26, width, rise).moved(-depth / 2 + 0.13, 0, height + rise / 2)
        assembly.add(hutch, _drawers(finish, cells, variation.integer(1, 2), shade(finish.colors[0], 0.5)))
    elif extra == "lamp":
        assembly.add(cylinder(0.02, 0.3, segments=8).moved(-0.1, -0.4, height + 0.15), finish.trim)
        assembly.add(lathe([(0.18, 0), (0.09, 0.2), (0, 0.2)], 18).moved(-0.1, -0.4, height + 0.24), finish.colors[2])
        _add_objects(assembly, variation, finish, height, (depth * 0.6, width * 0.4))


def _add_clothed_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """A cloth that hangs in folds, down to the floor or halfway."""
    form = variation.pick(["round", "rounded"])
    width = variation.uniform(0.9, 1.5)
    depth = width * (1.0 if form == "round" else variation.uniform(0.6, 0.9))
    height = variation.uniform(0.6, 0.85)
    hem = variation.pick([0.02, height * 0.45, height * 0.65])
    turn = np.linspace(0, 2 * np.pi, 49)
    folds, depth_of_folds = variation.integer(6, 12), variation.uniform(0.03, 0.08)
    power = 1.0 if form == "round" else 0.5
    ring = 0.5 * np.stack([np.sign(f(turn)) * np.abs(f(turn)) ** power for f in (np.cos, np.sin)], -1) * (depth, width)
    ring[-1] = ring[0]
    wave = 1 + depth_of_folds * (1 + np.sin(folds * turn))[:, None] + 0.04
    wave[-1] = wave[0]
    levels = [(0.0, 1.0, height), (0.93, 1.0, height), (1.0, 1.0, height - 0.03)]
    rows = [np.concatenate([share * ring, np.full((49, 1), z)], 1) for share, _, z in levels]
    rows.append(np.concatenate([ring * (0.5 * (1 + wave)), np.full((49, 1), 0.5 * (height + hem))], 1))
    rows.append(np.concatenate([ring * wave, np.full((49, 1), hem)], 1))
    main, second, accent = finish.colors
    border = variation.pick([0.0, 0.06, 0.12])
    petals = variation.pick([0, 8, 12, 16])

    def paint(texels: Texels) -> np.ndarray:
        if petals:
            # Sectors from the middle, and rings round it.
            colored = patterns.mixed(
                patterns.stripes(texels.u * petals + 0 * texels.x, 2.0) ^ (texels.row > 2.6), second, main
            )
        else:
            colored = finish.top(texels)
        colored[texels.z < hem + border] = accent
        return colored

    assembly.add(Shape((np.stack(rows[::-1]),)), paint, 60.0)
    if hem > 0.1:
        _add_legs(assembly, variation, finish, (depth * 0.3, width * 0.3), height - 0.05)
    _add_objects(assembly, variation, finish, height, (depth * 0.7, width * 0.8))


def _add_trestle_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    width, depth = variation.uniform(1.3, 1.8), variation.uniform(0.6, 0.95)
    height, thickness = variation.uniform(0.68, 0.85), variation.uniform(0.06, 0.1)
    form = variation.pick(["square", "rounded"])
    _add_top(assembly, finish, _outline(variation, form, depth, width), height, thickness, variation.chance(0.5))
    top, spread = height - thickness, depth * 0.36
    style = variation.pick(["x", "a", "panel"])
    for side in (-1, 1):
        y = side * width * 0.33
        if style == "panel":
            outline = [(-spread, 0), (spread, 0), (spread * 0.8, top), (-spread * 0.8, top)]
            assembly.add(prism(outline, 0.08).rotated("x", 90).moved(y=y), finish.body)
            continue
        shift = spread if style == "x" else spread * 0.35
        for lean in (-1, 1):
            head = lean * (-shift if style == "x" else shift)
            assembly.add(tube([(lean * spread, y, 0), (head, y, top)], 0.045, 4), finish.body)
    assembly.add(box(0.07, width * 0.66, 0.12).moved(0, 0, top * 0.45), finish.trim)
    _add_objects(assembly, variation, finish, height, (depth, width))


def _add_coffee_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    form = variation.pick(["bean", "rounded", "round", "square", "facets"])
    width = variation.uniform(1.0, 1.4)
    depth = width * (1.0 if form in ("round", "facets") else variation.uniform(0.6, 0.9))
    height, thickness = variation.uniform(0.34, 0.48), variation.uniform(0.06, 0.14)
    outline = _outline(variation, form, depth, width)
    _add_top(assembly, finish, outline, height, thickness, variation.chance(0.4))
    base = variation.pick(["legs", "drum", "shelf", "blocks"])
    if base == "legs":
        _add_legs(assembly, variation, finish, (depth * 0.3, width * 0.3), height - thickness)
    elif base == "drum":
        assembly.add(prism(outline * 0.62, height - thickness).moved(z=(height - thickness) / 2), finish.body)
    elif base == "shelf":
        _add_legs(assembly, variation, finish, (depth * 0.3, width * 0.3), height - thickness)
        assembly.add(prism(outline * 0.8, 0.05).moved(z=0.12), finish.trim)
    else:
        for side in (-1, 1):
            block = box(depth * 0.55, width * 0.16, height - thickness).moved(
                0, side * width * 0.27, (height - thickness) / 2
            )
            assembly.add(block, finish.body)
    _add_objects(assembly, variation, finish, height, (depth * 0.7, width * 0.7))


def _add_picnic_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """Two benches that belong to it, sometimes a parasol."""
    width, height = variation.uniform(1.3, 1.6), 0.72
    bench = 0.42
    planks, top = variation.integer(4, 6), variation.uniform(0.65, 0.85)
    main, second, accent = finish.colors
    alternate = variation.pick([main, second, accent])
    for number, x in enumerate(np.linspace(-0.5, 0.5, planks) * (top - top / planks)):
        plank = box(top / planks * 0.9, width, 0.06).moved(x, 0, height)
        assembly.add(plank, finish.top if variation.chance(0.5) else (main, alternate)[number % 2])
    reach = top / 2 + 0.3
    for side in (-1, 1):
        assembly.add(box(0.28, width, 0.06).moved(side * reach, 0, bench), second)
        for y in (-0.34, 0.34):
            foot, head = (side * (reach - 0.02), y * width, 0), (side * top * 0.25, y * width, height)
            assembly.add(tube([foot, head], 0.05, 4), finish.body)
            assembly.add(box(2 * reach, 0.07, 0.08).moved(0, y * width, bench - 0.06), finish.body)
    if variation.chance(0.55):
        radius, level = variation.uniform(0.6, 0.85), variation.uniform(1.35, 1.55)
        assembly.add(cylinder(0.03, level, segments=8).moved(z=level / 2), finish.trim)
        sides = variation.pick([6, 8, 12])
        cover = lathe([(radius, level - 0.22), (0, level + 0.12)], sides)
        pie = variation.pick([accent, main])

        def sectors(texels: Texels) -> np.ndarray:
            return patterns.mixed(patterns.stripes(texels.u * sides + 0 * texels.x, 2.0), pie, second)

        assembly.add(cover, sectors, 10.0)
    else:
        _add_objects(assembly, variation, finish, height + 0.03, (0.4, width))


def _add_sideboard(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """A low cupboard on feet."""
    width, depth = variation.uniform(1.2, 1.7), variation.uniform(0.4, 0.6)
    foot, height = variation.uniform(0.08, 0.3), variation.uniform(0.65, 0.95)
    body = height - foot - 0.05
    cupboard = box(depth * 0.96, width * 0.98, body).moved(0, 0, foot + body / 2)
    pattern = patterns.bold_pattern(
        variation, variation.spread_pick("form", patterns.BOLD_PATTERNS), finish.colors, 0.8
    )
    drawers = _drawers(finish, variation.integer(2, 4), variation.integer(1, 3), finish.colors[1])
    patterned = variation.chance(0.4)

    def paint(texels: Texels) -> np.ndarray:
        colored = drawers(texels)
        if patterned and texels.patch != 0:
            return pattern(texels.x + texels.y, texels.z - height / 2)
        return colored

    assembly.add(cupboard, paint)
    _add_top(assembly, finish, _outline(variation, "square", depth, width), height, 0.06, variation.chance(0.5))
    for side_x in (-1, 1):
        for side_y in (-1, 1):
            leg = tube([(side_x * depth * 0.42, side_y * width * 0.45, 0),
                        (side_x * depth * 0.36, side_y * width * 0.4, foot + 0.02)], [0.025, 0.045], 8)  # fmt: skip
            assembly.add(leg, finish.trim)
    _add_objects(assembly, variation, finish, height, (depth * 0.6, width))


def _add_games_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """Billiards, table tennis, chess or an air-hockey table."""
    game = variation.pick(["billiards", "tennis", "chess", "hockey"])
    width, depth = (1.0, 1.0) if game == "chess" else (variation.uniform(1.5, 1.8), variation.uniform(0.85, 1.0))
    height = variation.uniform(0.62, 0.8)
    main, second, accent = finish.colors

    def field(texels: Texels) -> np.ndarray:
        x, y = texels.x, texels.y
        colored = texels.filled(main)
        if game == "tennis":
            lines = (np.abs(np.abs(x) - depth / 2 + 0.03) < 0.02) | (np.abs(np.abs(y) - width / 2 + 0.03) < 0.02)
            colored[lines | (np.abs(x) < 0.012)] = (0.95, 0.95, 0.95)
        elif game == "chess":
            board = np.maximum(np.abs(x), np.abs(y)) < 0.4
            colored = patterns.mixed(patterns.checks(x, y, 0.2), second, shade(second, 0.25))
            colored[~board] = main
        elif game == "hockey":
            circle = np.abs(np.hypot(x, y) - 0.2) < 0.03
            colored[circle | (np.abs(y) < 0.02)] = accent
            colored[np.abs(np.abs(y) - width / 4) < 0.02] = second
        return colored

    rim = variation.pick([finish.body, accent, second])
    thick = 0.06 if game == "tennis" else variation.uniform(0.1, 0.24)
    slab = box(depth, width, thick).moved(z=height - thick / 2)
    assembly.add(slab, patterns.on_sides(rim, top=field))
    if game in ("billiards", "hockey"):
        for side in (-1, 1):
            assembly.add(box(0.09, width, 0.07).moved(side * (depth / 2 - 0.045), 0, height + 0.03), rim)
            assembly.add(box(depth, 0.09, 0.07).moved(0, side * (width / 2 - 0.045), height + 0.03), rim)
    if game == "billiards":
        for x in (-1, 1):
            for y in (-1, 0, 1):
                pocket = cylinder(0.06, 0.08, segments=12)
                assembly.add(
                    pocket.moved(x * (depth / 2 - 0.06), y * (width / 2 - 0.06), height + 0.03), (0.05, 0.05, 0.05)
                )
        for _ in range(6):
            ball = sphere(0.035, 8)
            assembly.add(
                ball.moved(variation.uniform(-0.3, 0.3) * depth, variation.uniform(-0.4, 0.4) * width, height + 0.03),
                variation.pick([accent, second, (0.95, 0.95, 0.9), (0.9, 0.75, 0.1)]),
            )
    elif game == "tennis":
        assembly.add(box(depth * 1.04, 0.02, 0.13).moved(0, 0, height + 0.07), accent)
    elif game == "chess":
        for row, color in ((-1, (0.93, 0.9, 0.8)), (1, (0.12, 0.1, 0.1))):
            for column in np.linspace(-0.35, 0.35, 4):
                piece = lathe([(0, 0), (0.045, 0), (0.02, 0.06), (0.03, 0.12), (0, 0.17)], 8)
                assembly.add(piece.moved(column, row * 0.33, height), color)
    _add_legs(assembly, variation, finish, (depth * 0.4, width * 0.4), height - thick)


def _add_dressing_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """A small table with drawers and a mirror."""
    width, depth, height = variation.uniform(0.9, 1.2), variation.uniform(0.42, 0.55), variation.uniform(0.6, 0.75)
    _add_top(assembly, finish, _outline(variation, "square", depth, width), height, 0.05, True)
    apron = variation.uniform(0.14, 0.3)
    assembly.add(box(depth * 0.94, width * 0.95, apron).moved(0, 0, height - 0.05 - apron / 2),
                 _drawers(finish, variation.integer(2, 3), 1, finish.colors[1]))  # fmt: skip
    _add_legs(assembly, variation, finish, (depth * 0.4, width * 0.42), height - 0.05 - apron)
    radius = variation.uniform(0.24, 0.4)
    glass = variation.pick([(0.75, 0.86, 0.92), (0.6, 0.74, 0.84)])
    form = variation.pick(["round", "facets", "square", "rounded"])
    mirror = prism(_outline(variation, form, 2 * radius, 1.7 * radius), 0.05).rotated("y", -90).rotated("x", 180)
    frame = finish.trim

    def paint(texels: Texels) -> np.ndarray:
        if texels.patch == 0:
            return texels.filled(frame)
        colored = patterns.mixed(patterns.stripes(texels.y + texels.z, 0.7, 0.3), shade(glass, 1.5), glass)
        edge = texels.v > 0.8 if texels.patch == 2 else texels.v < 0.2
        colored[np.broadcast_to(edge, texels.x.shape)] = frame
        return colored

    assembly.add(box(0.05, 0.16, radius + 0.05).moved(-depth * 0.4, 0, height + radius / 2), frame)
    assembly.add(mirror.rotated("y", -6).moved(-depth * 0.36, 0, height + radius + 0.03), paint)
    stool = variation.uniform(0.16, 0.22)
    if variation.chance(0.6):
        assembly.add(cylinder(stool, 0.12, segments=18).moved(depth * 0.75, 0, 0.42), finish.colors[2])
        assembly.add(cylinder(stool * 0.5, 0.36, segments=12).moved(depth * 0.75, 0, 0.18), finish.body)


def _add_nightstand(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    width, depth, height = variation.uniform(0.5, 0.7), variation.uniform(0.42, 0.55), variation.uniform(0.55, 0.8)
    foot = variation.uniform(0.05, 0.25)
    body = height - foot - 0.05
    cabinet = box(depth * 0.95, width * 0.95, body).moved(0, 0, foot + body / 2)
    assembly.add(cabinet, _drawers(finish, 1, variation.integer(1, 4), finish.colors[1]))
    _add_top(assembly, finish, _outline(variation, "square", depth * 1.05, width * 1.05), height, 0.05, True)
    _add_legs(assembly, variation, finish, (depth * 0.38, width * 0.38), foot)
    _add_objects(assembly, variation, finish, height, (depth * 0.4, width * 0.5))


def _add_slab_table(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """One folded sheet, or a top on two or three upright slabs."""
    width, depth = variation.uniform(1.0, 1.7), variation.uniform(0.5, 0.9)
    height, thickness = variation.uniform(0.45, 0.8), variation.uniform(0.08, 0.16)
    if variation.chance(0.5):
        lean = variation.uniform(0.0, 0.12)
        upper = np.array([(-width / 2 - lean, 0), (-width / 2, height), (width / 2, height), (width / 2 + lean, 0)])
        inner = upper * (1 - 2 * thickness / width, 1)
        inner[1:3, 1] -= thickness
        # Cross-sections along the sheet: front edge, top, back edge, underside.
        rings = [
            [(depth / 2, y, z), (depth / 2, v, w), (-depth / 2, v, w), (-depth / 2, y, z), (depth / 2, y, z)]
            for (y, z), (v, w) in zip(inner, upper)
        ]
        assembly.add(loft(np.array(rings)), finish.top, 30.0)
        assembly.add(box(depth * 0.9, width * 0.9, 0.05).moved(z=height * 0.35), finish.body)
    else:
        _add_top(assembly, finish, _outline(variation, "square", depth, width), height, thickness, False)
        for y in np.linspace(-0.42, 0.42, variation.integer(2, 3)) * width:
            slab = box(depth * 0.9, thickness * 0.9, height - thickness).moved(0, y, (height - thickness) / 2)
            assembly.add(slab, finish.body)
    _add_objects(assembly, variation, finish, height, (depth, width))


def _add_workbench(assembly: Assembly, variation: Variation, finish: Finish) -> None:
    """A thick top, a lower shelf full of boxes, a board behind."""
    width, depth, height = variation.uniform(1.2, 1.6), variation.uniform(0.55, 0.75), variation.uniform(0.75, 0.9)
    _add_top(assembly, finish, _outline(variation, "square", depth, width), height, 0.12, False)
    reach = (depth * 0.42, width * 0.44)
    for x in (-1, 1):
        for y in (-1, 1):
            assembly.add(
                box(0.11, 0.11, height - 0.12).moved(x * reach[0], y * reach[1], (height - 0.12) / 2), finish.body
            )
    assembly.add(box(depth * 0.95, width * 0.95, 0.05).moved(z=0.2), finish.body)
    main, second, accent = finish.colors
    for y in np.linspace(-0.3, 0.3, variation.integer(2, 4)) * width:
        size = variation.uniform(0.18, 0.3)
        color = variation.pick([second, accent, main, (0.75, 0.55, 0.3)])
        crate = box(depth * 0.6, size, size).moved(0.04, y, 0.225 + size / 2)
        assembly.add(crate, patterns.framed(lambda texels, color=color: texels.filled(color), shade(color, 0.5), 0.03))
    if variation.chance(0.7):
        rise = variation.uniform(0.35, 0.65)
        board = box(0.05, width, rise).moved(-depth / 2 + 0.03, 0, height + rise / 2)
        tools = patterns.random_waves(variation)

        def pegs(texels: Texels) -> np.ndarray:
            colored = texels.filled(second)
            slot = np.floor((texels.y + width / 2) / width * 6)
            drop = 0.55 + 0.35 * np.sin(tools[1, 2] + 2.3 * slot)
            near = np.abs((texels.y + width / 2) / width * 6 % 1.0 - 0.5) < 0.16
            colored[near & (texels.v > 1 - drop * 0.9) & (texels.v < 0.88)] = accent
            return colored

        assembly.add(board, pegs)
    vice = box(0.16, 0.2, 0.14).moved(depth / 2, -width * 0.3, height - 0.05)
    assembly.add(vice, finish.trim)
