"""`fusedplanes objects`: list, delete and merge the objects of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from fusedplanes.cli.options import Options, parse
from fusedplanes.errors import ConfigError

USAGE = """usage: fusedplanes objects VERB RUN [OPTIONS]

  list     print the ids of a run's objects
  delete   delete objects; all others and the shared parts stay as they are
  merge    take over the objects that another copy of the run has and this one has not

`fusedplanes objects VERB --help` lists the options of a verb."""


@dataclass(frozen=True, kw_only=True)
class ListObjects(Options):
    """Print the ids of a run's objects, one per line."""

    run: Positional[Path]
    """Run folder."""


@dataclass(frozen=True, kw_only=True)
class DeleteObjects(Options):
    """Delete objects from a finished run."""

    run: Positional[Path]
    """Run folder."""
    objects: Positional[tuple[str, ...]]
    """Ids."""


@dataclass(frozen=True, kw_only=True)
class MergeObjects(Options):
    """Take over the objects that another copy of a run has and this one has not."""

    run: Positional[Path]
    """Run folder that is added to."""
    other: Positional[Path]
    """Run folder that is read."""


def main(arguments: list[str]) -> None:
    """Run `fusedplanes objects ARGUMENTS`.

    Raises:
        FusedPlanesError: the input is wrong.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    verb, *rest = arguments
    verbs = {"list": _list, "delete": _delete, "merge": _merge}
    if verb not in verbs:
        raise ConfigError(f"there is no command 'objects {verb}'; choose one of {', '.join(verbs)}")
    verbs[verb](rest)


def _list(arguments: list[str]) -> None:
    options = parse(ListObjects, arguments, "objects list")
    from fusedplanes.planes.objects import list_objects

    ids = list_objects(options.run)
    print(json.dumps({"objects": ids}) if options.json else "\n".join(ids))


def _delete(arguments: list[str]) -> None:
    options = parse(DeleteObjects, arguments, "objects delete")
    from fusedplanes.planes.objects import delete_objects

    if not options.objects:
        raise ConfigError("name the objects to delete; `fusedplanes objects list` names all")
    _tell(options, "deleted", delete_objects(options.run, options.objects))


def _merge(arguments: list[str]) -> None:
    options = parse(MergeObjects, arguments, "objects merge")
    from fusedplanes.planes.objects import merge_objects

    _tell(options, "merged", merge_objects(options.run, options.other))


def _tell(options: Options, word: str, ids: tuple[str, ...]) -> None:
    if options.json:
        print(json.dumps({word: list(ids)}))
    elif not options.quiet:
        print(f"{options.run}: {len(ids)} object{'' if len(ids) == 1 else 's'} {word}")
