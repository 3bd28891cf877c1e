"""Tokenizers: text to ids and back, trained from the user's own text, kept in one `tokenizer.json`.

>>> tokenizer = Tokenizer.train("bytes", ["je suis étudiant", "je suis là"], vocabulary=300)
>>> tokenizer.decode(tokenizer.encode("Naïve façade? 日本 <eos>"))
'Naïve façade? 日本 <eos>'
>>> tokenizer.eos in tokenizer.encode("<eos>")
False
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, final

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine
from tokenizers.processors import TemplateProcessing

from clearhead.data.roles import SPELLINGS, known_roles, read_roles, write_roles
from clearhead.data.tokenizer_kinds import KINDS, Training
from clearhead.errors import ConfigError, DataError

__all__ = ["SPECIALS", "Piece", "Tokenizer"]

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
PAD = "<pad>"
SPECIAL_FORM = re.compile(r"<[^<>\s]*\w[^<>\s]*>")


class Piece(NamedTuple):
    """One token of a text: its part of the text, its id, and where that part starts and ends.

    Pieces that spell one character in bytes share its place.
    """

    text: str
    id: int
    start: int
    end: int


@final
class Tokenizer:
    """Text to ids and back.

    It adds nothing by itself: whoever wants `<bos>` or `<eos>` around a sentence adds `tokenizer.bos` and
    `tokenizer.eos`; a special token that this vocabulary lacks is None. Text that merely looks like a special
    token is ordinary text, except to `encode_marked`. What another project's file would add is told by `around`.
    """

    def __init__(self, engine: Engine, names: Mapping[str, str | None] | None = None) -> None:
        """Wrap an engine.

        `names` says which token plays a role (`{"eos": "</s>"}`), or that none does (`{"bos": None}`), where the
        usual names mislead.
        """
        unknown_role = next((role for role in names or {} if role not in SPELLINGS), None)
        if unknown_role is not None:
            raise ConfigError(f"no special token has the role {unknown_role!r}; the roles are {sorted(SPELLINGS)}")
        engine.no_truncation()
        engine.no_padding()
        engine.encode_special_tokens = True
        self._engine = engine
        self._names = dict(names or {})
        roles = {role: self._first(spellings) for role, spellings in SPELLINGS.items()}
        roles |= {role: None if token is None else self.id_of(token) for role, token in self._names.items()}
        self.pad, self.bos, self.eos = roles["pad"], roles["bos"], roles["eos"]
        self.unknown, self.mask = roles["unknown"], roles["mask"]
        self.cls, self.sep = roles["cls"], roles["sep"]

    @classmethod
    def train(
        cls,
        kind: str,
        texts: Iterable[str],
        vocabulary: int,
        *,
        specials: Sequence[str] = SPECIALS,
        lower: bool = False,
        plain: bool = False,
        pad_last: bool = False,
    ) -> "Tokenizer":
        """Learn a vocabulary of at most `vocabulary` tokens; the same texts give the same one.

        The special tokens come first, in their order; `pad_last` moves `<pad>` behind all others, where
        Marian's format wants it. What is `lower` or `plain` (`data/typed.py`) is not given back as it was.
        """
        if kind not in KINDS:
            raise ConfigError(f"no kind of tokenizer is called {kind!r}; the kinds are {sorted(KINDS)}")
        _check_specials(specials, vocabulary, kind, pad_last)
        front = tuple(token for token in specials if not (pad_last and token == PAD))
        room = vocabulary - (len(specials) - len(front))
        try:
            engine = KINDS[kind].train(Training(_some(texts), room, front, lower, plain), KINDS[kind])
        except UnicodeEncodeError as error:
            raise DataError(f"a text to train on holds half a character: {_half(error)}") from error
        except Exception as error:
            if "not large enough to contain all chars" not in str(error):
                raise
            raise ConfigError(_too_many_characters(vocabulary)) from error
        if engine.get_vocab_size() > room:
            raise ConfigError(_too_many_characters(vocabulary))
        if pad_last:
            engine.add_special_tokens([AddedToken(PAD, normalized=False, special=True)])
        return cls(engine)

    @classmethod
    def load(cls, path: str | Path, names: Mapping[str, str | None] | None = None) -> "Tokenizer":
        """Read a `tokenizer.json`, ours or another project's, or the one in the folder `path`.

        A `tokenizer_config.json` beside it says which token plays which role, unless `names` does.
        """
        file = Path(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        if not file.is_file():
            raise DataError(f"there is no tokenizer file {str(file)!r}")
        try:
            engine = Engine.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"{str(file)!r} is not a tokenizer file: {error}") from error
        return cls(engine, known_roles(engine, read_roles(file.parent)) | dict(names or {}))

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, or into the folder `path`, whole or not at all; beside it, names given to roles."""
        file = Path(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        aside = file.with_name(f".{file.name}-{os.getpid()}")
        try:
            aside.write_text(self._engine.to_str(pretty=True), encoding="utf-8")
            if self._names:
                write_roles(file.parent, self._names)
            aside.replace(file)
        finally:
            aside.unlink(missing_ok=True)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without any special token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores."""
        for text in texts:
            _check_whole(text)
        return [found.ids for found in self._engine.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text in which special tokens may be written by name (`"the <mask> barks"`)."""
        _check_whole(text)
        return self._marked.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """The text of `ids`; special tokens are left out unless `specials`."""
        return self._engine.decode(list(ids), skip_special_tokens=not specials)

    def decode_batch(self, rows: Sequence[Sequence[int]], *, specials: bool = False) -> list[str]:
        """The text of each row of ids."""
        return self._engine.decode_batch([list(ids) for ids in rows], skip_special_tokens=not specials)

    def tokens(self, text: str) -> list[str]:
        """The names, as the vocabulary has them, of the tokens of `text`."""
        return [self.token_of(id) for id in self.encode(text)]

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of `text` with their places in it, for pictures and alignments."""
        _check_whole(text)
        found = self._engine.encode(text, add_special_tokens=False)
        pieces: list[Piece] = []
        reached = 0
        for id, (start, end) in zip(found.ids, found.offsets, strict=True):
            # A word tokenizer's joiner counts as part of the character before it.
            start = max(start, reached) if end > reached else start
            pieces.append(Piece(text[start:end], id, start, end))
            reached = end
        return pieces

    def id_of(self, token: str) -> int:
        """The id of a token by its name in the vocabulary."""
        id = self._engine.token_to_id(token)
        if id is None:
            raise ConfigError(f"the vocabulary of {self.vocabulary_size} tokens has no {token!r}")
        return id

    def token_of(self, id: int) -> str:
        """The name of the token `id` in the vocabulary."""
        token = self._engine.id_to_token(id) if id >= 0 else None
        if token is None:
            raise ConfigError(f"the vocabulary of {self.vocabulary_size} tokens has no id {id}")
        return token

    @property
    def vocabulary_size(self) -> int:
        return self._engine.get_vocab_size()

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens."""
        return frozenset(id for id, token in self._engine.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The special tokens that the file's own rules put before and after a text: `[CLS]` and `[SEP]`, or none.

        A model that was trained elsewhere has seen no text without them.
        """
        some = "a" if self.encode("a") else next(filter(self.encode, self._engine.get_vocab()), "")
        found = self._engine.encode(some, add_special_tokens=True)
        text = [place for place, sequence in enumerate(found.sequence_ids) if sequence is not None]
        return tuple(found.ids[: min(text, default=None)]), tuple(found.ids[max(text, default=len(found.ids)) + 1 :])

    def framed(self, before: Sequence[int], after: Sequence[int]) -> "Tokenizer":
        """The same, whose file has rules that put these special tokens around a text, as other projects want it."""
        engine = Engine.from_str(self._engine.to_str())
        first, last = ([self.token_of(id) for id in ids] for ids in (before, after))
        single, more = [*first, "$A", *last], ["$B:1", *(f"{token}:1" for token in last)]
        ids = [(self.token_of(id), id) for id in {*before, *after}]
        engine.post_processor = TemplateProcessing(single=single, pair=[*single, *more], special_tokens=ids)
        return Tokenizer(engine, self._names)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the ids of a text."""
        return hashlib.blake2b(self._engine.to_str().encode(), digest_size=16).hexdigest()

    @cached_property
    def _marked(self) -> Engine:
        engine = Engine.from_str(self._engine.to_str())
        engine.encode_special_tokens = False
        return engine

    def _first(self, spellings: Iterable[str]) -> int | None:
        found = (self._engine.token_to_id(token) for token in spellings)
        return next((id for id in found if id is not None), None)


def _check_specials(specials: Sequence[str], vocabulary: int, kind: str, pad_last: bool) -> None:
    odd = next((token for token in specials if not SPECIAL_FORM.fullmatch(token)), None)
    if odd is not None:
        raise ConfigError(f"a special token is written like <name>, not {odd!r}")
    if len(set(specials)) < len(specials):
        raise ConfigError(f"each special token can be there only once: {tuple(specials)}")
    if KINDS[kind].unknown and "<unk>" not in specials:
        raise ConfigError(f"a {kind} tokenizer needs '<unk>' among its special tokens, which are {tuple(specials)}")
    if pad_last and PAD not in specials:
        raise ConfigError(f"pad_last needs {PAD!r} among the special tokens, which are {tuple(specials)}")
    least = len(specials) + KINDS[kind].reserved + 1
    if vocabulary < least:
        raise ConfigError(f"a {kind} tokenizer with {len(specials)} special tokens needs vocabulary >= {least}, "
                          f"not {vocabulary}")  # fmt: skip


def _some(texts: Iterable[str]) -> Iterator[str]:
    """The texts, of which one at least must hold something."""
    empty = True
    for text in texts:
        empty = empty and not text
        yield text
    if empty:
        raise DataError("there is no text to train a tokenizer on")


def _check_whole(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the text holds half a character: {_half(error)}") from error


def _half(error: UnicodeEncodeError) -> str:
    return f"the lone surrogate {error.object[error.start]!a} at position {error.start}"


def _too_many_characters(vocabulary: int) -> str:
    return f"the text has more different characters than vocabulary={vocabulary} can hold; raise it or use kind 'bytes'"


def _fork_quietly() -> None:
    """Let a process that forks after its threads have tokenized do so: the child tokenizes on one thread.

    The library would print a warning, or hang where its variable says `true`, unless the variable says `false`
    at the moment of the fork.
    """
    variable = "TOKENIZERS_PARALLELISM"
    before: list[str | None] = []

    def disable() -> None:
        before.append(os.environ.get(variable))
        os.environ[variable] = "false"

    def restore() -> None:
        value = before.pop()
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value

    with contextlib.suppress(AttributeError):  # no fork on Windows
        os.register_at_fork(before=disable, after_in_parent=restore)


_fork_quietly()
