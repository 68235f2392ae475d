"""`fusedplanes data`: what the shell sees."""

import json
import re

import pytest

from fusedplanes.cli import data
from fusedplanes.errors import ConfigError, DataError

SMALL = ["--views", "6", "--size", "16", "--samples", "1", "--workers", "1"]
TRIANGLE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"


def test_make_writes_a_data_set_and_says_so(tmp_path, capsys):
    data.main(["make", "cars", "--objects", "2", "--out", str(tmp_path / "cars"), *SMALL])
    told = capsys.readouterr()
    assert told.out.startswith(f"{tmp_path / 'cars'}: 2 objects made; ")
    assert re.search(r"1 object is made; 1 more of 6 views: about \d+ s and 0 MB with 1 process\n", told.err)
    data.main(["make", "cars", "--objects", "2", "--out", str(tmp_path / "cars"), *SMALL, "--quiet"])
    assert capsys.readouterr() == ("", "")


def test_json_is_one_object_and_nothing_else(tmp_path, capsys):
    data.main(["make", "cars", "--objects", "1", "--out", str(tmp_path / "cars"), "--json", "--seed", "3", *SMALL])
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert report["made"] == ["cars_00000"]
    assert report["failed"] == []
    assert told.err == ""
    header = json.loads((tmp_path / "cars/dataset.json").read_text())
    assert header["made_with"]["seed"] == 3
    assert header["format"] == "fusedplanes-dataset"


def test_from_meshes_reports_each_failure_and_goes_on(tmp_path, capsys):
    folder = tmp_path / "meshes"
    (folder / "a").mkdir(parents=True)
    (folder / "a/good.obj").write_text(TRIANGLE)
    (folder / "bad.obj").write_text("v 0 0 0\n")
    options = ["--out", str(tmp_path / "out"), "--licence", "CC0-1.0", "--up", "z", "--lighting", "unlit"]
    data.main(["from-meshes", str(folder), *options, *SMALL])
    told = capsys.readouterr()
    assert "1 object made, 1 failed" in told.out
    assert "bad.obj: failed: no faces" in told.err
    header = json.loads((tmp_path / "out/dataset.json").read_text())
    assert header["ids"] == ["a_good"]
    assert header["licence"] == "CC0-1.0"
    assert header["made_with"]["up"] == "z"


def test_check_names_what_is_wrong(tmp_path, capsys):
    out = tmp_path / "cars"
    data.main(["make", "cars", "--objects", "2", "--out", str(out), "--quiet", *SMALL])
    data.main(["check", str(out)])
    assert capsys.readouterr().out == f"{out}: 2 objects, 12 views of 16 pixels, nothing wrong was found\n"
    picture = out / "cars_00001/images/004.png"
    picture.write_bytes(picture.read_bytes()[:50])
    with pytest.raises(DataError, match="1 of 2 objects have problems"):
        data.main(["check", str(out)])
    assert str(picture) in capsys.readouterr().out
    with pytest.raises(DataError, match="1 of 2 objects have problems"):
        data.main(["check", str(out), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["objects"], report["views"]) == (2, 11)
    assert report["problems"][0]["object"] == "cars_00001"
    with pytest.raises(DataError, match="no such folder"):
        data.main(["check", str(tmp_path / "gone")])
    whole = tmp_path / "whole"
    data.main(["make", "cars", "--objects", "2", "--out", str(whole), "--quiet", *SMALL])
    with pytest.raises(DataError, match="1 of 2 objects have problems; see"):
        data.main(["check", str(whole), str(out)])
    told = capsys.readouterr().out
    assert f"{whole}: 2 objects" in told and str(picture) in told
    with pytest.raises(ConfigError, match="name the data set"):
        data.main(["check"])


def test_help_names_units_and_defaults(capsys):
    data.main([])
    assert "from-meshes" in capsys.readouterr().out
    for verb in ("make", "from-meshes", "check"):
        with pytest.raises(SystemExit) as ended:
            data.main([verb, "--help"])
        assert ended.value.code == 0
        told = capsys.readouterr().out
        assert f"usage: fusedplanes data {verb}" in told
        if verb != "check":
            assert "in pixels. (default: 128)" in " ".join(told.replace("│", " ").split())


def test_wrong_words_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no command 'data destroy'; choose one of make, from-meshes, check"):
        data.main(["destroy"])
    with pytest.raises(ConfigError, match="class 'dragons'"):
        data.main(["make", "dragons", "--out", str(tmp_path / "x")])
    out = ["--out", str(tmp_path / "x")]
    for arguments, message in (
        (["make", "cars", "--size", "large", *out], "--size.*'large'; see `fusedplanes data make --help`"),
        (["make", "cars", "--lighting", "dim", *out], "invalid choice 'dim' for argument '--lighting'"),
        (["make", "cars", "--sise", "3", *out], "Unrecognized options: --sise"),
        (["make"], "Missing from fusedplanes data make: .*--out"),
        (["make", "cars", "--views", "1", *out], "views 1: at least 2"),
        (["make", "cars", "--size", "0", *out], "size 0: images have at least 1 pixel"),
        (["from-meshes", str(tmp_path / "none"), *out], "no such folder; name one that holds"),
        (["from-meshes", __file__, *out], "is a file; name the folder"),
    ):
        with pytest.raises((ConfigError, DataError), match=message) as error:
            data.main(arguments)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "x").exists()


def test_nothing_is_left_when_no_mesh_could_be_made(tmp_path):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes/bad.glb").write_text("not a glb")
    with pytest.raises(DataError, match=r"the first, bad\.glb: .*neither binary glTF nor JSON"):
        data.main(["from-meshes", str(tmp_path / "meshes"), "--out", str(tmp_path / "out"), "--quiet", *SMALL])
    assert not (tmp_path / "out").exists()
