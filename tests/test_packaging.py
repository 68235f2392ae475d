"""What is in the tree is what is installed."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_folder_with_code_is_listed_as_a_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    homes = {"fusedplanes": ROOT / "fusedplanes"}
    homes |= {"fusedplanes.kernels": ROOT / "kernels", "fusedplanes.datasets": ROOT / "datasets"}
    found = set()
    for package, folder in homes.items():
        for path in folder.rglob("*.py"):
            found.add(".".join([package, *path.parent.relative_to(folder).parts]))
    assert sorted(listed) == sorted(found)
    for package in listed:
        home = max((name for name in homes if f"{package}.".startswith(f"{name}.")), key=len)
        folder = homes[home].joinpath(*package.removeprefix(home).strip(".").split("."))
        assert (folder / "__init__.py").is_file(), f"{package} has no __init__.py"


def test_pins_stand_in_constraints_and_lower_bounds_in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ]
    assert all(requirement.split(";")[0].count(">=") == 1 for requirement in requirements)
    assert not any("==" in requirement.split(";")[0] for requirement in requirements)
    pins = [
        line.split(";")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    assert all("==" in pin for pin in pins)
    names = {requirement.split(">=")[0] for requirement in project["dependencies"]}
    assert names <= {pin.split("==")[0] for pin in pins}
