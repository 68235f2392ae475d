"""The errors a user can meet. Each message is one line that names the file, field or index, the value, and the remedy.

The shell prints that line and exits with status 2; from Python they are ordinary exceptions.
"""

from collections.abc import Sequence


class FusedPlanesError(Exception):
    """Base of every error the library raises on purpose."""


class DataError(FusedPlanesError):
    """An input (data set, image, mesh, camera, array) is not what it should be."""


class ConfigError(FusedPlanesError):
    """A setting or a combination of settings makes no sense, or an optional dependency it needs is missing."""


class CheckpointError(FusedPlanesError):
    """A run folder is missing, damaged, or was written by a newer version."""


class BackendUnavailable(FusedPlanesError):
    """A kernel backend was asked for that this machine or this tensor cannot use."""


def shown(value: object) -> str:
    """A value for a message: its `repr` on one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def first_few(names: Sequence[str]) -> str:
    """At most three names for a message, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
