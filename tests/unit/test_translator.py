"""The translator: learns, answers alike in a batch and alone, resumes, is fine-tuned, and shows where it looks."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ConfigError, DataError
from clearhead.nn.weights import read_tensors
from clearhead.tasks import word_alignment
from clearhead.tasks.batches import Epochs, by_length
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.losses import word_loss
from clearhead.tasks.pair_data import Frame, PairBatch, PairParts, as_pairs, parts_of
from clearhead.tasks.recipe import Data, Recipe
from clearhead.tasks.registry import TASKS, load, run_recipe
from clearhead.tasks.text_data import TextParts
from clearhead.tasks.translator import SPECIALS, Translator
from clearhead.tasks.word_alignment import alignment_errors, best_head, word_links
from clearhead.train.distributed import World
from clearhead.train.loss import IGNORE, cross_entropy
from tests.unit.tiny_tasks import PAIR, copy_pairs, random_translator, tiny_recipe
from tests.unit.tiny_training import same_bits

TRAIN, VALID = copy_pairs(2_000), copy_pairs(60, seed=1)


def recipe_of(**sections: Any) -> Recipe:
    return tiny_recipe("translation", sections.pop("model", PAIR), **sections)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned to copy; its folder has a best checkpoint."""
    out = tmp_path_factory.mktemp("translator") / "run"
    train = {"steps": 160, "tokens": 512, "warmup": 10, "learning_rate": 5e-3, "validate_every": 80, "smoothing": 0.05}
    recipe = recipe_of(train=train)
    Translator.fit(TRAIN, valid=VALID, recipe=recipe, out=out)
    return out


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.from_pretrained(run)


def test_it_learns_to_copy(translator: Translator) -> None:
    figures = translator.evaluate(VALID)
    assert figures["sentences"] == len(VALID)
    assert float(figures["chrf"]) > 50
    assert float(figures["bleu"]) > 50
    assert "tok:13a" in str(figures["bleu_signature"])
    assert figures["perplexity"] == pytest.approx(np.exp(figures["loss"]))
    assert translator.translate("a b") == "A B"


def test_a_batch_answers_as_each_sentence_alone(translator: Translator) -> None:
    texts = [source for source, _ in VALID[:12]] + ["", "  ", "a a a a a a a a a a a"]
    together = translator.translate(texts)
    assert together == [translator.translate(text) for text in texts]
    assert together[12:14] == ["", "  "]
    for (answer,), text in zip(translator.answers(texts), texts, strict=True):
        assert len(answer.tokens) <= 2 * len(translator.tokenizer.encode(text)) + 20


def test_the_loss_is_that_of_the_references_one_by_one(translator: Translator) -> None:
    total, count = 0.0, 0
    for source, target in VALID[:10]:
        batch = PairBatch.of(
            translator.tokenizer.encode_batch([source]),
            translator.tokenizer.encode_batch([target]),
            Frame((), (translator.config.eos,), (translator.config.bos,), translator.config.eos),
        )
        with torch.no_grad():
            logits_BLV = translator.model(batch.source_BM, batch.target_BL)
        total += float(F.cross_entropy(logits_BLV[0], batch.label_BL[0], reduction="sum"))
        count += batch.label_BL.numel()
    assert translator.evaluate(VALID[:10])["loss"] == pytest.approx(total / count, rel=1e-5)


def test_the_training_loss_is_a_divergence(translator: Translator) -> None:
    x_ND, target_N = torch.randn(6, 32), torch.tensor([1, 2, IGNORE, 0, 5, IGNORE])
    total, count = word_loss(translator.model.output, x_ND, target_N, 0.1)
    expected = cross_entropy(translator.model.output(x_ND), target_N, smoothing=0.1)
    assert torch.allclose(total, expected[0], atol=1e-5)
    assert count == expected[1] == 4


def test_saving_and_loading_changes_no_answer(translator: Translator, tmp_path: Path) -> None:
    translator.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, Translator)
    texts = [source for source, _ in VALID]
    assert again.translate(texts) == translator.translate(texts)
    assert "Recipe" in again.parts.card


@dataclass(frozen=True)
class Gold:
    source: str
    target: str
    alignment: frozenset[tuple[int, int]]


def monotone(pairs: list[tuple[str, str]]) -> list[Gold]:
    return [Gold(a, b, frozenset((i, i) for i in range(len(a.split())))) for a, b in pairs]


def test_cross_attention_is_shown_for_every_layer_and_head(translator: Translator) -> None:
    seen = translator.alignments("a b c")
    assert seen.source == ["a", "b", "c", "<eos>"]
    assert seen.target[-1] == "<eos>"
    assert seen.weights.shape == (1, 2, len(seen.target), 4)
    assert np.allclose(seen.weights.sum(-1), 1, atol=1e-5)
    batch = [translator.alignments(text, "A B").weights for text in ("a b", "a b c d e")]
    assert batch[0].shape[-1] == 3
    assert batch[1].shape[-1] == 6


def test_the_best_head_aligns_a_copy(translator: Translator) -> None:
    valid, test = monotone(VALID[:30]), monotone(VALID[30:])
    errors = alignment_errors(translator.parts, valid)
    head = best_head(translator.parts, valid)
    assert len(errors) == 4
    assert errors[head] == min(errors.values())
    assert alignment_errors(translator.parts, test, [head])[head] < 0.5
    links = word_links(translator.parts, "c a", "C A", head)
    assert links <= {(i, j) for i in range(2) for j in range(2)}
    with pytest.raises(DataError, match="at least one pair"):
        alignment_errors(translator.parts, [])


def test_pieces_add_up_to_words(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights by hand: two pieces of a source word together outweigh a single one."""
    tokenizer = Tokenizer.train("character", ["ab cdAB C"], 20)
    weights_LM = np.array(
        [  # a    b    ␣    c    d   end
            [0.3, 0.3, 0.0, 0.4, 0.0, 0.0],  # predicts A: word 0
            [0.0, 0.1, 0.0, 0.3, 0.3, 0.3],  # predicts B: word 1, on the mean of both word 0 has 0.35, word 1 0.5
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],  # predicts the space
            [0.1, 0.1, 0.1, 0.1, 0.1, 0.5],  # predicts C: looks at the end
            [0.0, 0.0, 0.0, 0.5, 0.5, 0.0],  # predicts the end, reads C
        ]
    )
    seen = word_alignment.Attended([], [], weights_LM[None, None])
    monkeypatch.setattr(word_alignment, "_attend", lambda parts, pairs: iter([seen]))
    parts = type(translator.parts)(translator.model, tokenizer, translator.parts.settings)
    predicted, read = (word_alignment.AlignmentHead(0, 0, reads) for reads in (False, True))
    assert word_links(parts, "ab cd", "AB C", predicted) == {(1, 0)}
    assert word_links(parts, "ab cd", "AB C", read) == {(0, 0), (1, 1)}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors")


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    for name, pairs in (("train", TRAIN[:200]), ("valid", VALID[:20])):
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    return {name: str(tmp_path / f"{name}.tsv") for name in ("train", "valid")}


def test_a_recipe_s_run_resumes_to_the_same_weights(
    corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recipe(steps: int) -> Recipe:
        train = {"steps": steps, "schedule": "constant", "validate_every": 4, "accumulate": 2, "tokens": 64}
        return recipe_of(data={**corpus, "test": corpus["valid"]}, train=train, model={**PAIR, "dropout": 0.2})

    whole = run_recipe(recipe(12), out=tmp_path / "whole")
    run_recipe(recipe(8), out=tmp_path / "run")
    # The tokenizer of the run is used, and no other trained: its data may have grown since.
    monkeypatch.setattr(Tokenizer, "train", None)
    resumed = run_recipe(recipe(12), out=tmp_path / "run", resume=True)
    assert (resumed.report.step, resumed.report.history) == (12, whole.report.history)
    for name in ("best", "last"):
        assert same_bits(weights_of(tmp_path / "run" / name), weights_of(tmp_path / "whole" / name))
    assert resumed.scores == whole.scores
    card = (whole.folder / "README.md").read_text("utf-8")
    assert "test bleu signature" in card
    assert "  train: train.tsv" in card
    assert str(tmp_path) not in card  # where the maker's files lay is not for whoever gets the model
    other = recipe_of(data=corpus, train={"steps": 12, "tokens": 128}, model={**PAIR, "dropout": 0.2})
    with pytest.raises(ConfigError, match=r"data\.test is None here"):
        run_recipe(other, out=tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="exists and is not empty"):
        run_recipe(recipe(12), out=tmp_path / "run")
    with pytest.raises(CheckpointError, match="no run to resume"):
        run_recipe(recipe(12), out=tmp_path / "nowhere", resume=True)


def test_fine_tuning_starts_from_the_weights_and_leaves_what_is_frozen(run: Path, translator: Translator) -> None:
    model = {"init_from": str(run), "freeze": ["encoder.*", "source_embed.*"]}
    recipe = recipe_of(model=model, train={"steps": 3, "learning_rate": 1e-3})
    reversed_pairs = [(source, target[::-1]) for source, target in TRAIN[:100]]
    prepared = Translator.prepare(recipe, PairParts(as_pairs(reversed_pairs)))
    assert prepared.tokenizer.fingerprint == translator.tokenizer.fingerprint
    before = translator.model.state_dict()
    assert same_bits(dict(prepared.model.state_dict()), dict(before))
    after = Translator.fit(reversed_pairs, recipe=recipe).model.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith(("encoder.", "source_embed."))} <= same
    assert any(name.startswith("decoder.") for name in before.keys() - same)


def test_fine_tuning_goes_on_with_two_tokenizers_and_the_languages(tmp_path: Path) -> None:
    first = random_translator()
    other = Tokenizer.train("word", ["f f f F F F F e e E d c b a A B C D ."], 60, specials=SPECIALS, pad_last=True)
    assert other.encode("A B") != first.tokenizer.encode("A B")
    settings = replace(first.parts.settings, languages=("fr", "en"))
    Translator(replace(first.parts, target=other, settings=settings)).save_pretrained(tmp_path / "first")
    recipe = recipe_of(model={"init_from": str(tmp_path / "first")}, train={"steps": 1, "validate_every": 1})
    prepared = Translator.prepare(recipe, PairParts([("a b", "A B"), ("f", "F")], VALID[:5]))
    (batch,) = prepared.job.batches(1)
    told = {tuple(label_L[label_L != IGNORE].tolist()) for label_L in batch.label_BL}
    assert told == {(*other.encode(target), first.config.eos) for target in ("A B", "F")}
    assert prepared.job.validate is not None
    before = Translator.from_pretrained(tmp_path / "first").evaluate(VALID[:5])
    assert prepared.job.validate(prepared.model.eval())["loss"] == pytest.approx(before["loss"], rel=1e-5)
    after = Translator.fit(VALID, valid=VALID[:5], recipe=recipe).parts
    assert (after.writer.fingerprint, after.settings.languages) == (other.fingerprint, ("fr", "en"))


def test_adapters_learn_alone_and_merge_back(run: Path, translator: Translator) -> None:
    model = {"init_from": str(run), "lora": {"rank": 2, "alpha": 4, "names": ["decoder.*.cross.out"]}}
    recipe = recipe_of(model=model, train={"steps": 3})
    prepared = Translator.prepare(recipe, PairParts(TRAIN[:100]))
    learning = {name for name, parameter in prepared.model.named_parameters() if parameter.requires_grad}
    assert learning == {f"decoder.0.cross.out.lora_{side}" for side in ("down", "up")}
    after = Translator.fit(TRAIN[:100], recipe=recipe).model.state_dict()
    before = translator.model.state_dict()
    assert after.keys() == before.keys()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"decoder.0.cross.out.weight"}


def test_another_architecture_is_no_start(run: Path) -> None:
    recipe = tiny_recipe("language_model", {"init_from": str(run)})
    with pytest.raises(ConfigError, match="language_model needs a model of the architecture decoder_only"):
        LanguageModel.prepare(recipe, TextParts(["a b c"] * 20))
    wider = recipe_of(model={"init_from": str(run), "width": 64})
    with pytest.raises(CheckpointError, match="has another shape"):
        Translator.prepare(wider, PairParts(TRAIN[:100]))


def test_batches_are_a_pure_function_of_the_step() -> None:
    lengths = np.random.default_rng(0).integers(1, 9, (50, 2))
    train = recipe_of(train={"tokens": 40, "accumulate": 3, "seed": 5}).train
    first, second = Epochs.by_tokens(lengths, train), Epochs.by_tokens(lengths, train)
    forward = [first.step(step) for step in range(1, 12)]
    backward = [second.step(step) for step in range(11, 0, -1)][::-1]
    assert all(np.array_equal(a, b) for x, y in zip(forward, backward, strict=True) for a, b in zip(x, y, strict=True))
    seen: list[int] = []
    number = 0
    while len(seen) < 100:
        seen += first.at(number).tolist()
        number += 1
    assert sorted(seen[:50]) == sorted(seen[50:]) == [*range(50)]
    assert seen[:50] != seen[50:]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_share_out_the_global_batch(size: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 9, 30)
    train = recipe_of(train={"tokens": 40, "accumulate": 2}).train
    whole = Epochs.by_tokens(lengths, train)
    ranks = [Epochs.by_tokens(lengths, train, World(rank, size)) for rank in range(size)]
    for step in range(1, 8):
        expected = np.concatenate(whole.step(step))
        shares = [share for rank in ranks for share in rank.step(step)]
        assert sorted(np.concatenate(shares)) == sorted(expected)


def test_examples_for_answering_are_sorted_into_batches() -> None:
    lengths = [3, 9, 1, 4, 4, 40]
    batches = [*by_length(lengths, tokens=12)]
    assert sorted(i for batch in batches for i in batch) == [*range(6)]
    assert all(len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= 12 for batch in batches)


def test_long_sentences_can_be_left_out() -> None:
    recipe = recipe_of(data={"longest": 3}, train={"steps": 1, "tokens": 4_000})
    prepared = Translator.prepare(recipe, PairParts(TRAIN[:100]))
    (batch,) = prepared.job.batches(1)
    short = [source for source, _ in TRAIN[:100] if len(source.split()) + 1 <= 3]
    assert len(batch.source_BM) == len(short)
    assert int(batch.source_count_B.max()) == 3


def test_where_pairs_come_from(tmp_path: Path) -> None:
    parts = parts_of(Data(builtin="phrasebook", sentences=30, held_out=5))
    assert [len(part or ()) for part in (parts.train, parts.valid, parts.test)] == [30, 5, 5]  # type: ignore[arg-type]
    (tmp_path / "a.tsv").write_text("".join(f"{i}\t{i}\n" for i in range(20)), encoding="utf-8")
    split = parts_of(Data(train=tmp_path / "a.tsv", split=0.9))
    assert isinstance(split.train, list)
    assert isinstance(split.valid, list)
    assert len(split.train) == 18
    assert {*split.train} | {*split.valid} == {(str(i), str(i)) for i in range(20)}
    with pytest.raises(ConfigError, match=r"data\.train: a file of pairs"):
        parts_of(Data())
    for wrong in ([], [("a",)], [("a", 3)], ["ab"]):
        with pytest.raises(DataError, match="pairs of texts are wanted"):
            as_pairs(wrong)  # type: ignore[arg-type]


def test_every_task_that_a_recipe_may_name_is_there() -> None:
    named = Recipe.model_fields["task"].annotation.__args__  # type: ignore[union-attr]
    assert {*TASKS} == {*named}


def test_how_long_a_translation_may_become_is_kept_with_the_model(translator: Translator) -> None:
    settings = replace(translator.parts.settings, generation={"longest_ratio": 0, "longest_extra": 1})
    brief = Translator(replace(translator.parts, settings=settings))
    ((answer,),) = brief.answers(["a b c"])
    assert len(answer.tokens) == len(answer.scores) == 1
    assert answer.tokens != ("<eos>",)


@pytest.mark.parametrize("said", [{"longest_ratio": "x"}, {"longest_ever": -3}, {"longest_extra": float("nan")}])
def test_a_length_that_is_none_is_refused(translator: Translator, said: dict[str, Any]) -> None:
    settings = replace(translator.parts.settings, generation=said)
    with pytest.raises(CheckpointError, match=f"generation_config.json cannot be used: {next(iter(said))} is a number"):
        Translator(replace(translator.parts, settings=settings))


def test_what_is_given_for_validation_is_watched(tmp_path: Path) -> None:
    Translator.fit(
        TRAIN[:40], valid=VALID[:4], preset="transformer-tiny", steps=2, vocabulary=300, out=tmp_path / "run"
    )  # fmt: skip
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert "validation" in kinds


def test_validation_that_cannot_be_read_is_refused_before_training() -> None:
    recipe = recipe_of(model={**PAIR, "positions": "learned", "length": 4})
    with pytest.raises(DataError, match="positions for 4 alone"):
        Translator.prepare(recipe, PairParts(TRAIN[:100], VALID))
    prepared = Translator.prepare(recipe, PairParts(TRAIN[:100]))
    assert max(batch.source_BM.shape[1] for batch in prepared.job.batches(1)) <= 4
