"""Orbit videos: written whole, or refused by name."""

import imageio.v2 as imageio
import pytest
import torch

from fusedplanes.errors import ConfigError
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
