"""Language models at work: texts go on as a decoding says, beyond the model's context too, until a stop word comes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from clearhead.data.batch import pad
from clearhead.errors import DecodingError
from clearhead.generate.beam import Found
from clearhead.generate.decode import Decoded, Prompts, done
from clearhead.generate.decoding import Decoding
from clearhead.generate.score import score
from clearhead.generate.step import Step
from clearhead.generate.stream import TextStream
from clearhead.generate.write import search, write
from clearhead.tasks.answers import Answer, Scored, names_of
from clearhead.tasks.batches import by_length
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.options import decoding_for, with_words

__all__ = ["GENERATION", "Known", "Writing", "first_tokens", "scored"]

GENERATION = {"longest": 256, "temperature": 0.0}
SCORED_AT_ONCE = 1_024  # tokens, each of which has the scores of a whole vocabulary
ANOTHER_SEED = 1_000_003  # so far apart are the seeds of one text's stretches


def first_tokens(ids: Sequence[int], parts: ModelParts) -> list[int]:
    """What is gone on with: the prompt, after what the model's tokenizer puts before every text (Llama's `<s>`).

    Where both are empty, it is the token with which texts begin.
    """
    config = parts.settings.config
    start = config.bos if config.bos is not None else config.eos
    read = [*parts.tokenizer.around[0], *ids]
    if not read and start is None:
        raise DecodingError("this model has no token with which a text begins: give it a prompt that is not empty")
    return read or [start]


@dataclass(frozen=True)
class Known:
    """A state that has read the first `read` tokens of each prompt already."""

    state: Any
    read: int
    device: torch.device

    def select(self, row_B: Tensor) -> "Known":
        return replace(self, state=self.state.select(row_B))

    def for_rows(self, count: int) -> "Known":
        """For so many rows that begin alike; one row needs no copy before it is forked."""
        return self if count == 1 else self.select(torch.zeros(count, dtype=torch.long, device=self.device))


class _Onward:
    """The same model, which reads of a prompt only what its state does not know yet."""

    def __init__(self, model: Step) -> None:
        self.model = model
        self.branches = model.branches

    def step(
        self, token_BT: Tensor, state: Any, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, Any]:
        if isinstance(state, Known):
            token_BT, count_B = token_BT[:, state.read :], None if count_B is None else count_B - state.read
            state = state.state
        return self.model.step(token_BT, state, count_B=count_B, last=last)


@final
class Writing:
    """A language model at work as one call asks."""

    def __init__(self, parts: ModelParts, options: Mapping[str, Any]) -> None:
        """`options` are those of `Decoding`, and `stop`, `forbidden` and `required` as text."""
        given = dict(options)
        named = (given.pop(name, None) for name in ("stop", "forbidden", "required"))
        stops, *words = (() if value is None else value for value in named)
        self.model, self.tokenizer, self.config = parts.model, parts.tokenizer, parts.settings.config
        self.stops = [stops] if isinstance(stops, str) else list(stops)
        if not all(isinstance(stop, str) for stop in self.stops):
            raise DecodingError(f"stop words are texts: stop={self.stops}")
        usual = {**GENERATION, **parts.settings.generation}
        # Models that talk have several tokens after which it is the other's turn.
        self.ends = frozenset(usual.pop("ends", [] if self.config.eos is None else [self.config.eos]))
        self.decoding = decoding_for(with_words(given, parts.tokenizer, *words), usual)

    def answers(self, rows: Sequence[list[int]], known: Known | None = None) -> list[list[Answer]]:
        """The continuations of each row, best first, as many as are asked for."""
        answers: list[list[Answer]] = [[] for _ in rows]
        within = [number for number, row in enumerate(rows) if self._fits(row)]
        for batch in by_length([self.decoding.beams * (len(rows[n]) + self.decoding.longest) for n in within]):
            numbers = [within[place] for place in batch]
            for number, found in zip(numbers, self._together([rows[n] for n in numbers], known), strict=True):
                answers[number] = found
        for number in {*range(len(rows))} - {*within}:
            answers[number] = self._alone(rows[number])
        return answers

    def stream(self, row: list[int], known: Known | None = None) -> Iterator[str]:
        """The continuation as it is written; at once where whole texts are compared."""
        if self.decoding.searches or self.decoding.best > 1:
            yield self.answers([row], known)[0][0].text
            return
        stream = self._stream(row)
        steps = self._write([row], self.decoding, known) if self._fits(row) else self._write_on(row, self.decoding)
        for _, pieces in _listened(steps, [stream]):
            yield from filter(None, pieces)
        yield stream.finish()

    def _fits(self, row: Sequence[int]) -> bool:
        return self.decoding.longest <= self._room(row)

    def _room(self, row: Sequence[int]) -> int:
        """How much can be written after the row: the last token need not be read, except by contrastive search."""
        return self.config.length - len(row) + (0 if self.decoding.contrast else 1)

    def _stream(self, row: list[int]) -> TextStream:
        return TextStream(self.tokenizer.decode, prompt=row, stops=self.stops)

    def _together(self, rows: list[list[int]], known: Known | None) -> list[list[Answer]]:
        """The answers to rows that fit the context, decoded in one batch."""
        times = self.decoding.best
        if self.decoding.searches:
            found = search(*self._start(rows, self.decoding, known), self.decoding)
            return [self._found(row, one) for row, one in zip(rows, found, strict=True)]
        answers = self._heard([row for row in rows for _ in range(times)], self._write(rows, self.decoding, known))
        return [_best_first(answers[start : start + times]) for start in range(0, len(answers), times)]

    def _alone(self, row: list[int]) -> list[Answer]:
        """The answers to a row that outgrows the context."""
        if self.decoding.searches:
            raise DecodingError(
                f"beam search keeps the whole text in view: {len(row)} tokens of prompt and longest="
                f"{self.decoding.longest} more are beyond the {self.config.length} positions of this model"
            )
        times = self.decoding.best
        each = (replace(self.decoding, best=1, seed=self.decoding.seed * times + number) for number in range(times))
        return _best_first([self._heard([row], self._write_on(row, decoding))[0] for decoding in each])

    def _heard(self, rows: list[list[int]], steps: Iterator[list[Decoded]]) -> list[Answer]:
        """What was written for each row."""
        streams = [self._stream(row) for row in rows]
        heard = [*_listened(steps, streams)]
        texts = ["".join(pieces) for pieces in zip(*(pieces for _, pieces in heard), strict=True)]
        return [
            self._answer(text + stream.finish(), one, one.score)
            for text, stream, one in zip(texts, streams, heard[-1][0], strict=True)
        ]

    def _found(self, row: list[int], found: Found) -> list[Answer]:
        """What a search found; a stop word cuts its text, the search does not know of it."""
        answers = []
        for one, rank in zip(found.best, found.ranks, strict=True):
            stream = self._stream(row)
            text = "".join(map(stream.feed, one.tokens))
            answers.append(self._answer(text + stream.finish(), one, rank))
        return answers

    def _answer(self, text: str, decoded: Decoded, rank: float) -> Answer:
        return Answer(text, rank, names_of(decoded, self.tokenizer), tuple(decoded.scores))

    def _write(self, rows: list[list[int]], decoding: Decoding, known: Known | None = None) -> Iterator[list[Decoded]]:
        """Each row `best` times, a token at a time."""
        model, state, prompts = self._start([row for row in rows for _ in range(decoding.best)], decoding, known)
        return write(model, state, prompts, decoding)

    def _write_on(self, row: list[int], decoding: Decoding) -> Iterator[list[Decoded]]:
        """Write more than the context holds: each time it is full, its second half is read again."""
        context, whole = self.config.length, Decoded()
        for turn in count():
            seen = [*row, *whole.tokens][-context:]
            seen = seen if len(seen) < context else seen[-max(1, context // 2) :]
            left, due = decoding.longest - len(whole.tokens), decoding.shortest - len(whole.tokens)
            seed = decoding.seed + turn * ANOTHER_SEED
            stretch = replace(decoding, longest=min(left, self._room(seen)), shortest=max(0, due), seed=seed)
            before = whole
            for (new,) in self._write([seen], stretch):
                whole = Decoded(before.tokens + new.tokens, before.scores + new.scores, end=new.end)
                yield [whole]
                new.stopped = whole.stopped
            if done(whole, decoding.longest):
                return

    def _start(self, rows: list[list[int]], decoding: Decoding, known: Known | None) -> tuple[Any, Any, Prompts]:
        """What decoding starts from: a model, its state and the prompts."""
        token_BT, count_B = (torch.from_numpy(array).to(_device(self.model)) for array in pad(rows, 0))
        prompts = Prompts(token_BT, [decoding.longest] * len(rows), self.ends, count_B)
        # Contrastive search compares with every vector of the prompt, so it has to be read.
        if known is None or decoding.contrast:
            return self.model, self.model.start(room=token_BT.shape[1] + decoding.longest), prompts
        return _Onward(self.model), known.for_rows(len(rows)), prompts


def _listened(
    steps: Iterator[list[Decoded]], streams: Sequence[TextStream]
) -> Iterator[tuple[list[Decoded], list[str]]]:
    """All rows after each step, and the text that is new in each; a row that has said a stop word leaves."""
    read = [0] * len(streams)
    for written in steps:
        pieces = []
        for number, (row, stream) in enumerate(zip(written, streams, strict=True)):
            pieces.append("".join(map(stream.feed, row.tokens[read[number] :])))
            read[number] = len(row.tokens)
            row.stopped = stream.stopped
        yield written, pieces


def _best_first(answers: list[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: -answer.score)


def _device(model: Any) -> torch.device:
    return next(iter(model.parameters())).device


@torch.inference_mode()
def scored(parts: ModelParts, texts: Sequence[str]) -> list[Scored]:
    """How likely each text is, its end not counted; one beyond the context goes on from the second half of it.

    Where the model has no token with which texts begin, nothing is said of a text's first token.
    """
    model, tokenizer, config = parts.model, parts.tokenizer, parts.settings.config
    start = config.bos if config.bos is not None else config.eos
    rows = [[*([] if start is None else [start]), *ids] for ids in tokenizer.encode_batch(texts)]
    windows = [window for number, row in enumerate(rows) for window in _windows(number, len(row) - 1, config.length)]
    scores: list[list[float]] = [[] for _ in rows]
    found: dict[int, list[float]] = {}
    for batch in by_length([one.end - one.begin for one in windows], SCORED_AT_ONCE):
        spans = [rows[windows[place].row][windows[place].begin : windows[place].end + 1] for place in batch]
        token_BT, count_B = (torch.from_numpy(array).to(_device(model)) for array in pad([s[:-1] for s in spans], 0))
        target_BT = torch.from_numpy(pad([span[1:] for span in spans], 0)[0]).to(_device(model))
        score_BT = score(model, model.start(room=token_BT.shape[1]), token_BT, target_BT, count_B)
        found |= dict(zip(batch, score_BT.tolist(), strict=True))
    for place, (row, begin, known, end) in enumerate(windows):
        scores[row] += found[place][known - begin : end - begin]
    return [
        Scored(tuple(map(tokenizer.token_of, row[1:])), tuple(each)) for row, each in zip(rows, scores, strict=True)
    ]


class _Window(NamedTuple):
    """A stretch of a row that is read at once; its first tokens, up to `known`, are context alone."""

    row: int
    begin: int
    known: int
    end: int


def _windows(row: int, tokens: int, context: int) -> Iterator[_Window]:
    """Stretches in which each token is scored once, those after the first with half of the context before them."""
    begin = end = 0
    while end < tokens:
        known, end = end, min(begin + context, tokens)
        yield _Window(row, begin, known, end)
        begin = end - context // 2
