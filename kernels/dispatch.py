"""Which implementation of a kernel runs, and the one door through which compiled CPU kernels are launched.

Every op has a ``reference`` (plain torch, any device and float dtype, the definition) and a ``cpu`` implementation
(numba, float32). The choice is made once per call by `resolve_backend`; the variable ``FUSEDPLANES_BACKEND`` of the
environment makes it for a whole process.

Numba is imported when the first CPU kernel is built, never by importing this package. All launches pass through
`launch`, because numba's portable thread pool aborts the process when two threads enter it at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CellType, FunctionType

import torch
from torch import Tensor

from fusedplanes.errors import BackendUnavailable, ConfigError

BACKENDS = ("reference", "cpu", "gpu")
ENVIRONMENT_VARIABLE = "FUSEDPLANES_BACKEND"

_launch_lock = threading.Lock()
_has_launched = False
_is_fork = False


def _after_fork() -> None:
    """GNU OpenMP ends a forked process that enters it, if its parent had; such a child computes in plain torch."""
    global _launch_lock, _is_fork
    _launch_lock = threading.Lock()
    _is_fork = _is_fork or _has_launched


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def resolve_backend(tensor: Tensor, override: str | None = None) -> str:
    """Choose the implementation that handles ``tensor``.

    Args:
        tensor: the op's main input; its device and dtype decide.
        override: "reference", "cpu" or "gpu"; None takes ``FUSEDPLANES_BACKEND`` and, without it, the fastest
            implementation that exists for this tensor.

    Returns:
        "reference", "cpu" or "gpu".

    Raises:
        ConfigError: the name is none of the three.
        BackendUnavailable: the backend that was asked for cannot take this tensor.

    Example:
        >>> resolve_backend(torch.zeros(3)), resolve_backend(torch.zeros(3, dtype=torch.float64))
        ('cpu', 'reference')
    """
    asked = override or os.environ.get(ENVIRONMENT_VARIABLE) or None
    fits_cpu = tensor.device.type == "cpu" and tensor.dtype == torch.float32 and not _is_fork
    if asked is None:
        return "cpu" if fits_cpu else "reference"
    if asked not in BACKENDS:
        source = "backend" if override else ENVIRONMENT_VARIABLE
        raise ConfigError(f"{source} is {asked!r}; choose one of {', '.join(BACKENDS)}")
    if asked == "gpu":
        raise BackendUnavailable(
            f"backend 'gpu' needs Triton kernels, which this version does not have; backend='reference' runs this op "
            f"on {tensor.device.type} tensors"
        )
    if asked == "cpu" and _is_fork:
        raise BackendUnavailable(
            "backend 'cpu' does not run in a process forked from one that has used it; start workers by spawn or "
            "forkserver, or use backend='reference'"
        )
    if asked == "cpu" and not fits_cpu:
        raise BackendUnavailable(
            f"backend 'cpu' takes float32 tensors in main memory, not {str(tensor.dtype).removeprefix('torch.')} on "
            f"{tensor.device.type}; convert the tensor or use backend='reference'"
        )
    return asked


def compile_kernel(*signatures: str, parallel: bool = True, fastmath: bool | set[str] = False) -> Callable:
    """Decorate a function as a compiled CPU kernel.

    The signatures are explicit so that a launch never triggers a compilation. Machine code is cached on disk: beside
    the source or, where that folder is read-only, in numba's user-wide cache; without either, each process compiles.
    A change of any file of this package makes cached code stale, because kernels inline functions of other files.

    Args:
        signatures: numba type strings, e.g. ``"void(float32[:, ::1], float32[::1])"``.
        parallel: allow ``numba.prange``.
        fastmath: LLVM flags. ``{"contract", "reassoc", "nsz", "arcp"}`` vectorises sums and keeps NaN meaningful.

    Returns:
        A decorator whose result is to be run through `launch`.
    """
    import numba

    def decorate(function: Callable) -> Callable:
        options = dict(nogil=True, parallel=parallel, fastmath=fastmath, error_model="numpy")
        function = _with_cell(function, _source_stamp())
        with _torch_threads_kept():
            try:
                return numba.njit(list(signatures), cache=True, **options)(function)
            except RuntimeError as error:
                if "cannot cache function" not in str(error):
                    raise
                return numba.njit(list(signatures), **options)(function)

    return decorate


@contextlib.contextmanager
def _torch_threads_kept() -> Iterator[int]:
    """Put torch's number of threads back, and give it.

    When numba starts its OpenMP threads, as many as there are cores, it sets their number for all of the process. Torch
    would add in another order from then on, and a run that went on in a new process would differ in the last bits.
    """
    threads = torch.get_num_threads()
    try:
        yield threads
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@functools.cache
def _source_stamp() -> str:
    """Give a digest of every source file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _with_cell(function: Callable, value: str) -> Callable:
    """Copy ``function`` as a closure over ``value``, which numba makes part of the key of its disk cache.

    Of source files that key covers only the one the function stands in.
    """
    code = function.__code__.replace(co_freevars=(*function.__code__.co_freevars, "source_stamp"))
    cells = (*(function.__closure__ or ()), CellType(value))
    stamped = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cells)
    return functools.update_wrapper(stamped, function)


def launch(kernel: Callable, *arguments: Tensor | tuple[int, ...] | float) -> None:
    """Run a compiled kernel on torch's number of threads, one launch at a time in this process.

    Args:
        kernel: a function made by `compile_kernel`.
        arguments: its arguments in order; tensors are passed as numpy arrays that share their memory, so they must be
            contiguous and outputs must be allocated by the caller.
    """
    import numba

    global _has_launched
    if _is_fork and kernel.targetoptions.get("parallel"):
        raise BackendUnavailable("a forked process cannot run parallel kernels; start workers by spawn or forkserver")
    _has_launched = True
    arrays = [argument.detach().numpy() if isinstance(argument, Tensor) else argument for argument in arguments]
    with _launch_lock, _torch_threads_kept() as threads:
        callers_threads = numba.get_num_threads()
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        try:
            kernel(*arrays)
        finally:
            numba.set_num_threads(callers_threads)
