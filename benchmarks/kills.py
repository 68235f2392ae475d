"""Twenty `kill -9` each of `fusedplanes train` and `fusedplanes add` at random moments, and what they cost.

    python benchmarks/kills.py --seed 7

Every killed run is gone on with, and killed again up to two times, until it is finished; then its shared tensors, its
objects and its evaluation are compared bit for bit with those of a run left in peace. After every kill the run's last
checkpoint must load, and every object stored before must be there. Results go to benchmarks/results/kills*.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from killed_runs import Commands, Damage, Kill, Pace
from machine import facts_text, machine_facts

from fusedplanes.files import write_atomically, write_json

PACE = Pace(checkpoint_seconds=0.05, group=1, share=0.3)
KILLS_OF_A_RUN = 3


def measure(commands: Commands, command: str, kills: int, moments: random.Random) -> dict:
    """Kill runs of a command until there were so many kills."""
    found: list[Kill] = []
    runs = identical = 0
    while len(found) < kills:
        runs += 1
        most = min(KILLS_OF_A_RUN, kills - len(found))
        try:
            found += commands.killed(command, commands.folder / "killed", moments, most)
            identical += 1
        except Damage as damage:
            print(damage, flush=True)
            break
        print(f"{command}: {len(found)} kills, {runs} runs, {identical} bit-identical", flush=True)
    return {
        "seconds_in_peace": commands.seconds[command],
        "runs": runs,
        "bit_identical": identical,
        "kills": [asdict(kill) for kill in found],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; a fresh one if not given")
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    result = {"facts": machine_facts(), "seed": seed, "pace": asdict(PACE), "commands": {}}
    with tempfile.TemporaryDirectory(prefix="fusedplanes-kills-") as folder:
        commands = Commands(Path(folder), PACE, objects=6, more=4, views=10, size=32)
        for command in ("train", "add"):
            result["commands"][command] = measure(commands, command, options.kills, random.Random(f"{seed} {command}"))
    results = Path(__file__).parent / "results"
    write_json(results / "kills.json", result)
    write_atomically(results / "kills.md", table(result).encode())
    return 0 if all(row["runs"] == row["bit_identical"] for row in result["commands"].values()) else 1


def table(result: dict) -> str:
    """Kills and what came of them."""
    lines = [
        "| | kills | of them while files were written | runs finished | bit-identical | seconds lost by a kill |",
        "|---|---|---|---|---|---|",
    ]
    for command, row in result["commands"].items():
        writing = sum(kill["inside_a_checkpoint"] for kill in row["kills"])
        lost = fmean(kill["lost_seconds"] for kill in row["kills"])
        lines.append(
            f"| `{command}` | {len(row['kills'])} | {writing} | {row['runs']} | {row['bit_identical']} | {lost:.1f} |"
        )
    seconds = ", ".join(f"`{name}` takes {row['seconds_in_peace']:.0f} s" for name, row in result["commands"].items())
    note = facts_text(result["facts"])
    return "\n".join([*lines, "", f"Left in peace {seconds}; {note}.", ""])


if __name__ == "__main__":
    sys.exit(main())
