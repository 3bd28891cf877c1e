"""The translator that comes with clearhead: small enough, right where a newcomer tries it, found by every verb."""

import json
import re
from pathlib import Path

import pytest
import sacrebleu

from clearhead.tasks.loading import find_model
from clearhead.tasks.shipped import TRANSLATOR, shipped_model
from clearhead.tasks.translator import Translator
from tests.conftest import ROOT
from tests.unit.command_line import run, write_pairs

Capture = pytest.CaptureFixture[str]
FOLDER = ROOT / "src" / "clearhead" / "shipped" / "fr-en"

# What the phrases mean; any of these is right.
RIGHT = {
    "Je suis étudiant.": {"I'm a student.", "I am a student."},
    "Merci.": {"Thank you.", "Thanks."},
    "Le chat dort sur la table.": {"The cat is sleeping on the table.", "The cat sleeps on the table."},
    "Où est la gare ?": {"Where is the station?", "Where's the station?", "Where is the train station?"},
}
LEAVING_OUT = re.compile(r"[^\w\s']")


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.from_pretrained(TRANSLATOR)


def test_it_takes_ten_megabytes_at_most_and_holds_no_more_than_a_model() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sum(sizes.values()) <= 10e6
    assert sizes.keys() == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"}


@pytest.mark.parametrize("source", RIGHT)
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("beams", [1, 4])
def test_what_a_newcomer_tries_is_right(source: str, precision: str, beams: int) -> None:
    answer = Translator.from_pretrained(TRANSLATOR, precision=precision).translate(source, beams=beams)
    assert answer in RIGHT[source]


@pytest.mark.parametrize("source", RIGHT)
def test_so_it_is_as_people_type(source: str, translator: Translator) -> None:
    def plainly(text: str) -> str:
        return LEAVING_OUT.sub("", text).strip().lower()

    for typed in (plainly(source), source.lower(), source.replace(" ?", "?"), source.rstrip(" .?")):
        assert plainly(translator.translate(typed)) in set(map(plainly, RIGHT[source])), typed


def test_numbers_may_have_the_same_digits_again(translator: Translator) -> None:
    assert "1,000,000" in translator.translate("Il a gagné 1 000 000 de dollars.")


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model(TRANSLATOR) == shipped_model(TRANSLATOR) == FOLDER
    Path(TRANSLATOR).mkdir(parents=True)
    (Path(TRANSLATOR) / "config.json").touch()
    assert find_model(TRANSLATOR) == Path(TRANSLATOR)


def test_every_verb_of_a_translator_finds_it(capsys: Capture, tmp_path: Path, translator: Translator) -> None:
    said = translator.translate("Merci.")
    assert run(capsys, "translate", "Merci.") == (0, said + "\n", "")
    assert json.loads(run(capsys, "info", "--json").out)["task"] == "translation"
    assert "decoder" in run(capsys, "look", "Merci.").out
    assert said.rstrip(".") in run(capsys, "score", f"Merci.\t{said}").out
    pairs = write_pairs(tmp_path / "pairs.tsv", [("Merci.", said), ("Je suis étudiant.", "I'm a student.")])
    assert json.loads(run(capsys, "evaluate", pairs, "--json").out)["sentences"] == 2


@pytest.mark.parametrize("verb", ["serve", "explore"])
def test_verbs_that_serve_say_that_they_use_it(verb: str, capsys: Capture) -> None:
    assert f"[default: {TRANSLATOR}]" in " ".join(run(capsys, verb, "--help").out.split())


def test_its_makers_are_named() -> None:
    for file in (FOLDER / "README.md", ROOT / "README.md"):
        text = file.read_text(encoding="utf-8").lower()
        for named in ("tatoeba.org", "manythings.org/anki", "cc by 2.0"):
            assert named in text, f"{file.name} does not name {named}"


@pytest.mark.slow
def test_it_is_as_good_as_its_card_says(shared_data: Path, translator: Translator) -> None:
    lines = (shared_data / "tatoeba-fra-eng" / "test.tsv").read_text(encoding="utf-8").splitlines()
    sources, targets = zip(*(line.split("\t")[:2] for line in lines), strict=True)
    stated = re.search(r"4 beams \| \*?\*?([\d.]+)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert stated is not None
    bleu = sacrebleu.corpus_bleu(translator.translate(list(sources), beams=4), [list(targets)])
    assert f"{bleu.score:.1f}" == stated[1]
