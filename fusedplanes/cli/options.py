"""Options that mean the same in every command."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass

from fusedplanes.errors import ConfigError, shown


@dataclass(frozen=True, kw_only=True)
class Options:
    """Shared options."""

    json: bool = False
    """Print one JSON object and nothing else on standard output."""
    quiet: bool = False
    """No progress bars and no remarks."""


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(Options):
    """Options of commands that compute."""

    device: str = "auto"
    """Where to compute: auto (a CUDA device if there is one), cpu, cuda, cuda:1, mps."""
    seed: int = 0
    """Seed of every random choice."""


LARGEST_SEED = 2**53
"""The largest that config.json keeps, as it keeps every number."""


def choose_device(name: str):
    """The torch device of a ``--device`` value.

    Raises:
        ConfigError: unknown, or not on this machine.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if re.fullmatch(r"cpu|cuda(:\d{1,3})?|mps", name) is None:
        raise ConfigError(f"--device {shown(name)}: no such device; use auto, cpu, cuda, cuda:N or mps")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: torch sees no CUDA device here; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: torch sees {torch.cuda.device_count()} CUDA devices; they count from 0")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"--device {name}: torch sees no Metal device here; use --device cpu")
    return device


def parse(kind: type, arguments: list[str], command: str):
    """Fill a dataclass of options from the command line; its docstrings become the help.

    Raises:
        ConfigError: an option is unknown, missing or no value of its kind.
    """
    import tyro

    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            options = tyro.cli(kind, args=arguments, prog=f"fusedplanes {command}", config=config)
    except SystemExit as ended:
        if ended.code in (0, None):
            raise
        raise ConfigError(f"{_first_section(told.getvalue())}; see `fusedplanes {command} --help`") from None
    seed = getattr(options, "seed", 0)
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"--seed {shown(seed)}: choose a whole number from 0 to {LARGEST_SEED}")
    return options


def _first_section(box: str) -> str:
    """What went wrong, out of the framed and folded text that tyro prints."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    end = next((index for index, line in enumerate(lines) if line.startswith(("─", "╰"))), len(lines))
    return " ".join(" ".join(lines[:end]).split()).rstrip(".")
