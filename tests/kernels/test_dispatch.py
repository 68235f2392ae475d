"""Backend choice, and the rules of compiling and launching CPU kernels."""

import importlib
import os
import subprocess
import sys

import pytest
import torch

from fusedplanes.errors import BackendUnavailable, ConfigError
from fusedplanes.kernels import dispatch, sample_triplane
from fusedplanes.kernels.dispatch import compile_kernel, launch, resolve_backend


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(2), "cpu"),
        (torch.zeros(2, dtype=torch.float64), "reference"),
        (torch.zeros(2, dtype=torch.bfloat16), "reference"),
        (torch.zeros(2, device="meta"), "reference"),
    ],
)
def test_the_fastest_implementation_that_exists_is_chosen(tensor, expected):
    assert resolve_backend(tensor) == expected
    assert resolve_backend(tensor, "reference") == "reference"


def test_the_environment_chooses_for_the_process_and_the_argument_overrides_it(monkeypatch):
    monkeypatch.setenv("FUSEDPLANES_BACKEND", "reference")
    assert resolve_backend(torch.zeros(2)) == "reference"
    assert resolve_backend(torch.zeros(2), "cpu") == "cpu"
    monkeypatch.setenv("FUSEDPLANES_BACKEND", "")
    assert resolve_backend(torch.zeros(2)) == "cpu"
    monkeypatch.setenv("FUSEDPLANES_BACKEND", "numba")
    with pytest.raises(ConfigError, match="FUSEDPLANES_BACKEND is 'numba'"):
        resolve_backend(torch.zeros(2))


@pytest.mark.parametrize(
    ("tensor", "backend", "words"),
    [
        (torch.zeros(2, dtype=torch.float64), "cpu", ("float64", "reference")),
        (torch.zeros(2, device="meta"), "cpu", ("meta", "reference")),
        (torch.zeros(2), "gpu", ("Triton", "reference")),
    ],
)
def test_a_backend_that_cannot_serve_says_why_in_one_line(tensor, backend, words):
    with pytest.raises(BackendUnavailable) as error:
        resolve_backend(tensor, backend)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words)


def test_importing_and_using_the_reference_does_not_load_numba():
    program = (
        "import sys, torch, fusedplanes.kernels as kernels\n"
        "assert 'fusedplanes.kernels.composite' not in sys.modules\n"
        "kernels.sample_triplane(torch.zeros(3, 2, 2, 1).double(), torch.zeros(1, 3).double())\n"
        "assert 'numba' not in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_folder_that_was_imported_does_not_hide_its_function():
    from fusedplanes import kernels
    from fusedplanes.kernels.composite.reference import composite_reference

    assert callable(composite_reference)
    for name in kernels.__all__:
        assert callable(getattr(kernels, name)), name
    assert set(kernels.__all__) <= set(dir(kernels))
    with pytest.raises(AttributeError, match="no attribute 'compose'"):
        _ = kernels.compose


def test_a_kernel_without_a_place_for_its_cache_is_compiled_all_the_same():
    namespace = {}
    exec("def double(numbers):\n    for i in range(numbers.shape[0]):\n        numbers[i] *= 2.0", namespace)
    numbers = torch.arange(3.0)
    launch(compile_kernel("void(float32[::1])", parallel=False)(namespace["double"]), numbers)
    assert numbers.tolist() == [0.0, 2.0, 4.0]


def test_machine_code_is_cached_until_a_source_file_changes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "doubling_kernel.py").write_text(
        "def double(numbers):\n    for i in range(numbers.shape[0]):\n        numbers[i] *= 2.0\n"
    )
    double = importlib.import_module("doubling_kernel").double

    def compilations() -> int:
        return sum(compile_kernel("void(float32[::1])", parallel=False)(double).stats.cache_misses.values())

    assert [compilations(), compilations()] == [1, 0]
    monkeypatch.setattr(dispatch, "_source_stamp", lambda: "another file of the package was edited")
    assert [compilations(), compilations()] == [1, 0]


def test_launching_puts_back_the_number_of_numba_threads(threads):
    import numba

    threads(2)
    numba.set_num_threads(1)
    sample_triplane(torch.zeros(3, 2, 2, 1), torch.zeros(1, 3))
    assert numba.get_num_threads() == 1


TORCH_S_THREADS = """
import torch
from fusedplanes.kernels import sample_triplane

assert torch.get_num_threads() == 1
sample_triplane(torch.zeros(3, 2, 2, 1), torch.zeros(1, 3), backend="cpu")
assert torch.get_num_threads() == 1
"""


def test_numba_s_threads_leave_the_number_of_torch_s_alone():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", TORCH_S_THREADS], check=True, env=environment, timeout=120)


LAUNCH_FROM_TWO_THREADS = """
import threading, torch
from fusedplanes.kernels import sample_triplane

torch.set_num_threads(2)
planes, points = torch.randn(3, 8, 8, 4), torch.rand(2000, 3) * 2 - 1
expected = sample_triplane(planes, points)
wrong = []

def work():
    for _ in range(200):
        if not torch.equal(sample_triplane(planes, points), expected):
            wrong.append(True)

workers = [threading.Thread(target=work) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert not wrong
"""


def test_two_python_threads_may_launch_at_once():
    # Numba's own thread pool, which it uses where no OpenMP library is found, aborts when two threads enter it.
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue"}
    subprocess.run([sys.executable, "-c", LAUNCH_FROM_TWO_THREADS], check=True, env=environment, timeout=120)


def test_memory_that_the_library_allocates_is_poisoned_in_tests():
    library = {"torch": torch, "__name__": "fusedplanes.kernels.some_kernel"}
    for allocation in ("torch.empty(3)", "torch.empty_like(torch.zeros(3))", "torch.zeros(3).new_empty(3)"):
        assert eval(allocation, library).isnan().all(), allocation
