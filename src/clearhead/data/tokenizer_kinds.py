"""The kinds of tokenizer: how text is cut, what is learned, and how the pieces become text again.

| kind | unit | round trip |
|---|---|---|
| `bytes` | byte pairs merged over the 256 bytes (Radford 2019) | exact, any text |
| `bpe` | byte pairs merged over characters (Sennrich 2016); unseen characters as bytes | exact, any text |
| `unigram` | pieces of a unigram language model (Kudo 2018); unseen characters as bytes | exact, any text |
| `word` | whole words and single punctuation marks; unseen ones are `<unk>` | exact unless a word is unknown |
| `character` | single characters; unseen ones are `<unk>` | exact unless a character is unknown |

In `bytes`, `bpe` and `unigram` a word keeps the space before it (`" suis"`), so that joining the pieces is enough to
decode; where texts are read plainly, their first word gets one too, and one that follows an elision (the "eau" of
"l'eau"), so that a word is the same piece wherever it stands. A word tokenizer leaves single spaces out and marks the
exception instead: a piece that was *not* preceded by one starts with a joiner (`"étudiant", "￭."`), so that words keep
their plain names.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from clearhead.data.typed import PLAIN

__all__ = [
    "BYTES",
    "KINDS",
    "Kind",
    "Training",
    "train_bpe",
    "train_bytes",
    "train_character",
    "train_unigram",
    "train_word",
]

JOINER = "\uffed"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
UNKNOWN = "<unk>"

# Letters, digits, marks and spaces never share a piece: no learned piece can spell `<eos>` or `<0x41>`.
PHRASE = r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"

# Behind an apostrophe after one or two letters a new word begins ("l'eau", "qu'elle"), unless it is English ("I'll").
ELIDED = r"(?:(?<=\b\p{L}')|(?<=\b\p{L}\p{L}'))%s(?=\p{L})(?!(?:[sdmt]|ll|ve|re)\b)"

GAP = r"(?<=\S) (?=\S)"
UNGAPPED = (
    r"(?<=[\p{L}\p{M}])(?=[^\s\p{L}\p{M}])|(?<=\p{N})(?=[^\s\p{N}])|(?<=[^\s\p{L}\p{M}\p{N}])(?=\S)"
    r"|(?<=\S)(?=\s)(?! \S)|(?<=\s)(?=\S)(?<!\S )"
)

PENALTY = 1e-4


@dataclass(frozen=True)
class Training:
    """What one training is given: the texts, the size of the vocabulary and the special tokens that open it."""

    texts: Iterable[str]
    vocabulary: int
    specials: tuple[str, ...]
    lower: bool
    plain: bool


@dataclass(frozen=True)
class Kind:
    """One row of the table.

    `reserved` places of the vocabulary hold the bytes; `unknown` says whether `<unk>` is needed;
    `spaces` are the sides (left, right) on which a special token written in a text takes the space with it.
    """

    train: Callable[[Training, "Kind"], Engine]
    reserved: int = 0
    unknown: bool = False
    spaces: tuple[bool, bool] = (True, False)


def train_bytes(training: Training, kind: Kind) -> Engine:
    """Byte-level BPE: every text is a string over 256 bytes, so nothing is ever unknown."""
    engine = Engine(models.BPE())
    engine.normalizer = _normalizer(training, *_spaced(training))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    if training.plain:
        engine.decoder = decoders.Sequence([engine.decoder, *_unspaced(training)])
    trainer = trainers.BpeTrainer(
        vocab_size=training.vocabulary,
        special_tokens=_added(training.specials, kind),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    engine.train_from_iterator(training.texts, trainer)
    return engine


def train_bpe(training: Training, kind: Kind) -> Engine:
    """BPE over characters; a character that training never saw is spelled in bytes."""
    trainer = trainers.BpeTrainer(
        vocab_size=training.vocabulary,
        special_tokens=[*_added(training.specials, kind), *BYTES],
        show_progress=False,
    )
    return _with_byte_fallback(_train_phrases(models.BPE(), trainer, training), training.specials)


def train_unigram(training: Training, kind: Kind) -> Engine:
    """Unigram language model; a character that training never saw is spelled in bytes."""
    trainer = trainers.UnigramTrainer(
        vocab_size=training.vocabulary,
        special_tokens=[*_added(training.specials, kind), *BYTES],
        unk_token=UNKNOWN,
        show_progress=False,
    )
    return _with_byte_fallback(_train_phrases(models.Unigram(), trainer, training), training.specials)


def train_word(training: Training, kind: Kind) -> Engine:
    """The most frequent words and punctuation marks."""
    engine = Engine(models.WordLevel({}, unk_token=UNKNOWN))
    engine.normalizer = _normalizer(
        training,
        normalizers.Replace(JOINER, "\ufffd"),  # the joiner is ours: one that stands in the text would vanish
        normalizers.Replace(Regex(UNGAPPED), JOINER),
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GAP), "removed"),
            pre_tokenizers.Split(Regex(JOINER), "merged_with_next"),
        ]
    )
    engine.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=JOINER, cleanup=False),
            decoders.Replace(JOINER, ""),  # the first piece keeps its joiner otherwise
        ]
    )
    engine.train_from_iterator(training.texts, _word_trainer(training, kind))
    return engine


def train_character(training: Training, kind: Kind) -> Engine:
    """The most frequent characters: counted as words, then looked up as a BPE without merges, which is faster."""
    counter = Engine(models.WordLevel({}, unk_token=UNKNOWN))
    counter.normalizer = _normalizer(training)
    counter.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    counter.train_from_iterator(training.texts, _word_trainer(training, kind))

    engine = Engine(models.BPE(counter.get_vocab(with_added_tokens=False), [], unk_token=UNKNOWN))
    engine.normalizer = _normalizer(training)
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens(_added(training.specials, kind))
    return engine


KINDS: dict[str, Kind] = {
    "bytes": Kind(train_bytes, reserved=256),
    "bpe": Kind(train_bpe, reserved=256),
    "unigram": Kind(train_unigram, reserved=256, unknown=True),
    "word": Kind(train_word, unknown=True, spaces=(True, True)),
    "character": Kind(train_character, unknown=True, spaces=(False, False)),
}


def _added(specials: Iterable[str], kind: Kind) -> list[AddedToken]:
    left, right = kind.spaces
    return [AddedToken(token, lstrip=left, rstrip=right, normalized=False, special=True) for token in specials]


def _normalizer(training: Training, *further: normalizers.Normalizer) -> normalizers.Normalizer | None:
    usual = [normalizers.NFC(), *(normalizers.Replace(mark, ours) for mark, ours in PLAIN.items())]
    steps = [*(usual if training.plain else []), *([normalizers.Lowercase()] if training.lower else []), *further]
    return normalizers.Sequence(steps) if steps else None


def _spaced(training: Training) -> list[normalizers.Normalizer]:
    """A space before each word that has none, where texts are read plainly."""
    return [normalizers.Replace(Regex(ELIDED % ""), " "), normalizers.Prepend(" ")] if training.plain else []


def _unspaced(training: Training) -> list[decoders.Decoder]:
    return [decoders.Replace(Regex(ELIDED % " "), ""), decoders.Strip(" ", 1, 0)] if training.plain else []


def _word_trainer(training: Training, kind: Kind) -> trainers.WordLevelTrainer:
    return trainers.WordLevelTrainer(
        vocab_size=training.vocabulary, special_tokens=_added(training.specials, kind), show_progress=False
    )


def _train_phrases(model: models.Model, trainer: trainers.Trainer, training: Training) -> Engine:
    engine = Engine(model)
    engine.normalizer = _normalizer(training, *_spaced(training))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(PHRASE), "isolated")
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), *_unspaced(training)])
    engine.train_from_iterator(training.texts, trainer)
    return engine


def _with_byte_fallback(engine: Engine, specials: Sequence[str]) -> Engine:
    """Let the bytes, which the trainer took in as special tokens, be ordinary pieces that spell unseen characters."""
    description: dict[str, Any] = json.loads(engine.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["content"] in specials]
    model = description["model"]
    model["byte_fallback"] = True
    if model["type"] == "Unigram":
        learned = len(specials) + len(BYTES)
        model["vocab"][learned:] = _settled(model["vocab"][learned:])
    return Engine.from_str(json.dumps(description, ensure_ascii=False))


def _settled(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The same pieces in an order, and with scores, that do not depend on the order of a hash table.

    The trainer gives the characters that its pruning lost the lowest score plus one penalty for each such
    character before it, in an order that changes from run to run, and it sums in such an order too.
    """
    lowest = min((score for _, score in pieces), default=0.0)
    highest_lost = lowest + PENALTY * (1 + sum(len(piece) == 1 for piece, _ in pieces))
    settled = [
        (piece, round(lowest if len(piece) == 1 and score < highest_lost else score, 6)) for piece, score in pieces
    ]
    return sorted(settled, key=lambda entry: (-entry[1], entry[0]))
