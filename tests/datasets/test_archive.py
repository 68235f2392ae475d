"""Archives of meshes: read where they are honest, refused in one line where they are not."""

import bz2
import gzip
import io
import os
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


def tar_header(name, size, kind=tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


def pax_tar(fields, size=3):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive_file:
        entry = tarfile.TarInfo("a.obj")
        entry.size, entry.pax_headers = size, fields
        archive_file.addfile(entry, io.BytesIO(b"v" * size))
    return file.getvalue()


def refused(path, data, match):
    path.write_bytes(data)
    with pytest.raises(DataError, match=match) as error, archive.unpacked(path):
        pass
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_every_kind_are_read(tmp_path, suffix, layout):
    names = ["./plain.obj", "f" * 90 + "/" + "d" * 50 + "/stühle.obj"]
    if layout != tarfile.USTAR_FORMAT:
        names.append("/".join("x" * 100 for _ in range(5)) + "/" + "y" * 200 + ".obj")
    path = tmp_path / f"a{suffix}"
    with tarfile.open(path, "w" if suffix == ".tar" else "w:gz", format=layout) as file:
        folder = tarfile.TarInfo("./")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
        for index, name in enumerate(names):
            for content_of, data in ((f"{name}.txt", b"passed over"), (name, TRIANGLE * (index + 1) * 40)):
                entry = tarfile.TarInfo(content_of)
                entry.size = len(data)
                file.addfile(entry, io.BytesIO(data))
    with archive.unpacked(path) as folder:
        assert {found.relative_to(folder).as_posix() for found in folder.rglob("*.*")} == {
            name.removeprefix("./") for name in names
        }
        assert [(folder / name).read_bytes() for name in names] == [
            TRIANGLE * (index + 1) * 40 for index in range(len(names))
        ]


def test_headers_of_a_tar_are_not_read_whole_whatever_they_claim(tmp_path):
    long = tar_header("././@LongLink", 3 << 30, tarfile.GNUTYPE_LONGNAME)
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE):
        refused(
            tmp_path / "a.tar", tar_header("x", 3 << 30, kind) + bytes(4096), "headers of one entry claim 3221225984"
        )
    chain = tar_header("x", 1 << 19, tarfile.GNUTYPE_LONGNAME) + bytes(1 << 19)
    refused(tmp_path / "a.tar.gz", gzip.compress(chain * 3), "headers of one entry claim")
    # Only what the suffix says is unpacked: bzip2 and xz grow by a million at a time.
    refused(tmp_path / "a.tar", bz2.compress(long + bytes(1 << 20)), "damaged")
    refused(tmp_path / "a.tgz", bz2.compress(long + bytes(1 << 20)), "damaged or of an unknown kind")


def test_what_a_tar_passes_over_is_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "RATIO_FREE_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "_CHUNK", 1 << 16)
    skipped = tar_header("notes.txt", 8 << 20) + bytes(8 << 20) + bytes(1024)
    refused(tmp_path / "a.tar.gz", gzip.compress(skipped), "more than 200 times its size")
    behind = tar_header("a.obj", 0) + bytes(8 << 20)
    refused(tmp_path / "a.tar.gz", gzip.compress(behind), "more than 200 times its size")
    monkeypatch.setattr(archive, "TOTAL_BYTES_LIMIT", 1 << 20)
    refused(tmp_path / "a.tar.gz", gzip.compress(skipped), "more than 0 GiB; unpack it yourself")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zips_that_grow_without_bounds_are_refused(tmp_path, method):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive_file:
        archive_file.writestr("a.obj", TRIANGLE * 100)
    refused(tmp_path / "a.zip", file.getvalue(), r"entry 'a\.obj' is packed by the method .*; pack it with deflate")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"GNU.sparse.map": "x,y", "GNU.sparse.size": "1"}, "sparse; pack it without"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "zz"}, "sparse"),
        ({"size": "-5"}, "claims '-5' bytes"),
        ({"size": "9" * 5000}, "claims|damaged"),
        ({"size": "many"}, "claims 'many' bytes"),
        ({"path": "a\0b.obj"}, "leads out"),
        ({"path": "../b.obj"}, "leads out"),
    ],
)
def test_wrong_pax_headers_are_named(tmp_path, fields, message):
    refused(tmp_path / "a.tar", pax_tar(fields), message)


def test_any_changed_byte_of_an_archive_is_read_or_refused_in_one_line(tmp_path):
    deflated = zipped(tmp_path / "a.zip", {"é.obj": TRIANGLE, "b/c.obj": TRIANGLE * 20}).read_bytes()
    named = deflated.replace("é".encode(), b"\xff\xfe")
    refused(tmp_path / "a.zip", named, "damaged")
    long = io.BytesIO()
    for layout in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(fileobj=long, mode="w", format=layout) as file:
            entry = tarfile.TarInfo("ü" * 120 + ".obj")
            entry.size = 5
            file.addfile(entry, io.BytesIO(b"v 0 0"))
        plain = long.getvalue()[: 512 * 6]
        for name, data in (("a.zip", deflated), ("a.tar", plain), ("a.tar.gz", gzip.compress(plain))):
            for position in range(0, len(data), 7):
                for value in (0, 255, ord("9")):
                    changed = bytearray(data)
                    changed[position] = value
                    (tmp_path / name).write_bytes(changed)
                    try:
                        with archive.unpacked(tmp_path / name):
                            pass
                    except DataError as error:
                        assert "\n" not in str(error)


def test_damage_in_the_middle_is_noticed_where_there_is_a_checksum(tmp_path):
    # What does not shrink is stored as it is: only the checksum at the end tells.
    noise = os.urandom(200_000)
    entries = {"a.obj": TRIANGLE, "passed over.txt": noise, "b.obj": noise}
    packed = bytearray(tarred(tmp_path / "a.tar.gz", entries).read_bytes())
    for position in (100_000, 300_000):
        packed[position] ^= 255
        refused(tmp_path / "a.tar.gz", packed, "damaged")
        packed[position] ^= 255
    deflated = bytearray(zipped(tmp_path / "a.zip", {"a.obj": TRIANGLE, "b.obj": noise}).read_bytes())
    deflated[100_000] ^= 255
    refused(tmp_path / "a.zip", deflated, "damaged")
    # A header's own checksum: the entries behind a damaged one must not go missing.
    plain = bytearray(gzip.decompress(packed))
    plain[1024 + 3] ^= 255
    refused(tmp_path / "a.tar", plain, "damaged")
    refused(tmp_path / "a.tar", gzip.decompress(packed)[:150_000], "cut off")
