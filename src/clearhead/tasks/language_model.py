"""Language models: from running text to a model that goes on with a text."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.data.batch import pad, random_windows, sequential_windows, shard
from clearhead.data.token_array import TokenArray
from clearhead.errors import ConfigError
from clearhead.evaluate.perplexity import mean_loss, perplexity
from clearhead.tasks.answers import Answer, Scored
from clearhead.tasks.directory import ModelParts, Settings, describe
from clearhead.tasks.losses import Loss, word_loss
from clearhead.tasks.precision import compile_step
from clearhead.tasks.prepare import (
    Figures,
    Prepared,
    Surroundings,
    build_model,
    build_tokenizer,
    find_layers,
    fit_parts,
    parts_to_train,
    simple_recipe,
    start_of,
    training_settings,
)
from clearhead.tasks.pretrained import Pretrained
from clearhead.tasks.recipe import Recipe
from clearhead.tasks.remembered import Remembered
from clearhead.tasks.talking import Messages, talk_tokens
from clearhead.tasks.text_data import (
    TextData,
    TextParts,
    as_texts,
    characters,
    encode_parts,
    encode_texts,
    learned,
    parts_of_text,
)
from clearhead.tasks.writing import GENERATION, Writing, first_tokens, scored
from clearhead.train.distributed import World
from clearhead.train.job import Job
from clearhead.train.loss import IGNORE, Term, Terms

__all__ = ["LanguageModel"]

SPECIALS = ("<unk>", "<eos>")
TOKENS_AT_ONCE = 4_096
SHOWN, SHOWN_AFTER = 100, 16


class LanguageModel(Pretrained):
    """A decoder that goes on with a text.

    >>> model = LanguageModel.fit(["a b a b a b a b"] * 9, preset="gpt-tiny", steps=1, vocabulary=300, length=8)
    >>> isinstance(model.generate("a", longest=2), str)
    True
    """

    TASK = "language_model"

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, precision: str = "float32", threads: int | None = None, compiled: bool = False
    ) -> Self:
        """As for any task; `compiled`: PyTorch compiles the step of decoding."""
        found = super().from_pretrained(folder, precision=precision, threads=threads)
        if compiled:
            compile_step(found.model)
        return found

    @classmethod
    def fit(
        cls,
        data: TextData,
        *,
        valid: TextData | None = None,
        preset: str = "gpt-small",
        steps: int = 5_000,
        vocabulary: int = 8_000,
        length: int | None = None,
        out: str | Path | None = None,
        recipe: Recipe | None = None,
    ) -> Self:
        """Learn from text: the path of a file or folder, or a list of texts; `length` is that of the windows.

        A `recipe` decides everything else in place of preset, steps, vocabulary and length; `out` keeps the run.
        """
        recipe = recipe or simple_recipe(
            cls.TASK,
            preset,
            steps,
            valid is not None,
            {"vocabulary": vocabulary},
            {"length": length, "betas": [0.9, 0.99]},
        )
        parts = TextParts(as_texts(data), None if valid is None else as_texts(valid))
        return cls(fit_parts(cls.prepare(recipe, parts), recipe, None if out is None else Path(out)))

    @classmethod
    def prepare(
        cls, recipe: Recipe, data: TextParts | None = None, around: Surroundings | None = None
    ) -> Prepared[Tensor]:
        """Everything up to the first step; `data` takes the place of the recipe's own."""
        around = around or Surroundings()
        data = data or parts_of_text(recipe.data)
        start = start_of(recipe)
        tokenizer = build_tokenizer(recipe, lambda: learned(data), SPECIALS, around.tokenizer, start)
        model: Any = build_model(recipe, "decoder_only", tokenizer, start)
        generation = GENERATION if start is None else start.settings.generation
        settings = Settings(cls.TASK, model.config, generation=generation)
        parts = parts_to_train(recipe, model, tokenizer, settings, start)
        text, watched = encode_parts(data, tokenizer, tokenizer.eos, around.progress)
        length = recipe.train.length or model.config.length
        if length > model.config.length:
            raise ConfigError(f"train.length is {length}, more than the {model.config.length} of model.length")
        watch = None if watched is None else _Watch(watched, length, parts)
        job = Job(
            loss=partial(_loss, smoothing=recipe.train.smoothing),
            counts=lambda token_BL: {"loss": token_BL[:, 1:].numel()},
            batches=partial(_batches, text=text, length=length, recipe=recipe, world=around.world),
            move=Tensor.to,
            validate=watch.validate if watch else None,
            samples=watch.samples if watch else None,
            save_extra=lambda folder: describe(folder, parts),
            flops=lambda token_BL: 3 * model.flops(len(token_BL), token_BL.shape[1] - 1),
            blocks=find_layers,
        )
        steps_per_epoch = -(-text.size // (recipe.train.rows * length * recipe.train.accumulate))
        training = training_settings(recipe, model, steps_per_epoch)
        return Prepared(model, job, training, tokenizer, settings, data.test)

    @overload
    def generate(self, prompt: str = "", **options: Any) -> str: ...

    @overload
    def generate(self, prompt: list[str], **options: Any) -> list[str]: ...

    def generate(self, prompt: str | list[str] = "", **options: Any) -> str | list[str]:
        """What follows a prompt, or each of several.

        options     those of `clearhead.generate.decoding.Decoding`, by its names or by those of other projects:
                    `longest` or `max_new_tokens`, `temperature`, `top_p`, `seed`, `beams` …; what is not given is as
                    the model's generation_config.json has it
        stop        a text or several, before the first of which the answer ends; beams are cut after the search
        forbidden   words that must not appear
        required    words that must appear

        An empty prompt begins a text, where the model has a token for that. A text longer than the model's context
        goes on from its second half; beam search refuses it. The same prompt and seed give the same text in any batch.
        """
        if isinstance(prompt, str):
            return self.generate([prompt], **options)[0]
        return [best[0].text for best in self.answers(prompt, **options)]

    def answers(self, prompts: list[str], **options: Any) -> list[list[Answer]]:
        """The continuations of each prompt with their scores, best first, as many as `best` says; options as above."""
        rows = [first_tokens(ids, self.parts) for ids in self.tokenizer.encode_batch(prompts)]
        return Writing(self.parts, options).answers(rows)

    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """What follows a prompt, in pieces as it is written; joined, they are what `generate` gives."""
        return Writing(self.parts, options).stream(first_tokens(self.tokenizer.encode(prompt), self.parts))

    def chat(self, messages: Messages, **options: Any) -> str:
        """The answer to a message, or to a talk: `[{"role": "user", "content": "Hello"}, …]`; options as above.

        The model's own template decides how the talk is written; a model without one refuses.
        """
        return Writing(self.parts, options).answers([talk_tokens(self.parts, messages)])[0][0].text.strip()

    def stream_chat(self, messages: Messages, **options: Any) -> Iterator[str]:
        """The answer to a message or a talk, in pieces as it is written."""
        return Writing(self.parts, options).stream(talk_tokens(self.parts, messages))

    def remember(self, prompt: str) -> Remembered:
        """Read a prompt once; `generate`, `answers` and `stream` of what comes back go on from there."""
        return Remembered(self.parts, prompt)

    @overload
    def score(self, texts: str) -> Scored: ...

    @overload
    def score(self, texts: list[str]) -> list[Scored]: ...

    def score(self, texts: str | list[str]) -> Scored | list[Scored]:
        """How likely a text is, or each of several: the log-probability of each token after those before it."""
        return scored(self.parts, [texts])[0] if isinstance(texts, str) else scored(self.parts, texts)

    def evaluate(self, data: TextData) -> Figures:
        """Loss and perplexity per token over all of the text, each window read by itself, and bits per character."""
        texts = as_texts(data)
        stream = encode_texts(texts, self.tokenizer, self.tokenizer.eos, None)
        total, count = _stream_loss(self.model, stream, self.config.length)
        bits = total / math.log(2) / max(1, sum(map(len, characters(texts))))
        return {
            "tokens": count,
            "loss": mean_loss(total, count),
            "perplexity": perplexity(total, count),
            "bits_per_character": bits,
        }

    def losses(self, data: TextData) -> Iterator[Loss]:
        """The summed loss of each batch of windows, as a function of the model."""
        stream = encode_texts(as_texts(data), self.tokenizer, self.tokenizer.eos, None)
        for token_BL, label_BL in _windowed(stream, self.config.length, self.device):
            yield Loss(len(token_BL), partial(_summed, token_BL=token_BL, label_BL=label_BL))


class _Watch:
    """What is looked at while training: the loss over all of the validation text, and how its start would go on."""

    def __init__(self, stream: TokenArray, length: int, parts: ModelParts) -> None:
        self.stream, self.length, self.parts = stream, length, parts
        self.prompt = parts.tokenizer.decode(stream.spans([(0, SHOWN_AFTER)])[0].tolist())

    def validate(self, model: nn.Module) -> dict[str, float]:
        total, count = _stream_loss(model, self.stream, self.length)
        return {"loss": mean_loss(total, count), "perplexity": perplexity(total, count)}

    def samples(self, model: nn.Module) -> list[str]:
        writer = LanguageModel(replace(self.parts, model=model))
        text = writer.generate(self.prompt, longest=SHOWN, temperature=0.8)
        return [f"{self.prompt}|{text}".replace("\n", "⏎")]


def _batches(step: int, *, text: TokenArray, length: int, recipe: Recipe, world: World) -> list[Tensor]:
    """This rank's windows of the batches of a step."""
    rows, seed = recipe.train.rows, recipe.train.seed
    numbers = range((step - 1) * recipe.train.accumulate, step * recipe.train.accumulate)
    batches = [random_windows(text.size, length=length + 1, rows=rows, seed=seed, step=number) for number in numbers]
    mine = shard(np.arange(rows), world.rank, world.size)
    return [torch.from_numpy(np.stack(text.spans(_pairs(batch[mine])))) for batch in batches if len(mine)]


def _pairs(spans: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return ((int(start), int(stop)) for start, stop in spans)


def _term(model: Any, token_BL: Tensor, label_BL: Tensor, smoothing: float) -> Term:
    hidden_BLD, _ = model.hidden(token_BL)
    return word_loss(model.output, hidden_BLD.flatten(0, 1), label_BL.flatten(), smoothing)


def _loss(model: nn.Module, token_BL: Tensor, *, smoothing: float) -> Terms:
    return {"loss": _term(model, token_BL[:, :-1], token_BL[:, 1:], smoothing)}


def _summed(model: Any, token_BL: Tensor, label_BL: Tensor) -> Tensor:
    return _term(model, token_BL, label_BL, 0.0)[0]


def _windowed(stream: TokenArray, length: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """All of the text in windows that do not overlap, and what follows each of their tokens."""
    windows, rows = sequential_windows(stream.size, length=length + 1), max(1, TOKENS_AT_ONCE // length)
    for start in range(0, len(windows), rows):
        spans = stream.spans(_pairs(windows[start : start + rows]))
        token_BL = torch.from_numpy(pad([ids[:-1] for ids in spans], 0)[0]).to(device)
        label_BL = torch.from_numpy(pad([ids[1:] for ids in spans], IGNORE)[0]).to(device)
        yield token_BL, label_BL


@torch.no_grad()
def _stream_loss(model: Any, stream: TokenArray, length: int) -> tuple[float, int]:
    """The summed cross-entropy of every token but the first, in windows that do not overlap, and how many they are."""
    total, count = 0.0, 0
    for token_BL, label_BL in _windowed(stream, length, next(model.parameters()).device):
        loss, targets = _term(model, token_BL, label_BL, 0.0)
        total += float(loss)
        count += int(targets)
    return total, count
