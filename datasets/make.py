"""Make data sets: from procedural classes and from folders of mesh files, object by object, resumable."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fusedplanes.cameras import Cameras
from fusedplanes.datasets import camera_rigs, frames, layout, procedural, rasterize, ray_cast
from fusedplanes.datasets.archive import SUFFIXES as ARCHIVES
from fusedplanes.datasets.archive import is_archive, unpacked
from fusedplanes.datasets.ids import unique_ids
from fusedplanes.datasets.mesh_files import SUFFIXES, UP_AXES, load_mesh
from fusedplanes.datasets.shading import check_options
from fusedplanes.datasets.textured_mesh import TexturedMesh
from fusedplanes.errors import ConfigError, DataError, FusedPlanesError
from fusedplanes.multiview import MultiViewObject

_HEADER_EVERY_SECONDS = 20.0
# Starting a worker costs some seconds of imports, so a little work is done faster without.
_WORKER_START_SECONDS = 4.0
_WORKERS_PAY_FROM_SECONDS = 10.0


@dataclass(frozen=True)
class Failure:
    """An object that could not be made.

    Attributes:
        source: the mesh file, relative to its folder, or the procedural object's id.
        reason: one line.
    """

    source: str
    reason: str


@dataclass(frozen=True)
class MakeReport:
    """What a run of a maker did.

    Attributes:
        out: the data set's folder.
        made: ids that this run added.
        skipped: ids that were complete before.
        failed: what could not be made, and why.
        warnings: remarks such as missing textures.
        seconds: wall time.
        bytes: written by this run.
    """

    out: str
    made: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: tuple[Failure, ...]
    warnings: tuple[str, ...]
    seconds: float
    bytes: int


@dataclass(frozen=True)
class _Rendering:
    """How every object of a data set is rendered; recorded in the data set, and the same when it is resumed."""

    views: int
    size: int
    cameras: str
    lighting: str
    samples: int
    depth: bool


class _Source(Protocol):
    """Where an object comes from."""

    id: str
    name: str

    def mesh(self) -> tuple[TexturedMesh, tuple[str, ...]]: ...


@dataclass(frozen=True)
class _ProceduralSource:
    class_name: str
    index: int
    seed: int

    @property
    def id(self) -> str:
        return procedural.object_id(self.class_name, self.index)

    @property
    def name(self) -> str:
        return self.id

    def mesh(self) -> tuple[TexturedMesh, tuple[str, ...]]:
        return procedural.make_mesh(self.class_name, self.index, seed=self.seed), ()


@dataclass(frozen=True)
class _FileSource:
    id: str
    folder: Path
    name: str
    up: str

    def mesh(self) -> tuple[TexturedMesh, tuple[str, ...]]:
        path = self.folder / self.name
        try:
            return load_mesh(path, up=self.up, asset_folder=asset_folder(path, self.folder))
        except DataError as error:
            # The report names the file already, relative to the collection.
            raise DataError(str(error).removeprefix(f"{path}: ")) from error


@dataclass(frozen=True)
class _Outcome:
    """What became of one source."""

    source: _Source
    seconds: float
    bytes: int = 0
    warnings: tuple[str, ...] = ()
    error: str | None = None


# Public makers ------------------------------------------------------------------------------------------------------


def make_class(
    name: str,
    *,
    objects: int,
    out: str | Path,
    views: int | None = None,
    size: int = 128,
    seed: int = 0,
    cameras: str = "sphere",
    lighting: str = "fixed",
    samples: int = 4,
    depth: bool = False,
    workers: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> MakeReport:
    """Make a data set of a procedural class. The same arguments give the same files.

    An interrupted run is resumed by calling it again, and more ``objects`` extend a data set.

    Args:
        name: one of `fusedplanes.datasets.procedural.CLASSES`.
        objects: how many.
        out: folder of the data set, made if missing.
        views: images per object; None takes 50, or 160 for the paper's cameras. A tenth is held out.
        size: side of the images in pixels.
        seed: another seed gives other objects.
        cameras: "sphere", "upper-hemisphere" or "paper", see `camera_rigs.rig`.
        lighting: "fixed" (stands still in the world) or "unlit".
        samples: rays per pixel along each side.
        depth: also write camera-z depth.
        workers: processes; None or 1 works in this one. A script that asks for more needs the usual
            ``if __name__ == "__main__":`` guard, as they start by importing it.
        overwrite: delete what was made with other options.
        quiet: no progress and no remarks on standard error.

    Raises:
        ConfigError: an argument is out of range.
        DataError: ``out`` holds something else, or a data set made with other options.

    Example:
        >>> report = make_class("cars", objects=2, views=10, size=32, out="cars", quiet=True)  # doctest: +SKIP
        >>> report.made  # doctest: +SKIP
        ('cars_00000', 'cars_00001')
    """
    if name not in procedural.CLASSES:
        raise ConfigError(f"class '{name}': choose one of {', '.join(procedural.CLASSES)}")
    if objects < 1:
        raise ConfigError(f"objects {objects}: at least 1 is needed")
    if seed < 0:
        raise ConfigError(f"seed {seed}: 0 or more is needed")
    rendering = _rendering(views, size, cameras, lighting, samples, depth)
    sources = [_ProceduralSource(name, index, seed) for index in range(objects)]
    made_with = {"class": name, "seed": seed, **asdict(rendering)}
    return _make(sources, Path(out), rendering, made_with, "CC0-1.0", workers, overwrite, quiet)


def from_meshes(
    mesh_dir: str | Path,
    out: str | Path,
    *,
    views: int | None = None,
    size: int = 128,
    cameras: str = "sphere",
    lighting: str = "fixed",
    samples: int = 4,
    depth: bool = False,
    match: str = "*",
    up: str = "auto",
    licence: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> MakeReport:
    """Make a data set from every .glb, .gltf, .obj, .ply and .stl file in a folder and its sub-folders.

    A file that cannot be read is reported and left out. An id is the file's relative path without its suffix, made a
    plain and unique name. An interrupted run is resumed by calling it again; files that were added since are made.

    Args:
        mesh_dir: searched recursively; hidden files and folders are passed over. Or an archive of meshes (.zip, .sh3f,
            .tar, .tar.gz), which is unpacked to a temporary folder.
        out: folder of the data set, made if missing.
        match: only files whose relative path matches this pattern, such as "*chair*"; case does not count.
        up: "y", "z" or "auto", see `load_mesh`.
        licence: what the images may be used for, recorded in the data set.
        views, size, cameras, lighting, samples, depth, workers, overwrite, quiet: see `make_class`.

    Raises:
        ConfigError: an argument is out of range.
        DataError: no mesh file is found, none could be made, or ``out`` holds something else.

    Example:
        >>> from_meshes("ShapeNetCore.v2/02958343", "cars", cameras="paper").failed  # doctest: +SKIP
        ()
    """
    if up not in ("auto", "y", "z"):
        raise ConfigError(f"up '{up}': choose auto, y or z")
    rendering = _rendering(views, size, cameras, lighting, samples, depth)
    place = Path(mesh_dir)
    with unpacked(place) if is_archive(place) else nullcontext(place) as folder:
        names = [name for name in find_meshes(folder, place) if fnmatch(name.lower(), match.lower())]
        if not names:
            raise DataError(f"{place}: no mesh file's path matches '{match}'; `*chair*` matches all with chair in it")
        sources = [_FileSource(item, folder, name, up) for name, item in unique_ids(names).items()]
        made_with = {"meshes": place.resolve().name, "up": up, **asdict(rendering)}
        if match != "*":
            made_with["match"] = match
        report = _make(sources, Path(out), rendering, made_with, licence, workers, overwrite, quiet)
    if not report.made and not report.skipped:
        first = report.failed[0]
        _remove_if_empty(Path(out))
        raise DataError(
            f"{place}: none of {len(names)} mesh files could be made; the first, {first.source}: {first.reason}"
        )
    return report


def _remove_if_empty(out: Path) -> None:
    """Leave nothing of a data set that came to nothing."""
    if layout.read_header(out).ids:
        return
    (out / "dataset.json").unlink()
    with suppress(OSError):
        out.rmdir()


def _rendering(views: int | None, size: int, cameras: str, lighting: str, samples: int, depth: bool) -> _Rendering:
    if views is None:
        views = camera_rigs.PAPER_VIEWS if cameras == "paper" else 50
    if views < 2:
        raise ConfigError(f"views {views}: at least 2 are needed, one to train on and one to hold out")
    camera_rigs.rig(cameras, views, size)
    check_options(lighting, samples)
    if size > frames.SIDE_LIMIT:
        raise ConfigError(f"size {size}: images have at most {frames.SIDE_LIMIT} pixels per side")
    if views * size * size * 16 > frames.OBJECT_BYTES_LIMIT:
        limit = frames.OBJECT_BYTES_LIMIT >> 30
        raise ConfigError(f"{views} views of {size} pixels exceed {limit} GiB per object; lower --views or --size")
    return _Rendering(views, size, cameras, lighting, samples, depth)


# Files and ids ------------------------------------------------------------------------------------------------------


def find_meshes(folder: Path, place: Path) -> list[str]:
    """Mesh files under a folder as sorted relative paths with forward slashes; ``place`` is what errors name.

    Raises:
        DataError: no such folder, or it has no mesh file.
    """
    if folder.is_file():
        raise DataError(f"{place}: is a file; name the folder it lies in, or an archive ({', '.join(ARCHIVES)})")
    if not folder.is_dir():
        raise DataError(f"{place}: no such folder; name one that holds {', '.join(UP_AXES)} files")
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        for name in files:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                found.append((Path(parent) / name).relative_to(folder).as_posix())
    if not found:
        raise DataError(f"{place}: no mesh files found; expected {', '.join(UP_AXES)} here or in sub-folders")
    return sorted(found)


def asset_folder(path: Path, collection: Path) -> Path:
    """The folder that a mesh's references may not leave: its own.

    Collections that keep ``models/`` and ``images/`` side by side in one folder per object (ShapeNetCore) count that
    folder as the asset, unless it lies outside the collection.
    """
    parent = path.parent
    return parent.parent if parent.name == "models" and parent != collection else parent


# One object ---------------------------------------------------------------------------------------------------------


def fit_to_views(mesh: TexturedMesh, cameras: Cameras) -> TexturedMesh:
    """Scale a mesh so that its box stays in [-0.9, 0.9]^3 and fills at most 95 % of any view."""
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    center, extent = (low + high) / 2, (high - low).max()
    scale = 1.8 / extent
    half = (high - low) / 2
    scale = min(scale, camera_rigs.largest_scale(-half, half, cameras))
    similarity = np.diag([scale, scale, scale, 1.0])
    similarity[:3, 3] = -center * scale
    return replace(
        mesh,
        vertices=(mesh.vertices - center) * scale,
        world_from_source=similarity @ mesh.world_from_source,
    )


def render_object(
    mesh: TexturedMesh, object_id: str, cameras: Cameras, *, lighting: str = "fixed", samples: int = 4
) -> MultiViewObject:
    """Fit a mesh to the cameras and render it, by embree where it is installed, else with the z-buffer.

    Raises:
        DataError: nothing of it is visible in any view.
    """
    fitted = fit_to_views(mesh, cameras)
    renderer = ray_cast if ray_cast.is_available() else rasterize
    images, depth = renderer.render(fitted, cameras, lighting=lighting, samples=samples)
    if not images[..., 3].any():
        raise DataError("nothing is visible: the surface is transparent or vanishingly thin in every view")
    return MultiViewObject(
        object_id,
        torch.from_numpy(images),
        cameras,
        camera_rigs.split(len(cameras)),
        torch.from_numpy(depth),
        torch.from_numpy(fitted.world_from_source),
    )


def _make_object(source: _Source, out: Path, rendering: _Rendering) -> _Outcome:
    start = time.perf_counter()
    try:
        mesh, warnings = source.mesh()
        cameras = camera_rigs.rig(rendering.cameras, rendering.views, rendering.size)
        item = render_object(mesh, source.id, cameras, lighting=rendering.lighting, samples=rendering.samples)
    except FusedPlanesError as error:
        return _Outcome(source, time.perf_counter() - start, error=str(error))
    except Exception as error:  # one mesh, however strange, must not end the run
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return _Outcome(source, time.perf_counter() - start, error=reason)
    written = layout.write_object(out, item if rendering.depth else replace(item, depth=None), source_file=source.name)
    return _Outcome(source, time.perf_counter() - start, written, warnings)


# The run ------------------------------------------------------------------------------------------------------------


def _make(
    sources: list[_Source],
    out: Path,
    rendering: _Rendering,
    made_with: dict,
    licence: str | None,
    workers: int | None,
    overwrite: bool,
    quiet: bool,
) -> MakeReport:
    workers = 1 if workers is None else workers
    if workers < 1:
        raise ConfigError(f"workers {workers}: at least 1 is needed")
    start = time.perf_counter()
    console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    with _sole_writer(out), _writing(out):
        earlier = _earlier_ids(out, made_with, overwrite)
        if overwrite:
            for item in {*earlier, *(source.id for source in sources)}:
                layout.remove_object(out, item)
            earlier = ()
        layout.remove_partial(out)
        skipped = [source.id for source in sources if layout.is_complete(out, source.id)]
        pending = [source for source in sources if source.id not in set(skipped)]
        outcomes: list[_Outcome] = []

        def write_header(complete: bool) -> None:
            asked = [source.id for source in sources]
            ids = [item for item in dict.fromkeys([*asked, *earlier]) if layout.is_complete(out, item)]
            failed = [{"source": outcome.source.name, "reason": outcome.error} for outcome in outcomes if outcome.error]
            splits = camera_rigs.split(rendering.views)
            layout.write_header(
                out,
                layout.DatasetHeader(
                    tuple(ids),
                    rendering.size,
                    {name: splits.count(name) for name in frames.SPLITS},
                    licence,
                    made_with,
                    tuple(failed),
                    complete,
                ),
            )

        write_header(complete=False)
        written_at = time.perf_counter()
        finished = False
        try:
            with _progress(console, len(pending)) as advance:
                for outcome in _run(pending, out, rendering, workers, console):
                    outcomes.append(outcome)
                    advance()
                    for line in [f"failed: {outcome.error}"] if outcome.error else outcome.warnings:
                        console.print(_printable(f"{outcome.source.name}: {line}"), markup=False)
                    if time.perf_counter() - written_at > _HEADER_EVERY_SECONDS:
                        write_header(complete=False)
                        written_at = time.perf_counter()
            finished = True
        finally:
            write_header(complete=finished)
    return MakeReport(
        str(out),
        tuple(outcome.source.id for outcome in outcomes if outcome.error is None),
        tuple(skipped),
        tuple(Failure(outcome.source.name, outcome.error) for outcome in outcomes if outcome.error),
        tuple(f"{outcome.source.name}: {line}" for outcome in outcomes for line in outcome.warnings),
        time.perf_counter() - start,
        sum(outcome.bytes for outcome in outcomes),
    )


@contextmanager
def _sole_writer(out: Path) -> Iterator[None]:
    """Hold the folder against a second run, where the system has such locks."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out}: the folder cannot be made ({error.strerror}); choose another --out") from error
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{out}: another run is writing here; wait for it or choose another folder") from error
        yield
    finally:
        os.close(handle)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """A disk that is full or a folder that is read-only ends the run with one line."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{out}: cannot be written ({error.strerror or error}); free space or make it writable, then run this "
            "again: objects that are complete are kept"
        ) from error


def _earlier_ids(out: Path, made_with: dict, overwrite: bool) -> tuple[str, ...]:
    """Objects of the data set that is to be continued; refuses folders that are none, and other options."""
    if not (out / "dataset.json").is_file():
        foreign = next((path.name for path in sorted(out.iterdir()) if not path.name.startswith(".")), None)
        if foreign is not None:
            raise DataError(f"{out}: holds '{foreign}' and is no data set: it is not touched, choose an empty folder")
        return ()
    header = layout.read_header(out)
    if overwrite:
        return header.ids
    for name in {**header.made_with, **made_with}:
        found, asked = header.made_with.get(name), made_with.get(name)
        if found != asked:
            raise DataError(
                f"{out}: was made with {name} {found!r}, not {asked!r}; choose another folder or pass --overwrite"
            )
    return header.ids


def _run(
    sources: list[_Source], out: Path, rendering: _Rendering, workers: int, console: Console
) -> Iterator[_Outcome]:
    """Make all sources. The first that succeeds, made here, tells how long the rest will take."""
    rest = list(sources)
    while rest:
        first = _make_object(rest.pop(0), out, rendering)
        yield first
        if first.error is None:
            break
    if not rest:
        return
    predicted = first.seconds * len(rest)
    workers = min(workers, len(rest)) if predicted > _WORKERS_PAY_FROM_SECONDS else 1
    if workers > 1:
        predicted = predicted / workers + _WORKER_START_SECONDS
    console.print(
        f"1 object is made; {len(rest)} more of {rendering.views} views: about "
        f"{_duration(predicted)} and {_megabytes(first.bytes * len(rest))} "
        f"with {workers} process{'es' if workers != 1 else ''}",
        markup=False,
    )
    if workers > 1:
        yield from _run_in_workers(rest, out, rendering, workers, console)
    else:
        yield from (_make_object(source, out, rendering) for source in rest)


def _run_in_workers(
    sources: list[_Source], out: Path, rendering: _Rendering, workers: int, console: Console
) -> Iterator[_Outcome]:
    pending = dict.fromkeys(sources)
    while pending:
        with _pool(min(workers, len(pending))) as pool:
            try:
                # Fails where the main program cannot be imported again, as in an interactive session's script.
                pool.submit(os.getpid).result()
            except BrokenProcessPool:
                console.print("worker processes cannot start here; going on in this one", markup=False)
                yield from (_make_object(source, out, rendering) for source in pending)
                return
            futures = {pool.submit(_make_object, source, out, rendering): source for source in pending}
            try:
                for future in as_completed(futures):
                    outcome = future.result()
                    del pending[futures[future]]
                    yield outcome
            except BrokenProcessPool:
                pass
        # If a worker died, the culprit is among the oldest that are left: they go one by one through a single process.
        with _pool(1) as pool:
            for source in list(pending)[: 2 * workers + 1]:
                del pending[source]
                try:
                    yield pool.submit(_make_object, source, out, rendering).result()
                except BrokenProcessPool:
                    yield _Outcome(source, 0.0, error="its worker process died (out of memory, or a crash)")
                    break


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_prepare_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    # The parent hears Ctrl-C and lets running objects finish; an orphan must not live on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextmanager
def _progress(console: Console, total: int) -> Iterator:
    with ExitStack() as stack:
        if console.quiet or not console.is_terminal or total < 2:
            yield lambda: None
            return
        columns = TextColumn("objects"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        bar = stack.enter_context(Progress(*columns, console=console, transient=True))
        task = bar.add_task("objects", total=total)
        yield lambda: bar.advance(task)


def _printable(text: str) -> str:
    """Text without what a file's name could do to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
