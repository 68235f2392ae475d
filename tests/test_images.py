"""Images: every pixel format and orientation loads to the same upright RGB; damaged files give one line."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fusedplanes import images
from fusedplanes.errors import DataError
from fusedplanes.files import read_json


def pytest_generate_tests(metafunc):
    """The real photographs, in addition, where they are at hand."""
    folder = Path(os.environ.get("FUSEDPLANES_TEST_DATA", Path(metafunc.config.rootpath) / "../shared/data"))
    if "photo" in metafunc.fixturenames:
        suffixes = (".jpg", ".png", ".tif", ".pgm", ".mpo")
        found = [path for sub in ("photos", "odd") for path in sorted((folder / sub).glob("*"))]
        found = [path for path in found if path.suffix in suffixes]
        metafunc.parametrize("photo", found, ids=[path.name for path in found])
    if "photos" in metafunc.fixturenames:
        metafunc.parametrize("photos", [folder / "photos"] if (folder / "photos").is_dir() else [], ids=str)


@pytest.fixture
def picture():
    """``[4, 6, 3]`` bytes whose corners tell which way up it is; few colours, so that a palette holds it."""
    pixels = np.full((4, 6, 3), 60, np.uint8)
    pixels[0, 0], pixels[0, -1], pixels[-1, 0] = (250, 10, 20), (30, 240, 40), (50, 60, 230)
    return pixels


@pytest.fixture
def loaded(tmp_path):
    """A function that saves a Pillow image and loads it."""

    def load(image, name="image.png", **options):
        image.save(tmp_path / name, **options)
        return images.load(tmp_path / name)

    return load


def as_float(pixels):
    return torch.from_numpy(np.asarray(pixels, np.float32) / 255)


def test_rgb_and_palette_are_the_same(loaded, picture):
    image = Image.fromarray(picture)
    assert torch.equal(loaded(image), as_float(picture))
    palette = image.quantize(16)
    assert palette.mode == "P"
    assert (loaded(palette) - as_float(picture)).abs().max() <= 1.01 / 255
    assert loaded(palette).shape == (4, 6, 3)
    assert torch.equal(loaded(palette, "image.gif"), loaded(palette))


def test_palette_transparency_becomes_alpha(loaded, picture):
    palette = Image.fromarray(picture).quantize(16)
    clear = palette.getpixel((0, 0))
    found = loaded(palette, transparency=clear)
    assert found.shape == (4, 6, 4)
    assert found[0, 0, 3] == 0
    assert found[..., 3].sum() == 23


def test_transparent_colour_of_an_rgb_file_becomes_alpha(loaded, picture):
    found = loaded(Image.fromarray(picture), transparency=(60, 60, 60))
    assert found.shape == (4, 6, 4)
    assert found[..., 3].sum() == 3


def test_grey_grey_with_alpha_and_rgba(loaded):
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    assert torch.equal(loaded(Image.fromarray(grey)), as_float(grey)[..., None].expand(4, 6, 3))
    both = np.stack([grey, 255 - grey], -1)
    found = loaded(Image.merge("LA", [Image.fromarray(both[..., channel]) for channel in (0, 1)]))
    assert torch.equal(found, as_float(both)[..., [0, 0, 0, 1]])
    color = np.random.default_rng(0).integers(0, 256, (4, 6, 4)).astype(np.uint8)
    assert torch.equal(loaded(Image.fromarray(color)), as_float(color))


def test_black_and_white_bits(loaded):
    bits = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).convert("1")
    assert torch.equal(loaded(bits)[..., 0], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


@pytest.mark.parametrize("name", ["image.png", "image.tif"])
def test_sixteen_bits_are_divided_by_65535(loaded, name):
    values = np.array([[0, 1000, 32768, 65535]], np.uint16)
    found = loaded(Image.fromarray(values), name)
    assert found.shape == (1, 4, 3)
    assert torch.allclose(found[0, :, 0], torch.tensor([0, 1000, 32768, 65535]) / 65535, atol=1e-7)


def test_floats_are_clipped_and_never_nan(loaded):
    values = np.array([[-1, 0.25, 2, np.nan, np.inf, -np.inf]], np.float32)
    assert loaded(Image.fromarray(values), "image.tif")[0, :, 1].tolist() == [0, 0.25, 1, 0, 1, 0]


def test_cmyk_and_lab_have_three_channels(loaded, picture):
    cmyk = loaded(Image.fromarray(picture).convert("CMYK"), "image.tif")
    assert cmyk.shape == (4, 6, 3)
    assert (cmyk - as_float(picture)).abs().max() < 0.02
    from PIL import ImageCms

    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    lab = loaded(ImageCms.applyTransform(Image.fromarray(picture), to_lab), "image.tif")
    assert lab.shape == (4, 6, 3)


def stored(picture, orientation):
    """The pixels that a camera stores when the upright picture is ``picture``, by the meaning of the EXIF tag."""
    return {
        1: lambda p: p,
        2: lambda p: p[:, ::-1],
        3: lambda p: p[::-1, ::-1],
        4: lambda p: p[::-1],
        5: lambda p: p.transpose(1, 0, 2),
        6: lambda p: np.rot90(p),
        7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
        8: lambda p: np.rot90(p, -1),
    }[orientation](picture)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["image.png", "image.jpg", "image.tif"])
def test_all_eight_orientations_are_upright(loaded, picture, orientation, name):
    large = picture.repeat(16, 0).repeat(16, 1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if name.endswith("jpg") else {}
    found = loaded(Image.fromarray(np.ascontiguousarray(stored(large, orientation))), name, exif=exif, **options)
    assert found.shape == (64, 96, 3)
    assert (found[8::16, 8::16] - as_float(picture)).abs().max() < 0.03


def test_an_orientation_that_does_not_exist_changes_nothing(loaded, picture):
    exif = Image.Exif()
    exif[0x0112] = 77
    assert torch.equal(loaded(Image.fromarray(picture), exif=exif), as_float(picture))


# Damage -------------------------------------------------------------------------------------------------------------


def encoded(picture, format_name):
    buffer = io.BytesIO()
    Image.fromarray(picture.repeat(16, 0).repeat(16, 1)).save(buffer, format_name)
    return buffer.getvalue()


@pytest.mark.parametrize("format_name", ["PNG", "JPEG"])
def test_every_truncation_is_one_line(tmp_path, picture, format_name):
    data = encoded(picture, format_name)
    path = tmp_path / "cut.img"
    for length in range(0, len(data) - 20, max(1, len(data) // 60)):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=r"cut\.img") as error:
            images.load(path)
        assert "\n" not in str(error.value)


def test_any_changed_byte_is_read_or_refused(tmp_path, picture):
    data = encoded(picture, "PNG")
    path = tmp_path / "changed.png"
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        changed = bytearray(data)
        changed[generator.integers(0, len(data))] = generator.integers(0, 256)
        path.write_bytes(changed)
        try:
            found = images.load(path)
            assert bool(((found >= 0) & (found <= 1)).all())
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 20


def test_files_that_are_no_image(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        images.load(tmp_path / "gone.png")
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(DataError, match=r"text\.png: not an image in a known format; convert it"):
        images.load(tmp_path / "text.png")
    with pytest.raises(DataError, match="no ordinary file"):
        images.load(tmp_path)
    if hasattr(os, "mkfifo"):
        # Reading a pipe that nobody writes to would never end.
        os.mkfifo(tmp_path / "pipe.png")
        for read in (images.load, images.size_of, read_json):
            with pytest.raises(DataError, match="no ordinary file"):
                read(tmp_path / "pipe.png")


def test_formats_that_run_programs_are_never_opened(tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    (tmp_path / "drawing.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n%%EOF\n"
    )
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments, **options: started.append(arguments))
    for read in (images.load, images.size_of):
        with pytest.raises(DataError, match=r"drawing\.png: not an image in a known format; convert it"):
            read(tmp_path / "drawing.png")
    assert not started
    for format_name in ("ICO", "PCX", "SGI", "DDS"):
        Image.new("RGB", (16, 16)).save(tmp_path / "other.png", format_name)
        with pytest.raises(DataError, match="not an image in a known format"):
            images.load(tmp_path / "other.png")


@pytest.mark.parametrize("format_name", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "TGA", "GIF", "PPM"])
def test_every_format_that_is_read_is_read_whatever_its_name(tmp_path, picture, format_name):
    path = tmp_path / "image.img"
    path.write_bytes(encoded(picture, format_name))
    assert images.load(path).shape == (64, 96, 3)
    assert images.size_of(path) == (96, 64)


def test_only_images_py_opens_images():
    root = Path(__file__).resolve().parents[1]
    found = [
        path.relative_to(root).as_posix()
        for folder in ("fusedplanes", "datasets", "kernels")
        for path in sorted((root / folder).rglob("*.py"))
        if "Image.open(" in path.read_text()
    ]
    assert found == ["fusedplanes/images.py"]


def test_the_size_of_a_png_takes_no_decoding_wherever_its_orientation_is(tmp_path, picture, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "image.png"
    Image.fromarray(picture).save(path, exif=exif)
    data = path.read_bytes()
    start = data.index(b"eXIf") - 4
    length = 12 + struct.unpack(">I", data[start : start + 4])[0]
    late = data[:start] + data[start + length : -12] + data[start : start + length] + data[-12:]
    for content, size in ((data, (4, 6)), (late, (4, 6)), (data[:start] + data[start + length :], (6, 4))):
        path.write_bytes(content)
        assert tuple(images.load(path).shape[1::-1]) == size
        with monkeypatch.context() as context:
            context.setattr("PIL.ImageFile.ImageFile.load", lambda image: pytest.fail("decoded"))
            assert images.size_of(path) == size


def test_the_pixel_limit_is_checked_before_decoding(tmp_path, picture):
    data = bytearray(encoded(picture, "PNG"))
    path = tmp_path / "large.png"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"96x64 pixels exceed the limit of 1000; shrink it"):
        images.load(path, max_pixels=1000)
    # A header that claims 3 gigapixels over the same few bytes.
    data[16:24] = struct.pack(">II", 60_000, 50_000)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)
    with pytest.raises(DataError, match="limit"):
        images.load(path)


# Saving, compositing, resizing --------------------------------------------------------------------------------------


def test_saving_and_loading_is_exact_for_png_and_lays_jpeg_over_white(tmp_path):
    image = torch.randint(0, 256, (5, 7, 4)).float() / 255
    images.save(tmp_path / "a.png", image)
    assert torch.equal(images.load(tmp_path / "a.png"), image)
    images.save(tmp_path / "a.jpg", torch.cat([torch.zeros(8, 8, 3), torch.full((8, 8, 1), 0.25)], -1))
    assert (images.load(tmp_path / "a.jpg") - 0.75).abs().max() < 0.02
    assert images.to_uint8(torch.tensor([-1.0, 0.5, 2.0])).tolist() == [0, 128, 255]


def test_compositing_over_a_colour():
    image = torch.tensor([1.0, 0.5, 0.0, 0.25])
    assert images.composite_over(image).tolist() == [1, 0.875, 0.75]
    assert images.composite_over(image, 0.0).tolist() == [0.25, 0.125, 0]
    assert torch.equal(images.composite_over(image[:3]), image[:3])


def test_resizing_does_not_bleed_hidden_colours():
    image = torch.zeros(1, 4, 4, 4)
    image[..., :2, :] = torch.tensor([1.0, 0.0, 0.0, 1.0])
    image[..., 2:, 1] = 1.0  # green, but fully transparent
    half = images.resize(image, 2, 4)
    assert half.shape == (1, 4, 2, 4)
    covered = half[..., 3] > 0
    assert torch.allclose(half[covered][:, :3], torch.tensor([1.0, 0.0, 0.0]))
    assert images.resize(image, 4, 4) is image


# Real photographs ---------------------------------------------------------------------------------------------------


def test_real_photographs_load_upright_with_three_or_four_channels(photo, recwarn):
    found = images.load(photo)
    assert found.shape[-1] in (3, 4)
    assert found.dtype == torch.float32
    assert 0.0 <= found.min() <= found.max() <= 1.0
    assert len(recwarn) == 0
    for word, upright in (("landscape", 1), ("portrait", -1)):
        if word in photo.stem and photo.stem.startswith("orient"):
            assert (found.shape[1] - found.shape[0]) * upright > 0


def test_one_photograph_in_several_formats_is_the_same_picture(photos):
    lab, rgb = images.load(photos / "lab_128px.tif"), images.load(photos / "noexif_128px_portrait.png")
    assert lab.shape == rgb.shape
    assert (lab - rgb).abs().mean() < 0.03
    grey, grey16 = images.load(photos / "gray_L_128px.jpg"), images.load(photos / "gray16_128px.pgm")
    assert (grey - grey16).abs().mean() < 0.02
