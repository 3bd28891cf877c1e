"""Translators at work: sentences to the best translations that decoding finds, by one model or several together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from clearhead.data.batch import pad
from clearhead.errors import CheckpointError, ConfigError, DecodingError
from clearhead.generate.beam import Found
from clearhead.generate.decode import Decoded, Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.ensemble import Ensemble, EnsembleState
from clearhead.generate.score import score
from clearhead.generate.stream import TextStream
from clearhead.generate.write import search, write
from clearhead.tap import watching
from clearhead.tasks.answers import Scored
from clearhead.tasks.batches import by_length
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.options import decoding_for, our_names
from clearhead.tasks.pair_data import Frame, PairBatch

__all__ = ["GENERATION", "Request", "Sentence", "Translating"]

GENERATION = {"longest_ratio": 2.0, "longest_extra": 20}
LENGTHS = (*GENERATION, "longest_ever")
OWN = (*LENGTHS, "alignment_head", "begin")  # what generation_config.json says besides the options of decoding
SCORED_AT_ONCE = 1_024  # tokens, each of which has the scores of a whole vocabulary
NOTHING: Mapping[str, Any] = {}


class Sentence(NamedTuple):
    """What is to be translated, and how its translation begins; both without white space around them."""

    text: str
    prefix: str = ""


@dataclass(frozen=True)
class Request:
    """How to translate.

    longest   None where the length of the source decides how long a translation may become
    most      what it may not exceed even then
    """

    decoding: Decoding
    longest: int | None = None
    most: int | None = None


@final
class Translating:
    """One translator, or several of one vocabulary that decide together."""

    def __init__(self, members: Sequence[ModelParts]) -> None:
        first, *others = members
        for other in others:
            _check_alike(first, other)
        self.members = tuple(members)
        self.reader, self.tokenizer, self.config = first.tokenizer, first.writer, first.settings.config
        self.frame = Frame.of(first.tokenizer, first.settings)
        self.model: Any = Ensemble([member.model for member in members]) if others else first.model
        self.generation = first.settings.generation
        _check_lengths(self.generation)

    @property
    def device(self) -> torch.device:
        return next(iter(self.members[0].model.parameters())).device

    @property
    def positions(self) -> int | None:
        """The longest sequence that can be read or written; None where there is no bound."""
        configs = [member.settings.config for member in self.members]
        return min((config.length for config in configs if config.positions == "learned"), default=None)

    def request(self, options: Mapping[str, Any] = NOTHING) -> Request:
        """What these options ask for, on top of what is usual for the model."""
        usual = {name: value for name, value in self.generation.items() if name not in OWN}
        decoding = decoding_for(options, usual)
        if decoding.contrast and len(self.members) > 1:
            raise DecodingError("contrastive search compares the vectors of one model, and an ensemble has several")
        stated = "longest" in our_names(options) | our_names(usual)
        return Request(decoding, decoding.longest if stated else None)

    def decode(self, sentences: Sequence[Sentence], request: Request) -> list[Found]:
        """The best translations of each sentence; an empty one where there is nothing to translate."""
        sources, prefixes = self._encode(sentences)
        found = [Found([Decoded()], [0.0]) for _ in sources]
        busy = [number for number, row in enumerate(sources) if row]
        width = max(request.decoding.beams, request.decoding.best)
        for batch in by_length([width * (len(sources[number]) + 1) for number in busy]):
            numbers = [busy[place] for place in batch]
            rows = [sources[number] for number in numbers]
            prompts = self._prompts(rows, [prefixes[number] for number in numbers], request)
            with self._looking(request.decoding) as attention:
                state = self.start(rows, room=prompts.token_BT.shape[1] + max(prompts.longest_B))
                answers = search(self.model, state, prompts, request.decoding, attention=attention)
            for number, answer in zip(numbers, answers, strict=True):
                found[number] = answer
        return found

    def text(self, sentence: Sentence, decoded: Decoded) -> str:
        """The whole translation, its prefix included."""
        return self.tokenizer.decode([*self.tokenizer.encode(sentence.prefix), *decoded.tokens])

    def stream(self, sentence: Sentence, request: Request) -> Iterator[str]:
        """The translation of a sentence as it is written; at once where whole translations are compared."""
        sources, prefixes = self._encode([sentence])
        if request.decoding.searches or not sources[0]:
            (found,) = self.decode([sentence], request)
            yield self.text(sentence, found.best[0])
            return
        prompts = self._prompts(sources, prefixes, request)
        state = self.start(sources, room=prompts.token_BT.shape[1] + max(prompts.longest_B))
        stream = TextStream(self.tokenizer.decode)
        yield "".join(map(stream.feed, prefixes[0]))
        read = 0
        for (written,) in write(self.model, state, prompts, request.decoding):
            yield "".join(map(stream.feed, written.tokens[read:]))
            read = len(written.tokens)
        yield stream.finish()

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
        """The log-probability of each token of the targets, their ends included."""
        rows = self.reader.encode_batch([text.strip() for text in sources])
        answers = self.tokenizer.encode_batch([text.strip() for text in targets])
        self.check_fits(max(map(len, [*rows, *answers]), default=0))
        scored = [Scored((), ()) for _ in rows]
        for batch in by_length([max(len(a), len(b)) + 1 for a, b in zip(rows, answers, strict=True)], SCORED_AT_ONCE):
            texts = [rows[number] for number in batch], [answers[number] for number in batch]
            pairs = PairBatch.of(*texts, self.frame).to(self.device)
            state = self._start(pairs.source_BM, pairs.source_count_B, room=0)
            target_BL = pairs.label_BL.clamp(min=0)
            score_BL = score(self.model, state, pairs.target_BL, target_BL, pairs.target_count_B).tolist()
            for number, scores in zip(batch, score_BL, strict=True):
                ids = [*answers[number], self.config.eos]
                told = scores[len(self.frame.begin) - 1 :][: len(ids)]
                scored[number] = Scored(tuple(map(self.tokenizer.token_of, ids)), tuple(told))
        return scored

    @torch.inference_mode()
    def start(self, rows: Sequence[Sequence[int]], *, room: int) -> Any:
        """The state in which these sources are read."""
        padded = pad([[*self.frame.before, *row, *self.frame.after] for row in rows], self.config.eos)
        source_BM, count_B = (torch.from_numpy(array).to(self.device) for array in padded)
        return self._start(source_BM, count_B, room)

    def _start(self, source_BM: Tensor, count_B: Tensor, room: int) -> Any:
        states = tuple(member.model.start(source_BM, count_B, room=room) for member in self.members)
        return EnsembleState(states) if len(states) > 1 else states[0]

    def _encode(self, sentences: Sequence[Sentence]) -> tuple[list[list[int]], list[list[int]]]:
        sources = self.reader.encode_batch([one.text for one in sentences])
        prefixes = self.tokenizer.encode_batch([one.prefix for one in sentences])
        self.check_fits(max(map(len, sources), default=0))
        return sources, prefixes

    def check_fits(self, tokens: int) -> None:
        """Refuse a sentence of so many tokens where the model has no positions for it."""
        if self.positions is not None and tokens + self.frame.room > self.positions:
            raise DecodingError(
                f"a sentence has {tokens + self.frame.room} tokens, its end included, and this model has positions for "
                f"{self.positions} alone: break it up"
            )

    def _prompts(self, sources: list[list[int]], prefixes: list[list[int]], request: Request) -> Prompts:
        padded = pad([[*self.frame.begin, *prefix] for prefix in prefixes], self.config.eos)
        token_BT, count_B = (torch.from_numpy(array).to(self.device) for array in padded)
        limits = [self.limit(len(row), len(prefix), request) for row, prefix in zip(sources, prefixes, strict=True)]
        return Prompts(token_BT, limits, self.config.eos, count_B if any(prefixes) else None)

    def limit(self, tokens: int, prefix: int, request: Request) -> int:
        """How much may be written; each row has its own limit, so that it is answered in a batch as it is alone."""
        usual = {**GENERATION, **self.generation}
        longest = request.longest
        if longest is None:
            longest = int(usual["longest_ratio"] * tokens + usual["longest_extra"])
            longest = max(1, min(longest, usual.get("longest_ever", longest)) - prefix)
        longest = longest if request.most is None else min(longest, request.most)
        if self.positions is None:
            return longest
        before = prefix + len(self.frame.begin) - 1
        if before + 1 >= self.positions:
            raise DecodingError(
                f"the prefix has {prefix} tokens, and this model has positions for {self.positions} alone: shorten it"
            )
        # Contrastive search reads what it writes last, too.
        return min(longest, self.positions - before - (1 if request.decoding.contrast else 0))

    @contextmanager
    def _looking(self, decoding: Decoding) -> Iterator[Callable[[], Tensor] | None]:
        """Watch, where coverage asks for it, what the last layer of each model looks at."""
        if not decoding.coverage_penalty:
            yield None
            return
        looks = [_Looks() for _ in self.members]
        with ExitStack() as stack:
            for member, look in zip(self.members, looks, strict=True):
                last = member.settings.config.decoder_layers - 1
                stack.enter_context(watching(member.model, {f"decoder.{last}.cross.weights": look}))
            yield lambda: torch.stack([look.seen_BLM for look in looks]).mean(0)


class _Looks:
    """A hook that keeps what the last step looked at, the mean of all heads."""

    seen_BLM: Tensor

    def __call__(self, weights_BHLM: Tensor) -> Tensor:
        self.seen_BLM = weights_BHLM.mean(1)
        return weights_BHLM


def _check_lengths(generation: Mapping[str, Any]) -> None:
    """Refuse what a file says of lengths where it is no number."""
    for name in LENGTHS:
        value = generation.get(name, 0)
        if not isinstance(value, int | float) or not 0 <= value < inf:
            raise CheckpointError(
                f"the model's generation_config.json cannot be used: {name} is a number from 0 on, not {value!r:.60}"
            )


def _check_alike(first: ModelParts, other: ModelParts) -> None:
    """Refuse to let models decide together that do not mean the same by their numbers."""
    if first.tokenizer.fingerprint != other.tokenizer.fingerprint:
        raise ConfigError(
            f"the models of an ensemble must share a vocabulary: one has {first.tokenizer.vocabulary_size} tokens, "
            f"another {other.tokenizer.vocabulary_size}, and they are not the same"
        )
    for name in ("bos", "eos"):
        ours, theirs = (getattr(parts.settings.config, name) for parts in (first, other))
        if ours != theirs:
            raise ConfigError(f"the models of an ensemble must share their {name}: one has {ours}, another {theirs}")
