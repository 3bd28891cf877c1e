"""The one value that says how to write: what it refuses, and the names under which others know its parts."""

from dataclasses import fields
from typing import Any

import pytest

from clearhead.errors import DecodingError
from clearhead.generate.decoding import ALIASES, LEAST, STOPPINGS, Decoding, decoding_of

NAMES = {field.name for field in fields(Decoding)}


@pytest.mark.parametrize("name", sorted(LEAST))
def test_less_than_the_least_is_refused(name: str) -> None:
    with pytest.raises(DecodingError, match=f"{name} must be at least .*: {name}="):
        Decoding(**{name: LEAST[name] - 1})
    with pytest.raises(DecodingError, match=f"{name} must be at least"):
        Decoding(**{name: float("nan")})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"top_p": 1.2}, r"top_p must lie between 0 and 1: top_p=1\.2"),
        ({"min_p": -0.1}, "min_p must lie"),
        ({"typical": 2}, "typical must lie"),
        ({"contrast": 1.5, "top_k": 4}, r"contrast must lie between 0 and 1: contrast=1\.5"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0"),
        ({"patience": -1}, "patience must be above 0"),
        ({"stopping": "soon"}, "stopping is one of full, likely, sure: stopping='soon'"),
        ({"beams": 2, "best": 3}, "of 2 beams .* best=3"),
        ({"beams": 4, "groups": 3}, "beams=4, groups=3"),
        ({"beams": 2, "temperature": 1.0}, "beam search and sampling are two ways"),
        ({"coverage_penalty": 1.0, "guess": 2}, "beam search and guessing ahead"),
        ({"temperature": 1.0, "contrast": 0.5, "top_k": 3}, "sampling and contrastive search"),
        ({"contrast": 0.5, "top_k": 1}, "top_k=1 must be above 1"),
        ({"required": ((1,),), "beams": 2, "groups": 2}, "required words and groups .* groups=2"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        Decoding(**given)


@pytest.mark.parametrize(
    ("decoding", "searches"),
    [
        (Decoding(), False),
        (Decoding(temperature=1.0, best=3), False),
        (Decoding(beams=2), True),
        (Decoding(required=((1,),)), True),
        (Decoding(coverage_penalty=0.1), True),
    ],
)
def test_what_searches(decoding: Decoding, searches: bool) -> None:
    assert decoding.searches == searches


def test_aliases_are_other_names_of_what_there_is() -> None:
    assert set(ALIASES.values()) <= NAMES
    assert not set(ALIASES) & NAMES


@pytest.mark.parametrize(("alias", "name"), sorted(ALIASES.items()))
def test_every_alias_means_its_option(alias: str, name: str) -> None:
    values = {
        "stopping": (True, "full"),
        "forbidden": ([[1, 2], [3]], ((1, 2), (3,))),
        "required": ([[1, 2]], ((1, 2),)),
        "contrast": (0.5, 0.5),
        "typical": (0.5, 0.5),
    }
    theirs, ours = values.get(name, (4, 4))
    # What an option needs beside it.
    beside = {"best": {"beams": 4}, "groups": {"beams": 4}, "contrast": {"top_k": 4}}.get(name, {})
    assert getattr(decoding_of({alias: theirs, **beside}), name) == ours


@pytest.mark.parametrize(("ours", "theirs"), STOPPINGS.items())
def test_early_stopping(ours: str, theirs: bool | str) -> None:
    assert decoding_of({"early_stopping": theirs}).stopping == ours


@pytest.mark.parametrize(
    ("given", "temperature"),
    [
        ({"do_sample": True}, 1.0),
        ({"do_sample": True, "temperature": 0.5}, 0.5),
        ({"do_sample": False, "temperature": 0.5}, 0.0),
        ({"temperature": 0.5}, 0.5),
        ({}, 0.0),
    ],
)
def test_sampling_or_not(given: dict[str, Any], temperature: float) -> None:
    assert decoding_of(given).temperature == temperature


def test_what_is_wanted_comes_before_what_is_usual() -> None:
    usual = Decoding(beams=4, longest=50, length_penalty=0.6)
    assert decoding_of({}, usual) == usual
    assert decoding_of({"num_beams": 2}, usual) == Decoding(beams=2, longest=50, length_penalty=0.6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_beam": 4}, "no option 'num_beam': did you mean 'num_beams'"),
        ({"zzz": 4}, "no option 'zzz'; known are longest,"),
        ({"num_beams": 4, "beams": 4}, "'num_beams' and 'beams' are the same option"),
        ({"early_stopping": "soon"}, "early_stopping is True, False or 'never'"),
    ],
)
def test_options_that_are_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        decoding_of(given)
