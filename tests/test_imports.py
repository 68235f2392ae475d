"""The house rules of `import`: what a module may reach, and what importing the package may load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"fusedplanes": ROOT / "fusedplanes", "fusedplanes.kernels": ROOT / "kernels"}
PACKAGES["fusedplanes.datasets"] = ROOT / "datasets"

# From the ground up; a module imports from its own floor or below.
FLOORS = [
    {"errors"},
    {"kernels", "licences"},
    {"files", "cameras", "rays", "images", "gaussians", "multiview"},
    {"fields", "io"},
    {"rendering", "datasets"},
    {"networks", "autoencoders"},
    {"training", "reports"},
    {"planes", "sharp", "lyra", "depth_anything", "event3d"},
    {"cli", "viewer", "__main__", "__init__"},
]
METHODS = FLOORS[7]


def modules():
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield package, path, ".".join([package, *parts]).removesuffix(".__init__")


def floor_of(module: str) -> int:
    room = ([*module.split("."), "__init__"])[1]
    return next(level for level, rooms in enumerate(FLOORS) if room in rooms)


def imports_of(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_imports_from_a_floor_above_and_methods_leave_each_other_alone():
    wrong = []
    for _, path, module in modules():
        for target in imports_of(path):
            if not target.startswith("fusedplanes."):
                continue
            room, other = module.split(".")[1:2], target.split(".")[1]
            if not any(other in rooms for rooms in FLOORS):
                continue  # a name of the package itself, such as fusedplanes.__version__
            if floor_of(target) > floor_of(module):
                wrong.append(f"{module} imports {target}")
            if room and room[0] in METHODS and other in METHODS and room[0] != other:
                wrong.append(f"{module} imports {target}: methods never import each other")
    assert wrong == []


def test_kernels_need_nothing_but_torch_triton_numba_numpy_and_the_errors():
    allowed = {"torch", "triton", "numba", "numpy", "llvmlite", "fusedplanes"}
    for package, path, module in modules():
        if package != "fusedplanes.kernels":
            continue
        for target in imports_of(path):
            top = target.split(".")[0]
            assert top in allowed | set(sys.stdlib_module_names), f"{module} imports {target}"
            if top == "fusedplanes":
                assert target.split(".")[1] in ("kernels", "errors"), f"{module} imports {target}"


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_the_package_loads_nothing_heavy():
    heavy = ["torch", "numba", "triton", "scipy", "trimesh", "PIL", "rich", "tyro", "imageio", "diffusers"]
    code = f"import sys, fusedplanes; print([name for name in {heavy} if name in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_training_and_rendering_import_with_torch_numpy_and_numba_alone():
    blocked = ["scipy", "trimesh", "PIL", "rich", "tyro", "imageio", "safetensors", "skimage", "embreex", "diffusers"]
    code = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is not to be needed")
sys.meta_path.insert(0, Block())
import fusedplanes.planes.stage_one, fusedplanes.rendering.volume, fusedplanes.autoencoders.image
import fusedplanes.kernels
from fusedplanes.planes.config import preset
fusedplanes.planes.stage_one.SharedParts(preset("tiny").model)
"""
    run_python(code)


def test_every_public_name_can_be_imported():
    code = "import fusedplanes as fp; [getattr(fp, name) for name in fp.__all__]; print(len(fp.__all__))"
    assert int(run_python(code)) >= 10


def test_nothing_is_installed_under_a_name_that_belongs_to_others():
    code = """
import importlib.metadata as metadata
files = metadata.distribution("fusedplanes").read_text("top_level.txt").split()
print(files)
"""
    assert run_python(code).strip() == "['fusedplanes']"


@pytest.mark.parametrize("name", ["utils", "helpers", "misc", "common"])
def test_no_room_without_a_name_of_its_own(name):
    assert [path for _, path, _ in modules() if path.stem == name] == []
