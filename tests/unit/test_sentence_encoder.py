"""Vectors of texts: folders as sentence-transformers lays them out, and what such a folder says of a text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.errors import CheckpointError
from clearhead.models.presets import build
from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.loading import load_model
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


MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def folder_of(plain: Path, place: Path, *, pooling: dict[str, Any] = MEAN, **files: Any) -> Path:
    """The same as sentence-transformers has it, with more of its files."""
    place.mkdir()
    for path in plain.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    listed = [
        {"idx": i, "name": str(i), "type": f"sentence_transformers.models.{kind}", "path": path}
        for i, (kind, path) in enumerate(modules)
    ]
    (place / "modules.json").write_text(json.dumps(listed))
    for _, path in modules[1:]:
        (place / path).mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, value in files.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    return place


@pytest.mark.parametrize("pooling", [{"pooling_mode_cls_token": True}, {"pooling_mode": "cls", "include_prompt": True}])
def test_vectors_are_pooled_and_brought_to_length_one(plain: Path, tmp_path: Path, pooling: dict[str, Any]) -> None:
    """As older and as newer versions say it."""
    texts = ["a b", "c", "d c b a"]
    first = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "first", pooling=pooling))
    mean = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "mean"))
    assert (first.config.pooling, mean.config.pooling) == ("first", "mean")
    vectors = np.concatenate([first.encode(texts), mean.encode(texts)])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


TOLD: dict[str, Any] = {
    "config_sentence_transformers": {"prompts": {"query": "query: ", "a": "a"}, "default_prompt_name": "query"},
    "sentence_bert_config": {"max_seq_length": 12, "do_lower_case": True},
}


@pytest.mark.parametrize("files", [{}, TOLD], ids=["plain", "told"])
@pytest.mark.parametrize("mode", ["cls", "mean", "max"])
@pytest.mark.filterwarnings("ignore")  # of theirs
def test_sentence_transformers_gives_the_same_before_and_after(
    plain: Path, tmp_path: Path, mode: str, files: dict[str, Any]
) -> None:
    """Their vectors of their folder, ours of it, and theirs of what is written here."""
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer
    folder = folder_of(plain, tmp_path / "there", pooling={"embedding_dimension": 32, "pooling_mode": mode}, **files)
    texts = ["A b", "c", "d c b a a a a a a a"]
    expected = theirs(str(folder), device="cpu").encode(texts)
    ours = SentenceEncoder.from_pretrained(folder)
    np.testing.assert_allclose(ours.encode(texts), expected, atol=1e-6)
    save_foreign(tmp_path / "back", ours.parts)
    np.testing.assert_allclose(theirs(str(tmp_path / "back"), device="cpu").encode(texts), expected, atol=1e-6)
    again = SentenceEncoder.from_pretrained(tmp_path / "back")
    np.testing.assert_array_equal(again.encode(texts), ours.encode(texts))


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
    encoder = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "m", **TOLD))
    usual = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "usual"))
    np.testing.assert_array_equal(encoder.encode("A B"), usual.encode("query: a b"))
    assert np.abs(encoder.encode("A B") - usual.encode("A B")).max() > 1e-4


def test_an_encoder_whose_vectors_a_layer_bends_stays_hugging_faces(plain: Path, tmp_path: Path) -> None:
    """BERT's own pooler: what is written and read again gives the same vectors, not those of the bare encoder."""
    parts = load_model(plain)
    config = replace(parts.settings.config, words=False, pooling="first", pooler="tanh")
    settings = replace(parts.settings, config=config, task="sentence_encoder")
    ours = SentenceEncoder(replace(parts, model=build(config).eval(), settings=settings))
    save_foreign(tmp_path / "there", ours.parts)
    assert not (tmp_path / "there" / "modules.json").exists()
    again = SentenceEncoder.from_pretrained(tmp_path / "there")
    np.testing.assert_allclose(again.encode(["a b", "c"]), ours.encode(["a b", "c"]), atol=1e-6)


@pytest.mark.parametrize("most", [10**30, 1e30])
def test_a_bound_that_means_none(plain: Path, tmp_path: Path, most: float) -> None:
    """As tokenizers without a longest text have it."""
    folder = folder_of(plain, tmp_path / "m", tokenizer_config={"model_max_length": most})
    usual = SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "usual"))
    np.testing.assert_array_equal(SentenceEncoder.from_pretrained(folder).encode("a b c"), usual.encode("a b c"))


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"sentence_bert_config": {"max_seq_length": -1}}, "longest must be at least 3: longest=-1"),
        ({"sentence_bert_config": {"max_seq_length": "many"}}, "what sentence-transformers is told.longest"),
        ({"config_sentence_transformers": {"prompts": {"q": 3}, "default_prompt_name": "q"}}, "is told.prompt"),
        ({"pooling": {"pooling_mode": ["cls", "mean"]}}, r"asks for the pooling \['cls', 'mean'\]"),
        ({"pooling": {"pooling_mode_weightedmean_tokens": True}}, r"asks for the pooling \[\]; one of"),
        ({"pooling": {"pooling_mode": "mean", "include_prompt": False}}, "leaves the prompt out of the mean"),
    ],
)
def test_what_cannot_be_meant_is_refused(plain: Path, tmp_path: Path, files: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        SentenceEncoder.from_pretrained(folder_of(plain, tmp_path / "m", **files))
