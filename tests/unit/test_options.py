"""Options of a call: names, types, what the model directory says, and words as phrases of tokens."""

import pytest

from clearhead.data.tokenizer_kinds import KINDS
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, DecodingError
from clearhead.generate.decoding import Decoding
from clearhead.tasks.options import decoding_for, our_names, with_words

TEXTS = ["The cat sat on a mat (cat) near cats. Étude 12!"] * 5


def test_what_is_given_comes_before_what_is_usual() -> None:
    usual = {"num_beams": 4, "max_new_tokens": 9, "length_penalty": 0.6}
    assert decoding_for({}, usual) == Decoding(beams=4, longest=9, length_penalty=0.6)
    asked = decoding_for({"beams": 2, "longest": None, "num_return_sequences": 2}, usual)
    assert asked == Decoding(beams=2, best=2, longest=9, length_penalty=0.6)


@pytest.mark.parametrize(
    ("asked", "usual", "expected"),
    [
        ({"temperature": 0.5}, {"beams": 4, "best": 2}, Decoding(temperature=0.5)),
        ({"do_sample": True}, {"beams": 4}, Decoding(temperature=1.0)),
        ({"num_beams": 3}, {"temperature": 0.7, "top_k": 5}, Decoding(beams=3, top_k=5)),
        ({"guess": 3}, {"temperature": 0.7}, Decoding(guess=3)),
        ({"penalty_alpha": 0.6, "top_k": 4}, {"beams": 2}, Decoding(contrast=0.6, top_k=4)),
        ({"coverage_penalty": 0.2}, {"beams": 4}, Decoding(coverage_penalty=0.2, beams=4)),
        ({"beams": 1}, {"temperature": 0.7}, Decoding(temperature=0.7)),
        ({"do_sample": False}, {"temperature": 0.7}, Decoding()),
    ],
)
def test_a_way_that_is_asked_for_replaces_one_that_is_usual(asked: dict, usual: dict, expected: Decoding) -> None:
    assert decoding_for(asked, usual) == expected


def test_two_ways_that_are_both_asked_for_are_refused() -> None:
    with pytest.raises(DecodingError, match="beam search and sampling"):
        decoding_for({"beams": 3, "temperature": 1.0}, {})


def test_a_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(DecodingError, match=r"'beems'.*'beams'"):
        decoding_for({"beems": 4}, {})
    with pytest.raises(CheckpointError, match=r"generation_config\.json.*'num_beam'"):
        decoding_for({}, {"num_beam": 4})


def test_values_have_the_types_of_their_options() -> None:
    read = decoding_for({"num_beams": "4", "top_p": "0.5", "early_stopping": True}, {})
    assert read == Decoding(beams=4, top_p=0.5, stopping="full")
    with pytest.raises(DecodingError, match=r"num_beams: .*not 'four'"):
        decoding_for({"num_beams": "four"}, {})
    assert decoding_for({"bad_words_ids": [[1, 2], [3]]}, {}).forbidden == ((1, 2), (3,))
    with pytest.raises(DecodingError, match="bad_words_ids: "):
        decoding_for({"bad_words_ids": 5}, {})
    with pytest.raises(CheckpointError, match="temperature"):
        decoding_for({}, {"temperature": [1]})


def test_names_of_others_are_ours() -> None:
    assert our_names({"max_new_tokens": 5, "beams": 2, "seed": None}) == {"longest", "beams"}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("word", ["cat", "mat", "sat on"])
def test_required_words_are_phrases_as_they_stand_in_a_sentence(kind: str, word: str) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS, 400)
    (phrase,) = with_words({}, tokenizer, required=word)["required"]
    assert tokenizer.decode([*tokenizer.encode("The"), *phrase]) == f"The {word}"
    ids = tokenizer.encode(f"The {word} sat")
    assert any(tuple(ids[start : start + len(phrase)]) == phrase for start in range(len(ids)))


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("text", ["cat sat", "The cat sat", "mat (cat) near"])
def test_forbidden_words_are_found_wherever_they_stand(kind: str, text: str) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS, 400)
    phrases = with_words({}, tokenizer, forbidden=["cat"])["forbidden"]
    ids = tokenizer.encode(text)
    assert any(tuple(ids[start : start + len(phrase)]) == phrase for phrase in phrases for start in range(len(ids)))


def test_words_that_nobody_can_write() -> None:
    tokenizer = Tokenizer.train("word", TEXTS, 400)
    with pytest.raises(DecodingError, match="cannot write 'dog'"):
        with_words({}, tokenizer, required=["cat", "dog"])
    assert with_words({"beams": 2}, tokenizer, forbidden="dog") == {"beams": 2}
    for odd in (["cat", ""], [" "], [3]):
        with pytest.raises(DecodingError, match="forbidden words are texts"):
            with_words({}, tokenizer, forbidden=odd)
