"""Orbit videos: written whole, or refused by name."""

import imageio.v2 as imageio
import pytest
import torch

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.rendering.video import save_orbit, save_video
from fusedplanes.rendering.volume import RenderOutput


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
@pytest.mark.parametrize("size", [(16, 16), (17, 23)])
def test_frames_come_back(tmp_path, suffix, size):
    frames = torch.linspace(0, 1, 5)[:, None, None, None].expand(5, *size, 3)
    path = tmp_path / f"video{suffix}"
    save_video(path, frames)
    back = imageio.mimread(path)
    assert len(back) == 5
    assert abs(float(back[0].mean()) - 0) < 8 and abs(float(back[-1].mean()) - 255) < 8
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_another_suffix_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"\.mp4"):
        save_video(tmp_path / "video.avi", torch.zeros(2, 8, 8, 3))
    assert list(tmp_path.iterdir()) == []


class Painter:
    """Stands in for a model: every object is one grey."""

    def render(self, item, cameras):
        color = torch.full((len(cameras), cameras.height, cameras.width, 3), float(item))
        return RenderOutput(color, color[..., 0], color[..., 0])


def test_objects_stand_side_by_side(tmp_path):
    save_orbit(Painter(), ["0.2", "0.8"], tmp_path / "orbit.gif", frames=2, size=8)
    frame = imageio.mimread(tmp_path / "orbit.gif")[0][..., :3]
    assert frame.shape == (8, 16, 3)
    assert abs(int(frame[4, 4, 0]) - 51) <= 2 and abs(int(frame[4, 12, 0]) - 204) <= 2
    with pytest.raises(ConfigError, match="no object"):
        save_orbit(Painter(), [], tmp_path / "none.gif")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 0}, "frames is 0"),
        ({"frames": -3}, "frames is -3"),
        ({"frames": 2.5}, "frames is 2.5"),
        ({"frames": True}, "frames is True"),
        ({"size": 0}, "width is 0"),
        ({"size": 7.5}, "width is 7.5"),
        ({"radius": float("nan")}, "radius is nan"),
        ({"radius": 0}, "radius is 0"),
        ({"elevation": float("inf")}, "elevation is inf"),
        ({"frames_per_second": 0}, "frames_per_second is 0"),
        ({"frames_per_second": float("nan")}, "frames_per_second is nan"),
    ],
)
def test_an_orbit_that_cannot_be_is_refused_in_one_line(tmp_path, options, message):
    with pytest.raises((DataError, ConfigError), match=message) as error:
        save_orbit(Painter(), ["0.2"], tmp_path / "orbit.gif", **{"frames": 2, "size": 8, **options})
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_suffix_is_found_before_anything_is_rendered(tmp_path):
    with pytest.raises(ConfigError, match=r"\.mp4"):
        save_orbit(None, ["0.2"], tmp_path / "orbit.avi")


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_path_that_cannot_be_is_one_line(tmp_path, suffix):
    (tmp_path / "file").write_text("")
    (tmp_path / f"folder{suffix}").mkdir()
    names = ["/dev/null/x", "/dev/null/y/x", str(tmp_path / "file/x"), str(tmp_path / "folder"), "/proc/x"]
    for name in [*names, str(tmp_path / ("long" * 100)), str(tmp_path / "a\0b"), str(tmp_path / "a\0b/x")]:
        with pytest.raises(DataError, match="could not be written") as error:
            save_video(name + suffix, torch.zeros(2, 8, 8, 3))
        assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", f"folder{suffix}"]


@pytest.mark.parametrize("shape", [(0, 8, 8, 3), (8, 8, 3), (2, 8, 8, 4), (2, 0, 8, 3)])
def test_frames_of_another_shape_are_refused(tmp_path, shape):
    with pytest.raises(DataError, match="frames of shape"):
        save_video(tmp_path / "video.gif", torch.zeros(shape))
