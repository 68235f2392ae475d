"""The tiny preset, trained for seconds, must beat guessing by decibels; and what is measured must be measured right."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from safetensors import safe_open

from fusedplanes import datasets
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import composite_over
from fusedplanes.licences import records_to_json
from fusedplanes.planes.config import preset
from fusedplanes.planes.evaluate import evaluate
from fusedplanes.planes.export import export_mesh, export_planes
from fusedplanes.planes.model import load
from fusedplanes.planes.report import write_report
from fusedplanes.planes.run import train
from fusedplanes.training.metrics import psnr

REAL = Path(os.environ.get("FUSEDPLANES_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
REAL_CARS = REAL / "classes" / "cars"
SOURCES = ["procedural", *(["real"] if REAL_CARS.is_dir() else [])]


@pytest.fixture(scope="module", params=SOURCES)
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "procedural":
        datasets.make_class("cars", objects=6, views=30, size=32, out=folder / "data", quiet=True)
    else:
        meshes = folder / "meshes"
        meshes.mkdir()
        for path in sorted(REAL_CARS.glob("kenney_*.glb"))[:6]:
            (meshes / path.name).symlink_to(path)
        datasets.from_meshes(meshes, folder / "data", views=30, size=32, quiet=True)
    dataset = datasets.load(folder / "data")
    summary = train(dataset, folder / "run", config=preset("tiny"), watch_seconds=0, quiet=True)
    model = load(folder / "run")
    return dataset, model, evaluate(model, dataset), summary


def test_tiny_training_beats_every_floor_by_three_decibels(trained):
    _, _, result, _ = trained
    floor = max(floor.psnr_foreground for floor in result.floors.values())
    assert result.average.psnr_foreground > floor + 3
    assert result.average.psnr > 18


def test_the_average_is_the_average_of_each_image_rendered_alone(trained):
    dataset, model, result, _ = trained
    expected = []
    for row in result.objects:
        held_out = dataset[row.id].views("test")
        truth = composite_over(held_out.images, torch.ones(3))
        values = [
            psnr(model.render(row.id, held_out.cameras[i]).color[None], truth[i : i + 1]) for i in range(row.views)
        ]
        expected.append(torch.cat(values).mean().item())
    assert result.average.psnr == pytest.approx(np.mean(expected), abs=0.01)


def test_results_are_plain_json_and_a_table(trained):
    _, _, result, _ = trained
    value = json.loads(json.dumps(result.to_json()))
    assert set(value["floors"]) == {"nearest training view", "mean image", "class mean"}
    assert value["psnr"] == pytest.approx(result.average.psnr)
    assert "floor: mean image" in result.table()


def test_a_data_set_without_the_models_objects_is_refused(trained, ellipsoids):
    _, model, _, _ = trained
    with pytest.raises(DataError, match="none of the model's objects"):
        evaluate(model, ellipsoids)


def test_exported_planes_are_what_the_model_composes(trained, tmp_path):
    _, model, _, _ = trained
    path = tmp_path / "planes.safetensors"
    export_planes(model, model.object_ids[0], path)
    with safe_open(path, "pt") as file:
        assert file.metadata()["format"] == "fusedplanes-planes"
        assert json.loads(file.metadata()["licences"]) == records_to_json(model.licences) != []
        torch.testing.assert_close(file.get_tensor("planes"), model.planes(model.object_ids[0]))


def licences_in(path):
    """What a mesh file says of the licences of what it was made from."""
    data = path.read_bytes()
    if path.suffix == ".glb":
        length = int.from_bytes(data[12:16], "little")
        return json.loads(data[20 : 20 + length])["asset"]["extras"]["licences"]
    (line,) = [line for line in data[:4096].split(b"\n") if b"licences: " in line]
    assert line.startswith((b"comment ", b"# "))
    return json.loads(line.split(b"licences: ")[1])


@pytest.mark.parametrize("suffix", [".glb", ".ply", ".obj"])
def test_an_exported_mesh_lies_where_the_object_is_and_has_its_colours(trained, tmp_path, suffix):
    dataset, model, _, _ = trained
    name = model.object_ids[0]
    path = tmp_path / f"mesh{suffix}"
    export_mesh(model, name, path, resolution=32)
    mesh = trimesh.load(path, force="mesh")
    vertices = np.asarray(mesh.vertices)
    if suffix == ".glb":  # back from y-up
        vertices = vertices[:, [0, 2, 1]] * [1, -1, 1]
    if torch.equal(dataset[name].world_from_source.float(), torch.eye(4)):
        assert np.abs(vertices).max() <= 1.01
        size = np.ptp(vertices, axis=0)
        assert size.max() > 1.0 and size[2] < size.max()  # a car is longer than high, and z is up
    assert licences_in(path) == records_to_json(model.licences) != []
    if suffix == ".ply":
        colors = np.asarray(mesh.visual.vertex_colors)[:, :3]
        assert len(np.unique(colors // 32, axis=0)) > 4


def test_meshes_of_unknown_formats_or_absurd_size_are_refused(trained, tmp_path):
    _, model, _, _ = trained
    name = model.object_ids[0]
    with pytest.raises(ConfigError, match=r"\.glb, \.obj, \.ply"):
        export_mesh(model, name, tmp_path / "mesh.step")
    with pytest.raises(ConfigError, match="8 to 512"):
        export_mesh(model, name, tmp_path / "mesh.glb", resolution=100_000)


def test_the_report_shows_pictures_and_numbers(trained, tmp_path):
    dataset, model, result, summary = trained
    (tmp_path / "log.jsonl").write_text("")
    write_report(model, dataset, result, summary, tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert f"{result.average.psnr:.2f}" in page and "contact_sheet.png" in page
    assert (tmp_path / "contact_sheet.png").stat().st_size > 1000
    assert (tmp_path / "quality.svg").read_text().startswith("<svg")


def test_objects_that_could_not_be_measured_are_named(trained, capsys):
    from fusedplanes.cli import evaluate as command

    dataset, _, _, summary = trained
    one = dataset.path / dataset.ids[0]
    command.main([summary.run, "--data", str(one), "--objects", "1"])
    assert f"in no data set given: {sorted(dataset.ids[1:])[0]}, " in capsys.readouterr().out
