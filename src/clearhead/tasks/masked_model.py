"""Masked models: an encoder that learns language by telling hidden words, and whether a sentence follows another."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from clearhead.data.batch import shard
from clearhead.data.sources import TextSource
from clearhead.errors import ConfigError, DecodingError
from clearhead.evaluate.perplexity import mean_loss, perplexity
from clearhead.tasks.directory import Settings, describe
from clearhead.tasks.encoder_data import SPECIALS, EncoderBatch, frame
from clearhead.tasks.losses import Loss, word_loss
from clearhead.tasks.masking import MaskedRows, masked_batch, pair_row
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
from clearhead.tasks.text_data import (
    TextData,
    TextParts,
    Texts,
    as_texts,
    encode_parts,
    encode_texts,
    learned,
    parts_of_text,
)
from clearhead.train.distributed import World
from clearhead.train.job import Job
from clearhead.train.loss import Terms, cross_entropy

__all__ = ["Guess", "MaskedModel"]


class Guess(NamedTuple):
    """A word for a hidden place."""

    word: str
    probability: float


class MaskedModel(Pretrained):
    """An encoder that knows which words fit.

    >>> model = MaskedModel.fit(["the dog barks"] * 9, preset="bert-tiny", steps=1, vocabulary=300, length=8)
    >>> "<mask>" in model.fill("the <mask> barks")
    False
    """

    TASK = "masked_model"

    @classmethod
    def fit(
        cls,
        data: TextData,
        *,
        valid: TextData | None = None,
        preset: str = "bert-tiny",
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
            cls.TASK, preset, steps, valid is not None, {"vocabulary": vocabulary}, {"length": length}
        )
        parts = TextParts(as_texts(data), None if valid is None else as_texts(valid))
        return cls(fit_parts(cls.prepare(recipe, parts), recipe, None if out is None else Path(out)))

    @classmethod
    def prepare(
        cls, recipe: Recipe, data: TextParts | None = None, around: Surroundings | None = None
    ) -> Prepared[EncoderBatch]:
        """Everything up to the first step; `data` takes the place of the recipe's own."""
        around = around or Surroundings()
        data = data or parts_of_text(recipe.data)
        valid, test = (None if texts is None else _by_lines(texts) for texts in (data.valid, data.test))
        data = replace(data, train=_by_lines(data.train), valid=valid, test=test)
        start = start_of(recipe)
        tokenizer = build_tokenizer(recipe, lambda: learned(data), SPECIALS, around.tokenizer, start)
        model: Any = build_model(recipe, "encoder_only", tokenizer, start, heads=_heads)
        settings = Settings(cls.TASK, model.config)
        parts = parts_to_train(recipe, model, tokenizer, settings, start)
        text, watched = encode_parts(data, tokenizer, None, around.progress)
        length = recipe.train.length or model.config.length
        if length > model.config.length:
            raise ConfigError(f"train.length is {length}, more than the {model.config.length} of model.length")
        rows = MaskedRows(text, tokenizer, length, pairs=model.config.next_sentence)

        watch = None if watched is None else partial(_judge, rows=replace(rows, text=watched))
        job = Job(
            loss=partial(_loss, smoothing=recipe.train.smoothing),
            counts=_counts,
            terms=("words", "next") if rows.pairs else ("loss",),
            batches=partial(_batches, rows=rows, recipe=recipe, world=around.world),
            move=EncoderBatch.to,
            validate=watch,
            save_extra=lambda folder: describe(folder, parts),
            flops=lambda batch: 3 * model.flops(*batch.token_BL.shape),
            blocks=find_layers,
        )
        steps_per_epoch = -(-text.size // (recipe.train.rows * length * recipe.train.accumulate))
        return Prepared(model, job, training_settings(recipe, model, steps_per_epoch), tokenizer, settings, data.test)

    def fill(self, text: str) -> str:
        """The text with the most probable word at each `<mask>`."""
        ids, places, best = self._guess(text, 1)
        for place, guesses in zip(places, best, strict=True):
            ids[place] = guesses[0][0]
        return self.tokenizer.decode(ids)

    def guesses(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The most probable words for each `<mask>` of the text, with their probabilities."""
        _, _, best = self._guess(text, top)
        return [[Guess(self.tokenizer.decode([id]).strip(), share) for id, share in row] for row in best]

    @torch.inference_mode()
    def follows(self, first: str, second: str) -> float:
        """How probable it is that the second text follows the first."""
        ours, theirs = self.tokenizer.encode_batch([first, second])
        row, segments = pair_row(ours, theirs, self.tokenizer, self.config.length)
        batch = EncoderBatch.of([row], segments=[segments]).to(self.device)
        logits_BC: Tensor = self.model.follows(batch.token_BL, segment_BL=batch.segment_BL)
        return float(logits_BC.softmax(-1)[0, 1])

    def evaluate(self, data: TextData) -> Figures:
        """Loss, perplexity and accuracy of hidden words, always the same ones, over all of the text."""
        text = encode_texts(_by_lines(as_texts(data)), self.tokenizer, None, None)
        rows = MaskedRows(text, self.tokenizer, self.config.length, pairs=self.config.next_sentence)
        return {"tokens": text.size, **_judge(self.model, rows)}

    def losses(self, data: TextData) -> Iterator[Loss]:
        """The summed loss of each batch of rows, always with the same words hidden, as a function of the model."""
        text = encode_texts(_by_lines(as_texts(data)), self.tokenizer, None, None)
        rows = MaskedRows(text, self.tokenizer, self.config.length, pairs=self.config.next_sentence)
        for some in rows.all():
            batch = masked_batch(some, pairs=rows.pairs).to(self.device)
            yield Loss(len(batch.token_BL), partial(_summed, batch=batch))

    @torch.inference_mode()
    def _guess(self, text: str, top: int) -> tuple[list[int], list[int], list[list[tuple[int, float]]]]:
        """The ids of the text, the places of its masks, and for each the best ids with their probabilities."""
        ids = self.tokenizer.encode_marked(text)
        places = [place for place, id in enumerate(ids) if id == self.tokenizer.mask]
        if not places:
            raise DecodingError(f"there is no <mask> to be filled in {text!r:.60}")
        row = frame(ids, self.tokenizer, len(ids) + 2)
        if len(row) > self.config.length:
            raise DecodingError(f"the text has {len(row)} tokens, this model reads at most {self.config.length}")
        logits_LV = self.model.words(torch.tensor([row], device=self.device))[0, 1:-1][places]
        logits_LV[:, [*self.tokenizer.special_ids]] = -torch.inf
        shares, best = logits_LV.softmax(-1).topk(min(top, logits_LV.shape[1] - len(self.tokenizer.special_ids)))
        return ids, places, [[*zip(*row, strict=True)] for row in zip(best.tolist(), shares.tolist(), strict=True)]


def _heads(config: Any) -> dict[str, Any]:
    """Words, and a vector of the whole only where it is asked whether one sentence follows another."""
    return {"words": True, "classes": 0, "labels": 0, "pooler": config.pooler if config.next_sentence else "none"}


def _by_lines(texts: Texts) -> Texts:
    """Each line a document: a sentence, or what comes nearest to one."""
    return replace(texts, unit="line") if isinstance(texts, TextSource) else texts


def _batches(step: int, *, rows: MaskedRows, recipe: Recipe, world: World) -> list[EncoderBatch]:
    """This rank's rows of the batches of a step."""
    count, seed = recipe.train.rows, recipe.train.seed
    mine = shard(np.arange(count), world.rank, world.size).tolist()
    numbers = range((step - 1) * recipe.train.accumulate, step * recipe.train.accumulate)
    batches = [rows.drawn(count, seed=seed, number=number) for number in numbers]
    return [masked_batch([batch[i] for i in mine], pairs=rows.pairs) for batch in batches if mine]


def _hidden_words(model: Any, batch: EncoderBatch) -> tuple[Tensor, Tensor, Tensor | None]:
    """The vectors and targets of the hidden words alone, and the vector of each row where the model has use for it."""
    hidden_BLD, rows = model.hidden(batch.token_BL, count_B=batch.count_B, segment_BL=batch.segment_BL, pack=True)
    target_N = rows.pack(batch.label_BL).flatten()
    place_N = torch.nonzero(target_N >= 0)[:, 0]
    pooled_BD = model.pooled(hidden_BLD, rows) if len(batch.class_B) else None
    return hidden_BLD.flatten(0, 1)[place_N], target_N[place_N], pooled_BD


def _loss(model: Any, batch: EncoderBatch, *, smoothing: float) -> Terms:
    x_ND, target_N, pooled_BD = _hidden_words(model, batch)
    words = word_loss(model.word_head.words, model.word_head.transform(x_ND), target_N, smoothing)
    if pooled_BD is None:
        return {"loss": words}
    return {"words": words, "next": cross_entropy(model.next_head(pooled_BD), batch.class_B)}


def _summed(model: Any, batch: EncoderBatch) -> Tensor:
    return torch.stack([total for total, _ in _loss(model, batch, smoothing=0.0).values()]).sum()


def _counts(batch: EncoderBatch) -> dict[str, int]:
    return {"words": batch.labels, "next": len(batch.class_B)} if len(batch.class_B) else {"loss": batch.labels}


@torch.no_grad()
def _judge(model: Any, rows: MaskedRows) -> dict[str, float]:
    """Loss and accuracy over the whole text; the loss of two questions is the sum of theirs."""
    device = next(model.parameters()).device
    tally = np.zeros(6)  # sum, right and count of the words, then of the sentences
    for some in rows.all():
        batch = masked_batch(some, pairs=rows.pairs).to(device)
        x_ND, target_N, pooled_BD = _hidden_words(model, batch)
        tally[:3] += _tally(model.word_head(x_ND), target_N)
        if pooled_BD is not None:
            tally[3:] += _tally(model.next_head(pooled_BD), batch.class_B)
    total, right, count, next_total, next_right, next_count = tally.tolist()
    figures = {
        "loss": mean_loss(total, int(count)),
        "perplexity": perplexity(total, int(count)),
        "accuracy": right / count if count else math.nan,
    }
    if next_count:
        figures["loss"] += next_total / next_count
        figures["next_accuracy"] = next_right / next_count
    return figures


def _tally(logits_NC: Tensor, target_N: Tensor) -> tuple[float, int, int]:
    total, count = cross_entropy(logits_NC, target_N)
    return float(total), int((logits_NC.argmax(-1) == target_N).sum()), int(count)
