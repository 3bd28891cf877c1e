"""Whole folders: what is written here opens in `transformers` and in CTranslate2, and says the same words."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError
from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.loading import load_model
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.registry import load
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.token_classifier import TokenClassifier
from clearhead.tasks.translator import Translator
from tests.unit.tiny_tasks import ENCODER, PAIR, copy_pairs, random_translator, random_writer, tiny_recipe

hf = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs

TEXTS = ["a b c", "f", "e d c b a", "a a a a a a"]
SHAPES: dict[str, dict[str, Any]] = {
    "pegasus": {},
    "marian": {"residual": "post_norm", "output_bias": True},
    "bart": {"residual": "post_norm", "positions": "learned", "embedding_norm": True, "length": 40},
    "t5": {"positions": "t5", "norm": "rms_norm", "score": "dot", "biases": False, "scaled_embedding": False},
}


def opened(kind: str, folder: Path) -> Any:
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    model, said = getattr(hf, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(said[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    return model.eval()


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_translators(shape: str, tmp_path: Path) -> None:
    ours = random_translator(3, **{"tied": True, **SHAPES[shape]})
    save_foreign(tmp_path / "there", ours.parts)
    theirs, tokenizer = (
        opened("AutoModelForSeq2SeqLM", tmp_path / "there"),
        hf.AutoTokenizer.from_pretrained(tmp_path / "there"),
    )
    assert theirs.config.model_type == shape
    given = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    for beams in (1, 4):
        ids = theirs.generate(**given, num_beams=beams, max_new_tokens=9)
        said = tokenizer.batch_decode(ids, skip_special_tokens=True)
        assert ours.translate(TEXTS, beams=beams, longest=9, split=False) == said
    again = load(tmp_path / "there")
    assert again.translate(TEXTS, beams=4, longest=9) == ours.translate(TEXTS, beams=4, longest=9)
    assert again.score("a b", "A B").scores == pytest.approx(ours.score("a b", "A B").scores, abs=1e-5)


@pytest.mark.parametrize("settings", [{"min_length": 7}, {"max_length": 4}, {"min_length": 5, "max_length": 9}])
@pytest.mark.parametrize("shape", ["bart", "t5"])
@torch.no_grad()
def test_their_bounds_of_length_are_kept(shape: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """With nothing said but what the folder says; BART begins with a token that is given."""
    ours = random_translator(5, **{"tied": True, **SHAPES[shape]})
    save_foreign(tmp_path / "there", ours.parts)
    path = tmp_path / "there" / "generation_config.json"
    first = {"forced_bos_token_id": ours.tokenizer.encode("a")[0]} if shape == "bart" else {}
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_length": 12, **settings, **first}))
    theirs = opened("AutoModelForSeq2SeqLM", tmp_path / "there")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "there")
    given = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    said = tokenizer.batch_decode(theirs.generate(**given, num_beams=2)[:, 1 + len(first) :], skip_special_tokens=True)
    again = load(tmp_path / "there")
    assert again.translate(TEXTS, beams=2, split=False) == said
    save_foreign(tmp_path / "back", again.parts)
    back = opened("AutoModelForSeq2SeqLM", tmp_path / "back").generation_config
    assert back.max_length == settings.get("max_length", 12)


@torch.no_grad()
def test_writers(tmp_path: Path) -> None:
    ours = random_writer(1, length=64)
    save_foreign(tmp_path / "there", ours.parts)
    theirs, tokenizer = (
        opened("AutoModelForCausalLM", tmp_path / "there"),
        hf.AutoTokenizer.from_pretrained(tmp_path / "there"),
    )
    given = tokenizer("the cat", return_tensors="pt", return_token_type_ids=False)
    ids = theirs.generate(**given, max_new_tokens=20)[0, given["input_ids"].shape[1] :]
    assert tokenizer.decode(ids, skip_special_tokens=True) == ours.generate("the cat", longest=20)
    assert load(tmp_path / "there").generate("the cat", longest=20) == ours.generate("the cat", longest=20)


WORDS = [("good film", "+"), ("bad film", "-"), ("so good", "+"), ("so bad", "-")]
TAGGED = [(("good", "film"), ("B", "O")), (("bad",), ("O",))]
POST: dict[str, Any] = {**ENCODER, "residual": "post_norm", "embedding_norm": True}


def test_classifiers(tmp_path: Path) -> None:
    ours = TextClassifier.fit(WORDS, recipe=tiny_recipe("text_classification", {**POST, "pooler": "tanh"}))
    save_foreign(tmp_path / "there", ours.parts)
    theirs = hf.pipeline("text-classification", model=str(tmp_path / "there"))
    for text in ("good", "so bad film"):
        (said,) = theirs(text)
        assert said["label"] == ours.classify(text)
        assert said["score"] == pytest.approx(max(ours.predict(text).values()), abs=1e-5)
    assert load(tmp_path / "there").predict("good") == pytest.approx(ours.predict("good"), abs=1e-5)


def test_masked_models(tmp_path: Path) -> None:
    ours = MaskedModel.fit(["a b c d e f"] * 4, recipe=tiny_recipe("masked_model", POST))
    save_foreign(tmp_path / "there", ours.parts)
    theirs = hf.pipeline("fill-mask", model=str(tmp_path / "there"), top_k=3)
    said = {one["token_str"]: one["score"] for one in theirs("a <mask> c")}
    mine = {guess.word: guess.probability for guess in ours.guesses("a <mask> c", top=12)[0]}
    shared = said.keys() & mine.keys()
    assert shared
    ratio = [said[word] / mine[word] for word in shared]  # ours leaves special tokens out of the sum
    assert max(ratio) == pytest.approx(min(ratio), rel=1e-3)


def test_token_classifiers(tmp_path: Path) -> None:
    ours = TokenClassifier.fit(TAGGED, recipe=tiny_recipe("token_classification", POST))
    save_foreign(tmp_path / "there", ours.parts)
    opened("AutoModelForTokenClassification", tmp_path / "there")
    again = load_model(tmp_path / "there")
    assert again.settings.labels == ours.parts.settings.labels
    assert load(tmp_path / "there").label("good film") == ours.label("good film")


def theirs_saved(folder: Path, head: str, **settings: Any) -> None:
    """A random BERT of theirs with words of its own, as they save it."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9}
    config = hf.BertConfig(vocab_size=len(words), initializer_range=1.0, **sizes, **settings)
    hf.utils.logging.disable_progress_bar()
    getattr(hf, f"BertFor{head}Classification")(config).save_pretrained(folder)
    hf.BertTokenizer({word: id for id, word in enumerate(words)}).save_pretrained(folder)


def test_classes_that_they_leave_unnamed_have_their_usual_names(tmp_path: Path) -> None:
    """Of two classes their files say nothing."""
    theirs_saved(tmp_path / "texts", "Sequence")
    theirs_saved(tmp_path / "words", "Token")
    assert "id2label" not in (tmp_path / "texts" / "config.json").read_text()
    said = hf.pipeline("text-classification", str(tmp_path / "texts"))("good bad", top_k=None)
    found = load(tmp_path / "texts").predict("good bad")
    assert found == pytest.approx({one["label"]: one["score"] for one in said}, abs=1e-5)
    said = hf.pipeline("token-classification", str(tmp_path / "words"))("good bad")
    assert [one.tag for one in load(tmp_path / "words").label("good bad")] == [one["entity"] for one in said]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, "problem_type='multi_label_classification'"),
        ({"num_labels": 2, "problem_type": "regression"}, "problem_type='regression'"),
        ({"num_labels": 1}, "one class"),
    ],
)
def test_what_is_no_choice_among_classes_is_refused(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    """Their numbers are each a yes or no, or a quantity: no shares of a whole."""
    theirs_saved(tmp_path / "there", "Sequence", **settings)
    with pytest.raises(CheckpointError, match=sentence):
        load_model(tmp_path / "there")


def trained(**model: Any) -> Translator:
    """A translator that is sure of what it says."""
    train = {"steps": 600, "learning_rate": 5e-3, "warmup": 100}
    return Translator.fit(copy_pairs(2000), recipe=tiny_recipe("translation", {**PAIR, **model}, train=train))


@pytest.mark.parametrize("shape", [{}, {"residual": "post_norm", "zero_start": True}], ids=["pegasus", "marian"])
def test_ctranslate2_says_the_same_words(shape: dict[str, Any], tmp_path: Path) -> None:
    ct2 = pytest.importorskip("ctranslate2")
    from ctranslate2.converters import TransformersConverter

    ours = trained(**shape)
    save_foreign(tmp_path / "there", ours.parts)
    TransformersConverter(str(tmp_path / "there")).convert(str(tmp_path / "fast"))
    engine = ct2.Translator(str(tmp_path / "fast"), compute_type="float32", intra_threads=1, inter_threads=1)
    texts = [source for source, _ in copy_pairs(20, seed=9)]
    found = engine.translate_batch([pieces(text, ours.tokenizer) for text in texts], beam_size=4)
    said = [ours.tokenizer.decode([ours.tokenizer.id_of(t) for t in one.hypotheses[0]]) for one in found]
    assert ours.translate(texts, beams=4, stopping="full") == said  # when they stop, too
    assert len(set(said)) > 10


def pieces(text: str, tokenizer: Tokenizer) -> list[str]:
    assert tokenizer.eos is not None
    return [tokenizer.token_of(id) for id in [*tokenizer.encode(text), tokenizer.eos]]
