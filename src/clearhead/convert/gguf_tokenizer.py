"""The tokenizer in the settings of a GGUF file: byte-level BPE (`gpt2`), or sentencepiece's BPE (`llama`).

A byte-level tokenizer is named after the model for which llama.cpp wrote down how it cuts text; the table has those
that models of the known architectures use.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from clearhead.data.sentencepiece_file import PieceType, ScoredPiece, SentencepieceModel, build_sentencepiece
from clearhead.data.tokenizer_build import GPT2, QWEN2, Cutting, Frame, build_byte_level, build_tokenizer, words
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, ClearheadError

__all__ = ["CUTTINGS", "read_gguf_tokenizer"]

PREFIX = "tokenizer.ggml."
ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unknown": "unknown_token_id",
    "pad": "padding_token_id",
    "sep": "seperator_token_id",  # as it is spelled there
    "mask": "mask_token_id",
}

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEFAULT = Cutting(
    (
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ),
    gpt2=False,
)
DIGITS = Cutting((r"\p{N}",))
LLAMA3 = Cutting((words(r"\p{N}{1,3}"),), gpt2=False, whole=True)
TEKKEN = Cutting((CASES,), gpt2=False, whole=True)
CODER = Cutting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"), gpt2=False)

CUTTINGS: Mapping[str, Cutting] = {
    "default": DEFAULT,
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "jais", "phi-2"), GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"), LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), replace(LLAMA3, whole=False)),
    "qwen2": QWEN2,
    **dict.fromkeys(("stablelm2", "deepseek-r1-qwen", "kormo"), replace(QWEN2, composed=False)),
    "tekken": TEKKEN,
    "deepseek-coder": CODER,
}
BEGUN = (LLAMA3, TEKKEN)  # a text begins with `bos`, where the file does not say


def read_gguf_tokenizer(settings: Mapping[str, Any], source: str) -> Tokenizer:
    """The tokenizer that the settings describe."""
    model = str(settings.get(f"{PREFIX}model"))
    if model not in MODELS:
        raise CheckpointError(f"{source} has a tokenizer of the kind {model!r}; known are {', '.join(MODELS)}")
    try:
        return MODELS[model](_Vocabulary(settings))
    except ClearheadError as error:
        raise CheckpointError(f"the tokenizer of {source} cannot be used: {error}") from error
    except Exception as error:  # the engine raises nothing narrower
        raise CheckpointError(f"the tables of the tokenizer of {source} do not fit together: {error}") from error


class _Vocabulary:
    """The lists that both kinds have, checked against each other."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        tokens = self.listed("tokens", str)
        # As llama.cpp names them, so that an id is never without a name.
        self.tokens = [token or f"[EMPTY_{id}]" for id, token in enumerate(tokens)]
        if not tokens or len(set(self.tokens)) < len(tokens):
            raise CheckpointError(f"its {len(tokens)} tokens are not all different, or there are none")
        known = {*PieceType}
        types = self.listed("token_type", int) or [PieceType.NORMAL] * len(tokens)
        self.types = [PieceType(type) if type in known else PieceType.NORMAL for type in types]
        self.scores = [float(score) for score in self.listed("scores", float | int)] or [0.0] * len(tokens)
        if not len(tokens) == len(self.types) == len(self.scores):
            lengths = f"{len(tokens)} tokens, {len(self.types)} types and {len(self.scores)} scores"
            raise CheckpointError(f"its lists differ in length: {lengths}")

    def listed(self, name: str, kind: Any) -> list[Any]:
        found = self.settings.get(PREFIX + name, [])
        if not isinstance(found, list) or not all(isinstance(entry, kind) for entry in found):
            raise CheckpointError(f"{PREFIX}{name} must be a list of {kind}, not {found!r:.60}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.settings.get(PREFIX + name, default))

    def of(self, *types: PieceType) -> list[str]:
        return [token for token, type in zip(self.tokens, self.types, strict=True) if type in types]

    def finished(self, engine: Engine, begun: bool) -> Tokenizer:
        """With the special tokens named, those around a text included."""
        names: dict[str, str | None] = {}
        for role, key in ROLES.items():
            id = self.settings.get(PREFIX + key)
            if isinstance(id, int) and 0 <= id < len(self.tokens):
                names[role] = self.tokens[id]
        before = "bos " if self.flag("add_bos_token", begun) else ""
        after = " eos" if self.flag("add_eos_token", False) else ""
        frame = Frame(f"{before}$A{after}", f"{before}$A{after} {before}$B{after}")
        return build_tokenizer(engine, names, frame)


def _byte_level(vocabulary: _Vocabulary) -> Tokenizer:
    cutting = vocabulary.settings.get(f"{PREFIX}pre", "default")
    if cutting not in CUTTINGS:
        raise CheckpointError(f"it cuts text as {cutting!r} does; known are {', '.join(CUTTINGS)}")
    tokens = {token: id for id, token in enumerate(vocabulary.tokens)}
    merges = [_merge(merge) for merge in vocabulary.listed("merges", str)]
    engine = build_byte_level(tokens, merges, CUTTINGS[cutting])
    for types, special in ((PieceType.CONTROL, PieceType.UNKNOWN), True), ((PieceType.USER_DEFINED,), False):
        engine.add_tokens([AddedToken(token, normalized=False, special=special) for token in vocabulary.of(*types)])
    return vocabulary.finished(engine, begun=CUTTINGS[cutting] in BEGUN)


def _sentencepiece(vocabulary: _Vocabulary) -> Tokenizer:
    rows = zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True)
    model = SentencepieceModel(
        tuple(ScoredPiece(*row) for row in rows),
        bpe=True,
        prefix=vocabulary.flag("add_space_prefix", True),
        squeezed=vocabulary.flag("remove_extra_whitespaces", False),
    )
    return vocabulary.finished(build_sentencepiece(model), begun=True)


MODELS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _merge(merge: str) -> tuple[str, str]:
    cut = merge.find(" ", 1)
    if cut < 0:
        raise CheckpointError(f"the merge {merge!r:.60} is not two pieces with a space between")
    return merge[:cut], merge[cut + 1 :]
