"""`clearhead evaluate`, `info` and `average`: what they say of a model directory and what they make of several."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clearhead.tasks.registry import load
from clearhead.tasks.translator import Translator
from tests.unit.command_line import PAIRS, refusal, run, write_pairs, write_recipe

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep corpora below the test's own folder."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def trained(tmp_path: Path, capsys: Capture) -> Path:
    """A run of four steps that kept each second checkpoint."""
    sets = ("--set", "train.checkpoint_every=2", "--set", "data.languages=[fr, en]")
    done = run(capsys, "train", write_recipe(tmp_path, steps=4), "-o", tmp_path / "run", *sets)
    assert done.code == 0, done.err
    return tmp_path / "run"


def test_evaluate_decodes_as_it_is_told(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv")
    told = ("--beam", "3", "--option", "max_new_tokens=4", "--precision", "int8", "--json")
    shown = json.loads(run(capsys, "evaluate", pairs, "-m", trained, *told).out)
    figures = Translator.from_pretrained(trained, precision="int8").evaluate(PAIRS, beams=3, longest=4)
    assert shown == pytest.approx(figures)
    assert shown["loss"] != Translator.from_pretrained(trained).evaluate(PAIRS)["loss"]


def test_evaluate_says_what_the_task_says(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    figures = Translator.from_pretrained(trained).evaluate(PAIRS)
    pairs = write_pairs(tmp_path / "pairs.tsv")
    done = run(capsys, "evaluate", pairs, "-m", trained)
    shown = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert shown.keys() == figures.keys()
    assert shown["bleu_signature"] == figures["bleu_signature"]
    assert float(shown["loss"]) == pytest.approx(figures["loss"], rel=1e-4)
    assert json.loads(run(capsys, "evaluate", pairs, "-m", trained, "--json").out) == pytest.approx(figures)


def test_evaluate_takes_parallel_files(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    for number, name in enumerate(("fr", "en")):
        (tmp_path / f"test.{name}").write_text("".join(f"{pair[number]}\n" for pair in PAIRS), encoding="utf-8")
    together = run(capsys, "evaluate", write_pairs(tmp_path / "pairs.tsv"), "-m", trained)
    apart = run(capsys, "evaluate", tmp_path / "test.fr", tmp_path / "test.en", "-m", trained)
    assert apart.code == 0
    assert apart.out == together.out


def test_evaluate_reads_other_encodings(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    pairs = [("été", "summer"), ("le chat dort", "the cat sleeps")]
    modern = run(capsys, "evaluate", write_pairs(tmp_path / "new.tsv", pairs), "-m", trained)
    old = tmp_path / "old.tsv"
    old.write_bytes((tmp_path / "new.tsv").read_text(encoding="utf-8").encode("latin-1"))
    assert run(capsys, "evaluate", old, "-m", trained, "--encoding", "latin-1").out == modern.out
    assert run(capsys, "evaluate", old, "-m", trained, "--set", "data.encoding=latin-1").out == modern.out
    assert "klingon" in refusal(run(capsys, "evaluate", old, "-m", trained, "--encoding", "klingon"))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "data.tsv"),
        (b"un\tone\nd\0\ttwo\n", "data.tsv, line 2"),
        (b"un one\n", "data.tsv, line 1"),
        (b"un\tone\ndeux\t" + b"t" * 1_000_001, "data.tsv, line 2"),
        (b"un\tone\nd\xe9\ttwo\n", "data.tsv, line 2: byte 8 (0xe9) is no utf-8"),
    ],
    ids=["empty", "binary", "no tab", "endless line", "utf-8"],
)
def test_evaluate_names_a_bad_file(content: bytes, named: str, trained: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "data.tsv").write_bytes(content)
    assert named in refusal(run(capsys, "evaluate", tmp_path / "data.tsv", "-m", trained))


def test_evaluate_refuses_parallel_files_of_unequal_length(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "test.fr").write_bytes(b"un\ndeux\n")
    (tmp_path / "test.en").write_bytes(b"one\n")
    said = refusal(run(capsys, "evaluate", tmp_path / "test.fr", tmp_path / "test.en", "-m", trained))
    assert said.endswith(f"{tmp_path / 'test.fr'} has 2, {tmp_path / 'test.en'} has 1")


def test_evaluate_takes_two_files_at_most(trained: Path, capsys: Capture) -> None:
    assert "3" in refusal(run(capsys, "evaluate", "a", "b", "c", "-m", trained))


@pytest.mark.parametrize(
    ("key", "named"),
    [("data.encodign=utf-8", "'encoding'"), ("data.columns=[-1, 0]", "-1"), ("columns", "columns"), ("unit=[", "unit")],
)
def test_evaluate_refuses_keys_that_cannot_be(key: str, named: str, trained: Path, capsys: Capture) -> None:
    assert named in refusal(run(capsys, "evaluate", "pairs.tsv", "-m", trained, "--set", key))


FORMS = {
    "language_model": ("text.txt", "être ou ne pas être " * 9, "perplexity"),
    "masked_model": ("text.txt", "être ou ne pas être\n" * 9, "accuracy"),
    "text_classification": ("labels.txt", "+ café fort\n- café froid\n" * 4, "macro_f1"),
    "token_classification": ("tags.txt", "René B-PER\ndort O\n\nParis B-LOC\n\n" * 4, "span_f1"),
}


@pytest.mark.parametrize("task", sorted(FORMS))
def test_evaluate_knows_every_task(task: str, tmp_path: Path, capsys: Capture) -> None:
    name, content, figure = FORMS[task]
    (tmp_path / name).write_text(content, encoding="utf-8")
    recipe = write_recipe(tmp_path, task, train=str(tmp_path / name))
    assert run(capsys, "train", recipe, "-o", tmp_path / "run").code == 0
    done = run(capsys, "evaluate", tmp_path / name, "-m", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == pytest.approx(load(tmp_path / "run").evaluate(tmp_path / name))
    assert figure in json.loads(done.out)
    old = tmp_path / f"old-{name}"
    old.write_text(content, encoding="latin-1")
    said = refusal(run(capsys, "evaluate", old, "-m", tmp_path / "run"))
    assert said.startswith(f"{old}, line 1: byte ")
    assert "--encoding='latin-1'" in said
    said = refusal(run(capsys, "train", recipe, "--set", f"data.train={old}", "-o", tmp_path / "other"))
    assert "--set data.encoding='latin-1'" in said
    assert run(capsys, "evaluate", old, "-m", tmp_path / "run", "--json", "--encoding", "latin-1").out == done.out
    assert "2" in refusal(run(capsys, "evaluate", tmp_path / name, tmp_path / name, "-m", tmp_path / "run"))


def test_info_counts_what_is_there(trained: Path, capsys: Capture) -> None:
    told = json.loads(run(capsys, "info", trained, "--json").out)
    count = sum(tensor.numel() for tensor in load_file(trained / "best" / "model.safetensors").values())
    assert told["parameters"] == sum(told["parts"].values()) == count
    assert (told["task"], told["architecture"]) == ("translation", "encoder_decoder")
    assert told["languages"] == ["fr", "en"]
    assert told["vocabulary"] == load(trained).tokenizer.vocabulary_size
    assert told["config"]["width"] == 16


def test_info_is_readable(trained: Path, capsys: Capture) -> None:
    done = run(capsys, "info", trained)
    assert done.code == 0
    words = done.out.split()
    for word in ("translation", "encoder_decoder", "fr", "decoder.0.cross", "total", "dropout"):
        assert word in words, done.out


def test_info_refuses_what_is_no_model(tmp_path: Path, capsys: Capture) -> None:
    assert str(tmp_path) in refusal(run(capsys, "info", tmp_path))


@pytest.mark.parametrize("named", ["checkpoints", "run"])
def test_average_is_the_mean(named: str, trained: Path, tmp_path: Path, capsys: Capture) -> None:
    folders = [trained / "checkpoint-2", trained / "checkpoint-4"]
    done = run(capsys, "average", *(folders if named == "checkpoints" else [trained]), "-o", tmp_path / "mean")
    assert (done.code, done.out) == (0, f"{tmp_path / 'mean'}\n")
    first, second, mean = (load_file(folder / "model.safetensors") for folder in (*folders, tmp_path / "mean"))
    assert mean.keys() == first.keys()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
    assert isinstance(load(tmp_path / "mean").translate("le chat"), str)


def test_average_refuses_another_architecture(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    wider = run(capsys, "train", write_recipe(tmp_path), "-o", tmp_path / "wide", "--set", "model.width=32")
    assert wider.code == 0, wider.err
    said = refusal(run(capsys, "average", tmp_path / "wide" / "last", trained / "last", "-o", tmp_path / "mean"))
    assert "wide" in said
    assert not (tmp_path / "mean").exists()


def test_average_reads_what_is_stored_in_8_bits(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(capsys, "convert", trained, tmp_path / "small", "--store", "int8").code == 0
    done = run(capsys, "average", tmp_path / "small", "-o", tmp_path / "mean")
    assert done.code == 0, done.err
    small, mean = (load(tmp_path / name).parts.model.state_dict() for name in ("small", "mean"))
    torch.testing.assert_close(mean, small)


def test_average_is_of_our_own_models(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "config.json").write_text('{"model_type": "marian"}', encoding="utf-8")
    said = refusal(run(capsys, "average", theirs, trained, "-o", tmp_path / "mean"))
    assert said == f"{theirs} is another project's model: `clearhead convert` makes one of ours of it first"
    shipped = refusal(run(capsys, "average", "clearhead/fr-en", trained / "last", "-o", tmp_path / "mean"))
    assert "fr-en is of another architecture" in shipped


def test_average_never_overwrites(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mean").mkdir()
    assert "mean" in refusal(run(capsys, "average", trained, "-o", tmp_path / "mean"))
    assert not any((tmp_path / "mean").iterdir())


def test_average_names_what_is_missing(tmp_path: Path, capsys: Capture) -> None:
    assert "nowhere" in refusal(run(capsys, "average", tmp_path / "nowhere", "-o", tmp_path / "mean"))
