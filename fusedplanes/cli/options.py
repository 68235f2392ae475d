"""Options that mean the same in every command."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

from fusedplanes.errors import ConfigError


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


def choose_device(name: str):
    """The torch device of a ``--device`` value.

    Raises:
        ConfigError: unknown, or not on this machine.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name}: no such device; use auto, cpu, cuda, cuda:N or mps") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: torch sees no CUDA device here; use --device cpu")
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
            return tyro.cli(kind, args=arguments, prog=f"fusedplanes {command}", config=config)
    except SystemExit as ended:
        if ended.code in (0, None):
            raise
        raise ConfigError(f"{_first_section(told.getvalue())}; see `fusedplanes {command} --help`") from None


def _first_section(box: str) -> str:
    """What went wrong, out of the framed and folded text that tyro prints."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    end = next((index for index, line in enumerate(lines) if line.startswith(("─", "╰"))), len(lines))
    return " ".join(" ".join(lines[:end]).split()).rstrip(".")
