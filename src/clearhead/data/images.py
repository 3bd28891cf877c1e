"""Images as the numbers that a model reads, and the file `preprocessor_config.json` that says how.

The file is that of transformers' `ViTImageProcessor`, whose steps these are: scale, cut, rescale, normalise. Pillow is
asked for where a file is opened, and where an image has another size or other channels than the model.
"""

import json
import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.roles import read_object
from clearhead.errors import ConfigError, DataError, MissingPackageError

__all__ = ["ImageReader"]

FILE = "preprocessor_config.json"
MODES = {1: "L", 3: "RGB"}  # channels of a model -> what Pillow calls such images
# The formats that are opened. Others that Pillow knows run further programs (EPS), or are no pictures.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # how bright red, green and blue look: ITU-R BT.601, as in Pillow
WHITE = 255  # the largest pixel
LONGEST = 1 << 14  # pixels of a side that a model may ask for
FILTERS = range(6)  # Pillow's numbers of ways to scale: 2 is bilinear

Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class ImageReader:
    """How an image becomes (channels, height, width): (pixel · rescale − mean) / std, of a pixel from 0 to 255.

    size       height and width to which an image is scaled, whatever its own shape; or
    shorter    the length to which its shorter side is scaled; with neither, it stays as large as it is
    crop       height and width that are cut out of its middle after this
    mean, std  of each channel
    resample   how Pillow scales
    """

    channels: int = 3
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    rescale: float = 1 / 255
    resample: int = 2
    shorter: int | None = None
    crop: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.channels not in MODES:
            raise ConfigError(f"an image has {' or '.join(map(str, MODES))} channels: channels={self.channels!r}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) != self.channels or not all(map(math.isfinite, values)):
                raise ConfigError(f"each of the {self.channels} channels needs a number: {name}={values!r}")
        if not all(self.std) or not 0 < self.rescale < math.inf:
            raise ConfigError(f"std is not 0, and rescale above it: std={self.std}, rescale={self.rescale}")
        if self.resample not in FILTERS:
            raise ConfigError(f"Pillow scales in the ways {[*FILTERS]}: resample={self.resample!r}")
        for name, sides in (("size", self.size), ("shorter", (self.shorter,)), ("crop", self.crop)):
            if any(side is not None and not 1 <= side <= LONGEST for side in sides or ()):
                raise ConfigError(f"a side has 1 to {LONGEST} pixels: {name}={getattr(self, name)!r:.60}")

    @classmethod
    def load(cls, folder: Path, *, size: int, channels: int) -> "ImageReader":
        """As the folder's file says, for a model of so many channels; where it has no file, scaled to `size`."""
        said = read_object(folder / FILE)
        try:
            scale = _sides(said.get("size", size)) if said.get("do_resize", True) else {}
            crop = _sides(said.get("crop_size", size)) if said.get("do_center_crop", False) else {}
            normalised = said.get("do_normalize", True)
            resample = said.get("resample")
            return cls(
                channels,
                scale.get("size"),
                _each(said.get("image_mean", 0.5) if normalised else 0.0, channels),
                _each(said.get("image_std", 0.5) if normalised else 1.0, channels),
                _number(said.get("rescale_factor", 1 / WHITE)) if said.get("do_rescale", True) else 1.0,
                2 if resample is None else _whole(resample),
                scale.get("shorter"),
                crop.get("size"),
            )
        except ConfigError as error:
            raise DataError(f"{folder / FILE} cannot be used: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write `preprocessor_config.json` into the folder `path`, or beside the file `path`."""
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        size = {"shortest_edge": self.shorter} if self.size is None else _named(self.size)
        scaled = self.size is not None or self.shorter is not None
        about = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": scaled,
            **({"size": size} if scaled else {}),
            "resample": self.resample,
            "do_center_crop": self.crop is not None,
            **({} if self.crop is None else {"crop_size": _named(self.crop)}),
            "do_rescale": self.rescale != 1,
            "rescale_factor": self.rescale,
            "do_normalize": any(self.mean) or any(value != 1 for value in self.std),
            "image_mean": self.mean,
            "image_std": self.std,
        }
        (folder / FILE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    def read(self, image: Any) -> Pixels:
        """The numbers (channels, height, width) of an image.

        It may be the path of a file, an image of Pillow's, or an array (height, width) or (height, width, channels) of
        bytes or of numbers between 0 and 1. Grey becomes colour and colour grey as the model wants it, transparency
        is left out.
        """
        if isinstance(image, str | Path):
            pixels = self._fitted(_opened(Path(image)), f"{str(image)!r}")
        elif isinstance(image, np.ndarray):
            pixels = self._of_array(image)
        elif (pillow := sys.modules.get("PIL.Image")) and isinstance(image, pillow.Image):
            pixels = self._fitted(image, "the image")
        else:
            raise DataError(f"an image is a path, an image of Pillow's or a NumPy array, not {type(image).__name__}")
        rescaled = (pixels.astype(np.float64) * self.rescale).astype(np.float32)
        normalised = (rescaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normalised.transpose(2, 0, 1))

    def _of_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Bytes as Pillow would have them; finer numbers keep what they have."""
        if array.ndim not in (2, 3) or array.shape[2:] not in ((), (1,), (3,), (4,)) or not array.size:
            known = "(height, width) or (height, width, 1, 3 or 4 channels)"
            raise DataError(f"an array of an image has the shape {known}, not {array.shape}")
        array = array.reshape(*array.shape[:2], -1)
        height, width, channels = array.shape
        fits = self._target(height, width, "the image") == (height, width) and self.crop in (None, (height, width))
        if array.dtype == np.uint8:
            if fits and channels == self.channels:
                return array
            return self._fitted(_pillow().fromarray(array[..., 0] if channels == 1 else array), "the image")
        if array.dtype.kind != "f":
            raise DataError(f"an array of an image holds uint8 or numbers from 0 to 1, not {array.dtype}")
        if not (array.min() >= 0 and array.max() <= 1):
            found = f"from {array.min():g} to {array.max():g}"
            raise DataError(f"pixels that are no uint8 lie between 0 and 1, not {found}")
        pixels = _with_channels(array.astype(np.float32), self.channels) * WHITE
        if fits:
            return pixels
        planes = [self._shaped(_pillow().fromarray(plane), "the image") for plane in pixels.transpose(2, 0, 1)]
        return np.stack([np.asarray(plane) for plane in planes], axis=-1)

    def _fitted(self, image: Any, name: str) -> NDArray[np.uint8]:
        """An image of Pillow's, with the model's channels, scaled and cut: (height, width, channels)."""
        shaped = np.asarray(self._shaped(_converted(image, MODES[self.channels], name), name))
        return shaped.reshape(*shaped.shape[:2], self.channels)

    def _shaped(self, image: Any, name: str) -> Any:
        """An image of Pillow's, scaled and cut."""
        height, width = self._target(image.height, image.width, name)
        if (height, width) != (image.height, image.width):
            image = image.resize((width, height), resample=self.resample)
        if self.crop is None:
            return image
        left, top = (width - self.crop[1]) // 2, (height - self.crop[0]) // 2
        return image.crop((left, top, left + self.crop[1], top + self.crop[0]))

    def _target(self, height: int, width: int, name: str) -> tuple[int, int]:
        """Height and width after scaling."""
        if self.size is not None or self.shorter is None:
            return self.size or (height, width)
        longer = int(self.shorter * max(height, width) / min(height, width))
        most = _pillow().MAX_IMAGE_PIXELS
        if most is not None and self.shorter * longer > most:
            raise DataError(f"{name} of {height} × {width} pixels is too long: scaled, it would have more than {most}")
        return (longer, self.shorter) if width <= height else (self.shorter, longer)


def _pillow() -> Any:
    """The module `PIL.Image`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError("to read images, the package pillow is needed: `pip install pillow`") from error
    module: ModuleType = Image
    return module


def _opened(path: Path) -> Any:
    """The image in a file, the right way up; whatever is wrong with the file, it is refused in one sentence."""
    pillow = _pillow()
    if not path.is_file():
        raise DataError(f"there is no image file {str(path)!r}")
    from PIL import ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path, formats=FORMATS) as image:
                image.load()
                return ImageOps.exif_transpose(image)
    except Exception as error:  # what a broken file makes of its reader is anybody's guess
        reasons = {
            pillow.UnidentifiedImageError: f"it is none of {', '.join(FORMATS)}",
            pillow.DecompressionBombWarning: f"it has more than {pillow.MAX_IMAGE_PIXELS} pixels",
            pillow.DecompressionBombError: f"it has more than {pillow.MAX_IMAGE_PIXELS} pixels",
        }
        why = reasons.get(type(error)) or str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise DataError(f"{str(path)!r} cannot be read as an image: {why}") from error


def _converted(image: Any, mode: str, name: str) -> Any:
    """An image of Pillow's in the mode that is wanted."""
    if image.mode.startswith("I;16"):  # Pillow would cut off what is above 255
        image = _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(f"{name} has pixels of 32 bits, of which nothing says how bright the brightest is")
    if image.mode == "P":  # through its transparency, of which Pillow warns otherwise
        image = image.convert("RGBA")
    try:
        return image if image.mode == mode else image.convert(mode)
    except ValueError as error:
        raise DataError(f"{name} has pixels of the kind {image.mode}, which become no {mode}") from error


def _with_channels(pixels: Pixels, channels: int) -> Pixels:
    """Grey from colours or colours from grey; the fourth channel, transparency, is left out."""
    colours = pixels[..., :3]
    if colours.shape[2] == channels:
        return colours
    return np.repeat(colours, 3, axis=2) if channels == 3 else (colours @ GREY)[..., None]


def _sides(value: object) -> dict[str, Any]:
    """What a size in the file says: a number is a square."""
    if isinstance(value, dict) and value.keys() == {"height", "width"}:
        return {"size": (_whole(value["height"]), _whole(value["width"]))}
    if isinstance(value, dict) and value.keys() == {"shortest_edge"}:
        return {"shorter": _whole(value["shortest_edge"])}
    if isinstance(value, dict):
        raise ConfigError(f"a size is given as height and width or as shortest_edge, not as {value!r:.80}")
    return {"size": (_whole(value), _whole(value))}


def _named(size: tuple[int, int]) -> dict[str, int]:
    return {"height": size[0], "width": size[1]}


def _each(value: object, channels: int) -> tuple[float, ...]:
    """A number for each channel; one stands for all."""
    return tuple(map(_number, value)) if isinstance(value, list) else (_number(value),) * channels


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"a number is wanted, not {value!r:.60}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"a whole number is wanted, not {value!r:.60}")
    return value
