"""Tokenizers from other projects' tables: the engine, its special tokens, what stands around a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from clearhead.data.roles import known_roles
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import DataError

__all__ = ["GPT2", "QWEN2", "Cutting", "Frame", "build_byte_level", "build_tokenizer", "words"]


@dataclass(frozen=True)
class Frame:
    """Which special tokens another project puts around a text, and around two, by their roles (`"cls $A sep"`)."""

    single: str
    pair: str


@dataclass(frozen=True)
class Cutting:
    """How text is cut before any pairs of bytes are merged.

    patterns   what a pattern matches stands alone, pattern after pattern
    gpt2       then GPT-2's own pattern
    composed   before, letters and their marks are made one character where there is one
    whole      a part that is in the vocabulary is taken as it is, whatever the merges say
    """

    patterns: tuple[str, ...] = ()
    gpt2: bool = True
    composed: bool = False
    whole: bool = False


def words(digits: str) -> str:
    """The pattern of Llama 3 and Qwen2, which differ in the digits that stay together."""
    short = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    return short + rf"|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


GPT2 = Cutting()
QWEN2 = Cutting((words(r"\p{N}"),), gpt2=False, composed=True)


def build_tokenizer(engine: Engine, names: Mapping[str, str | None], frame: Frame) -> Tokenizer:
    """An engine with its special tokens named and marked as such, and framed; names that it lacks are passed over."""
    names = known_roles(engine, names)
    named = {role: name for role, name in names.items() if name is not None}
    # A space before a mask belongs to it: it stands for a word.
    engine.add_special_tokens(
        [AddedToken(name, lstrip=role == "mask", normalized=False, special=True) for role, name in named.items()]
    )
    single, pair = (_spelled(template, named) for template in (frame.single, frame.pair))
    ids = [(name, engine.token_to_id(name)) for name in set(named.values())]
    engine.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return Tokenizer(engine, names)


def build_byte_level(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], cutting: Cutting, *, prefix: bool = False
) -> Engine:
    """Byte-level BPE (Radford 2019) from its tables; with `prefix`, a space is put before the text."""
    for pair in merges:
        lacking = next((piece for piece in (*pair, "".join(pair)) if piece not in vocabulary), None)
        if lacking is not None:
            raise DataError(f"the merge {' '.join(pair)!r:.60} needs {lacking!r:.60}, which is not in the vocabulary")
    engine = Engine(models.BPE(dict(vocabulary), list(merges), ignore_merges=cutting.whole))
    engine.normalizer = normalizers.NFC() if cutting.composed else None
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cutting.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=cutting.gpt2),
        ]
    )
    engine.decoder = decoders.ByteLevel()
    return engine


def _spelled(template: str, names: Mapping[str, str]) -> list[str]:
    """The template with tokens in place of roles, those that nobody plays left out."""
    words = [word.partition(":") for word in template.split()]
    return [
        (role if role.startswith("$") else names[role]) + colon + type
        for role, colon, type in words
        if role.startswith("$") or role in names
    ]
