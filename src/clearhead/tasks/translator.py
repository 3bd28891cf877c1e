"""Translation: from pairs of sentences to a translator, and from a sentence to its translation."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.data.batch import token_batches
from clearhead.data.corpus import PairCorpus
from clearhead.errors import CheckpointError, ConfigError, DataError, DecodingError
from clearhead.evaluate.bleu import bleu, chrf
from clearhead.evaluate.perplexity import mean_loss, perplexity
from clearhead.tasks.answers import Answer, Scored
from clearhead.tasks.batches import Epochs
from clearhead.tasks.directory import ModelParts, Settings, describe
from clearhead.tasks.loading import load_model
from clearhead.tasks.losses import Loss, word_loss
from clearhead.tasks.options import Words, with_words
from clearhead.tasks.pair_data import (
    Frame,
    PairBatch,
    PairData,
    PairParts,
    Pairs,
    as_pairs,
    encode_pairs,
    fitting,
    head,
    parts_of,
    texts_of,
)
from clearhead.tasks.paragraphs import Paragraph, answers_to, spoken
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
from clearhead.tasks.translating import GENERATION, Request, Translating
from clearhead.tasks.word_alignment import Attended, attend
from clearhead.train.job import Job
from clearhead.train.loss import Term, Terms

__all__ = ["Translator"]

Indices = NDArray[np.int64]

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
TOKENS_AT_ONCE = 4_096
SHOWN = 3


class Translator(Pretrained):
    """An encoder–decoder that translates.

    >>> pairs = [("un deux", "one two"), ("deux un", "two one")]
    >>> translator = Translator.fit(pairs, preset="transformer-tiny", steps=1, vocabulary=300)
    >>> isinstance(translator.translate("un"), str)
    True
    """

    TASK = "translation"

    def __init__(self, parts: ModelParts, *others: ModelParts) -> None:
        """A translator of one model; of several, where `others` of the same vocabulary decide with it."""
        super().__init__(parts)
        self.members = (parts, *others)
        self._working = Translating(self.members)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path | Sequence[str | Path],
        *,
        precision: str = "float32",
        threads: int | None = None,
        compiled: bool = False,
    ) -> Self:
        """The translator of a model directory, or of a run's best checkpoint; of several folders, their ensemble.

        precision   "float32", or "int8": weights in 8 bits, for use alone
        threads     of PyTorch, in the whole process
        compiled    whether PyTorch compiles the step of decoding
        """
        folders = [folder] if isinstance(folder, str | Path) else folder
        if not folders:
            raise CheckpointError("at least one model directory is needed")
        members = [load_model(one, cls.TASK, precision=precision, threads=threads) for one in folders]
        if compiled:
            for member in members:
                compile_step(member.model)
        return cls(*members)

    @classmethod
    def ensemble(cls, translators: "Sequence[Translator]") -> "Translator":
        """Several translators of one vocabulary that decide together: the mean of their probabilities."""
        members = [member for translator in translators for member in translator.members]
        if not members:
            raise ConfigError("an ensemble needs at least one translator")
        return cls(*members)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a new model directory; of one model alone."""
        if len(self.members) > 1:
            raise ConfigError(f"an ensemble of {len(self.members)} models is no single model: save each of them")
        super().save_pretrained(folder)

    @classmethod
    def fit(
        cls,
        data: PairData,
        *,
        valid: PairData | None = None,
        preset: str = "transformer-small",
        steps: int = 5_000,
        vocabulary: int = 8_000,
        out: str | Path | None = None,
        recipe: Recipe | None = None,
    ) -> Self:
        """Learn from pairs: a tab-separated file, two parallel files as `(Path, Path)`, or a list of pairs.

        A `recipe` decides everything else in place of preset, steps and vocabulary; `out` keeps the run directory.
        """
        recipe = recipe or simple_recipe(
            cls.TASK, preset, steps, valid is not None, {"vocabulary": vocabulary}, {"smoothing": 0.1}
        )
        parts = PairParts(as_pairs(data), None if valid is None else as_pairs(valid))
        return cls(fit_parts(cls.prepare(recipe, parts), recipe, None if out is None else Path(out)))

    @classmethod
    def prepare(
        cls, recipe: Recipe, data: PairParts | None = None, around: Surroundings | None = None
    ) -> Prepared[PairBatch]:
        """Everything up to the first step; `data` takes the place of the recipe's own."""
        around = around or Surroundings()
        data = data or parts_of(recipe.data)
        start = start_of(recipe)
        tokenizer = build_tokenizer(recipe, lambda: texts_of(data.train), SPECIALS, around.tokenizer, start)
        model: Any = build_model(recipe, "encoder_decoder", tokenizer, start)
        usual = _settings(model.config) if start is None else start.settings
        settings = replace(usual, config=model.config, languages=recipe.data.languages or usual.languages)
        parts = parts_to_train(recipe, model, tokenizer, settings, start)
        frame = Frame.of(tokenizer, settings)
        corpus = encode_pairs(data.train, tokenizer, parts.target, around.progress)
        chosen = fitting(corpus, _longest(recipe.data.longest, model.config), frame)
        rows = partial(_rows, corpus=corpus, frame=frame)
        epochs = Epochs.by_tokens(corpus.lengths[chosen] + frame.room, recipe.train, around.world)
        watch = _Watch(data.valid, parts, scored=recipe.train.scored) if data.valid else None
        job = Job(
            loss=partial(_loss, smoothing=recipe.train.smoothing),
            counts=lambda batch: {"loss": batch.tokens},
            batches=lambda step: [rows(chosen[batch]) for batch in epochs.step(step)],
            move=PairBatch.to,
            validate=watch.validate if watch else None,
            samples=watch.samples if watch else None,
            save_extra=lambda folder: describe(folder, parts),
            flops=lambda batch: 3 * model.flops(len(batch.target_BL), -(-batch.tokens // len(batch.target_BL))),
            blocks=find_layers,
        )
        training = training_settings(recipe, model, len(epochs))
        return Prepared(model, job, training, tokenizer, settings, data.test)

    @overload
    def translate(self, text: str, **options: Any) -> str: ...

    @overload
    def translate(self, text: list[str], **options: Any) -> list[str]: ...

    def translate(self, text: str | list[str], **options: Any) -> str | list[str]:
        """The translation of a text, or of each of several; the options are those of `answers`."""
        if isinstance(text, str):
            return self.translate([text], **options)[0]
        return [best[0].text for best in self.answers(text, **options)]

    def answers(
        self,
        texts: list[str],
        *,
        split: bool = True,
        prefix: str | list[str] = "",
        forbidden: Words = (),
        required: Words = (),
        alignments: bool = False,
        **options: Any,
    ) -> list[list[Answer]]:
        """The best translations of each text, as many as `best` (`num_return_sequences`) says, best first.

        options      those of `clearhead.generate.decoding.Decoding`, by its names or by those of other projects
                     (`beams` or `num_beams`); what is not given is as the model's generation_config.json has it
        split        each text is cut into sentences, which are translated by themselves and put together again
        prefix       how each translation begins, or one such beginning for each text
        forbidden    words that must not appear
        required     words that must appear in each translation; a text is not cut then
        alignments   say which words translate which
        """
        request = self._request(options, forbidden, required)
        prefixes = [prefix] * len(texts) if isinstance(prefix, str) else prefix
        if len(prefixes) != len(texts):
            raise DecodingError(f"each text needs its own prefix: {len(texts)} texts, {len(prefixes)} prefixes")
        split = split and not required
        paragraphs = [Paragraph.of(text, begun, split=split) for text, begun in zip(texts, prefixes, strict=True)]
        return answers_to(paragraphs, self._working, request, alignments=alignments)

    def stream(
        self,
        text: str,
        *,
        split: bool = True,
        prefix: str = "",
        forbidden: Words = (),
        required: Words = (),
        **options: Any,
    ) -> Iterator[str]:
        """The translation of a text in pieces, as it is written; joined, they are what `translate` gives."""
        request = self._request(options, forbidden, required)
        return spoken(Paragraph.of(text, prefix, split=split and not required), self._working, request)

    @overload
    def score(self, sources: str, targets: str) -> Scored: ...

    @overload
    def score(self, sources: list[str], targets: list[str]) -> list[Scored]: ...

    def score(self, sources: str | list[str], targets: str | list[str]) -> Scored | list[Scored]:
        """How likely the translation of the source is the target, or of each source its target: token by token."""
        if isinstance(sources, str) and isinstance(targets, str):
            return self._working.score([sources], [targets])[0]
        if isinstance(sources, str) or isinstance(targets, str):
            raise DataError("one source and its target are wanted, or a list of each, not a text and a list")
        if len(sources) != len(targets):
            raise DataError(f"each source needs its target: there are {len(sources)} and {len(targets)}")
        return self._working.score(sources, targets)

    def _request(self, options: dict[str, Any], forbidden: Words, required: Words) -> Request:
        return self._working.request(with_words(options, self.parts.writer, forbidden, required))

    def alignments(self, text: str, translation: str | None = None) -> Attended:
        """What each layer and head of the decoder looks at while it writes the translation, its own or a given one."""
        written = self.translate(text, split=False) if translation is None else translation
        return next(attend(self.parts, [(text, written)]))

    def evaluate(self, data: PairData, **options: Any) -> Figures:
        """BLEU and chrF with their signatures, and the plain loss of the references, over all pairs.

        The options are those of `translate`; each source is translated as one sentence.
        """
        pairs = as_pairs(data)
        sources, references = map(list, zip(*head(pairs), strict=True))
        answers = self.translate([source.strip() for source in sources], **{"split": False, **options})
        figures: Figures = {"sentences": len(sources)}
        scores = {
            "bleu": bleu(answers, references),
            "bleu_lowercase": bleu(answers, references, lowercase=True),
            "chrf": chrf(answers, references),
        }
        for name, score in scores.items():
            figures |= {name: score.value, f"{name}_signature": score.signature}
        if len(self.members) == 1:
            corpus = encode_pairs(pairs, self.tokenizer, self.parts.target)
            total, count = _corpus_loss(self.model, corpus, self._working.frame)
        else:
            scored = self.score(sources, references)
            total, count = -sum(one.score for one in scored), sum(len(one.scores) for one in scored)
        return figures | {"loss": mean_loss(total, count), "perplexity": perplexity(total, count)}

    def losses(self, data: PairData) -> Iterator[Loss]:
        """The summed loss of each batch of pairs, as a function of the model."""
        corpus = encode_pairs(as_pairs(data), self.tokenizer, self.parts.target)
        for batch in _batches(corpus, self._working.frame, self.device):
            yield Loss(len(batch.target_BL), partial(_summed, batch=batch))


class _Watch:
    """What is looked at while training: the loss over all validation pairs, BLEU over the first of them."""

    def __init__(self, valid: Pairs, parts: ModelParts, *, scored: int) -> None:
        self.corpus = encode_pairs(valid, parts.tokenizer, parts.target)
        self.frame = Frame.of(parts.tokenizer, parts.settings)
        longest, most = int(self.corpus.lengths.max()) + self.frame.room, _longest(0, parts.settings.config)
        if most and longest > most:
            raise DataError(
                f"a validation sentence has {longest} tokens, and this model has positions for {most} alone"
            )
        self.pairs = list(head(valid, max(scored, SHOWN)))
        self.scored, self.parts = scored, parts

    def validate(self, model: nn.Module) -> dict[str, float]:
        total, count = _corpus_loss(model, self.corpus, self.frame)
        figures = {"loss": mean_loss(total, count), "perplexity": perplexity(total, count)}
        if self.scored:
            references = [target for _, target in self.pairs[: self.scored]]
            figures["bleu"] = bleu(self._translate(model, self.scored), references).value
        return figures

    def samples(self, model: nn.Module) -> list[str]:
        shown = zip(self.pairs[:SHOWN], self._translate(model, SHOWN), strict=True)
        return [f"{source} → {answer}  (wanted: {target})" for (source, target), answer in shown]

    def _translate(self, model: nn.Module, count: int) -> list[str]:
        translator = Translator(replace(self.parts, model=model))
        return translator.translate([source.strip() for source, _ in self.pairs[:count]], split=False)


def _settings(config: Any) -> Settings:
    """Of a new translator; a start that has no vector must not be said (Marian, and tools that read it)."""
    generation = GENERATION | ({"forbidden": [[config.bos]]} if config.zero_start else {})
    return Settings(Translator.TASK, config, generation=generation)


def _longest(wanted: int, config: Any) -> int:
    """The longest sentence to learn from: what was asked for, or what a model with learned positions can hold."""
    most = config.length if config.positions == "learned" else 0
    return min(wanted, most) if wanted and most else wanted or most


def _rows(which: Indices, corpus: PairCorpus, frame: Frame) -> PairBatch:
    return PairBatch.of(corpus.source.documents(which), corpus.target.documents(which), frame)


def _term(model: Any, batch: PairBatch, smoothing: float) -> Term:
    """The summed loss of a batch; no padding is computed, and never all logits held at once."""
    hidden_BLD, rows = model.hidden(
        batch.source_BM,
        batch.target_BL,
        source_count_B=batch.source_count_B,
        target_count_B=batch.target_count_B,
        pack=True,
    )
    label_BL = rows.pack(batch.label_BL)
    return word_loss(model.output, hidden_BLD.flatten(0, 1), label_BL.flatten(), smoothing)


def _loss(model: nn.Module, batch: PairBatch, *, smoothing: float) -> Terms:
    return {"loss": _term(model, batch, smoothing)}


def _summed(model: Any, batch: PairBatch) -> Tensor:
    return _term(model, batch, 0.0)[0]


def _batches(corpus: PairCorpus, frame: Frame, device: torch.device) -> Iterator[PairBatch]:
    """All pairs, always in the same batches."""
    lengths = corpus.lengths + frame.room
    for which in token_batches(lengths, tokens=max(TOKENS_AT_ONCE, int(lengths.max())), seed=0, epoch=0):
        yield _rows(which, corpus, frame).to(device)


@torch.no_grad()
def _corpus_loss(model: Any, corpus: PairCorpus, frame: Frame) -> tuple[float, int]:
    """The summed cross-entropy of all targets and how many they are."""
    total, count = 0.0, 0
    for batch in _batches(corpus, frame, next(model.parameters()).device):
        loss, targets = _term(model, batch, 0.0)
        total += float(loss)
        count += int(targets)
    return total, count
