"""Sentences: whatever the text, its pieces are the text; and the cuts are where a reader would make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.tasks.sentences import ABBREVIATIONS, cut

# `|` marks the cuts; the white space there belongs to the piece before.
MARKED = [
    "One sentence",
    "First. |Second! |Third? |Fourth… |Fifth",
    "Really?! |Yes!!! |Then... |Now. |12 came.",
    "and so on... and on. |Ends. ",
    "He paid 3.50 € at 10.30. |Version 2.0.1 is out. |It was 1990. |Then came 1991.",
    "Mr. Smith, Mrs. Jones and Dr. Brown vs. Prof. White et al. Pages pp. 3, Fig. 2 etc. Etc.",
    "J. R. R. Tolkien and J.-P. Sartre met, e.g. Mondays, in the U.S. Army.",
    "I didn't. |She’s Bob’s. |It's.",
    "No. 5 is alive. |No. |I am not.",
    "Am 3. Oktober und am 24. Dezember, z. B. Montags, d. h. Heute, bzw. Morgen. |Dann nicht.",
    "M. Dupont, Mme. Durand, p. ex. Paris, av. J.-C. ou après. |C’est tout.",
    "“Really?” |“Yes.” |(He left.) |[Then] he came back.",
    '"Stop!" he said. |"Go!" |She went.',
    "Il dit : « Oui ! » |Puis « Non… » dit-il. |« Bon. »",
    "Er sagte: „Nein.“ |»Doch.« |Dann ›Ja.‹ |Ende.",
    "¿Qué? |¡Nada! |¿«Nada»? |¡«No»!",
    "Привет. |Как дела? хорошо! |Ёлка.",
    "你好。|我是学生！|真的？|「はい。」|そう（ですか？）|終わり",
    "مرحبا؟ |نعم. |यह है। |वह",
    "a line\n|another. \n\n |third\r\n|fourth\u2028|fifth.\x85|sixth",
    "lower.\n|case. case",
    "Mr.\n|Smith",
    "end of text. \n",
    "e.g.\u00a0This stays. \u00a0|That goes.",
]


@pytest.mark.parametrize("marked", MARKED)
def test_where_a_reader_would_cut(marked: str) -> None:
    assert [sentence + space for sentence, space in cut(marked.replace("|", ""))] == marked.split("|")


def test_white_space_at_the_ends() -> None:
    assert cut("") == []
    assert cut(" \n ") == [("", " \n ")]
    assert cut("\t Yes. \n") == [("", "\t "), ("Yes.", " \n")]


@pytest.mark.parametrize("word", sorted(ABBREVIATIONS))
def test_no_abbreviation_ends_a_sentence(word: str) -> None:
    assert len(cut(f"That is {word}. Xyz.")) == 1
    assert len(cut(f"{word}. Xyz.")) == 1
    assert len(cut(f"That is {word}! Xyz.")) == len(cut(f"That is q{word}. Xyz.")) == 2


tricky = st.text(
    st.one_of(
        st.sampled_from("....!?…。？ \u00a0 \n\r\u2028\x1c\"'’“”«»()[]「」Aaé1ßあ-,"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=60,
)
wordy = st.lists(
    st.sampled_from(["Mr", "etc", "No", "z", "B", "Ein", "ein", "3", "1990", ".", "!", "…", "。", " ", "  ", "\n",
                     "«", "»", '"', "’", "s", "(", ")"]), max_size=25).map("".join)  # fmt: skip


@given(st.one_of(tricky, wordy))
def test_the_pieces_are_the_text(text: str) -> None:
    pieces = cut(text)
    assert "".join(sentence + space for sentence, space in pieces) == text
    for place, (sentence, space) in enumerate(pieces):
        assert sentence == sentence.strip()
        assert sentence or (place == 0 and space)
        assert not space.strip()
        assert len(sentence.splitlines()) <= 1


@given(st.one_of(tricky, wordy))
def test_a_sentence_is_not_cut_again(text: str) -> None:
    for sentence, _ in cut(text):
        assert cut(sentence) == ([(sentence, "")] if sentence else [])


@given(st.lists(st.one_of(tricky, wordy), max_size=3))
def test_lines_are_cut_each_by_itself(lines: list[str]) -> None:
    whole = [line.strip() for line in lines if line.strip()]
    sentences = [sentence for line in whole for sentence, _ in cut(line)]
    assert [sentence for sentence, _ in cut("\n".join(whole))] == sentences


@pytest.mark.parametrize(
    "unit", ["a", "1", ".", " ", "\n", " \n", ". ", "A. ", "A.", ")", " »", "« ", "(", ".)) ", "! »", ". (", "。"]
)
def test_awkward_text_takes_linear_time(unit: str) -> None:
    text = "." + unit * (300_000 // len(unit)) + "a"
    assert "".join(sentence + space for sentence, space in cut(text)) == text
