"""Images as numbers: whatever form an image comes in, and what is no image."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from clearhead.data.images import ImageReader
from clearhead.errors import ConfigError, DataError, MissingPackageError

Image = pytest.importorskip("PIL.Image")

PLAIN = ImageReader(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))  # pixels from 0 to 1, of whatever size
GREY = ImageReader(1, mean=(0.0,), std=(1.0,))


def colours(height: int = 6, width: int = 9, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def saved(path: Path, image: Any, **options: Any) -> Path:
    image.save(path, **options)
    return path


def test_the_equation() -> None:
    reader = ImageReader(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0), rescale=0.5)
    image, read = colours(), reader.read(colours())
    assert read.dtype == np.float32
    assert read.shape == (3, 6, 9)
    for channel, (mean, std) in enumerate(zip(reader.mean, reader.std, strict=True)):
        np.testing.assert_allclose(read[channel], (image[..., channel] * 0.5 - mean) / std, rtol=1e-6)


def test_a_file_an_image_and_an_array_are_the_same(tmp_path: Path) -> None:
    image, reader = Image.fromarray(colours()), ImageReader(size=(4, 5))
    expected = np.asarray(image.resize((5, 4), resample=2)).transpose(2, 0, 1) / 255 * 2 - 1
    for form in (colours(), image, saved(tmp_path / "a.png", image), str(tmp_path / "a.png")):
        np.testing.assert_allclose(reader.read(form), expected, atol=1e-6)


@pytest.mark.parametrize("reader", [PLAIN, ImageReader(size=(4, 5)), ImageReader(shorter=4, crop=(4, 4))])
def test_numbers_between_0_and_1_are_bytes_but_finer(reader: ImageReader) -> None:
    fine = reader.read(colours().astype(np.float64) / 255)
    assert fine.shape == reader.read(colours()).shape
    assert np.abs(fine - reader.read(colours())).max() < 2.5 / 255  # Pillow rounds bytes after each of its two passes
    half = np.full((6, 9, 3), 0.3)
    np.testing.assert_allclose(reader.read(half), (0.3 - reader.mean[0]) / reader.std[0], rtol=1e-5)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_all_kinds_of_images_get_the_model_s_channels(mode: str) -> None:
    white = {"LA": (255, 9), "RGBA": (255, 255, 255, 9), "I;16": 65535, "CMYK": (0, 0, 0, 0)}.get(mode, "white")
    image = Image.new(mode, (3, 2), white)
    for reader in (PLAIN, GREY):
        assert reader.read(image).shape == (reader.channels, 2, 3)
        np.testing.assert_allclose(reader.read(image), 1.0, atol=1e-6)


def test_a_palette_with_transparency_gives_its_colours(tmp_path: Path) -> None:
    image = Image.fromarray(colours()).quantize(8)
    path = saved(tmp_path / "a.png", image, transparency=bytes([0, 128, 255]))
    np.testing.assert_allclose(PLAIN.read(path), np.asarray(image.convert("RGB")).transpose(2, 0, 1) / 255, atol=1e-6)


def test_grey_and_colours() -> None:
    grey = colours()[..., 0]
    for flat in (grey, grey[..., None]):
        for array in (flat, flat / 255):
            np.testing.assert_allclose(PLAIN.read(array), np.stack([grey] * 3) / 255, atol=1e-6)
    expected = np.asarray(Image.fromarray(colours()).convert("L")) / 255
    np.testing.assert_allclose(GREY.read(colours())[0], expected, atol=1e-6)
    np.testing.assert_allclose(GREY.read(colours() / 255)[0], expected, atol=1 / 255)
    clear = np.concatenate([colours(), np.zeros((6, 9, 1), np.uint8)], axis=2)
    for array in (clear, clear / 255):
        np.testing.assert_allclose(PLAIN.read(array), PLAIN.read(colours()), atol=1e-6)


@given(height=st.integers(1, 30), width=st.integers(1, 30), shorter=st.integers(1, 12), cut=st.integers(1, 12))
def test_the_shorter_side_and_the_middle(height: int, width: int, shorter: int, cut: int) -> None:
    image = Image.fromarray(colours(height, width))
    read = ImageReader(shorter=shorter).read(image)
    assert min(read.shape[1:]) == shorter
    assert max(read.shape[1:]) == shorter * max(height, width) // min(height, width)
    assert (read.shape[1] >= read.shape[2]) == (height >= width) or read.shape[1] == read.shape[2]
    middle = ImageReader(shorter=shorter, crop=(cut, cut)).read(image)
    assert middle.shape == (3, cut, cut)
    if cut <= shorter:
        top, left = ((side - cut) // 2 for side in read.shape[1:])
        np.testing.assert_array_equal(middle, read[:, top : top + cut, left : left + cut])


def test_a_photo_is_the_right_way_up(tmp_path: Path) -> None:
    image = Image.fromarray(colours())
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter
    turned = PLAIN.read(saved(tmp_path / "a.png", image, exif=exif))
    np.testing.assert_array_equal(turned, PLAIN.read(np.rot90(colours(), -1).copy()))


@pytest.mark.parametrize(
    "reader",
    [
        ImageReader(size=(8, 8)),
        ImageReader(1, (8, 6), (0.3,), (0.2,), 1.0, 3),
        ImageReader(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
        ImageReader(shorter=9, crop=(8, 8)),
    ],
)
def test_the_file_and_back(reader: ImageReader, tmp_path: Path) -> None:
    reader.save(tmp_path)
    assert ImageReader.load(tmp_path, size=5, channels=reader.channels) == reader
    first = (tmp_path / "preprocessor_config.json").read_bytes()
    reader.save(tmp_path / "tokenizer.json")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("preprocessor_config.json", first)]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, ImageReader(size=(7, 7))),
        ({}, ImageReader(size=(7, 7))),
        ({"size": 9, "image_mean": [0.1, 0.2, 0.3], "resample": None}, ImageReader(size=(9, 9), mean=(0.1, 0.2, 0.3))),
        ({"size": {"height": 4, "width": 6}, "resample": 3}, ImageReader(size=(4, 6), resample=3)),
        ({"size": {"shortest_edge": 4}, "do_center_crop": True, "crop_size": 3}, ImageReader(shorter=4, crop=(3, 3))),
        ({"do_resize": False, "do_rescale": False}, ImageReader(rescale=1.0)),
        ({"size": 2, "do_normalize": False}, ImageReader(size=(2, 2), mean=(0.0,) * 3, std=(1.0,) * 3)),
    ],
)
def test_what_files_say(said: dict[str, Any] | None, expected: ImageReader, tmp_path: Path) -> None:
    if said is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(said), encoding="utf-8")
    assert ImageReader.load(tmp_path, size=7, channels=3) == expected


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("[]", "JSON object"),
        ("{", "JSON"),
        ('{"size": {"longest_edge": 3}}', "longest_edge"),
        ('{"size": 0}', "size"),
        ('{"size": 1000000}', "size"),
        ('{"size": "big"}', "'big'"),
        ('{"size": {"shortest_edge": true}}', "True"),
        ('{"image_std": [0.5, 0.5, 0]}', "std"),
        ('{"image_mean": [0.5]}', "3 channels"),
        ('{"image_mean": ["a", 1, 1]}', "'a'"),
        ('{"rescale_factor": 1e999}', "rescale"),
        ('{"rescale_factor": 1' + "0" * 400 + "}", "rescale"),
        ('{"resample": 77}', "resample"),
    ],
)
def test_files_that_say_nonsense_are_refused(said: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(said, encoding="utf-8")
    with pytest.raises(DataError, match=complaint) as refusal:
        ImageReader.load(tmp_path, size=7, channels=3)
    assert "preprocessor_config.json" in str(refusal.value)


def test_a_model_of_two_channels_is_refused() -> None:
    with pytest.raises(ConfigError, match="channels=2"):
        ImageReader(2, mean=(0.5, 0.5), std=(0.5, 0.5))


@pytest.mark.parametrize(
    ("image", "complaint"),
    [
        (None, "not NoneType"),
        (b"png", "not bytes"),
        (np.zeros((2, 3, 3, 3)), r"not \(2, 3, 3, 3\)"),
        (np.zeros((3, 8, 8)), r"not \(3, 8, 8\)"),
        (np.zeros((8, 8, 2)), r"not \(8, 8, 2\)"),
        (np.zeros((0, 8, 3)), r"not \(0, 8, 3\)"),
        (np.zeros((8, 8), np.int64), "not int64"),
        (np.full((8, 8), 1.5), "from 1.5 to 1.5"),
        (np.full((8, 8), np.nan), "nan"),
        (Image.new("F", (2, 2)), "32 bits"),
    ],
)
def test_what_is_no_image_is_refused(image: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        PLAIN.read(image)


def broken(folder: Path, name: str) -> Path:
    """A file that is no whole image."""
    whole = saved(folder / "whole.png", Image.fromarray(colours(60, 60))).read_bytes()
    jpeg = saved(folder / "whole.jpg", Image.fromarray(colours(60, 60))).read_bytes()
    contents = {
        "truncated.png": whole[: len(whole) // 2],
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "text.png": b"not a picture at all\n",
        "empty.png": b"",
        "program.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
    }
    path = folder / name
    path.write_bytes(contents[name])
    return path


@pytest.mark.parametrize("name", ["truncated.png", "truncated.jpg", "text.png", "empty.png", "program.png"])
def test_broken_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read as an image") as refusal:
        PLAIN.read(broken(tmp_path, name))
    assert name in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.png"):
        with pytest.raises(DataError, match="no image file"):
            PLAIN.read(path)


@pytest.mark.parametrize("most", [50, 20])  # beyond Pillow's limit, and beyond twice the limit
def test_pillow_s_limit_holds(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "large.png", Image.fromarray(colours()))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    with pytest.raises(DataError, match=rf"large\.png.* more than {most} pixels"):
        PLAIN.read(path)
    with pytest.raises(DataError, match="too long"):
        ImageReader(shorter=40).read(np.zeros((1, 9, 3), np.uint8))


def test_without_pillow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(colours()))
    monkeypatch.setitem(sys.modules, "PIL", None)
    for image in (path, np.zeros((9, 9), np.uint8)):
        with pytest.raises(MissingPackageError, match="pip install pillow"):
            ImageReader(size=(4, 4)).read(image)
    for array in (colours(), colours() / 255, colours()[..., 0] / 255):  # nothing to scale
        assert PLAIN.read(array).shape == (3, 6, 9)
