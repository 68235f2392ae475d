"""Does a training step cost more when there are more objects? Fifty against a thousand, side by side in one process::

    python benchmarks/step_time.py

Steps of both classes take turns; medians are printed and written to benchmarks/results/step_time.json.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from fusedplanes.cameras import Cameras
from fusedplanes.files import write_json
from fusedplanes.planes.config import preset, with_downscale
from fusedplanes.planes.stage_one import StageOne
from fusedplanes.planes.views import TrainingViews

SIZE, VIEWS, STEPS, COUNTS = 64, 8, 40, (50, 1000)


def views_of(count: int) -> TrainingViews:
    """Random images: what they show does not matter to the clock."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (VIEWS, SIZE, SIZE, 4), generator=generator, dtype=torch.uint8)
    cameras = Cameras.orbit(VIEWS, width=SIZE, height=SIZE)
    ids = [f"object_{index}" for index in range(count)]
    return TrainingViews(ids, [images] * count, [cameras] * count, [torch.eye(4)] * count, [""] * count)


def main() -> None:
    config = with_downscale(preset("small"), 4)
    stages = {count: StageOne(config, views_of(count)) for count in COUNTS}
    medians = {}
    for phase in ("warm-up", "joint"):
        times: dict[int, list[float]] = {count: [] for count in COUNTS}
        for stage in stages.values():
            stage.prepare(phase)
        for step in range(STEPS):
            for count, stage in stages.items():
                take = next(p.step for p in stage.phases if p.name == phase)
                start = time.perf_counter()
                take(step)
                if step >= STEPS // 4:
                    times[count].append(time.perf_counter() - start)
        medians[phase] = {str(count): statistics.median(values) for count, values in times.items()}
        ratio = medians[phase][str(COUNTS[1])] / medians[phase][str(COUNTS[0])]
        medians[phase]["ratio"] = ratio
        print(f"{phase}: {COUNTS[1]} objects take {ratio:.3f} of the time of {COUNTS[0]}", flush=True)
    write_json(Path(__file__).parent / "results" / "step_time.json", medians)


if __name__ == "__main__":
    main()
