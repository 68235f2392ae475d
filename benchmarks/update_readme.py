"""Write the tables of benchmarks/results into the README, between its markers::

    python benchmarks/update_readme.py

A marker ``<!-- table: NAME -->`` stands for benchmarks/results/NAME.md and is closed by ``<!-- end -->``. The table of
licences is the one that the package itself goes by.
"""

from __future__ import annotations

import re
from pathlib import Path

from fusedplanes import licences
from fusedplanes.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    readme = ROOT / "README.md"

    def fill(match: re.Match) -> str:
        if match[2] == "licences":
            table = licences.table()
        else:
            table = (ROOT / "benchmarks" / "results" / f"{match[2]}.md").read_text()
        return f"{match[1]}{table}{match[3]}"

    write_atomically(readme, MARKED.sub(fill, readme.read_text()).encode())


if __name__ == "__main__":
    main()
