"""Archives of meshes: read where they are honest, refused in one line where they are not."""

import io
import stat
import tarfile
import zipfile

import pytest

from fusedplanes.datasets import archive, from_meshes
from fusedplanes.errors import DataError

TRIANGLE = b"v 0 0 0\nv 1 0 0\nv 0 1 0.5\nf 1 2 3\n"
SMALL = {"views": 3, "size": 8, "samples": 1, "quiet": True, "workers": 1}


def zipped(path, entries, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = options.get("mode", stat.S_IFREG | 0o644) << 16
            file.writestr(entry, data)
    return path


def tarred(path, entries, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz") as file:
        for name, data in entries.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.size = kind, len(data) if kind == tarfile.REGTYPE else 0
            entry.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            file.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.parametrize("suffix", [".zip", ".sh3f", ".tar.gz"])
def test_an_archive_is_a_folder_of_meshes(tmp_path, suffix):
    entries = {"chairs/red.obj": TRIANGLE, "chairs/blue.OBJ": TRIANGLE, "tables/one.obj": TRIANGLE, "read.me": b"x"}
    write = tarred if suffix == ".tar.gz" else zipped
    path = write(tmp_path / f"meshes{suffix}", entries)
    assert from_meshes(path, tmp_path / "all", **SMALL).made == ("chairs_blue", "chairs_red", "tables_one")
    assert from_meshes(path, tmp_path / "chairs", match="CHAIRS/*", **SMALL).made == ("chairs_blue", "chairs_red")
    again = from_meshes(path, tmp_path / "chairs", match="CHAIRS/*", **SMALL)
    assert (again.made, again.skipped) == ((), ("chairs_blue", "chairs_red"))
    with pytest.raises(DataError, match="no mesh file's path matches"):
        from_meshes(path, tmp_path / "lamps", match="*lamp*", **SMALL)


def test_an_archive_unpacks_into_a_folder_that_goes_away(tmp_path):
    with archive.unpacked(zipped(tmp_path / "a.zip", {"x/y.obj": TRIANGLE, "notes.txt": b"no mesh"})) as folder:
        assert [path.relative_to(folder).as_posix() for path in folder.rglob("*.*")] == ["x/y.obj"]
        assert (folder / "x/y.obj").read_bytes() == TRIANGLE
    assert not folder.exists()


@pytest.mark.parametrize("name", ["/etc/x.obj", "../x.obj", "a/../../x.obj", "C:/x.obj", "a\\..\\x.obj"])
@pytest.mark.parametrize("write", [zipped, tarred])
def test_entries_that_lead_out_are_refused(tmp_path, name, write):
    path = write(tmp_path / ("a.zip" if write is zipped else "a.tar.gz"), {"good.obj": TRIANGLE, name: TRIANGLE})
    with pytest.raises(DataError, match="leads out of the archive") as error:
        from_meshes(path, tmp_path / "out", **SMALL)
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "x.obj").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    with pytest.raises(DataError, match="link or a device"):
        from_meshes(tarred(tmp_path / "a.tar.gz", {"x.obj": b""}, kind), tmp_path / "out", **SMALL)


def test_links_in_a_zip_are_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", {"x.obj": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)
    with pytest.raises(DataError, match="link or a device"):
        from_meshes(path, tmp_path / "out", **SMALL)


def test_sizes_and_ratios_are_counted_not_believed(tmp_path, monkeypatch):
    bomb = zipped(tmp_path / "bomb.zip", {"x.obj": bytes(4 << 20)})
    monkeypatch.setattr(archive, "RATIO_FREE_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "_CHUNK", 1 << 16)
    with pytest.raises(DataError, match="more than 200 times its size"):
        from_meshes(bomb, tmp_path / "out", **SMALL)
    monkeypatch.setattr(archive, "FILE_BYTES_LIMIT", 1 << 20)
    monkeypatch.setattr(archive, "RATIO_FREE_BYTES", 64 << 20)
    with pytest.raises(DataError, match="unpacks to more than 1 MiB"):
        from_meshes(bomb, tmp_path / "out", **SMALL)
    monkeypatch.setattr(archive, "FILE_BYTES_LIMIT", 512 << 20)
    monkeypatch.setattr(archive, "TOTAL_BYTES_LIMIT", 1 << 20)
    with pytest.raises(DataError, match="unpacks to more than 0 GiB"):
        from_meshes(bomb, tmp_path / "out", **SMALL)
    monkeypatch.setattr(archive, "FILES_LIMIT", 2)
    for write, suffix in ((zipped, ".zip"), (tarred, ".tar.gz")):
        many = write(tmp_path / f"many{suffix}", {f"{index}.obj": TRIANGLE for index in range(3)})
        with pytest.raises(DataError, match="more than 2 entries"):
            from_meshes(many, tmp_path / "out", **SMALL)


def test_damaged_archives_are_named(tmp_path):
    whole = zipped(tmp_path / "a.zip", {f"{index}.obj": TRIANGLE * 50 for index in range(4)}).read_bytes()
    packed = tarred(tmp_path / "a.tar.gz", {f"{index}.obj": TRIANGLE * 50 for index in range(4)}).read_bytes()
    for name, data in (("a.zip", whole), ("a.tar.gz", packed)):
        for damaged in (b"", b"nothing", data[: len(data) // 2], data[:40] + bytes(40) + data[80:]):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(DataError, match=r"damaged|no mesh|cannot be unpacked") as error:
                from_meshes(tmp_path / name, tmp_path / "out", **SMALL)
            assert "\n" not in str(error.value)
