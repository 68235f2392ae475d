"""Numeric kernels: tensors in, tensors out.

Every folder holds one operation and is named after its public function. Importing this package loads none of them; the
first use of a name loads its folder, and numba only when a CPU kernel first runs.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

__all__ = ["composite", "render_field", "resample_distances", "sample_triplane", "ssim"]


class _Kernels(ModuleType):
    """This package, in which a folder's name stands for the function it holds.

    Python binds an imported sub-package in its parent under the folder's name, which would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{name}"), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Kernels
