"""Vectors of texts: folders as sentence-transformers lays them out, and what such a folder says of a text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.errors import CheckpointError
from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.sentence_encoder import SentenceEncoder
from tests.unit.tiny_tasks import ENCODER, tiny_recipe


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT in Hugging Face's layout."""
    folder = tmp_path_factory.mktemp("encoders") / "plain"
    bert = {**ENCODER, "residual": "post_norm", "embedding_norm": True}
    recipe = tiny_recipe("masked_model", bert, tokenizer={"kind": "character"}, train={"steps": 1, "warmup": 1})
    save_foreign(folder, MaskedModel.fit(["query: a b c d Q A B"] * 4, recipe=recipe).parts)
    return folder


def folder_of(plain: Path, place: Path, *, pooling: str = "mean_tokens", **files: Any) -> Path:
    """The same as sentence-transformers has it, with more of its files."""
    place.mkdir()
    for path in plain.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    (place / "modules.json").write_text(json.dumps(listed))
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    for name, value in files.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    return place


def test_vectors_are_pooled_and_brought_to_length_one(plain: Path, tmp_path: Path) -> None:
    texts = ["a b", "c", "d c b a"]
    first = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "first", pooling="cls_token")).encode(texts)
    mean = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "mean")).encode(texts)
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([first, mean]), axis=1), 1, atol=1e-6)
    assert np.abs(first - mean).max() > 0.01


def test_a_text_is_cut_where_the_folder_says_so(plain: Path, tmp_path: Path) -> None:
    folder = folder_of(plain, tmp_path / "m", sentence_bert_config={"max_seq_length": 6, "do_lower_case": False})
    encoder = SentenceEncoder.from_pretrained(folder)
    assert encoder.config.length > 6
    np.testing.assert_array_equal(encoder.encode("a b c d"), encoder.encode("a b "))  # and two special tokens
    assert np.abs(encoder.encode("a b c d") - encoder.encode("a b")).max() > 1e-4
    whole = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "whole"))
    assert np.abs(whole.encode("a b c d") - whole.encode("a b ")).max() > 1e-4
    encoder.save_pretrained(tmp_path / "ours")
    again = SentenceEncoder.from_pretrained(tmp_path / "ours")
    np.testing.assert_array_equal(again.encode("a b c d"), encoder.encode("a b c d"))


def test_a_usual_prompt_and_small_letters(plain: Path, tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "query: ", "text": "a"}, "default_prompt_name": "query"}
    told = {"config_sentence_transformers": prompts, "sentence_bert_config": {"do_lower_case": True}}
    encoder = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "m", **told))
    usual = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "usual"))
    np.testing.assert_array_equal(encoder.encode("A B"), usual.encode("query: a b"))
    assert np.abs(encoder.encode("A B") - usual.encode("A B")).max() > 1e-4


@pytest.mark.parametrize(
    ("file", "value"),
    [
        ("sentence_bert_config", {"max_seq_length": "many"}),
        ("config_sentence_transformers", {"prompts": {"query": 3}, "default_prompt_name": "query"}),
    ],
)
def test_what_cannot_be_meant_is_refused(plain: Path, tmp_path: Path, file: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match="what sentence-transformers is told"):
        SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "m", **{file: value}))
