"""Sentences as people type them, and that they are learned from and never judged by."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.pairs import PairSource
from clearhead.data.typed import hasty, is_chosen
from clearhead.tasks.pair_data import head, parts_of
from clearhead.tasks.recipe import Data

TEXTS = [
    f"{name} a {number} ans{mark}" for name in ("Tom", "Mary") for number in range(40) for mark in (".", " !", " ?")
]


def test_capitals_marks_or_both_are_left_out() -> None:
    plain = {text: (text.lower(), text.rstrip(".!? "), text.lower().rstrip(".!? ")) for text in TEXTS}
    kinds = [plain[text].index(hasty(text)) for text in TEXTS]
    assert set(kinds) == {0, 1, 2}


@given(st.text(min_size=1))
def test_something_is_left(text: str) -> None:
    assert hasty(text)
    assert hasty(text).casefold() in text.lower().casefold()


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_holds_the_smaller(text: str, a: float, b: float) -> None:
    assert is_chosen(text, min(a, b)) <= is_chosen(text, max(a, b))
    assert not is_chosen(text, 0.0)
    assert is_chosen(text, 1.0)


def test_the_share_is_about_what_it_says() -> None:
    assert 0.2 < sum(is_chosen(str(number), 0.25) for number in range(4000)) / 4000 < 0.3


@pytest.mark.parametrize("origin", ["file", "split", "builtin"])
def test_only_what_is_learned_from_comes_twice(origin: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\t{text.upper()}\n" for text in TEXTS), encoding="utf-8")
    data = {
        "file": {"train": file, "valid": file, "test": file},
        "split": {"train": file, "split": 0.8, "test": file},
        "builtin": {"builtin": "phrasebook", "sentences": 200, "held_out": 20},
    }[origin]
    before, after = (parts_of(Data(**data, as_typed=share)) for share in (0.0, 0.5))
    learned, more = ([*head(parts.train)] for parts in (before, after))
    assert set(learned) <= set(more)
    added = sorted(more)
    for pair in learned:
        added.remove(pair)
    assert added == sorted((hasty(source), target) for source, target in learned if is_chosen(source, 0.5))
    assert added
    for part in ("valid", "test"):
        assert [*head(getattr(before, part))] == [*head(getattr(after, part))]


def test_a_file_says_so_in_its_turn(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("Oui.\tYes.\n", encoding="utf-8")
    pairs = [*PairSource(tmp_path / "pairs.tsv", as_typed=1.0).pairs()]
    assert [(pair.source, pair.target) for pair in pairs] == [("Oui.", "Yes."), (hasty("Oui."), "Yes.")]
