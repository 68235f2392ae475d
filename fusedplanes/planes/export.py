"""Write trained objects in forms that other programs read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.fields import ObjectPlanes, query_field
from fusedplanes.files import write_atomically
from fusedplanes.licences import LicenceRecord, records_text, records_to_json
from fusedplanes.planes.model import PlanesModel

SURFACE_THICKNESS = 0.05
"""The mesh is drawn where crossing this length (world units) would absorb half of the light."""
COLOR_VIEWS = 26
MESH_FORMATS = (".glb", ".obj", ".ply")


def export_planes(model: PlanesModel, item: str | ObjectPlanes, path: str | Path) -> None:
    """Write the composed planes ``[3*C, H, W]`` of an object as safetensors, with layout and licences in the metadata.

    Raises:
        ConfigError: a suffix other than .safetensors.
    """
    from safetensors.torch import save

    path = Path(path)
    if path.suffix != ".safetensors":
        raise ConfigError(f"{path}: planes are written as .safetensors")
    metadata = {
        "format": "fusedplanes-planes",
        "format_version": "1",
        "order": "XY, XZ, YZ; micro channels first in each",
        "box": "[-1, 1]^3, index 0 at the -1 side, cells as align_corners=False",
        "licences": records_text(model.licences),
    }
    write_atomically(path, save({"planes": model.planes(item).cpu()}, metadata))


def export_mesh(model: PlanesModel, item: str | ObjectPlanes, path: str | Path, *, resolution: int = 96) -> float:
    """Draw an object's surface as triangles with vertex colours.

    The surface is a level set of the density (marching cubes). Colours are blended from 26 rendered views: only those
    that see a vertex count, and the more the more frontally they see it. The mesh is in the coordinates of the object's
    source file; .glb is always y-up, as glTF requires. Licences of what the run was made from come along.

    Args:
        path: .glb, .obj or .ply.
        resolution: cells along a side of the box, 8 to 512.

    Returns:
        How much of the object's silhouettes the mesh fills, 0 to 1. Far below 1, most of what is rendered is mist that
        no surface was drawn in: train longer.

    Raises:
        ConfigError: another suffix or resolution, or scikit-image is not installed.
        DataError: the object has no surface.
    """
    import trimesh

    path = Path(path)
    if path.suffix.lower() not in MESH_FORMATS:
        raise ConfigError(f"{path}: cannot write '{path.suffix}' meshes; choose one of {', '.join(MESH_FORMATS)}")
    if not 8 <= resolution <= 512:
        raise ConfigError(f"resolution {resolution}: choose 8 to 512 cells")
    item = model.object_planes(item)
    vertices, faces, normals = _surface(model, item, resolution)
    cameras = _surrounding_cameras()
    geometry = model.geometry(item, cameras)
    filled = _silhouette_share(vertices, cameras, geometry.alpha.cpu() > 0.5, 2 / resolution)
    colors = _vertex_colors(model.render(item, cameras).color.cpu(), geometry.depth.cpu(), cameras, vertices, normals)
    if item.world_from_source is not None:
        source_from_world = np.linalg.inv(item.world_from_source.cpu().double().numpy())
        vertices = vertices @ source_from_world[:3, :3].T + source_from_world[:3, 3]
        up = source_from_world[:3, 2]
    else:
        up = np.array([0.0, 0.0, 1.0])
    if path.suffix.lower() == ".glb" and np.argmax(np.abs(up)) != 1:
        vertices = vertices[:, [0, 2, 1]] * np.array([1.0, 1.0, -1.0])
    mesh = trimesh.Trimesh(vertices, faces, vertex_colors=colors, process=False)
    write_atomically(path, _mesh_file(mesh, path.suffix.lower(), model.licences))
    return filled


def _mesh_file(mesh, suffix: str, licences: tuple[LicenceRecord, ...]) -> bytes:
    """A mesh in one of `MESH_FORMATS`, with its licences where each format keeps such things: glTF in the extras of its
    asset, the others in a comment of their header."""
    if suffix == ".glb":

        def note(tree: dict) -> None:
            tree["asset"]["extras"] = {"licences": records_to_json(licences)}

        return mesh.export(file_type="glb", tree_postprocessor=note)
    comment = f"licences: {records_text(licences)}"
    if suffix == ".obj":
        text = mesh.export(file_type="obj", header=comment)
        return text.encode() if isinstance(text, str) else text
    return mesh.export(file_type="ply").replace(b"\nelement", f"\ncomment {comment}\nelement".encode(), 1)


@torch.no_grad()
def _density_grid(model: PlanesModel, item: ObjectPlanes, resolution: int) -> np.ndarray:
    """Raw density at the corners of the grid, ``[n, n, n]`` over x, y, z, a slice of x at a time."""
    planes, decoder = model.composed(item)
    line = torch.linspace(-1, 1, resolution + 1, device=model.device, dtype=torch.float32)
    y, z = torch.meshgrid(line, line, indexing="ij")
    slices = []
    for x in line:
        points = torch.stack([x.expand_as(y), y, z], -1).flatten(0, 1)
        density, _ = query_field(planes, decoder, points)
        slices.append(density.view_as(y).cpu())
    return torch.stack(slices).numpy()


def _surface(model: PlanesModel, item: ObjectPlanes, resolution: int):
    try:
        from skimage.measure import marching_cubes
    except ImportError as error:
        raise ConfigError(
            "mesh export needs scikit-image; install it with: pip install 'fusedplanes[meshes]'"
        ) from error
    grid = _density_grid(model, item, resolution)
    # softplus(raw - 1) = ln 2 / thickness, solved for the raw density.
    level = 1 + math.log(math.expm1(math.log(2) / SURFACE_THICKNESS))
    # The box's own faces close the surface.
    grid = np.pad(grid, 1, constant_values=min(float(grid.min()), level - 1))
    if grid.max() <= level:
        raise DataError("mesh: the object has no surface yet: its density is below the level everywhere; train longer")
    vertices, faces, normals, _ = marching_cubes(grid, level, gradient_direction="ascent")
    step = 2 / resolution
    return (vertices - 1) * step - 1, faces, normals / np.linalg.norm(normals, axis=1, keepdims=True).clip(1e-12)


def _silhouette_share(vertices: np.ndarray, cameras: Cameras, silhouettes: Tensor, spacing: float) -> float:
    """How many pixels of ``silhouettes [V, H, W]`` have a vertex in them or near, vertices being ``spacing`` apart."""
    points = torch.from_numpy(np.ascontiguousarray(vertices)).float()
    marks = torch.zeros_like(silhouettes, dtype=torch.float32)
    for view in range(len(cameras)):
        _, pixel = _projected(points, cameras[view])
        column, row = pixel.long().unbind(-1)
        inside = (column >= 0) & (column < cameras.width) & (row >= 0) & (row < cameras.height)
        marks[view, row[inside], column[inside]] = 1
    nearest = cameras.positions.norm(dim=-1).min() - 1
    reach = 1 + math.ceil(spacing * float(cameras.intrinsics[..., 0, 0].max() / nearest))
    near = torch.nn.functional.max_pool2d(marks[:, None], 2 * reach + 1, stride=1, padding=reach)[:, 0] > 0
    return float((near & silhouettes).sum() / silhouettes.sum().clamp_min(1))


def _projected(points: Tensor, camera: Cameras) -> tuple[Tensor, Tensor]:
    """Depth ``[N, 1]`` along the camera's axis and pixel coordinates ``[N, 2]`` of points ``[N, 3]``."""
    in_camera = (points - camera.positions) @ camera.camera_to_world[:3, :3]
    z = in_camera[:, 2:]
    return z, ((in_camera / z) @ camera.intrinsics.T)[:, :2]


def _vertex_colors(
    rendered: Tensor, depth: Tensor, cameras: Cameras, vertices: np.ndarray, normals: np.ndarray
) -> np.ndarray:
    from scipy.spatial import cKDTree

    points = torch.from_numpy(np.ascontiguousarray(vertices)).float()
    facing = torch.from_numpy(np.ascontiguousarray(normals)).float()
    total = torch.zeros(len(points), 3, dtype=torch.float32)
    weight = torch.zeros(len(points), 1, dtype=torch.float32)
    for view in range(len(cameras)):
        camera = cameras[view]
        z, pixel = _projected(points, camera)
        place = pixel / torch.tensor([camera.width, camera.height]) * 2 - 1
        seen = _sample(depth[view][..., None], place)
        color = _sample(rendered[view], place)
        toward = torch.nn.functional.normalize(camera.positions - points, dim=-1)
        frontal = (toward * facing).sum(-1, keepdim=True).abs()
        visible = (z <= seen + SURFACE_THICKNESS) & (seen > 0)
        share = visible * frontal.square()
        total += share * color
        weight += share
    colors = (total / weight.clamp_min(1e-8)).numpy()
    known = weight[:, 0].numpy() > 1e-6
    if known.any() and not known.all():
        # Vertices that no view sees (the inside, deep folds) take the colour of the nearest one that is seen.
        nearest = cKDTree(vertices[known]).query(vertices[~known])[1]
        colors[~known] = colors[known][nearest]
    return (colors.clip(0, 1) * 255 + 0.5).astype(np.uint8)


def _surrounding_cameras() -> Cameras:
    """26 directions: the faces, edges and corners of a cube."""
    grid = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float32)
    directions = torch.cartesian_prod(grid, grid, grid)
    directions = directions[directions.norm(dim=-1) > 0]
    assert len(directions) == COLOR_VIEWS
    return Cameras.look_at(2.7 * torch.nn.functional.normalize(directions, dim=-1), width=128, height=128)


def _sample(image: Tensor, place: Tensor) -> Tensor:
    """Values of ``[H, W, K]`` at ``[N, 2]`` in [-1, 1]."""
    grid = place[None, None]
    values = torch.nn.functional.grid_sample(image.permute(2, 0, 1)[None], grid, mode="nearest", align_corners=False)
    return values[0, :, 0].T
