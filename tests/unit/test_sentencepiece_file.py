"""sentencepiece's model files, read by ourselves: text is cut as sentencepiece cuts it, and damage is refused."""

import contextlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.sentencepiece_file import (
    PieceType,
    ScoredPiece,
    SentencepieceModel,
    build_sentencepiece,
    read_sentencepiece,
)
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import DataError
from tests.unit.tiny_sentencepiece import LLAMA, TEXTS, train_model

spm = pytest.importorskip("sentencepiece")

WORDS = "a b the street str eet . , ' <s> </s> <unk> <0x41> < > ▁ 1 20 é Mädchen 日本 語 한 😀 ß Ｆ ﬁ K".split()
# Without marks that stand alone: there the engine's table of characters falls short of sentencepiece's.
some_text = st.lists(st.sampled_from([*WORDS, " ", "  ", "\t", "\n"]), max_size=8).map("".join)

KINDS: dict[str, dict[str, Any]] = {
    "unigram": {"vocab_size": 150, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "unigram of several words": {"vocab_size": 150, "split_by_whitespace": False},
    "unigram, own pieces": {"vocab_size": 150, "user_defined_symbols": ["street", ".", "(", ")"]},
    "unigram, bytes, as it is": {**LLAMA, "model_type": "unigram"},
    "unigram, no prefix": {"vocab_size": 150, "add_dummy_prefix": False, "normalization_rule_name": "nfkc_cf"},
    "bpe": {"model_type": "bpe", "vocab_size": 250},
    "bpe of several words": {"model_type": "bpe", "vocab_size": 250, "split_by_whitespace": False},
    "bpe, bytes, as it is": LLAMA,
}


@cache
def both(kind: str, folder: Path) -> tuple[Tokenizer, Any]:
    path = train_model(folder / "a.model", **KINDS[kind])
    tokenizer = Tokenizer(build_sentencepiece(read_sentencepiece(path)))
    return tokenizer, spm.SentencePieceProcessor(model_file=str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("kind", KINDS)
@given(text=some_text)
def test_text_is_cut_as_sentencepiece_cuts_it(kind: str, folder: Path, text: str) -> None:
    tokenizer, theirs = both(kind, folder / kind)
    ids = theirs.encode(text)
    assert tokenizer.encode(text) == ids
    if theirs.unk_id() not in ids:
        assert tokenizer.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*TEXTS, "ế ở \u1112\u1161\u11ab", " ", "<s></s><unk><0x0A>"])
def test_whole_texts_are_cut_as_sentencepiece_cuts_them(kind: str, folder: Path, text: str) -> None:
    tokenizer, theirs = both(kind, folder / kind)
    assert tokenizer.encode(text) == theirs.encode(text)
    assert not {1, 2} & set(tokenizer.encode(text)) - {theirs.unk_id()}, "control pieces never come from text"


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_file_is_read_as_sentencepiece_reads_it(kind: str, folder: Path) -> None:
    _, theirs = both(kind, folder / kind)
    model = read_sentencepiece(folder / kind / "a.model")
    checks: dict[PieceType, Callable[[int], bool]] = {
        PieceType.UNKNOWN: theirs.is_unknown,
        PieceType.CONTROL: theirs.is_control,
        PieceType.UNUSED: theirs.is_unused,
        PieceType.BYTE: theirs.is_byte,
    }
    assert model.names() == [theirs.id_to_piece(id) for id in range(theirs.get_piece_size())]
    assert [piece.score for piece in model.pieces] == [theirs.get_score(id) for id in range(len(model.pieces))]
    for type, check in checks.items():
        assert [piece.type is type for piece in model.pieces] == [check(id) for id in range(len(model.pieces))]


def test_pieces_lie_in_the_text(folder: Path) -> None:
    tokenizer, _ = both("unigram", folder / "unigram")
    pieces = tokenizer.pieces("the street")
    assert "".join(piece.text for piece in pieces) == "the street"
    assert [piece.id for piece in pieces] == tokenizer.encode("the street")


@given(place=st.integers(0, 2_000), flip=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_model_file_is_refused_or_read_but_nothing_else(
    folder: Path, place: int, flip: int, cut: bool
) -> None:
    both("bpe, bytes, as it is", folder / "bpe, bytes, as it is")
    data = (folder / "bpe, bytes, as it is" / "a.model").read_bytes()
    damaged = data[:place] if cut else data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
    path = folder / "damaged.model"
    path.write_bytes(damaged)
    with contextlib.suppress(DataError):
        build_sentencepiece(read_sentencepiece(path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "claims 9223372036854775807 bytes where 0 are left"),
        (b"\x0a\x05abc", "claims 5 bytes where 3 are left"),
        (b"\x0a" + b"\xff" * 10, "more than ten bytes"),
        (b"\x0a", "ends within a number"),
        (b"\x0b", "wire type 3"),
        (b"\x08\x01", "holds 1 where bytes belong"),
        (b"\x0a\x02\x18\x09", "9 is not a valid PieceType"),
        (b"\x0a\x03\x12\x01a", "a score has 1 bytes"),
        (b"\x0a\x03\x0a\x01\xff", "codec can't decode"),
        (b"\x12\x02\x18\x03", "model_type 3"),
        (b"\x12\x03\xc0\x01\x01", "behind words"),
    ],
)
def test_what_is_no_model_file(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.model").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_sentencepiece(tmp_path / "a.model")


UNKNOWN = ScoredPiece("<unk>", 0.0, PieceType.UNKNOWN)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((), "piece for the unknown"),
        ((UNKNOWN, ScoredPiece("a", -1.0), ScoredPiece("a", -2.0)), "once"),
        ((UNKNOWN, ScoredPiece("", -1.0)), "at least one character"),
        ((UNKNOWN, ScoredPiece("a" * 2_000, -1.0)), "1000 characters"),
        ((UNKNOWN, ScoredPiece("a", float("nan"))), "finite"),
        ((UNKNOWN, ScoredPiece("a", -1.0, PieceType.UNUSED)), "'a' is marked as unused"),
    ],
)
def test_what_cannot_be_a_vocabulary(pieces: tuple[ScoredPiece, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build_sentencepiece(SentencepieceModel(pieces))
