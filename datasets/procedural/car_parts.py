"""What is fixed to a car or carried by it: wheels, bumpers, spoilers, roof racks, cargo."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusedplanes.datasets.procedural import patterns
from fusedplanes.datasets.procedural.assembly import Assembly, Texels
from fusedplanes.datasets.procedural.car_body import CHROME, RUBBER, TRIM, BodyPlan, CarBody, Finish
from fusedplanes.datasets.procedural.shapes import Shape, box, cylinder, lathe, loft, panel, rounded_box, sphere, torus
from fusedplanes.datasets.procedural.variation import Color, Variation, shade, tone


def wheel(radius: float, width: float, side: float) -> Shape:
    """A wheel whose axle lies along y; ``side`` +1 or -1 is the way the hub faces."""
    profile = [(0.6, -0.5), (0.9, -0.5), (1.0, -0.28), (1.0, 0.28), (0.9, 0.5), (0.64, 0.5), (0.58, 0.36), (0.0, 0.44)]
    return lathe([(radius * r, width * z) for r, z in profile], 18).rotated("x", -90 * side)


def wheel_paint(
    variation: Variation, hub: Color, radius: float
) -> Callable[[tuple[float, float]], Callable[[Texels], np.ndarray]]:
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


def add_wheels(assembly: Assembly, variation: Variation, plan: BodyPlan, hub: Color) -> None:
    """Two wheels on every axle."""
    length, width = plan.size
    thickness = variation.uniform(0.22, 0.32)
    paint_at = wheel_paint(variation, hub, plan.wheel)
    for axle in plan.axles:
        x = length * (0.5 - axle)
        for side in (-1.0, 1.0):
            shape = wheel(plan.wheel, thickness, side).moved(x, side * (width / 2 - 0.5 * thickness + 0.05), plan.wheel)
            assembly.add(shape, paint_at((x, plan.wheel)), 30.0)


def add_bumpers(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    """Bumpers, most of the time, and mirrors where there is a cabin."""
    length, width = body.plan.size
    level = body.plan.floor + 0.12
    if variation.chance(0.75):
        thickness = variation.uniform(0.12, 0.24)
        for end in (-1, 1):
            bumper = rounded_box(0.2, width * 0.86, thickness, 0.06, 1)
            assembly.add(bumper.moved(end * (length / 2 - 0.01), 0, level), finish.bumper)
    if body.cabin_height > 0.2:
        x = 0.6 * body.windscreen_foot + 0.4 * body.roof[0]
        sill = float(np.interp(0.5 - x / length, *np.array(body.plan.deck).T))
        for side in (-1, 1):
            assembly.add(rounded_box(0.1, 0.22, 0.15, 0.04, 1).moved(x, side * (width / 2 + 0.05), sill + 0.08),
                         finish.bumper)  # fmt: skip


def add_spoiler(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    """A wing over the tail."""
    length, width = body.plan.size
    color = variation.pick([finish.colors[0], finish.colors[1], TRIM])
    tail = float(body.height_of(body.plan.top, 0.96))
    height = variation.uniform(0.15, 0.45)
    x = -length / 2 + 0.2
    assembly.add(box(0.32, width * 0.9, 0.05).rotated("y", -8).moved(x, 0, tail + height), color)
    for side in (-0.3, 0.3):
        assembly.add(box(0.14, 0.06, height + 0.1).moved(x, side * width, tail + height / 2), TRIM)


def add_roof_load(assembly: Assembly, variation: Variation, kind: str, body: CarBody, finish: Finish) -> None:
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


def add_open_cockpit(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
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


def add_cargo_bed(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
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


def add_load(assembly: Assembly, variation: Variation, body: CarBody, finish: Finish) -> None:
    """What a truck carries behind its cab."""
    length, width = body.plan.size
    floor = float(body.height_of(body.plan.deck, 0.7)) + 0.03
    cab_top = body.roof[2]
    front, rear = 0.5 * length * 0.42, -0.49 * length
    middle, run = 0.5 * (front + rear), front - rear
    main, second, accent = finish.colors
    load = variation.spread_pick("material", ["box", "tank", "dump", "mixer", "crates", "box", "fire"])
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
