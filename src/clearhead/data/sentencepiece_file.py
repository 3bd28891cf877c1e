"""sentencepiece models (Kudo & Richardson 2018): their files, and the same segmentation on our engine.

A `.model` or `.spm` file is one protobuf message, of which this reads the three parts that decide what a text becomes:

    1 pieces         1 piece, 2 score, 3 type
    2 trainer_spec   3 model_type, 24 treat_whitespace_as_suffix
    3 normalizer_spec   1 name, 2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
                        5 escape_whitespaces
"""

import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from clearhead.errors import DataError

__all__ = ["PieceType", "ScoredPiece", "SentencepieceModel", "build_sentencepiece", "read_sentencepiece"]

SPACE = "▁"
# Two characters that no text and no vocabulary has: Unicode keeps them for a program's own use.
FOREIGN, NOWHERE = "\uffff", "\ufffe"
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
UNIGRAM, BPE = 1, 2
DIGITS = 6  # of a score, whose own float32 has hardly more
PENALTY = 10.0  # for the unknown, as sentencepiece has it
LONGEST = 1_000  # characters of a piece, whose every division is looked at
# Protobuf's wire types, and how many bytes a value has; None where it says so itself.
VARINT = 0
LENGTHS = {1: 8, 2: None, 5: 4}


class PieceType(IntEnum):
    """What a piece is for: only the normal and the user's own are found in text."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class ScoredPiece:
    """A piece of the vocabulary; `score` is a log-probability (unigram) or says which merge goes first (BPE)."""

    text: str
    score: float
    type: PieceType = PieceType.NORMAL


@dataclass(frozen=True)
class SentencepieceModel:
    """What decides how a text is cut.

    charsmap   the compiled table of character replacements, empty for none
    composed   the table replaces what a letter and its marks make up by one character
    prefix     a space is put before the text
    squeezed   runs of spaces count as one, those at both ends as none
    """

    pieces: tuple[ScoredPiece, ...]
    bpe: bool = False
    charsmap: bytes = b""
    composed: bool = False
    prefix: bool = True
    squeezed: bool = True

    @property
    def spells_bytes(self) -> bool:
        """Whether characters without a piece are spelled in bytes."""
        return any(BYTE.fullmatch(name) for name in self.names(PieceType.BYTE))

    def names(self, *types: PieceType) -> list[str]:
        """The pieces of these types, in order; all without any."""
        return [piece.text for piece in self.pieces if not types or piece.type in types]


def read_sentencepiece(path: Path) -> SentencepieceModel:
    """Read a model file; the first thing wrong with it is the error's one sentence."""
    try:
        fields = list(_fields(path.read_bytes()))
        pieces = tuple(_piece(dict(_fields(_bytes(value)))) for number, value in fields if number == 1)
        trainer, normalizer = (dict(_fields(_bytes(dict(fields).get(number, b"")))) for number in (2, 3))
        kind = trainer.get(3, UNIGRAM)
        if kind not in (UNIGRAM, BPE):
            raise ValueError(f"it is of model_type {kind!r}, neither unigram ({UNIGRAM}) nor BPE ({BPE})")
        if trainer.get(24) or not normalizer.get(5, 1):
            raise ValueError("it writes spaces behind words or as they are, and only '▁' before words is known here")
        return SentencepieceModel(
            pieces,
            bpe=kind == BPE,
            charsmap=_bytes(normalizer.get(2, b"")),
            composed=b"nfkc" in _bytes(normalizer.get(1, b"")),
            prefix=bool(normalizer.get(3, 1)),
            squeezed=bool(normalizer.get(4, 1)),
        )
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} is no sentencepiece model that can be used: {error}") from error


def build_sentencepiece(
    model: SentencepieceModel,
    *,
    names: Sequence[str] = (),
    specials: Collection[str] = (),
    words: Collection[str] = (),
    first: Sequence[normalizers.Normalizer] = (),
) -> Engine:
    """An engine that cuts text as sentencepiece does with this model.

    names      the vocabulary in the order of its ids, where it is not the model's: a piece that the model does not
               have stands for characters that it cannot spell, and decodes in any case; one that is not among the
               names is left out
    specials   those of the names that are special tokens, besides the model's own control pieces
    words      those that are found wherever they are written
    first      what else is done to the text before
    """
    names = names or model.names()
    known = {piece.text: piece for piece in model.pieces}
    unknown = next((piece.text for piece in model.pieces if piece.type is PieceType.UNKNOWN), None)
    _check(names, known, unknown, model)
    specials = {*specials, *model.names(PieceType.CONTROL, PieceType.UNKNOWN)}
    plain = {*known, *specials, *words}
    if not model.spells_bytes:
        plain |= {name for name in names if plain.isdisjoint(name)}
    vocabulary = [name if name in plain else FOREIGN + name for name in names]

    engine = Engine((_bpe if model.bpe else _unigram)(vocabulary, known, unknown, model.spells_bytes))
    guarded = [] if plain.issuperset(names) else [normalizers.Replace(FOREIGN, NOWHERE)]
    engine.normalizer = normalizers.Sequence([*first, *guarded, *_normalizers(model)])
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(_cuts(model, specials)), "isolated")
    joined = [decoders.Replace(FOREIGN, ""), decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    stripped = [decoders.Strip(" ", 1, 0)] if model.prefix or model.squeezed else []
    engine.decoder = decoders.Sequence([*joined, *stripped])
    engine.add_special_tokens([_added(name, special=True) for name in names if name in specials])
    # A unigram finds the user's own pieces by their score, without a break in the text.
    own = {*words, *(model.names(PieceType.USER_DEFINED) if model.bpe else ())}
    engine.add_tokens([_added(name, special=False) for name in names if name in own])
    return engine


def _check(
    names: Sequence[str], known: Mapping[str, ScoredPiece], unknown: str | None, model: SentencepieceModel
) -> None:
    if len(known) < len(model.pieces) or len(set(names)) < len(names) or "" in known:
        raise DataError("each piece of a sentencepiece vocabulary must be there once and hold at least one character")
    if any(len(name) > LONGEST for name in known):
        raise DataError(f"no piece of a sentencepiece vocabulary may have more than {LONGEST} characters")
    if model.names(PieceType.UNUSED) and not model.bpe:
        raise DataError(f"the piece {model.names(PieceType.UNUSED)[0]!r} is marked as unused, which is not known here")
    if unknown not in names and not model.bpe:
        raise DataError("the vocabulary of a unigram model needs its piece for the unknown")
    if not all(math.isfinite(piece.score) for piece in model.pieces):
        raise DataError("the scores of a sentencepiece vocabulary must be finite")


def _unigram(
    vocabulary: Sequence[str], known: Mapping[str, ScoredPiece], unknown: str | None, spells_bytes: bool
) -> models.Unigram:
    normal = [piece.score for piece in known.values() if piece.type is PieceType.NORMAL]
    lowest, highest = min(normal, default=0.0), max(normal, default=0.0)

    def score(name: str) -> float:
        piece = known.get(name)
        if piece is None:  # worse than any way that the model has, better than none
            return lowest - PENALTY
        if piece.type is PieceType.USER_DEFINED:  # better than any other way to spell these characters
            return len(name.encode()) * highest - 0.1
        return piece.score if piece.type is PieceType.NORMAL else highest  # which nothing finds

    # A number with few digits is the same again when it is read back.
    scored = [(name, round(score(name), DIGITS)) for name in vocabulary]
    return models.Unigram(scored, vocabulary.index(str(unknown)), spells_bytes)


def _bpe(
    vocabulary: Sequence[str], known: Mapping[str, ScoredPiece], unknown: str | None, spells_bytes: bool
) -> models.BPE:
    """Merges in the order of the scores: a piece is made of any two that spell it."""
    ids = {name: id for id, name in enumerate(vocabulary)}
    normal = {name for name, piece in known.items() if piece.type is PieceType.NORMAL and name in ids}
    merges = [
        (name[:cut], name[cut:])
        for name in sorted(normal, key=lambda name: (-known[name].score, ids[name]))
        for cut in range(1, len(name))
        if name[:cut] in normal and name[cut:] in normal
    ]
    unknown = unknown if unknown in ids else None
    return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=spells_bytes)


def _normalizers(model: SentencepieceModel) -> Iterator[normalizers.Normalizer]:
    if model.composed:
        # The engine looks a letter up together with its marks, finds a part of them and drops the rest.
        yield normalizers.NFC()
    if model.charsmap:
        try:
            yield normalizers.Precompiled(model.charsmap)
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"the table of characters of a sentencepiece model is broken: {error}") from error
    if model.squeezed:
        yield normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), "")
        yield normalizers.Replace(Regex(" {2,}"), " ")
    if model.prefix:
        yield normalizers.Prepend(SPACE)
    yield normalizers.Replace(" ", SPACE)


def _cuts(model: SentencepieceModel, specials: Collection[str]) -> str:
    """Where the text may be cut beforehand, and where it must be.

    It may before a space where no piece reaches over it: short parts are found again in the engine's cache. It must
    inside what reads like a special token or a byte, since a unigram would take the text for the token.
    """
    cuts = ["(?!)"]
    if SPACE in model.names() and not any(re.search(rf"[^{SPACE}]{SPACE}", name) for name in model.names()):
        cuts.append(rf"(?<=[^{SPACE}])(?={SPACE})")
    if not model.bpe:
        cuts += [f"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in specials if len(name) > 1]
        cuts.append(r"(?<=<)(?=0x[0-9A-F]{2}>)")
    return "|".join(cuts)


def _added(name: str, *, special: bool) -> AddedToken:
    return AddedToken(name, normalized=False, special=special)


def _piece(fields: Mapping[int, int | bytes]) -> ScoredPiece:
    text, score = _bytes(fields.get(1, b"")), _bytes(fields.get(2, bytes(4)))
    if len(score) != 4:
        raise ValueError(f"a score has {len(score)} bytes, not 4")
    type = PieceType(_integer(fields.get(3, PieceType.NORMAL)))
    return ScoredPiece(text.decode(), struct.unpack("<f", score)[0], type)


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError(f"it holds {value!r:.60} where a number belongs")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"it holds {value} where bytes belong")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, by number; a claimed length is checked before anything is taken."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire not in LENGTHS:
            raise ValueError(f"field {number} has the wire type {wire}, which does not exist")
        length = LENGTHS[wire]
        if length is None:
            length, place = _varint(data, place)
        if length > len(data) - place:
            raise ValueError(f"field {number} claims {length} bytes where {len(data) - place} are left")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """An integer of seven bits a byte, the lowest first, and the place behind it."""
    if place < len(data) and data[place] < 128:  # as most are
        return data[place], place + 1
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise ValueError("it ends within a number")
        value |= (data[place] & 127) << shift
        place += 1
        if data[place - 1] < 128:
            return value, place
    raise ValueError("it has a number of more than ten bytes")
