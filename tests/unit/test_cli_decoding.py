"""The options of `translate`, `generate` and `score`: what the command says is what the task's class says."""

import io
import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from clearhead.cli import text as frame
from clearhead.cli.decoding import options_of
from clearhead.cli.text import PrecisionOption
from clearhead.errors import ConfigError
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.precision import PRECISIONS
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.translator import Translator
from tests.unit.command_line import Done, refusal, run
from tests.unit.tiny_tasks import random_translator, random_writer

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("decoding")
    random_translator().save_pretrained(root / "first")
    random_translator(seed=1).save_pretrained(root / "second")
    random_writer().save_pretrained(root / "writer")
    return {name: root / name for name in ("first", "second", "writer")}


@pytest.fixture(scope="module")
def translator(folders: dict[str, Path]) -> Translator:
    return Translator.from_pretrained(folders["first"])


@pytest.fixture(scope="module")
def writer(folders: dict[str, Path]) -> LanguageModel:
    return LanguageModel.from_pretrained(folders["writer"])


TRANSLATE: list[tuple[list[str], dict[str, Any]]] = [
    (["--beam", "3"], {"beams": 3}),
    (["--beam", "3", "--length-penalty", "0.2"], {"beams": 3, "length_penalty": 0.2}),
    (["--forbid", "f", "--forbid", "b"], {"forbidden": ["f", "b"]}),
    (["--require", "D", "--beam", "3"], {"required": ["D"], "beams": 3}),
    (["--prefix", "A B"], {"prefix": "A B"}),
    (["--no-split"], {"split": False}),
    (["--option", "num_beams=2", "--option", "early_stopping=never"], {"beams": 2, "stopping": "sure"}),
]


@pytest.mark.parametrize(("given", "meant"), TRANSLATE, ids=[" ".join(given) for given, _ in TRANSLATE])
def test_translate_takes_options(
    given: list[str], meant: dict[str, Any], folders: dict[str, Path], translator: Translator, capsys: Capture
) -> None:
    asked = ["a b c ! D e", "d"]
    done = run(capsys, "translate", *asked, "-m", folders["first"], "--option", "longest=6", *given)
    expected = translator.translate(asked, longest=6, **meant)
    assert done == (0, "".join(f"{line}\n" for line in expected), "")


def test_translate_shows_the_best_with_scores_and_alignments(
    folders: dict[str, Path], translator: Translator, capsys: Capture
) -> None:
    ask = ("translate", "a b", "c", "-m", folders["first"], "--n-best", "2", "--alignments", "--option", "longest=5")
    answers = translator.answers(["a b", "c"], beams=2, best=2, longest=5, alignments=True)
    lines = run(capsys, *ask).out.splitlines()
    for line, answer in zip(lines, answers[0] + answers[1], strict=True):
        score, text, links = line.split("\t")
        assert (score, text) == (f"{answer.score:.4f}", answer.text)
        assert [tuple(map(int, link.split("-"))) for link in links.split()] == [*(answer.links or ())]
    said = [json.loads(line) for line in run(capsys, *ask, "--json").out.splitlines()]
    assert [one["translation"] for one in said] == [best[0].text for best in answers]
    for one, best in zip(said, answers, strict=True):
        assert [answer["score"] for answer in one["answers"]] == pytest.approx([answer.score for answer in best])
        assert one["answers"][0] == {name: one[name] for name in ("translation", "score", "tokens", "alignments")}
        assert one["alignments"] == [[*link] for link in best[0].links or ()]


def test_several_models_decide_together(folders: dict[str, Path], capsys: Capture) -> None:
    both = Translator.from_pretrained([folders["first"], folders["second"]])
    done = run(capsys, "translate", "a b c", "-m", folders["first"], "-m", folders["second"])
    assert done.out == f"{both.translate('a b c')}\n"
    assert "share a vocabulary" not in done.err


GENERATE: list[tuple[list[str], dict[str, Any]]] = [
    (["--temperature", "1", "--top-k", "3", "--seed", "4"], {"temperature": 1.0, "top_k": 3, "seed": 4}),
    (["--temperature", "1", "--top-p", "0.5", "--min-p", "0.1"], {"temperature": 1.0, "top_p": 0.5, "min_p": 0.1}),
    (["--beam", "3"], {"beams": 3}),
    (["--no-repeat", "2", "--repetition-penalty", "1.5"], {"no_repeat": 2, "repetition_penalty": 1.5}),
    (["--option", "min_new_tokens=9", "--option", "typical_p=0.5"], {"shortest": 9, "typical": 0.5}),
]


@pytest.mark.parametrize(("given", "meant"), GENERATE, ids=[" ".join(given) for given, _ in GENERATE])
def test_generate_takes_options_and_streams_the_same(
    given: list[str], meant: dict[str, Any], folders: dict[str, Path], writer: LanguageModel, capsys: Capture
) -> None:
    expected = [f"{prompt}{writer.generate(prompt, longest=9, **meant)}\n" for prompt in ("the", "a")]
    ask = ("-m", folders["writer"], "--longest", "9", *given)
    assert run(capsys, "generate", "the", "a", *ask) == (0, "".join(expected), "")
    assert run(capsys, "generate", "the", *ask) == (0, expected[0], "")


def test_generate_writes_as_it_goes(folders: dict[str, Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("typer.echo", lambda text="", nl=True: written.append(text))
    run(capsys, "generate", "the", "-m", folders["writer"], "--longest", "9", "--option", "shortest=9")
    assert len(written) > 3


def test_generate_ends_before_a_stop_word(folders: dict[str, Path], writer: LanguageModel, capsys: Capture) -> None:
    whole = writer.generate("the", longest=12, shortest=12)
    ask = ("generate", "the", "-m", folders["writer"], "--longest", "12", "--option", "shortest=12")
    done = run(capsys, *ask, "--stop", whole[4:6], "--stop", "Ω")
    assert done.out == f"the{whole.partition(whole[4:6])[0]}\n"


@pytest.mark.parametrize("drawn", [False, True])
def test_generate_shows_several_answers(
    drawn: bool, folders: dict[str, Path], writer: LanguageModel, capsys: Capture
) -> None:
    given, meant = (["--temperature", "1"], {"temperature": 1.0}) if drawn else ([], {"beams": 3})
    ask = ("generate", "the", "-m", folders["writer"], "--longest", "6", "--n-best", "3", *given)
    answers = writer.answers(["the"], longest=6, best=3, **meant)[0]
    assert run(capsys, *ask).out == "".join(f"{answer.score:.4f}\tthe{answer.text}\n" for answer in answers)
    said = json.loads(run(capsys, *ask, "--json").out)
    assert [one["continuation"] for one in said["answers"]] == [answer.text for answer in answers]


def test_score_says_how_likely_texts_are(folders: dict[str, Path], writer: LanguageModel, capsys: Capture) -> None:
    texts = ["the cat", "mat"]
    done = run(capsys, "score", "-m", folders["writer"], stdin="\n".join(texts).encode())
    assert done.out == "".join(f"{writer.score(text).score:.4f}\t{text}\n" for text in texts)
    said = json.loads(run(capsys, "score", "the cat", "-m", folders["writer"], "--json").out)
    scored = writer.score("the cat")
    assert said["text"] == "the cat"
    assert said["score"] == pytest.approx(scored.score)
    assert said["mean"] == pytest.approx(scored.score / 7)
    assert [token for token, _ in said["tokens"]] == [*"the cat"]


def test_score_says_how_likely_translations_are(
    folders: dict[str, Path], translator: Translator, capsys: Capture
) -> None:
    scored = translator.score("a b", "A")
    said = json.loads(run(capsys, "score", "a b\tA", "-m", folders["first"], "--json").out)
    assert (said["source"], said["target"]) == ("a b", "A")
    assert [score for _, score in said["tokens"]] == pytest.approx(scored.scores)
    for wrong in (b"a\tA\nb\n", b"a\tA\nb\tB\tC\n"):
        assert "text 2: a source and its target" in refusal(run(capsys, "score", "-m", folders["first"], stdin=wrong))


BAD: list[tuple[str, list[str], str]] = [
    ("translate", ["a b", "--require", "Zoo"], "cannot write 'Zoo'"),
    ("translate", ["a b", "--require", "A B C", "--option", "longest=2"], "nothing that is allowed can follow"),
    ("translate", ["a b", "--option", "num_beans=2"], "'num_beams'"),
    ("translate", ["a b", "--option", "num_beams"], "written like num_beams=4"),
    ("translate", ["a b", "--option", "num_beams=many"], "'many'"),
    ("translate", ["a b", "--beam", "2", "--n-best", "3"], "best=3"),
    ("generate", ["t" * 40, "--beam", "2", "--longest", "5"], "16 positions"),
    ("generate", ["t", "--beam", "2", "--temperature", "1"], "two ways"),
    ("generate", ["t", "--stop", ""], "stop word"),
]


@pytest.mark.parametrize(("verb", "given", "why"), BAD, ids=[" ".join(given[1:]) for _, given, _ in BAD])
def test_what_cannot_be_met_is_refused(
    verb: str, given: list[str], why: str, folders: dict[str, Path], capsys: Capture
) -> None:
    model = folders["writer" if verb == "generate" else "first"]
    assert why in refusal(run(capsys, verb, *given, "-m", model))


@pytest.mark.parametrize("given", [["--beam", "0"], ["--precision", "int4"], ["--threads", "0"], ["--n-best", "x"]])
def test_wrong_usage_leaves_with_2(given: list[str], folders: dict[str, Path], capsys: Capture) -> None:
    assert run(capsys, "translate", "a", "-m", folders["first"], *given).code == 2


def test_an_empty_prompt_needs_a_token_to_begin_with(tmp_path: Path, capsys: Capture) -> None:
    random_writer().save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    config["config"] |= {"bos": None, "eos": None}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "give it a prompt" in refusal(run(capsys, "generate", "", "-m", tmp_path / "model"))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, capsys: Capture) -> None:
    writer = random_writer()
    with torch.no_grad():
        writer.model.output.linear.weight[3, 0] = float("nan")
    writer.save_pretrained(tmp_path / "model")
    assert "not numbers" in refusal(run(capsys, "generate", "the", "-m", tmp_path / "model"))


def test_a_generation_config_that_cannot_be_used_is_named(tmp_path: Path, capsys: Capture) -> None:
    random_writer().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text('{"beems": 3}', encoding="utf-8")
    said = refusal(run(capsys, "generate", "the", "-m", tmp_path / "model"))
    assert "generation_config.json" in said
    assert "'beams'" in said


def test_precisions_that_are_offered_are_there() -> None:
    assert {*get_args(get_args(PrecisionOption)[0])} == {*PRECISIONS}


def test_every_verb_that_answers_does_so_in_eight_bits(
    folders: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    MaskedModel.fit(["the dog barks"] * 9, preset="bert-tiny", steps=1, vocabulary=300, length=8).save_pretrained(
        tmp_path / "masked"
    )
    TextClassifier.fit([("good film", "+"), ("bad film", "-")], steps=1, vocabulary=300).save_pretrained(
        tmp_path / "texts"
    )
    before = torch.get_num_threads()
    for verb, text, model in (
        ("translate", "a b", folders["first"]),
        ("generate", "the", folders["writer"]),
        ("score", "the", folders["writer"]),
        ("classify", "good film", tmp_path / "texts"),
        ("fill", "the <mask>", tmp_path / "masked"),
    ):
        exact, small = (
            run(capsys, verb, text, "-m", model, "--json", "--precision", precision, "--threads", "1")
            for precision in ("float32", "int8")
        )
        assert (exact.code, exact.err, small.code, small.err) == (0, "", 0, "")
        assert exact.out != small.out
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_options_are_names_and_values() -> None:
    assert options_of(["beams=2", "early_stopping=true", "bad_words_ids=[[1, 2]]"]) == {
        "beams": 2,
        "early_stopping": True,
        "bad_words_ids": [[1, 2]],
    }
    assert options_of(None) == {}
    for odd in ("beams", "=2", "beams=", "be ams=2", "x=[1"):
        with pytest.raises(ConfigError, match="written like"):
            options_of([odd])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("into_file", [True, False])
def test_a_file_has_a_bar_of_progress_where_it_does_not_disturb(
    into_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").write_text("a b\nc\n", encoding="utf-8")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(sys, "stdout", io.StringIO() if into_file else Terminal())
    with (tmp_path / "lines").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert [*frame.batches(None)] == [["a b", "c"]]
    assert ("100%" in shown.getvalue()) is into_file


def test_info_shows_how_a_model_writes(folders: dict[str, Path], capsys: Capture) -> None:
    done: Done = run(capsys, "info", folders["first"], "--json")
    assert json.loads(done.out)["generation"] == {"longest_ratio": 2.0, "longest_extra": 20}
    assert "longest_ratio" in run(capsys, "info", folders["first"]).out
