"""Tokenizers: what goes in comes out, in every kind, and special tokens come only from those who ask for them."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, processors

from clearhead.data.tokenizer_kinds import BYTES, KINDS
from clearhead.data.tokenizers import SPECIALS, Tokenizer
from clearhead.errors import ConfigError, DataError

TEXTS = [
    "Je suis étudiant, et toi ?",
    "The animal didn't cross the street because it was too tired.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "日本語のテキスト 2024 — naïve façade… 😀👩‍👩‍👧",
    "def f(x):\n\treturn x  # <b>tag</b>\n",
]
EXACT = ("bytes", "bpe", "unigram")
ALL_ROLES = (*SPECIALS, "<mask>", "<cls>", "<sep>")

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@cache
def trained(kind: str, vocabulary: int = 420) -> Tokenizer:
    return Tokenizer.train(kind, TEXTS * 3, vocabulary, specials=ALL_ROLES)


@pytest.mark.parametrize("kind", EXACT)
@given(text=any_text)
def test_any_text_comes_back_exactly(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize(
    "text", ["", "\ufeff", "\0", "\u2581 \u0120", "<0x41><eos> ＜eos＞", "\r\n\u2028", "e\u0301", "\uffed", "a" * 5000]
)
def test_awkward_text_comes_back_exactly(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_texts_trained_on_come_back_exactly(kind: str) -> None:
    tokenizer = trained(kind, 1000)
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(TEXTS)] == TEXTS
    assert tokenizer.decode_batch(tokenizer.encode_batch(TEXTS)) == TEXTS


@pytest.mark.parametrize("kind", ["word", "character"])
@given(text=any_text)
def test_what_is_not_unknown_comes_back_exactly(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    if "\uffed" not in text and tokenizer.unknown not in ids:
        assert tokenizer.decode(ids) == text
    if kind == "character":
        assert len(ids) == len(text)


WORDS = ["a", "Bé", "12", "..", "(", "日本"]
GAPS = [" ", "  ", "\n", " \n ", ", ", "-", "\t"]


@given(sentence=st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), max_size=8))
def test_known_words_come_back_exactly_with_any_spaces_between(sentence: list[tuple[str, str]]) -> None:
    tokenizer = spaced()
    text = "".join(word + gap for word, gap in sentence)
    ids = tokenizer.encode(text)
    assert tokenizer.unknown not in ids
    assert tokenizer.decode(ids) == text


@cache
def spaced() -> Tokenizer:
    """It has seen every word after every gap, and every gap before every word and at the end."""
    seen = ["".join(parts) for parts in product(WORDS, GAPS, WORDS, GAPS)]
    return Tokenizer.train("word", seen, 2000)


def test_words_keep_their_plain_names() -> None:
    tokenizer = trained("word", 1000)
    assert tokenizer.tokens("Je suis étudiant,") == ["Je", "suis", "étudiant", "￭,"]
    assert tokenizer.decode([tokenizer.id_of("￭,"), tokenizer.id_of("et")]) == ", et"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_text_that_looks_special_is_text(kind: str) -> None:
    tokenizer = trained(kind)
    for text in [*ALL_ROLES, "a<eos>", "<eos> <eos>b", *BYTES[60:64]]:
        assert not (tokenizer.special_ids - {tokenizer.unknown}) & set(tokenizer.encode(text))
        if kind in EXACT:
            assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("bytes", "the", " street"),
        ("unigram", "the", " street"),
        ("word", "the", "street"),
        ("character", "the ", " street"),
    ],
)
def test_marked_text_has_special_tokens_where_they_are_written(kind: str, before: str, after: str) -> None:
    tokenizer = trained(kind)
    expected = [*tokenizer.encode(before), tokenizer.mask, *tokenizer.encode(after)]
    assert tokenizer.encode_marked("the <mask> street") == expected
    assert tokenizer.mask not in tokenizer.encode("the <mask> street"), "encode itself stays as it was"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_special_tokens_are_left_out_of_the_text_unless_wanted(kind: str) -> None:
    tokenizer = trained(kind)
    assert tokenizer.bos is not None
    assert tokenizer.eos is not None
    ids = [tokenizer.bos, *tokenizer.encode("the street"), tokenizer.eos]
    assert tokenizer.decode(ids) == tokenizer.decode(ids[1:-1])
    assert tokenizer.decode(ids, specials=True).startswith("<bos>")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_training_is_deterministic(kind: str) -> None:
    texts = [" ".join(TEXTS[i % 5].split()[i % 3 :]) for i in range(40)]
    assert len({Tokenizer.train(kind, texts, 330, specials=ALL_ROLES).fingerprint for _ in range(4)}) == 1


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("pad_last", [False, True])
def test_special_tokens_have_fixed_places(kind: str, pad_last: bool) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS, 500, pad_last=pad_last)
    size = tokenizer.vocabulary_size
    assert size <= 500
    front = [token for token in SPECIALS if token != "<pad>" or not pad_last]
    assert [tokenizer.token_of(id) for id in range(len(front))] == front
    assert tokenizer.pad == (size - 1 if pad_last else 0)
    assert tokenizer.special_ids == {tokenizer.id_of(token) for token in SPECIALS}
    assert (tokenizer.mask, tokenizer.cls, tokenizer.sep) == (None, None, None)
    assert all(tokenizer.id_of(tokenizer.token_of(id)) == id for id in range(size)), "ids have no holes"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_more_vocabulary_than_the_text_supports_gets_smaller(kind: str) -> None:
    assert Tokenizer.train(kind, ["a b a b"], 5000).vocabulary_size < 300


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_lower_case(kind: str) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS, 500, lower=True)
    assert tokenizer.decode(tokenizer.encode("THE ANIMAL")) == "the animal"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_marks_of_other_keyboards(kind: str, tmp_path: Path) -> None:
    texts = ['l\'été ? "non"...', "qu'est-ce que c'est"]
    Tokenizer.train(kind, texts, 500, plain=True).save(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("l’e\u0301te\u0301\u202f? “non”…") == tokenizer.encode(texts[0])
    assert tokenizer.decode(tokenizer.encode("qu’est\u2011ce")) == "qu'est-ce"


PHRASES = ("bpe", "bytes", "unigram")
WHOLE = (
    *("", "animal", " animal", "the  animal \n", "l'", "L'animal n'a qu'une eau.", "aujourd'hui", "d'Artagnan's hat"),
    *("I'm he's I'll we've they're don't", "my parents' house at six o'clock", "'tis y'all", "é'é 日本'x 1'x"),
)


@pytest.mark.parametrize("kind", PHRASES)
@pytest.mark.parametrize("before", ["the ", "l'", "qu'"])
def test_read_plainly_a_word_is_the_same_wherever_it_stands(kind: str, before: str) -> None:
    tokenizer = Tokenizer.train(kind, [*TEXTS, "the animal", "l'animal"], 500, plain=True)
    alone, behind = tokenizer.encode("animal"), tokenizer.encode(f"{before}animal")
    assert behind[-len(alone) :] == alone
    *_, last = tokenizer.pieces(f"{before}animal")
    assert last.text
    assert f"{before}animal".endswith(last.text)


@pytest.mark.parametrize("kind", PHRASES)
@pytest.mark.parametrize("text", WHOLE)
def test_read_plainly_a_text_is_given_back_whole(kind: str, text: str) -> None:
    tokenizer = Tokenizer.train(kind, [*TEXTS, text or "x"], 500, plain=True)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_saved_and_loaded_it_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path)
    tokenizer.save(tmp_path / "other.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.json", "tokenizer.json"]
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "other.json"):
        loaded = Tokenizer.load(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
        assert (loaded.pad, loaded.eos, loaded.mask) == (tokenizer.pad, tokenizer.eos, tokenizer.mask)
        assert loaded.eos not in loaded.encode("<eos>")


def test_another_projects_file_adds_cuts_and_pads_nothing(tmp_path: Path) -> None:
    vocabulary = {token: id for id, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])}
    engine = Engine(models.WordLevel(vocabulary, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    engine.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    engine.enable_truncation(4)
    engine.enable_padding(length=6)
    engine.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("a b a b a b a") == [5, 6, 5, 6, 5, 6, 5]
    assert (tokenizer.pad, tokenizer.unknown, tokenizer.cls, tokenizer.sep, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert (tokenizer.bos, tokenizer.eos) == (None, None)
    assert Tokenizer.load(tmp_path, {"bos": "[CLS]"}).bos == 2
    with pytest.raises(ConfigError, match="the role 'begin'"):
        Tokenizer.load(tmp_path, {"begin": "[CLS]"})


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(text=any_text)
def test_pieces_lie_in_the_text_in_order(kind: str, text: str) -> None:
    pieces = trained(kind).pieces(text)
    assert [piece.id for piece in pieces] == trained(kind).encode(text)
    assert all(piece.text == text[piece.start : piece.end] for piece in pieces)
    steps = list(pairwise(pieces))
    assert all(first.start <= second.start and first.end <= second.end for first, second in steps)
    covered = {place for piece in pieces for place in range(piece.start, piece.end)}
    assert {text[place] for place in range(len(text)) if place not in covered} <= ({" "} if kind == "word" else set())
    if kind in ("word", "character"):
        assert all(first.end <= second.start for first, second in steps)


def _failing() -> Iterator[str]:
    yield "a b"
    raise DataError("notes.txt, line 2: bad")


@pytest.mark.parametrize(
    ("kind", "texts", "vocabulary", "specials", "error", "message"),
    [
        ("wordpiece", TEXTS, 500, SPECIALS, ConfigError, "'wordpiece'.*'unigram'"),
        ("bytes", TEXTS, 260, SPECIALS, ConfigError, "vocabulary >= 261, not 260"),
        ("word", TEXTS, 500, ("<pad>",), ConfigError, "needs '<unk>'"),
        ("bytes", TEXTS, 500, ("<pad>", "<pad>"), ConfigError, "only once"),
        ("bytes", TEXTS, 500, ("pad",), ConfigError, "not 'pad'"),
        ("bytes", [], 500, SPECIALS, DataError, "no text"),
        ("character", ["", ""], 500, SPECIALS, DataError, "no text"),
        ("bytes", ["ab\ud800"], 500, SPECIALS, DataError, r"'\\ud800' at position 2"),
        ("bpe", ["".join(map(chr, range(0x4E00, 0x4F00)))], 300, SPECIALS, ConfigError, "vocabulary=300"),
        ("unigram", ["".join(map(chr, range(0x4E00, 0x4F00)))], 300, SPECIALS, ConfigError, "vocabulary=300"),
        ("bytes", _failing(), 500, SPECIALS, DataError, "notes.txt, line 2"),
    ],
)
def test_what_cannot_be_trained(
    kind: str, texts: list[str], vocabulary: int, specials: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Tokenizer.train(kind, texts, vocabulary, specials=specials)


def test_what_cannot_be_encoded_found_or_loaded(tmp_path: Path) -> None:
    tokenizer = trained("bytes")
    for encode in (tokenizer.encode, tokenizer.encode_marked, tokenizer.pieces):
        with pytest.raises(DataError, match=r"'\\udc00' at position 1"):
            encode("a\udc00")
    with pytest.raises(ConfigError, match="'nowhere'"):
        tokenizer.id_of("nowhere")
    for id in (-1, tokenizer.vocabulary_size):
        with pytest.raises(ConfigError, match=f"no id {id}"):
            tokenizer.token_of(id)
    with pytest.raises(DataError, match="no tokenizer file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="not a tokenizer file"):
        Tokenizer.load(tmp_path)
    with pytest.raises(ConfigError, match="pad_last needs"):
        Tokenizer.train("bytes", TEXTS, 500, specials=("<unk>",), pad_last=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize("variable", [None, "true", "false"])
def test_a_fork_after_threads_is_silent_and_works(variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import os
from clearhead.data.tokenizers import Tokenizer
given = os.environ.get("TOKENIZERS_PARALLELISM")
tokenizer = Tokenizer.train("bytes", ["a b c"] * 9, 300)
before = tokenizer.encode_batch(["a b c"] * 9)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_batch(["a b c"] * 9) == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert os.environ.get("TOKENIZERS_PARALLELISM") == given
"""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if variable is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", variable)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
