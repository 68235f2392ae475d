"""Aeroplanes with stout bodies: airliners, propeller planes, biplanes, jets, seaplanes and gliders."""

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
    rounded_box,
    smooth_curve,
    sphere,
    tube,
)
from fusedplanes.datasets.procedural.variation import Color, Variation, shade

KINDS = ("airliner", "propeller", "fighter", "biplane", "jumbo", "seaplane", "delta", "bush", "twin", "cargo", "racer",
         "stealth", "toy")  # fmt: skip

DARK: Color = (0.08, 0.08, 0.10)
STEEL: Color = (0.62, 0.65, 0.70)


@dataclass(frozen=True)
class AirplanePlan:
    """Proportions; the fuselage is 1 long, its nose at x = 0.5.

    Attributes:
        width: of the fuselage.
        height: of the fuselage, relative to its width.
        nose: roundness of the nose: share of the length over which it widens.
        tail: share of the length over which it narrows.
        span: wing tip to wing tip.
        chord: of the wing at its root.
        taper: chord at the tip relative to the root.
        sweep: how far the tip lies behind the root.
        wing_at: x of the wing root's leading edge.
        wing_level: height of the wing, -1 at the belly and 1 at the back.
        engines: "nose", "wing propellers", "pods", "tail jets" or "inside".
        count: of engines on each wing.
    """

    width: float
    height: float
    nose: float
    tail: float
    span: float
    chord: float
    taper: float
    sweep: float
    wing_at: float
    wing_level: float
    engines: str
    count: int = 1


PLANS = {
    "airliner": AirplanePlan(0.18, 1.05, 0.16, 0.35, 0.95, 0.27, 0.35, 0.24, 0.16, -0.6, "pods"),
    "jumbo": AirplanePlan(0.21, 1.2, 0.14, 0.32, 1.05, 0.30, 0.35, 0.26, 0.18, -0.6, "pods", 2),
    "propeller": AirplanePlan(0.19, 1.1, 0.22, 0.55, 0.98, 0.22, 0.8, 0.02, 0.22, -0.7, "nose"),
    "bush": AirplanePlan(0.18, 1.2, 0.18, 0.60, 1.05, 0.21, 0.95, 0.0, 0.24, 0.95, "nose"),
    "biplane": AirplanePlan(0.19, 1.05, 0.12, 0.60, 0.92, 0.20, 0.95, 0.02, 0.28, -0.8, "nose"),
    "seaplane": AirplanePlan(0.19, 1.1, 0.18, 0.55, 1.05, 0.21, 0.8, 0.0, 0.22, 0.95, "wing propellers"),
    "twin": AirplanePlan(0.17, 1.05, 0.22, 0.45, 1.02, 0.22, 0.6, 0.04, 0.18, -0.6, "wing propellers"),
    "cargo": AirplanePlan(0.22, 1.1, 0.15, 0.40, 1.08, 0.23, 0.6, 0.06, 0.16, 0.9, "wing propellers", 2),
    "fighter": AirplanePlan(0.19, 1.0, 0.40, 0.12, 0.84, 0.42, 0.25, 0.30, 0.12, 0.0, "inside"),
    "delta": AirplanePlan(0.18, 1.1, 0.42, 0.15, 0.84, 0.62, 0.08, 0.55, 0.15, -0.3, "inside"),
    "racer": AirplanePlan(0.17, 1.0, 0.25, 0.45, 0.80, 0.24, 0.4, -0.06, 0.16, -0.5, "tail jets"),
    "stealth": AirplanePlan(0.20, 0.6, 0.45, 0.30, 1.15, 0.66, 0.15, 0.52, 0.34, 0.0, "inside"),
    "toy": AirplanePlan(0.28, 1.05, 0.25, 0.50, 0.95, 0.28, 0.85, 0.02, 0.22, -0.3, "nose"),
}

LIVERIES = ("cheat line", "bold", "belly", "tail block", "nose block", "bold", "plain", "halves", "bold")


@dataclass(frozen=True)
class Livery:
    """How one aeroplane is painted.

    Attributes:
        body: paint of the fuselage.
        wing: paint of wings and tailplane.
        fin: paint of the fin.
        glass: colour of the windows.
        colors: the palette behind them.
    """

    body: Callable[[Texels], np.ndarray]
    wing: Callable[[Texels], np.ndarray]
    fin: Callable[[Texels], np.ndarray]
    glass: Color
    colors: tuple[Color, Color, Color]


def build(variation: Variation) -> Assembly:
    """One aeroplane, its fuselage about 1 long, its nose towards +x."""
    assembly = Assembly()
    kind = variation.kind
    plan = _proportioned(PLANS[kind], variation)
    livery = _livery(variation, kind, plan)
    fuselage = Fuselage(plan)
    if kind != "stealth":
        assembly.add(fuselage.shape(), livery.body, 60.0)
    _add_wings(assembly, variation, kind, plan, fuselage, livery)
    _add_tail(assembly, variation, kind, plan, fuselage, livery)
    _add_engines(assembly, variation, kind, plan, fuselage, livery)
    _add_cockpit(assembly, variation, kind, plan, fuselage, livery)
    _add_gear(assembly, variation, kind, plan, fuselage, livery)
    return assembly


def _proportioned(plan: AirplanePlan, variation: Variation) -> AirplanePlan:
    """The plan with proportions of its own."""
    return AirplanePlan(
        width=plan.width * variation.uniform(1.0, 1.5),
        height=plan.height * variation.uniform(0.92, 1.12),
        nose=plan.nose * variation.uniform(0.8, 1.2),
        tail=plan.tail * variation.uniform(0.85, 1.15),
        span=plan.span * variation.uniform(0.82, 1.12),
        chord=plan.chord * variation.uniform(1.0, 1.55),
        taper=min(plan.taper * variation.uniform(0.7, 1.3), 1.0),
        sweep=plan.sweep + variation.uniform(-0.05, 0.05),
        wing_at=plan.wing_at + variation.uniform(-0.04, 0.04),
        wing_level=plan.wing_level,
        engines=plan.engines,
        count=plan.count,
    )


def _livery(variation: Variation, kind: str, plan: AirplanePlan) -> Livery:
    colors = main, second, accent = variation.palette()
    style = variation.spread_pick("pattern", LIVERIES)
    bold = patterns.bold_pattern(
        variation, variation.pick(patterns.BOLD_PATTERNS[2:8]), colors, variation.uniform(0.4, 0.6)
    )
    glass = variation.pick([DARK, (0.15, 0.25, 0.4), (0.55, 0.75, 0.85)])
    split = variation.uniform(-0.2, 0.2)
    lean = variation.uniform(-1.0, 1.0)
    portholes = kind in ("airliner", "jumbo", "cargo", "twin", "racer")
    half_height = 0.5 * plan.width * plan.height
    pitch = 0.045

    def body(texels: Texels) -> np.ndarray:
        x, y, z = texels.x, texels.y, texels.z
        colored = texels.filled(main)
        if style == "cheat line":
            colored[z < -0.35 * half_height] = second
            colored[np.abs(z + 0.2 * half_height) < 0.22 * half_height] = accent
        elif style == "bold":
            colored = bold(x, z + np.abs(y))
        elif style == "belly":
            colored[z < -0.1 * half_height + 0.25 * x] = second
        elif style == "tail block":
            colored[x + lean * z < split - 0.1] = second
            colored[np.abs(x + lean * z - split + 0.1) < 0.03] = accent
        elif style == "nose block":
            colored[x > 0.24] = second
            colored[np.abs(x - 0.1) < 0.04] = accent
        elif style == "halves":
            colored[x + lean * z < split] = second
        if portholes:
            row = (np.abs(z - 0.28 * half_height) < 0.13 * half_height) & (np.abs(x) < 0.34)
            colored[row & patterns.stripes(x, pitch, 0.55)] = glass
            if kind == "jumbo":
                upper = (np.abs(z - 0.66 * half_height) < 0.09 * half_height) & (x > 0.0) & (x < 0.34)
                colored[upper & patterns.stripes(x, pitch, 0.55)] = glass
        return colored

    wing_style = variation.spread_pick(
        "material", ("second", "tips", "stripes", "main", "bold", "roundels", "edge", "accent")
    )
    half_span = plan.span / 2

    def wing(texels: Texels) -> np.ndarray:
        x, across = texels.x, np.abs(texels.y)
        colored = texels.filled(second if wing_style in ("second", "roundels", "edge") else main)
        if wing_style == "accent":
            colored = texels.filled(accent)
        elif wing_style == "tips":
            colored[across > 0.68 * half_span] = second
            colored[np.abs(across - 0.68 * half_span) < 0.03] = accent
        elif wing_style == "stripes":
            colored[patterns.stripes(across, 0.3 * half_span, 0.5)] = second
        elif wing_style == "bold":
            colored = bold(x, texels.y)
        elif wing_style == "roundels":
            middle = plan.wing_at - 0.5 * plan.chord - 0.7 * plan.sweep
            distance = np.hypot(x - middle, across - 0.66 * half_span) / (0.4 * plan.chord)
            colored[distance < 1] = accent
            colored[distance < 0.66] = (0.95, 0.95, 0.95)
            colored[distance < 0.33] = main
        # Control surfaces.
        if texels.patch == 0:
            colored[(np.abs(across - 0.42 * half_span) < 0.006) | (np.abs(across - 0.86 * half_span) < 0.006)] *= 0.6
        return colored

    fin_style = variation.pick(["accent", "second", "bands", "emblem"])

    def fin(texels: Texels) -> np.ndarray:
        colored = texels.filled(accent if fin_style == "accent" else second)
        if fin_style == "bands":
            colored[patterns.stripes(texels.z + 0.6 * texels.x, 0.12, 0.5)] = accent
        elif fin_style == "emblem":
            colored[patterns.disc(texels.x, texels.z, (-0.42, half_height + 0.1), 0.06)] = accent
        return colored

    return Livery(body, wing, fin, glass, colors)


# Parts ----------------------------------------------------------------------------------------------------------------


class Fuselage:
    """A lofted tube along x from the tail at -0.5 to the nose at 0.5."""

    def __init__(self, plan: AirplanePlan) -> None:
        self._plan = plan
        self._x = np.concatenate([[-0.5, -0.495], np.linspace(-0.48, 0.46, 24), [0.48, 0.49, 0.497, 0.5]])

    def radius(self, x):
        """Half the width at places along the body."""
        plan = self._plan
        from_nose = np.clip((0.5 - np.asarray(x)) / plan.nose, 0, 1)
        from_tail = np.clip((np.asarray(x) + 0.5) / plan.tail, 0, 1)
        nose = np.sqrt(1 - (1 - from_nose) ** 2)
        tail = 0.16 + 0.84 * np.sin(0.5 * np.pi * from_tail) ** 1.1
        return 0.5 * plan.width * nose * tail

    def middle(self, x):
        """Height of the axis: the tail is drawn up, so that the back runs straight."""
        back = np.clip((-0.5 + self._plan.tail - np.asarray(x)) / self._plan.tail, 0, 1)
        return 0.5 * self._plan.width * self._plan.height * 0.55 * back**1.6

    def top(self, x):
        """Height of the back."""
        return self.middle(x) + self._plan.height * self.radius(x)

    def shape(self) -> Shape:
        """The skin, columns from the belly round the left side."""
        angle = np.linspace(0, 2 * np.pi, 21)
        y, z = np.sin(angle), -np.cos(angle)
        y[-1], z[-1] = y[0], z[0]
        radius = self.radius(self._x)[:, None]
        rings = np.stack(
            np.broadcast_arrays(
                self._x[:, None], radius * y, self.middle(self._x)[:, None] + radius * self._plan.height * z
            ),
            -1,
        )
        return loft(rings)


def _blade(
    root: tuple[float, float], tip: tuple[float, float], length: float, thickness: float, tip_height: float = 0.0
) -> Shape:
    """Half a wing along +y from the origin.

    Args:
        root: x of leading and trailing edge at the root.
        tip: the same at the tip.
        length: root to tip.
        thickness: relative to the chord.
        tip_height: how far the tip stands above the root.
    """
    # Clockwise seen from the tip: trailing edge, over the top to the leading edge, back underneath.
    profile = [(0.0, 0.0), (0.35, 0.8), (0.7, 1.0), (0.93, 0.55), (1.0, 0.0), (0.93, -0.4), (0.7, -0.6), (0.0, 0.0)]
    rings = []
    for share in (0.0, 0.5, 0.96, 1.0):
        front, back = (root[k] + (tip[k] - root[k]) * share for k in (0, 1))
        shrink = 0.75 if share == 1.0 else 1.0
        chord, middle = (front - back) * shrink, 0.5 * (front + back)
        rings.append([
            (middle + chord * (x - 0.5), length * share, tip_height * share + 0.5 * thickness * chord * z * shrink)
            for x, z in profile
        ])  # fmt: skip
    return loft(np.array(rings))


def _add_pair(assembly: Assembly, shape: Shape, paint, crease: float = 30.0) -> None:
    """A shape and its mirror image across the plane of symmetry."""
    assembly.add(shape, paint, crease)
    assembly.add(shape.mirrored("y"), paint, crease)


def _add_wings(
    assembly: Assembly, variation: Variation, kind: str, plan: AirplanePlan, fuselage: Fuselage, livery: Livery
) -> None:
    level = 0.5 * plan.width * plan.height * plan.wing_level * 0.85
    rise = {"airliner": 0.06, "jumbo": 0.07, "propeller": 0.05, "toy": 0.05}.get(kind, 0.0)
    tip = plan.chord * plan.taper
    front = plan.wing_at
    blade = _blade(
        (front, front - plan.chord), (front - plan.sweep, front - plan.sweep - tip), plan.span / 2, 0.14, rise
    )
    _add_pair(assembly, blade.moved(z=level), livery.wing)
    if kind in ("airliner", "jumbo", "racer") and variation.chance(0.7):
        up = box(tip * 0.7, 0.02, 0.1).moved(front - plan.sweep - 0.6 * tip, plan.span / 2, level + rise + 0.05)
        _add_pair(assembly, up, livery.colors[2])
    if kind == "biplane":
        gap = plan.width * variation.uniform(0.9, 1.15)
        upper = _blade(
            (front + 0.03, front + 0.03 - plan.chord), (front + 0.02, front + 0.03 - plan.chord), plan.span * 0.53, 0.12
        )
        _add_pair(assembly, upper.moved(z=level + plan.width * plan.height * 0.75 + gap * 0.5), livery.wing)
        for y in (0.22, 0.42):
            for x in (-0.04, -0.12):
                strut = tube([(front + x, y * plan.span, level), (front + x + 0.02, y * plan.span,
                              level + plan.width * plan.height * 0.75 + gap * 0.5)], 0.01, 5)  # fmt: skip
                _add_pair(assembly, strut, livery.colors[2])
    if kind == "bush":
        strut = tube([(front - 0.06, 0.0, -level * 0.8), (front - 0.06, 0.3 * plan.span, level)], 0.014, 5)
        _add_pair(assembly, strut, livery.colors[2])
    if kind == "stealth":
        # Without a tube: a low hump in the middle of the wing.
        hump = sphere(1.0, 16).scaled(0.36, plan.width * 0.8, variation.uniform(0.08, 0.16)).moved(0.02, 0, 0.02)
        assembly.add(hump, livery.body, 60.0)


def _add_tail(
    assembly: Assembly, variation: Variation, kind: str, plan: AirplanePlan, fuselage: Fuselage, livery: Livery
) -> None:
    if kind == "stealth":
        if variation.chance(0.5):
            fin = _blade((-0.28, -0.42), (-0.4, -0.5), 0.16, 0.08).rotated("x", 60).moved(0, 0.12, 0.02)
            _add_pair(assembly, fin, livery.fin)
        return
    high = variation.uniform(0.2, 0.36)
    root = variation.uniform(0.17, 0.28)
    slant = variation.uniform(0.06, 0.16)
    base = float(fuselage.middle(-0.42))
    fin = _blade((-0.48 + root, -0.49), (-0.48 + root - slant - 0.06, -0.49 - 0.3 * slant), high, 0.1).rotated("x", 90)
    twin = kind in ("fighter", "delta", "cargo") and variation.chance(0.6)
    if twin:
        _add_pair(assembly, fin.rotated("x", -14).moved(0, 0.5 * plan.width, base), livery.fin)
    else:
        assembly.add(fin.moved(z=base + 0.01), livery.fin)
    if kind == "delta":
        if variation.chance(0.5):
            canard = _blade((0.3, 0.2), (0.22, 0.18), 0.15, 0.1)
            _add_pair(assembly, canard.moved(z=0.02), livery.colors[2])
        return
    t_tail = not twin and kind in ("racer", "airliner", "seaplane", "cargo") and variation.chance(0.6)
    level = base + high * 0.95 if t_tail else base + 0.01
    half = plan.span * variation.uniform(0.17, 0.24)
    back = -0.47 - (0.3 * slant if t_tail else 0)
    sweep = 0.08 if plan.sweep > 0.1 else 0.02
    plane = _blade((back + 0.15, back), (back + 0.11 - sweep, back - sweep * 0.6), half, 0.1)
    _add_pair(assembly, plane.moved(z=level), livery.wing)


def _propeller(
    assembly: Assembly, variation: Variation, x: float, y: float, z: float, radius: float, color: Color
) -> None:
    blades = variation.integer(2, 4)
    spinner = lathe([(0, -0.02), (0.24 * radius, -0.02), (0.2 * radius, 0.02), (0, 0.06)], 12).rotated("y", 90)
    assembly.add(spinner.moved(x, y, z), color)
    angle = variation.uniform(0, 180)
    for number in range(blades):
        for start, end, paint in ((0.0, 0.8, DARK), (0.8, 1.0, (0.95, 0.8, 0.15))):
            blade = box(0.014, 0.17 * radius, (end - start) * radius).moved(z=0.5 * (start + end) * radius)
            blade = blade.rotated("z", 25).rotated("x", angle + 360 * number / blades)
            assembly.add(blade.moved(x + 0.015, y, z), paint)


def _add_engines(
    assembly: Assembly, variation: Variation, kind: str, plan: AirplanePlan, fuselage: Fuselage, livery: Livery
) -> None:
    main, second, accent = livery.colors
    color = variation.pick([second, accent, STEEL, shade(main, 0.5)])
    level = 0.5 * plan.width * plan.height * plan.wing_level * 0.85
    if plan.engines == "nose":
        cowl = plan.width * 0.42
        assembly.add(cylinder(cowl, 0.12, cowl * 0.86, 18).rotated("y", 90).moved(0.455, 0, 0), color)
        size = plan.width * variation.uniform(0.85, 1.15)
        _propeller(assembly, variation, 0.53, 0, 0, size, accent)
    elif plan.engines in ("pods", "wing propellers"):
        pods = plan.engines == "pods"
        radius = plan.width * variation.uniform(0.2, 0.3) / (1 if plan.count == 1 else 1.2)
        length = radius * variation.uniform(3.4, 4.4)
        for number in range(plan.count):
            y = plan.span * (0.17 + 0.15 * number) if pods else plan.span * (0.2 + 0.13 * number)
            share = y / (plan.span / 2)
            x = plan.wing_at - plan.sweep * share + (0.02 if pods else 0.0)
            z = level - radius * 0.85 + 0.06 * share if pods else level + radius * 0.15
            if pods:
                profile = [(0.55, -1.0), (0.85, -0.7), (1.0, 0.5), (0.95, 0.9), (0.82, 1.0), (0.75, 0.8), (0, 0.7)]
            else:
                profile = [(0.0, -1.0), (0.4, -0.8), (0.85, 0.0), (1.0, 0.6), (0.8, 1.0), (0, 1.02)]
            shape = lathe(np.array(profile) * (radius, length / 2), 16).rotated("y", 90)

            def paint(texels: Texels, color=color) -> np.ndarray:
                colored = texels.filled(color)
                colored[np.broadcast_to(texels.row > 4.6, texels.x.shape)] = DARK
                colored[np.broadcast_to(np.abs(texels.row - 3.6) < 0.5, texels.x.shape)] = STEEL
                return colored

            _add_pair(assembly, shape.moved(x, y, z), paint if pods else color, 60.0)
            if not pods:
                size = radius * variation.uniform(2.0, 2.5)
                for side in (-1, 1):
                    _propeller(assembly, variation, x + length / 2 + 0.015, side * y, z, size, accent)
    elif plan.engines == "tail jets":
        radius = plan.width * variation.uniform(0.22, 0.3)
        jet = lathe(np.array([(0.6, -1.0), (0.9, -0.6), (1.0, 0.6), (0.85, 1.0), (0.0, 0.85)]) * (radius, 0.12), 16)
        jet = jet.rotated("y", 90).moved(-0.26, plan.width * 0.62, fuselage.middle(-0.26) + 0.04)
        _add_pair(assembly, jet, color, 60.0)
    elif kind == "stealth":
        intake = rounded_box(0.22, 0.1, 0.07, 0.03, 1).moved(0.02, 0.16, 0.05)
        _add_pair(assembly, intake, lambda texels: patterns.mixed(texels.x > 0.1, DARK, color))
    else:
        radius = plan.width * 0.34
        offset = radius * 0.9
        nozzle = lathe(np.array([(0.0, -0.6), (0.75, -1.0), (1.0, 0.6)]) * (radius, 0.08), 16)
        _add_pair(assembly, nozzle.rotated("y", 90).moved(-0.5, offset, fuselage.middle(-0.45) * 0.6), STEEL)
        intake = rounded_box(0.36, plan.width * 0.5, plan.width * 0.6, 0.03, 1)
        _add_pair(assembly, intake.moved(0.0, plan.width * 0.62, -0.02),
                  lambda texels: patterns.mixed(texels.x > 0.17, DARK, color))  # fmt: skip
        if variation.chance(0.6):
            missile = lathe([(0, -0.13), (0.016, -0.12), (0.016, 0.08), (0, 0.13)], 8).rotated("y", 90)
            for share in (0.55, 0.8):
                x = plan.wing_at - plan.sweep * share - 0.4 * plan.chord * (1 - share) - 0.05
                _add_pair(assembly, missile.moved(x, share * plan.span / 2, level - 0.03), accent)


def _add_cockpit(
    assembly: Assembly, variation: Variation, kind: str, plan: AirplanePlan, fuselage: Fuselage, livery: Livery
) -> None:
    if kind == "stealth":
        canopy = sphere(1.0, 14).scaled(0.12, 0.06, 0.06).moved(0.2, 0, 0.06)
        assembly.add(canopy, livery.glass)
        return
    if plan.engines == "nose" or kind in ("fighter", "delta", "racer"):
        x = 0.18 if plan.engines == "nose" and kind != "bush" else 0.22
        length = variation.uniform(0.11, 0.16)
        height = plan.width * variation.uniform(0.32, 0.5)
        top = float(fuselage.top(x))
        if kind in ("biplane", "toy") and variation.chance(0.6):
            # Open: a pilot behind a small screen.
            assembly.add(cylinder(plan.width * 0.3, 0.04, segments=16).moved(x - 0.06, 0, top - 0.01), DARK)
            assembly.add(sphere(plan.width * 0.22, 12).moved(x - 0.06, 0, top + plan.width * 0.18),
                         variation.pick([(0.85, 0.62, 0.45), livery.colors[2], (0.4, 0.25, 0.15)]))  # fmt: skip
            screen = sphere(1.0, 10).scaled(0.02, plan.width * 0.3, plan.width * 0.25).moved(x + 0.03, 0, top)
            assembly.add(screen, livery.glass)
            return
        canopy = sphere(1.0, 16).scaled(length, plan.width * 0.36, height).moved(x, 0, top - 0.25 * height)
        frames = variation.integer(2, 4)

        def paint(texels: Texels) -> np.ndarray:
            colored = patterns.mixed(
                texels.x + 0.8 * texels.z > x + top * 0.8 + 0.02, shade(livery.glass, 1.5), livery.glass
            )
            bars = patterns.stripes(texels.x - x, 2 * length / frames, 0.14)
            colored[bars] = livery.colors[1]
            return colored

        assembly.add(canopy, paint, 60.0)
        return
    # A band of windows round the nose.
    x = 0.5 - 0.42 * plan.nose
    angle = np.radians(np.linspace(-62, 62, 9))
    rows = []
    for place, level in ((x, 0.42), (x - 0.035, 0.72)):
        radius, middle = float(fuselage.radius(place)) * 1.02, float(fuselage.middle(place))
        y = np.sin(angle) * radius * 0.95
        z = middle + plan.height * np.sqrt(np.maximum(radius**2 - y**2, 0)) * level * 1.15
        rows.append(np.stack([np.full(9, place) - 0.05 * np.sin(np.abs(angle)) ** 2, y, z], -1))
    band = np.array(rows)

    def panes(texels: Texels) -> np.ndarray:
        colored = texels.filled(livery.glass)
        colored[np.broadcast_to(np.abs(texels.column % 2.0) < 0.16, texels.x.shape)] = livery.colors[0]
        return colored

    # Pushed out to lie on the skin.
    radius, middle = fuselage.radius(band[..., 0]), fuselage.middle(band[..., 0])
    offset = np.stack([band[..., 1], (band[..., 2] - middle) / plan.height], -1)
    offset *= (1.03 * radius / np.linalg.norm(offset, axis=-1))[..., None]
    skin = np.stack([band[..., 0], offset[..., 0], middle + plan.height * offset[..., 1]], -1)
    assembly.add(Shape((skin,)), panes, 60.0)


def _add_gear(
    assembly: Assembly, variation: Variation, kind: str, plan: AirplanePlan, fuselage: Fuselage, livery: Livery
) -> None:
    _, second, accent = livery.colors
    belly = -0.5 * plan.width * plan.height
    if kind == "seaplane" or (kind in ("bush", "toy") and variation.chance(0.4)):
        profile = smooth_curve([(0.0, -0.36), (0.05, -0.2), (0.06, 0.1), (0.0, 0.38)], 11)
        profile[[0, -1], 0] = 0
        float_ = lathe(profile * (1.1, 1.0), 12).rotated("y", 90).moved(0.06, plan.span * 0.16, belly - 0.11)
        _add_pair(assembly, float_, lambda texels: patterns.mixed(texels.z < belly - 0.11, second, accent), 60.0)
        for x in (-0.1, 0.18):
            _add_pair(assembly, tube([(x, 0.03, belly * 0.8), (x, plan.span * 0.16, belly - 0.08)], 0.012, 5), STEEL)
        return
    if plan.engines != "nose" and not variation.chance(0.5):
        return
    radius = 0.05 if plan.engines == "nose" else 0.032
    drop = 0.09 if plan.engines == "nose" else 0.06
    wheel = cylinder(radius, 0.035, segments=14).rotated("x", 90)
    hub = cylinder(radius * 0.5, 0.04, segments=10).rotated("x", 90)
    places = [(0.2, 0.11 * plan.span + 0.03), (-0.38, 0.0)] if plan.engines == "nose" else [(0.36, 0.0), (-0.05, 0.1)]
    for x, y in places:
        ground = belly - drop if y or plan.engines != "nose" else float(fuselage.middle(x)) - 0.05
        size = 1.0 if y or plan.engines != "nose" else 0.5
        for side in (-1, 1) if y else (1,):
            where = (x, side * y, ground)
            assembly.add(wheel.scaled(size, size, size).moved(*where), DARK)
            assembly.add(hub.scaled(size, size * 1.1, size).moved(*where), accent)
            top = (x, side * y * 0.3, belly * 0.6 if y or plan.engines != "nose" else float(fuselage.middle(x)))
            assembly.add(tube([where, top], 0.012, 5), STEEL)
