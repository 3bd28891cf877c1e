"""Word alignments from cross-attention: which source words a translator looks at for each target word.

Each head of each decoder layer is a candidate, in two readings: what it looks at while it *predicts* a word, and what
it looks at one step later, while it *reads* the word, by when it knows which one it is. Which of them aligns
best is a question of measuring, on data with gold alignments that are not those it is then reported on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.phrasebook.corpus import words
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import CheckpointError, DataError
from clearhead.evaluate.alignment import Links, alignment_error_rate, links_of
from clearhead.tap import watching
from clearhead.tasks.directory import ModelParts, Settings
from clearhead.tasks.pair_data import Frame, PairBatch

__all__ = [
    "AlignedPair",
    "AlignmentHead",
    "Attended",
    "alignment_errors",
    "attend",
    "best_head",
    "chosen_head",
    "pieces_of_words",
    "word_links",
    "word_links_of_all",
]

ROWS_AT_ONCE = 32
Weights = NDArray[np.floating]


class AlignedPair(Protocol):
    """A pair with its gold alignment, such as the phrasebook's: {(place in the source, place in the target)}."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def alignment(self) -> Links: ...


class AlignmentHead(NamedTuple):
    """One reading of one head; `layer` and `head` are counted from 0."""

    layer: int
    head: int
    reads: bool  # the row at which the word is read, rather than that at which it is predicted


@dataclass(frozen=True)
class Attended:
    """What the decoder looked at while it wrote a target.

    source    the pieces of the source, its end the last of them
    target    the pieces of the target, its end the last of them
    weights   of each layer and head, a row for each predicted piece: (layers, heads, target, source); where a layer
              has fewer heads than another, since some were pruned, NaN stands for those that it has not
    """

    source: list[str]
    target: list[str]
    weights: Weights

    def rows(self, reads: bool) -> Weights:
        """The rows of the target's own pieces: where each is predicted, or where it is read."""
        return self.weights[:, :, 1:] if reads else self.weights[:, :, :-1]


def attend(parts: ModelParts, pairs: Sequence[tuple[str, str]]) -> Iterator[Attended]:
    """The cross-attention of each pair, its target forced."""
    for start in range(0, len(pairs), ROWS_AT_ONCE):
        yield from _attend(parts, pairs[start : start + ROWS_AT_ONCE])


@torch.inference_mode()
def _attend(parts: ModelParts, pairs: Sequence[tuple[str, str]]) -> Iterator[Attended]:
    model, config, readers = parts.model, parts.settings.config, (parts.tokenizer, parts.writer)
    sources, targets = (readers[side].encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
    frame = Frame.of(parts.tokenizer, parts.settings)
    batch = PairBatch.of(sources, targets, frame).to(next(iter(model.parameters())).device)
    end = parts.writer.token_of(config.eos)
    seen: dict[str, Tensor] = {}

    def keep(name: str, weights_BHLM: Tensor) -> Tensor:
        seen[name] = weights_BHLM
        return weights_BHLM

    names = [f"decoder.{layer}.cross.weights" for layer in range(config.decoder_layers)]
    with watching(model, {name: partial(keep, name) for name in names}):
        model.hidden(
            batch.source_BM, batch.target_BL, source_count_B=batch.source_count_B, target_count_B=batch.target_count_B
        )
    weights = _side_by_side([seen[name] for name in names]).cpu().numpy()
    first, skipped = len(frame.before), len(frame.begin) - 1
    for row, source, target in zip(weights, sources, targets, strict=True):
        ours = [parts.tokenizer.decode([id]) for id in source] + [end]
        theirs = [parts.writer.decode([id]) for id in target] + [end]
        yield Attended(ours, theirs, row[:, :, skipped : skipped + len(target) + 1, first : first + len(source) + 1])


def _side_by_side(weights_BHLM: Sequence[Tensor]) -> Tensor:
    """(B, layers, heads, L, M), with NaN for the heads that a layer has not."""
    most = max(weights.shape[1] for weights in weights_BHLM)
    room = [weights.new_full((len(weights), most, *weights.shape[2:]), torch.nan) for weights in weights_BHLM]
    for wide, weights in zip(room, weights_BHLM, strict=True):
        wide[:, : weights.shape[1]] = weights
    return torch.stack(room, dim=1)


def best_head(parts: ModelParts, pairs: Sequence[AlignedPair]) -> AlignmentHead:
    """The head whose links come nearest to the gold ones; to be chosen on validation data."""
    errors = alignment_errors(parts, pairs)
    return min(errors, key=lambda head: errors[head])


def alignment_errors(
    parts: ModelParts, pairs: Sequence[AlignedPair], heads: Sequence[AlignmentHead] = ()
) -> dict[AlignmentHead, float]:
    """The alignment error rate of each head, or of these."""
    if not pairs:
        raise DataError("an alignment error rate needs at least one pair with its gold alignment")
    found: dict[AlignmentHead, list[Links]] = {}
    texts = [(pair.source, pair.target) for pair in pairs]
    for (source, target), attended in zip(texts, attend(parts, texts), strict=True):
        for head in heads or _all_heads(attended):
            links = _links(
                attended, head, pieces_of_words(parts.tokenizer, source), pieces_of_words(parts.writer, target)
            )
            found.setdefault(head, []).append(links)
    gold = [pair.alignment for pair in pairs]
    return {head: alignment_error_rate(links, gold) for head, links in found.items()}


def word_links(parts: ModelParts, source: str, target: str, head: AlignmentHead | None = None) -> set[tuple[int, int]]:
    """Which of `words(source)` each of `words(target)` looks at, by that head."""
    (links,) = word_links_of_all(parts, [(source, target)], head)
    return links


def word_links_of_all(
    parts: ModelParts, pairs: Sequence[tuple[str, str]], head: AlignmentHead | None = None
) -> Iterator[set[tuple[int, int]]]:
    """The links of each pair, by that head; without one, by the mean of all heads of the last layer but one."""
    for (source, target), attended in zip(pairs, attend(parts, pairs), strict=True):
        yield _links(attended, head, pieces_of_words(parts.tokenizer, source), pieces_of_words(parts.writer, target))


def chosen_head(settings: Settings) -> AlignmentHead | None:
    """The head that the model directory names for alignments, as [layer, head, reads]; None where it names none."""
    named = settings.generation.get("alignment_head")
    if named is None:
        return None
    layers = settings.config.decoder_layers
    match named:
        case [int(layer), int(head), bool(reads)] if 0 <= layer < layers and 0 <= head < _heads(settings.config, layer):
            return AlignmentHead(layer, head, reads)
    raise CheckpointError(
        "the model's generation_config.json cannot be used: alignment_head is [layer, head, reads], such as "
        f"[{layers - 1}, 0, true], not {named!r}"
    )


def _heads(config: Any, layer: int) -> int:
    """How many heads a decoder layer's cross-attention has, those that were pruned not counted."""
    kept = dict(config.pruned).get(f"decoder.{layer}.cross")
    return int(config.heads if kept is None else len(kept))


def _all_heads(attended: Attended) -> list[AlignmentHead]:
    there = np.argwhere(~np.isnan(attended.weights).all(axis=(2, 3))).tolist()
    return [AlignmentHead(layer, head, reads) for layer, head in there for reads in (False, True)]


def _links(attended: Attended, head: AlignmentHead | None, source: Weights, target: Weights) -> set[tuple[int, int]]:
    """From pieces to words: the mean over a target word's pieces of what goes to all pieces of a source word."""
    if head is None:
        weights_LM = np.nanmean(attended.rows(reads=True)[max(0, len(attended.weights) - 2)], axis=0)
    else:
        weights_LM = attended.rows(head.reads)[head.layer, head.head]
    end = np.zeros((1, source.shape[1] + 1))
    end[0, -1] = 1
    to_words = np.vstack([np.pad(source, ((0, 0), (0, 1))), end])
    return links_of((target / target.sum(axis=0).clip(min=1)).T @ weights_LM @ to_words)


def pieces_of_words(tokenizer: Tokenizer, text: str) -> Weights:
    """(pieces, words): 1 where the piece belongs to the word, which is the one that it shares most characters with."""
    pieces, places = tokenizer.pieces(text), _places(text)
    belongs = np.zeros((len(pieces), len(places)))
    for row, piece in enumerate(pieces):
        shared = [min(piece.end, stop) - max(piece.start, start) for start, stop in places]
        if shared and max(shared) > 0:
            belongs[row, int(np.argmax(shared))] = 1
    return belongs


def _places(text: str) -> list[tuple[int, int]]:
    """Where each word starts and stops."""
    places: list[tuple[int, int]] = []
    reached = 0
    for word in words(text):
        start = text.index(word, reached)
        reached = start + len(word)
        places.append((start, reached))
    return places
