"""What a measurement was made on: part of every table."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import date
from pathlib import Path

import torch


def machine_facts() -> dict[str, str]:
    """Date, commit, machine and torch version, in words."""
    return {
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores {platform.machine()}",
        "torch": torch.__version__,
    }


def facts_text(facts: dict[str, str]) -> str:
    """The facts as part of a sentence."""
    return ", ".join(f"{key} {value}" for key, value in facts.items())


def commit() -> str:
    """The short name of the commit that this file is checked out from, wherever the benchmark is started."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
