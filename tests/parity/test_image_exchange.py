"""Whole folders of vision Transformers: theirs say the same here, and ours say the same there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.image_classifier import ImageClassifier
from clearhead.tasks.registry import load

hf = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs

NAMES = {0: "cat", 1: "dog", 2: "owl"}
PROCESSORS: dict[str, dict[str, Any]] = {
    "square": {},
    "bicubic": {"resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "shorter side": {"size": {"shortest_edge": 15}, "do_center_crop": True, "crop_size": {"height": 12, "width": 12}},
    "padded": {"size": {"shortest_edge": 9}, "do_center_crop": True, "crop_size": {"height": 12, "width": 12}},
    "not normalised": {"do_normalize": False},
    "not rescaled": {"do_rescale": False, "image_mean": [120.0, 110.0, 100.0], "image_std": [60.0, 61.0, 62.0]},
}


def picture(height: int = 31, width: int = 23, seed: int = 0) -> Any:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), resample=3)


def their_folder(folder: Path, processor: dict[str, Any]) -> Path:
    """A random model of theirs, whose weights are so large that its answers differ."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 20, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
    config = hf.ViTConfig(
        image_size=12, patch_size=4, id2label=NAMES, label2id={n: i for i, n in NAMES.items()}, **sizes
    )
    model = hf.ViTForImageClassification(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    hf.ViTImageProcessorPil(**{"size": {"height": 12, "width": 12}, **processor}).save_pretrained(folder)
    return folder


@torch.no_grad()
def their_answer(folder: Path, image: Any) -> dict[str, float]:
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    model, said = hf.AutoModelForImageClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(said[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    processor = hf.ViTImageProcessorPil.from_pretrained(folder)
    shares = model.eval()(**processor(image, return_tensors="pt")).logits.softmax(-1)[0]
    return {model.config.id2label[number]: float(share) for number, share in enumerate(shares)}


@pytest.mark.parametrize("name", PROCESSORS)
def test_both_ways(name: str, tmp_path: Path) -> None:
    folder = their_folder(tmp_path / "theirs", PROCESSORS[name])
    ours = load(folder)
    assert isinstance(ours, ImageClassifier)
    assert ours.labels == tuple(NAMES.values())
    save_foreign(tmp_path / "back", ours.parts)
    ours.save_pretrained(tmp_path / "ours")
    seen = []
    for image in (picture(), picture(20, 33, seed=1)):
        said = their_answer(folder, image)
        seen.append(said["cat"])
        assert ours.predict(image) == pytest.approx(said, abs=1e-5)
        assert their_answer(tmp_path / "back", image) == pytest.approx(said, abs=1e-5)
        assert load(tmp_path / "ours").predict(image) == pytest.approx(said, abs=1e-5)
    assert abs(seen[0] - seen[1]) > 1e-3  # the answers depend on the image


def test_a_folder_without_settings_is_read_as_their_defaults_do(tmp_path: Path) -> None:
    folder = their_folder(tmp_path / "theirs", {})
    said = their_answer(folder, picture())
    (folder / "preprocessor_config.json").unlink()
    assert load(folder).predict(picture()) == pytest.approx(said, abs=1e-5)
    assert load(folder).classify(picture()) == max(said, key=lambda name: said[name])
