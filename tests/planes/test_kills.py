"""`kill -9` at random moments costs no more than the work since the last checkpoint."""

import random
import secrets

import pytest
from killed_runs import Commands, Damage, Pace


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    pace = Pace(checkpoint_seconds=0.02, group=1, share=0.05)
    return Commands(tmp_path_factory.mktemp("kills"), pace, objects=3, more=2, views=5, size=16)


@pytest.mark.parametrize("command", ["train", "add"])
def test_killed_runs_that_go_on_end_as_if_nothing_had_happened(commands, command, tmp_path):
    seed = secrets.randbelow(1 << 31)
    try:
        commands.killed(command, tmp_path / "run", random.Random(seed), 2)
    except Damage as damage:
        raise AssertionError(f"seed {seed}, {command}: {damage}") from damage
