"""Text as it comes: all of it, only what is certain, nothing of a stop word, at a cost that does not grow."""

from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.tokenizer_kinds import KINDS
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import DecodingError
from clearhead.generate.stream import TextStream

TEXTS = [
    "Je suis étudiant, et toi ?",
    "The animal didn't cross the street because it was too tired.",
    "日本語のテキスト 2024 — naïve façade… 😀😀😀👩‍👩‍👧",
    "def f(x):\n\treturn x  # <b>tag</b>\n",
    "e\u0301a\u0308 \ufffd \ufffd\ufffd",
]
PIECES = [*"é \n語😀ß€.x\ufffd", "  ", "suis", " étudiant", "日本", "👩‍👩‍👧", "e\u0301"]
Decode = Callable[[list[int]], str]

texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


@cache
def trained(kind: str) -> Tokenizer:
    return Tokenizer.train(kind, TEXTS * 3, 420)


def streamed(decode: Decode, tokens: Sequence[int], prompt: Sequence[int] = (), stops: Sequence[str] = ()) -> str:
    stream = TextStream(decode, prompt=prompt, stops=stops)
    return "".join([*map(stream.feed, tokens), stream.finish()])


def before_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


def continuation(decode: Decode, tokens: Sequence[int], prompt: Sequence[int] = ()) -> str:
    return decode([*prompt, *tokens])[len(decode(list(prompt))) :]


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(prompt=texts, text=texts)
def test_the_parts_are_the_text(kind: str, prompt: str, text: str) -> None:
    tokenizer = trained(kind)
    before, tokens = tokenizer.encode(prompt), tokenizer.encode(text)
    wanted = continuation(tokenizer.decode, tokens, before)
    assert streamed(tokenizer.decode, tokens, before) == wanted
    if kind in ("bytes", "bpe", "unigram"):
        assert wanted == text


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(text=texts, data=st.data())
def test_a_prompt_may_end_anywhere_in_the_text(kind: str, text: str, data: st.DataObject) -> None:
    tokenizer = trained(kind)
    tokens = tokenizer.encode(text)
    end = data.draw(st.integers(0, len(tokens)))
    # Between the bytes of one character a decoder that spells in bytes says something else than it did.
    if tokenizer.decode(tokens).startswith(tokenizer.decode(tokens[:end])):
        wanted = continuation(tokenizer.decode, tokens[end:], tokens[:end])
        assert streamed(tokenizer.decode, tokens[end:], tokens[:end]) == wanted


@pytest.mark.parametrize("kind", ["bytes", "word", "character"])
@given(data=st.data())
def test_any_tokens_at_all(kind: str, data: st.DataObject) -> None:
    tokenizer = trained(kind)
    ids = st.lists(st.integers(0, tokenizer.vocabulary_size - 1), max_size=30)
    prompt, tokens = data.draw(ids), data.draw(ids)
    assert streamed(tokenizer.decode, tokens, prompt) == continuation(tokenizer.decode, tokens, prompt)


@given(st.lists(st.binary(max_size=5), max_size=30), st.integers(0, 30))
def test_tokens_of_any_bytes(pieces: list[bytes], start: int) -> None:
    def decode(ids: list[int]) -> str:
        return b"".join(pieces[id] for id in ids).decode(errors="replace")

    prompt, tokens = range(min(start, len(pieces))), range(min(start, len(pieces)), len(pieces))
    assert streamed(decode, tokens, prompt) == continuation(decode, tokens, prompt)


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.data())
def test_tokens_that_end_inside_characters(text: str, data: st.DataObject) -> None:
    """As merged bytes may: the end of one character and the beginning of the next in one token, again and again."""
    spelled = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(spelled))))) if spelled else []
    pieces = [spelled[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    assert streamed(lambda ids: b"".join(pieces[id] for id in ids).decode(errors="replace"), range(len(pieces))) == text


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(text=texts)
def test_half_a_character_is_never_shown(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    tokens = tokenizer.encode(text.replace("\ufffd", ""))
    whole = tokenizer.decode(tokens)
    stream = TextStream(tokenizer.decode)
    shown = ""
    for token in tokens:
        shown += stream.feed(token)
        assert whole.startswith(shown)


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(text=texts)
def test_what_is_whole_is_shown_at_once(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    tokens = tokenizer.encode(text)
    stream = TextStream(tokenizer.decode)
    shown = ""
    for count, token in enumerate(tokens, start=1):
        shown += stream.feed(token)
        written = tokenizer.decode(tokens[:count])
        assert shown == written or written.endswith("\ufffd")


letters = st.text("abé😀", max_size=25)
stop_words = st.lists(st.text("abé😀", min_size=1, max_size=4), max_size=3)


@given(letters, stop_words, st.data())
def test_text_ends_before_the_earliest_stop_word(text: str, stops: list[str], data: st.DataObject) -> None:
    """However the bytes are dealt out to tokens, and at no time more than is certain."""
    spelled = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(spelled))))) if spelled else []
    pieces = [spelled[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    stream = TextStream(lambda ids: b"".join(pieces[id] for id in ids).decode(errors="replace"), stops=stops)
    wanted = before_stop(text, stops)
    shown = ""
    for token in range(len(pieces)):
        shown += stream.feed(token)
        assert wanted.startswith(shown)
    assert shown + stream.finish() == wanted
    assert stream.stopped == any(stop in text for stop in stops)


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(text=texts, data=st.data())
def test_stop_words_in_every_kind(kind: str, text: str, data: st.DataObject) -> None:
    tokenizer = trained(kind)
    tokens = tokenizer.encode(text)
    whole = tokenizer.decode(tokens)
    start = data.draw(st.integers(0, max(len(whole) - 1, 0)))
    stop = whole[start : start + data.draw(st.integers(1, 5))] or "never"
    assert streamed(tokenizer.decode, tokens, stops=[stop, "étudiant"]) == before_stop(whole, [stop, "étudiant"])


def by_code(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def test_a_stop_word_is_noticed_with_its_last_character_and_nothing_follows() -> None:
    stream = TextStream(by_code, stops=["END", "x"])
    assert [stream.feed(ord(letter)) for letter in "aEbEN"] == ["a", "", "Eb", "", ""]
    assert not stream.stopped
    assert stream.feed(ord("D")) == ""
    assert stream.stopped
    assert [stream.feed(ord("b")), stream.finish()] == ["", ""]


def test_what_only_began_like_a_stop_word_comes_at_the_end() -> None:
    stream = TextStream(by_code, stops=["END"])
    assert [stream.feed(ord(letter)) for letter in "aEN"] == ["a", "", ""]
    assert [stream.finish(), stream.finish(), stream.stopped] == ["EN", "", False]


def test_an_earlier_stop_word_that_is_still_possible_is_waited_for() -> None:
    for text, wanted in [("abcd", ""), ("abce", "a"), ("abc", "a")]:
        assert streamed(by_code, list(map(ord, text)), stops=["bc", "abcd"]) == wanted


def test_an_empty_stop_word() -> None:
    with pytest.raises(DecodingError, match=r"at least one character: stops=\['a', ''\]"):
        TextStream(by_code, stops=["a", ""])


def endless(kind: str) -> dict[str, list[int]]:
    """Tokens of which a window could grow: no text, marks that are meant, bytes that never become a character."""
    tokenizer = trained(kind)
    byte = {"bytes": "Ģ", "bpe": "<0x80>", "unigram": "<0x80>"}.get(kind)
    return {
        "text": tokenizer.encode(" ".join(TEXTS * 3)),
        "emoji": tokenizer.encode("😀👩‍👩‍👧" * 50),
        "marks": tokenizer.encode("\ufffd" * 200),
        "special": [tokenizer.id_of("<eos>")] * 200,
        "bytes": [tokenizer.id_of(byte)] * 200 if byte else [],
    }


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", ["text", "emoji", "marks", "special", "bytes"])
def test_the_cost_of_a_token_does_not_grow(kind: str, name: str) -> None:
    asked: list[int] = []

    def decode(ids: list[int]) -> str:
        asked.append(len(ids))
        return trained(kind).decode(ids)

    prompt, tokens = trained(kind).encode("x"), endless(kind)[name]
    assert streamed(decode, tokens, prompt, stops=["never"]) == continuation(trained(kind).decode, tokens, prompt)
    assert max(asked) <= 20
    assert len(asked) <= 2 * len(tokens) + 1
