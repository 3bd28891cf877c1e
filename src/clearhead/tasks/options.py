"""What a call asks of decoding: its own options, on top of those that the model directory names."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, DecodingError
from clearhead.generate.decoding import ALIASES, Decoding, decoding_of

__all__ = ["Words", "decoding_for", "our_names", "with_words", "words_of"]

Words = str | Sequence[str]
Phrase = tuple[int, ...]

# Ways of decoding that exclude each other, and the options that belong to each alone: who asks for one of them does
# not want another one that is merely usual.
WAYS = (
    ("beams", "groups", "diversity", "coverage_penalty", "required"),
    ("temperature", "do_sample"),
    ("contrast",),
    ("guess",),
)
KINDS: dict[str, Any] = {field.name: field.type for field in fields(Decoding)}
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Decoding)}
# Others write this value differently too; `decoding_of` translates it.
TRANSLATED = "early_stopping"


def decoding_for(options: Mapping[str, Any], generation: Mapping[str, Any]) -> Decoding:
    """How to decode: what is asked for, by our names or others', the rest as the model's `generation` has it.

    An option that is None counts as not given.

    >>> decoding_for({"do_sample": True}, {"num_beams": 4, "max_new_tokens": 9}) == Decoding(temperature=1.0, longest=9)
    True
    """
    given = {name: _typed(name, value) for name, value in options.items() if value is not None}
    try:
        usual = decoding_of({name: _typed(name, value) for name, value in generation.items()})
    except DecodingError as error:
        raise CheckpointError(f"the model's generation_config.json cannot be used: {error}") from error
    ours = {ALIASES.get(name, name): value for name, value in given.items()}
    chosen = {name for name, value in ours.items() if value != DEFAULTS.get(name, False)}
    if any(chosen & {*way} for way in WAYS):
        others = [name for way in WAYS if not chosen & {*way} for name in way if name in DEFAULTS]
        usual = replace(usual, best=1, **{name: DEFAULTS[name] for name in others})
    return decoding_of(given, usual)


def our_names(options: Mapping[str, Any]) -> set[str]:
    """Which options are given, by our names."""
    return {ALIASES.get(name, name) for name, value in options.items() if value is not None}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _typed(name: str, value: Any) -> Any:
    """The value as the type that the option has; names that nobody knows are left to `decoding_of`."""
    kind = KINDS.get(ALIASES.get(name, name))
    if kind is None or name == TRANSLATED:
        return value
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise DecodingError(f"{name}: {message[:1].lower()}{message[1:]}, not {value!r}") from error


def words_of(words: Words, what: str) -> list[str]:
    """The words that were given, one or several."""
    given = [words] if isinstance(words, str) else list(words)
    odd = next((word for word in given if not isinstance(word, str) or not word.strip()), None)
    if odd is not None:
        raise DecodingError(f"{what} words are texts with something in them, not {odd!r}")
    return [word.strip() for word in given]


def with_words(
    options: Mapping[str, Any], tokenizer: Tokenizer, forbidden: Words = (), required: Words = ()
) -> dict[str, Any]:
    """The options with words that must not and that must appear, which are given as text, as phrases of tokens."""
    phrases = {
        "forbidden": _forbidden(words_of(forbidden, "forbidden"), tokenizer),
        "required": _required(words_of(required, "required"), tokenizer),
    }
    return {**options, **{name: found for name, found in phrases.items() if found}}


def _forbidden(words: Sequence[str], tokenizer: Tokenizer) -> tuple[Phrase, ...]:
    """Each form that the words have: within a sentence, at its beginning, after a bracket.

    A word that the vocabulary cannot write needs no forbidding.
    """
    forms = {_within(word, before, tokenizer): None for word in words for before in ("a ", "", "(")}
    return tuple(phrase for phrase in forms if phrase and tokenizer.unknown not in phrase)


def _required(words: Sequence[str], tokenizer: Tokenizer) -> tuple[Phrase, ...]:
    """The words as they stand within a sentence."""
    phrases = tuple(_within(word, "a ", tokenizer) for word in words)
    for word, phrase in zip(words, phrases, strict=True):
        if not phrase or tokenizer.unknown in phrase:
            raise DecodingError(f"the model cannot write {word!r}, which is required: its vocabulary lacks it")
    return phrases


def _within(word: str, before: str, tokenizer: Tokenizer) -> Phrase:
    """The tokens of the word as it stands after that text: some tokenizers give a word the space before it."""
    alone, together = tokenizer.encode_batch([before.rstrip(), before + word])
    return tuple(together[len(alone) :])
