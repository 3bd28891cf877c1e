"""Language models that many requests share."""

from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import randbits
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from clearhead.data.batch import pad
from clearhead.generate.decode import Decoded
from clearhead.generate.stream import TextStream
from clearhead.serve.engine import Between, Engine
from clearhead.serve.guards import RefusedError
from clearhead.serve.limits import Limits
from clearhead.serve.translators import manner_of
from clearhead.serve.work import Budget, Line
from clearhead.tasks.answers import Answer
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.talking import talk_tokens
from clearhead.tasks.writing import Writing, first_tokens

__all__ = ["ServedWriter", "Tell", "Token", "Written"]


class Token(NamedTuple):
    """A token by its name: its log-probability, where its text begins in the answer, and its likeliest rivals."""

    name: str
    score: float
    offset: int
    rivals: dict[str, float]


@dataclass(frozen=True)
class Written:
    """An answer, or what is new in it.

    count   tokens that it took, its end among them
    ended   whether the model or a stop word ended it, and not its length
    """

    text: str
    tokens: tuple[Token, ...] = ()
    count: int = 0
    ended: bool = False


# Told, by the engine's thread, what is new in the answer of that number.
Tell = Callable[[int, Written], None]


@final
class ServedWriter:
    """A language model behind an engine: all requests are written together."""

    TASK = LanguageModel.TASK

    def __init__(self, name: str, model: LanguageModel, budget: Budget, limits: Limits) -> None:
        self.name, self.limits, self.parts = name, limits, model.parts
        self.tokenizer, self.config, self.ends = model.tokenizer, model.config, Writing(model.parts, {}).ends
        self.engine = Engine(name, budget, self)
        self._searching = replace(model.parts, model=Between(model.model, self.engine.between))

    @property
    def model(self) -> Any:
        return self.parts.model

    def start(self, lines: Sequence[Line], room: int) -> tuple[Any, Tensor, Tensor | None]:
        device = next(iter(self.model.parameters())).device
        token_BT, count_B = (torch.from_numpy(array).to(device) for array in pad([line.prompt for line in lines], 0))
        return self.model.start(room=room), token_BT, count_B

    def read(self, prompts: Sequence[str]) -> list[list[int]]:
        """The tokens of prompts."""
        return [first_tokens(ids, self.parts) for ids in self.tokenizer.encode_batch(list(prompts))]

    def read_talk(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens of a talk; refused where the model was not made to talk."""
        return talk_tokens(self.parts, messages)

    def room(self, row: Sequence[int]) -> int:
        """How much can be written after these tokens: the last one need not be read."""
        return max(0, self.config.length - len(row) + 1)

    def write(
        self, rows: Sequence[list[int]], options: Mapping[str, Any], *, rivals: int = 0, tell: Tell | None = None
    ) -> Awaitable[list[Written]]:
        """What follows each row, as often as is asked for: what `LanguageModel.answers` gives, in order of drawing.

        What cannot be met is refused at once; the rest is in the engine's hands when this returns.
        """
        writing = self._checked(rows, options)
        decoding = writing.decoding
        if decoding.searches or decoding.contrast:
            return self._search(rows, writing, options)
        times = decoding.best
        each = [replace(decoding, best=1, seed=decoding.seed * times + number) for number in range(times)]
        listeners, lines = list[_Listener](), list[Line]()
        for row in rows:
            for one in each:
                listener = _Listener(len(lines), row, writing, tell)
                listeners.append(listener)
                lines.append(Line(row, one.longest, manner_of(one, writing.ends, rivals), heard=listener))
        return _heard(wrap_future(self.engine.write(lines)), listeners)

    def _checked(self, rows: Sequence[Sequence[int]], options: Mapping[str, Any]) -> Writing:
        """How these rows are to be gone on with; what is drawn without a seed is drawn by chance."""
        writing, best = Writing(self.parts, {**options, "best": 1}), options.get("best", 1)
        if writing.decoding.temperature:
            seed = options.get("seed")
            writing = Writing(self.parts, {**options, "seed": randbits(32) if seed is None else seed})
        elif best > 1:
            raise RefusedError(400, f"n={best} answers differ only if they are drawn: temperature must be above 0", "n")
        longest = writing.decoding.longest
        self.limits.check("tokens", longest, "tokens")
        self.limits.check("beams", writing.decoding.beams, "beams")
        for row in rows:
            if longest > self.room(row):
                raise RefusedError(
                    400,
                    f"the prompt has {len(row)} tokens and {longest} more are asked for, but this model has positions "
                    f"for {self.config.length}: shorten one of them",
                    "context_length_exceeded",
                )
        return writing

    def _search(
        self, rows: Sequence[list[int]], writing: Writing, options: Mapping[str, Any]
    ) -> Awaitable[list[Written]]:
        """Whole texts are compared, so they come as a whole."""
        # Contrastive search looks into the model, and cannot be interrupted.
        searching = writing if writing.decoding.contrast else Writing(self._searching, options)
        future = self.engine.call((writing.decoding, *writing.stops), searching.answers, rows)
        return self._found(wrap_future(future), writing)

    async def _found(self, found: Awaitable[list[list[Answer]]], writing: Writing) -> list[Written]:
        return [self._answered(one, writing) for answers in await found for one in answers]

    def _answered(self, answer: Answer, writing: Writing) -> Written:
        tokens = (Token(name, score, 0, {}) for name, score in zip(answer.tokens, answer.scores, strict=True))
        return Written(answer.text, tuple(tokens), len(answer.scores), len(answer.scores) < writing.decoding.longest)


async def _heard(written: Awaitable[list[Decoded]], listeners: Sequence["_Listener"]) -> list[Written]:
    return [listener.whole(one) for listener, one in zip(listeners, await written, strict=True)]


@final
class _Listener:
    """Hears the tokens of one answer, in the engine's thread, and makes text of them."""

    def __init__(self, number: int, row: list[int], writing: Writing, tell: Tell | None) -> None:
        self.number, self.tell, self.tokenizer = number, tell, writing.tokenizer
        self.stream = TextStream(writing.tokenizer.decode, prompt=row, stops=writing.stops)
        self.text, self.tokens = "", list[Token]()

    def __call__(self, decoded: Decoded) -> None:
        before, read = len(self.text), len(self.tokens)
        for place in range(read, len(decoded.tokens)):
            self.tokens.append(self._token(decoded, place))
            self.text += self.stream.feed(decoded.tokens[place])
        decoded.stopped |= self.stream.stopped
        if self.tell is not None:
            self.tell(self.number, Written(self.text[before:], tuple(self.tokens[read:])))

    def whole(self, decoded: Decoded) -> Written:
        """The answer, when nothing more will be written."""
        text = self.text + self.stream.finish()
        return Written(text, tuple(self.tokens), len(decoded.scores), decoded.ended or self.stream.stopped)

    def _token(self, decoded: Decoded, place: int) -> Token:
        rivals = decoded.rivals[place] if decoded.rivals else ()
        named = {self.tokenizer.token_of(id): score for id, score in rivals}
        name = self.tokenizer.token_of(decoded.tokens[place])
        return Token(name, decoded.scores[place], len(self.text), named)
