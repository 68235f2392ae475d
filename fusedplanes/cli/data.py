"""`fusedplanes data`: make data sets and check them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from fusedplanes.cli.options import Options, parse
from fusedplanes.errors import ConfigError, DataError

USAGE = """usage: fusedplanes data VERB [OPTIONS]

  make          render a procedural class: `fusedplanes data make cars --out cars`
  from-meshes   render a folder of mesh files: `fusedplanes data from-meshes DIR --out DIR`
  check         read data sets whole and name what is wrong, file by file

`fusedplanes data VERB --help` lists the options of a verb, with units and defaults."""


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class RenderingOptions(Options):
    """How objects are rendered."""

    out: Path
    """Folder of the data set. A run that was interrupted is resumed; other options need another folder."""
    views: int = 0
    """Images per object; 0 takes 50, or 160 with --cameras paper. A tenth of them is held out for testing."""
    size: int = 128
    """Side of the images in pixels."""
    cameras: Literal["sphere", "upper-hemisphere", "paper"] = "sphere"
    """Where cameras stand: all round or above the horizon at distance 2.7, or as published: above it at 1.3."""
    lighting: Literal["fixed", "unlit"] = "fixed"
    """A key light and a sky that stand still in the world, or the bare surface colour."""
    samples: int = 4
    """Rays per pixel along each side (1 to 16): 4 makes 16 rays."""
    depth: bool = False
    """Also write depth along the camera's axis, in world units (the field's box has side 2)."""
    workers: int = field(default_factory=_processors)
    """Processes that work at once."""
    overwrite: bool = False
    """Delete the data set in the folder first."""


@dataclass(frozen=True, kw_only=True)
class Make(RenderingOptions):
    """Render a procedural class of objects, the same for the same options."""

    class_name: Positional[str]
    """Class of objects: airplanes, cars, chairs, houses, lamps, mugs or tables."""
    objects: int = 100
    """How many objects; a larger number extends a data set."""
    seed: int = 0
    """Another seed gives other objects."""


@dataclass(frozen=True, kw_only=True)
class FromMeshes(RenderingOptions):
    """Render every .glb, .gltf, .obj, .ply and .stl file of a folder and its sub-folders."""

    mesh_dir: Positional[Path]
    """Folder of mesh files, or an archive of them (.zip, .sh3f, .tar, .tar.gz)."""
    match: str = "*"
    """Only files whose path matches this pattern, such as "*chair*"; case does not count."""
    up: Literal["auto", "y", "z"] = "auto"
    """Up axis of .obj, .ply and .stl files; auto takes y for .obj and z for the others. glTF is y-up by definition."""
    licence: str = ""
    """What the images may be used for; recorded in the data set."""
    seed: int = 0
    """Accepted for uniformity: rendering meshes leaves nothing to chance."""


@dataclass(frozen=True, kw_only=True)
class Check(Options):
    """Read every file of data sets and name what is wrong; with --json, one line for each."""

    paths: Positional[tuple[Path, ...]]
    """Folder of the data set, or of several."""


def main(arguments: list[str]) -> None:
    """Run `fusedplanes data ARGUMENTS`.

    Raises:
        FusedPlanesError: the input is wrong; for `check`, when it found a problem.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    verb, *rest = arguments
    verbs = {"make": _make, "from-meshes": _from_meshes, "check": _check}
    if verb not in verbs:
        raise ConfigError(f"there is no command 'data {verb}'; choose one of {', '.join(verbs)}")
    verbs[verb](rest)


def _rendering(options: RenderingOptions) -> dict:
    names = ("size", "cameras", "lighting", "samples", "depth", "workers", "overwrite")
    chosen = {name: getattr(options, name) for name in names}
    return {**chosen, "views": options.views or None, "out": options.out, "quiet": options.quiet or options.json}


def _make(arguments: list[str]) -> None:
    options = parse(Make, arguments, "data make")
    from fusedplanes.datasets import make_class

    report = make_class(options.class_name, objects=options.objects, seed=options.seed, **_rendering(options))
    _tell(report, options)


def _from_meshes(arguments: list[str]) -> None:
    options = parse(FromMeshes, arguments, "data from-meshes")
    from fusedplanes.datasets import from_meshes

    report = from_meshes(
        options.mesh_dir, match=options.match, up=options.up, licence=options.licence or None, **_rendering(options)
    )
    _tell(report, options)


def _tell(report, options: RenderingOptions) -> None:
    if options.json:
        print(json.dumps(asdict(report)))
    elif not options.quiet:
        parts = [f"{len(report.made)} object{'' if len(report.made) == 1 else 's'} made"]
        if report.skipped:
            parts.append(f"{len(report.skipped)} were there before")
        if report.failed:
            parts.append(f"{len(report.failed)} failed")
        print(f"{report.out}: {', '.join(parts)}; {report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s")


def _check(arguments: list[str]) -> None:
    options = parse(Check, arguments, "data check")
    from fusedplanes.datasets import check

    if not options.paths:
        raise ConfigError("name the data set to check; see `fusedplanes data check --help`")
    found = []
    for path in options.paths:
        report = check(path)
        if options.json:
            print(json.dumps(asdict(report)))
        elif report.problems:
            for problem in report.problems:
                print(problem.problem)
        elif not options.quiet:
            count = f"{report.objects} objects, {report.views} views of {report.size} pixels"
            kind = "" if report.layout == "fusedplanes" else f" (layout {report.layout})"
            print(f"{path}: {count}, nothing wrong was found{kind}")
        if report.problems:
            damaged = len({problem.object for problem in report.problems})
            found.append(f"{path}: {damaged} of {report.objects} objects have problems")
    if found:
        raise DataError(f"{'; '.join(found)}; see the list above")
