"""Several data sets read as one: classes, and names that occur twice."""

import pytest
import torch

from fusedplanes import datasets
from fusedplanes.datasets.folder import FolderDataset
from fusedplanes.errors import DataError


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("classes")
    for name, licence_free in (("mugs", "a"), ("lamps", "b")):
        datasets.make_class(name, objects=2, views=10, size=16, out=root / licence_free / name, quiet=True)
    return [root / "a" / "mugs", root / "b" / "lamps"]


def test_objects_come_one_data_set_after_another_with_their_class(folders):
    joined = datasets.load(folders)
    alone = [datasets.load(folder) for folder in folders]
    assert joined.ids == alone[0].ids + alone[1].ids and len(joined) == 4
    assert joined.classes == {**dict.fromkeys(alone[0].ids, "mugs"), **dict.fromkeys(alone[1].ids, "lamps")}
    assert joined.licences == {"mugs": "CC0-1.0", "lamps": "CC0-1.0"} and joined.size == 16
    for index, item in enumerate(joined):
        expected = alone[index // 2][index % 2]
        assert item.id == joined[index].id == expected.id
        assert torch.equal(item.images, expected.images)


def test_a_single_folder_is_no_joined_data_set(folders):
    assert isinstance(datasets.load(folders[:1]), FolderDataset)
    assert datasets.load(folders, size=8)[0].images.shape[1:3] == (8, 8)


def test_ids_that_occur_twice_are_preceded_by_their_class(folders, tmp_path):
    links = [tmp_path / name for name in ("red", "blue")]
    for link in links:
        link.symlink_to(folders[0])
    joined, mugs = datasets.load([*links, folders[1]]), datasets.load(folders[0])
    assert joined.ids[:4] == ("red_mugs_00000", "red_mugs_00001", "blue_mugs_00000", "blue_mugs_00001")
    assert joined.ids[4:] == datasets.load(folders[1]).ids
    assert joined["blue_mugs_00001"].id == "blue_mugs_00001" and joined.classes["blue_mugs_00001"] == "blue"
    assert torch.equal(joined["blue_mugs_00001"].images, mugs["mugs_00001"].images)


def test_what_cannot_be_joined_is_named(folders):
    with pytest.raises(DataError, match=r"mugs: is called 'mugs' like .*mugs; rename one of the folders"):
        datasets.load([folders[0], folders[0]])
    with pytest.raises(DataError, match="no data set is named"):
        datasets.load([])
    with pytest.raises(DataError, match=r"mugs, .*lamps: there is no object 'chair'"):
        datasets.load(folders)["chair"]
