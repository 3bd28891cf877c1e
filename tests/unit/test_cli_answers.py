"""`clearhead generate`, `classify` and `fill`: what the command says is what the task's class says."""

import json
from pathlib import Path

import pytest

from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.token_classifier import TokenClassifier
from tests.unit.command_line import refusal, run

Capture = pytest.CaptureFixture[str]
LINES = ["the dog barks", "the cat sleeps", "a dog sleeps"]
TAGGED = [(["Mary", "saw", "Paris"], ["B-PER", "O", "B-LOC"]), (["Paul", "slept"], ["B-PER", "O"])]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A barely trained model of each task."""
    root = tmp_path_factory.mktemp("answers")
    models = {
        "language": LanguageModel.fit(LINES * 9, preset="gpt-tiny", steps=2, vocabulary=300, length=8),
        "masked": MaskedModel.fit(LINES * 9, preset="bert-tiny", steps=2, vocabulary=300, length=8),
        "texts": TextClassifier.fit([("good film", "+"), ("bad film", "-")], steps=20, vocabulary=300),
        "words": TokenClassifier.fit(TAGGED, steps=20, vocabulary=300),
    }
    for name, model in models.items():
        model.save_pretrained(root / name)
    return {name: root / name for name in models}


def test_generate_goes_on_with_the_prompt(folders: dict[str, Path], capsys: Capture) -> None:
    model = LanguageModel.from_pretrained(folders["language"])
    done = run(capsys, "generate", "the", "a", "-m", folders["language"], "--longest", "4")
    assert done.out == "".join(f"{prompt}{model.generate(prompt, longest=4)}\n" for prompt in ("the", "a"))


def test_generate_draws_by_seed(folders: dict[str, Path], capsys: Capture) -> None:
    ask = ("generate", "the", "-m", folders["language"], "--longest", "20", "--temperature", "5", "--json")
    answers = [run(capsys, *ask, "--seed", seed).out for seed in ("1", "1", "2")]
    assert answers[0] == answers[1] != answers[2]
    model = LanguageModel.from_pretrained(folders["language"])
    said = json.loads(answers[0])
    assert said["prompt"] == "the"
    assert said["continuation"] == model.generate("the", longest=20, temperature=5.0, seed=1)
    assert said["score"] == pytest.approx(sum(score for _, score in said["tokens"]))


def test_generate_from_nothing(folders: dict[str, Path], capsys: Capture) -> None:
    assert run(capsys, "generate", "", "-m", folders["language"], "--longest", "3").code == 0


@pytest.mark.parametrize("option", [("--longest", "0"), ("--longest", "-3"), ("--temperature", "-1")])
def test_what_cannot_be_drawn_is_wrong_usage(
    option: tuple[str, str], folders: dict[str, Path], capsys: Capture
) -> None:
    assert run(capsys, "generate", "the", "-m", folders["language"], *option).code == 2


def test_classify_gives_the_class_and_its_probability(folders: dict[str, Path], capsys: Capture) -> None:
    model = TextClassifier.from_pretrained(folders["texts"])
    done = run(capsys, "classify", "-m", folders["texts"], stdin=b"good film\nbad film\n")
    for line, text in zip(done.out.splitlines(), ("good film", "bad film"), strict=True):
        label, probability = line.split("\t")
        assert label == model.classify(text)
        assert float(probability) == pytest.approx(max(model.predict(text).values()), abs=1e-4)


def test_classify_has_all_probabilities_in_json(folders: dict[str, Path], capsys: Capture) -> None:
    answer = json.loads(run(capsys, "classify", "good film", "-m", folders["texts"], "--json").out)
    assert answer["text"] == "good film"
    assert set(answer["probabilities"]) == {"+", "-"}
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)


def test_classify_labels_words_where_the_model_does(folders: dict[str, Path], capsys: Capture) -> None:
    model = TokenClassifier.from_pretrained(folders["words"])
    tagged = model.label("Mary saw Paris")
    done = run(capsys, "classify", "Mary saw Paris", "Paul", "-m", folders["words"])
    first, second, rest = done.out.split("\n\n")
    assert [tuple(line.split("\t")) for line in first.split("\n")] == [tuple(word) for word in tagged]
    assert second.split("\t")[0] == "Paul"
    assert rest == ""
    answer = json.loads(run(capsys, "classify", "Mary saw Paris", "-m", folders["words"], "--json").out)
    assert answer == {"text": "Mary saw Paris", "words": [list(word) for word in tagged]}


def test_fill_puts_words_in(folders: dict[str, Path], capsys: Capture) -> None:
    model = MaskedModel.from_pretrained(folders["masked"])
    text = "the <mask> barks"
    assert run(capsys, "fill", text, "-m", folders["masked"]).out == f"{model.fill(text)}\n"
    answer = json.loads(run(capsys, "fill", text, "-m", folders["masked"], "--top", "2", "--json").out)
    assert answer["filled"] == model.fill(text)
    assert answer["guesses"] == [[list(guess) for guess in row] for row in model.guesses(text, 2)]


def test_fill_takes_any_number_of_guesses(folders: dict[str, Path], capsys: Capture) -> None:
    done = run(capsys, "fill", "the <mask>", "-m", folders["masked"], "--top", "100000", "--json")
    vocabulary = MaskedModel.from_pretrained(folders["masked"]).tokenizer.vocabulary_size
    assert len(json.loads(done.out)["guesses"][0]) <= vocabulary


def test_fill_needs_something_hidden(folders: dict[str, Path], capsys: Capture) -> None:
    assert "<mask>" in refusal(run(capsys, "fill", "the dog barks", "-m", folders["masked"]))


@pytest.mark.parametrize(
    ("verb", "model", "named"),
    [
        ("generate", "masked", "masked_model"),
        ("fill", "language", "language_model"),
        ("classify", "language", "language_model"),
        ("translate", "texts", "text_classification"),
    ],
)
def test_a_model_of_another_task_is_named(
    verb: str, model: str, named: str, folders: dict[str, Path], capsys: Capture
) -> None:
    said = refusal(run(capsys, verb, "the <mask>", "-m", folders[model]))
    assert str(folders[model]) in said
    assert named in said
