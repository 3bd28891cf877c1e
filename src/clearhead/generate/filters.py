"""What may come next: filters that know what a row has read and written, narrowings that see its scores alone.

Both give new scores, -inf where a token may not come, and leave those they were given as they are. Each does what the
logits processor of the same purpose does in transformers, where there is one, and they come in the same order.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.decoding import Decoding

__all__ = [
    "Filter",
    "Narrowing",
    "Row",
    "draw",
    "forbid",
    "history_filters",
    "min_p",
    "narrowing",
    "no_end_before",
    "no_repeat",
    "no_stutter",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical",
]


class Row(NamedTuple):
    """What one row has read and written so far."""

    prompt: Sequence[int]
    written: Sequence[int]


Filter = Callable[[Tensor, Sequence[Row]], Tensor]  # scores (B, V) and their rows -> scores (B, V)
Narrowing = Callable[[Tensor], Tensor]  # scores (B, V) -> scores (B, V)


def history_filters(decoding: Decoding, ends: Set[int]) -> list[Filter]:
    """The filters that were asked for: none of them for the usual `Decoding`."""
    filters: list[Filter] = []
    if decoding.repetition_penalty != 1:
        filters.append(repetition_penalty(decoding.repetition_penalty))
    if decoding.no_repeat:
        filters.append(no_repeat(decoding.no_repeat))
    if decoding.no_stutter:
        filters.append(no_stutter(decoding.no_stutter, frozenset(decoding.may_stutter)))
    if decoding.forbidden:
        filters.append(forbid(decoding.forbidden))
    if decoding.shortest and ends:
        filters.append(no_end_before(decoding.shortest, ends))
    return filters


def narrowing(decoding: Decoding) -> list[Narrowing]:
    """The narrowings that were asked for; none at temperature 0, where nothing is drawn."""
    if not decoding.temperature:
        return []
    steps = [
        (decoding.temperature != 1, temperature(decoding.temperature)),
        (decoding.top_k > 0, top_k(decoding.top_k)),
        (decoding.top_p < 1, top_p(decoding.top_p)),
        (decoding.min_p > 0, min_p(decoding.min_p)),
        (decoding.typical < 1, typical(decoding.typical)),
    ]
    return [step for asked, step in steps if asked]


def repetition_penalty(factor: float) -> Filter:
    """Divide the scores of tokens that have occurred by `factor`, or multiply negative ones [keskar2019]."""

    def penalize(score_BV: Tensor, rows: Sequence[Row]) -> Tensor:
        penalized_BV = torch.where(score_BV < 0, score_BV * factor, score_BV / factor)
        return torch.where(_at(score_BV, (set(_seen(row)) for row in rows)), penalized_BV, score_BV)

    return penalize


def no_repeat(size: int) -> Filter:
    """Let no phrase of `size` tokens come that has occurred."""

    def completions(seen: list[int]) -> set[int]:
        head = seen[len(seen) - size + 1 :]
        return {seen[end] for end in range(size - 1, len(seen)) if seen[end - size + 1 : end] == head}

    def refuse(score_BV: Tensor, rows: Sequence[Row]) -> Tensor:
        return score_BV.masked_fill(_at(score_BV, (completions(_seen(row)) for row in rows)), -math.inf)

    return refuse


def no_stutter(most: int, free: Set[int] = frozenset()) -> Filter:
    """Let no phrase of up to `most` tokens come directly after itself, as small models do with words they hardly know.

    Unlike `no_repeat` this leaves "to the north and to the south" alone, and what is made of `free` tokens only, such
    as the digits of 1,000,000. transformers has nothing of the kind.
    """

    def completions(seen: list[int]) -> set[int]:
        found: set[int] = set()
        for size in range(1, min(most, (len(seen) + 1) // 2) + 1):
            phrase, begun = seen[len(seen) - size :], seen[len(seen) - 2 * size + 1 : -size]
            if phrase[1:] == begun and not set(phrase) <= free:
                found.add(phrase[0])
        return found

    def refuse(score_BV: Tensor, rows: Sequence[Row]) -> Tensor:
        return score_BV.masked_fill(_at(score_BV, (completions(_seen(row)) for row in rows)), -math.inf)

    return refuse


def forbid(phrases: Sequence[Sequence[int]]) -> Filter:
    """Let none of these phrases be completed.

    DIFF[transformers]: a phrase that is `eos` alone counts like any other; there it is left out in silence.
    """
    endings: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for phrase in phrases:
        if not phrase or min(phrase) < 0:
            raise DecodingError(f"a forbidden phrase is one or more token ids: {tuple(phrase)}")
        endings[tuple(phrase[:-1])].add(phrase[-1])
    lengths = sorted({len(head) for head in endings})
    largest = max((token for phrase in phrases for token in phrase), default=-1)

    def completions(seen: list[int]) -> set[int]:
        heads = (tuple(seen[len(seen) - length :]) for length in lengths if length <= len(seen))
        return set().union(*(endings.get(head, ()) for head in heads))

    def refuse(score_BV: Tensor, rows: Sequence[Row]) -> Tensor:
        if largest >= score_BV.shape[1]:
            raise DecodingError(f"the vocabulary of {score_BV.shape[1]} tokens has no id {largest} that is forbidden")
        return score_BV.masked_fill(_at(score_BV, (completions(_seen(row)) for row in rows)), -math.inf)

    return refuse


def no_end_before(count: int, ends: Set[int]) -> Filter:
    """Let no token that ends a row come before `count` tokens are written."""

    def refuse(score_BV: Tensor, rows: Sequence[Row]) -> Tensor:
        early = (sorted(ends) if len(row.written) < count else [] for row in rows)
        return score_BV.masked_fill(_at(score_BV, early), -math.inf)

    return refuse


def temperature(value: float) -> Narrowing:
    """Sharpen (below 1) or flatten (above 1) the distribution: score / value, for a value above 0."""

    def scale(score_BV: Tensor) -> Tensor:
        return score_BV / value

    return scale


def top_k(count: int) -> Narrowing:
    """Keep the `count` best tokens, at least one, and those that score as high as the last of them [fan2018]."""

    def keep(score_BV: Tensor) -> Tensor:
        least_B1 = score_BV.topk(min(count, score_BV.shape[1])).values[:, -1:]
        return score_BV.masked_fill(score_BV < least_B1, -math.inf)

    return keep


def top_p(mass: float) -> Narrowing:
    """Keep the fewest best tokens whose probabilities reach `mass`, at least the best one [holtzman2020]."""

    def keep(score_BV: Tensor) -> Tensor:
        sorted_BV, order_BV = score_BV.sort()
        dropped_BV = sorted_BV.softmax(-1).cumsum(-1) <= 1 - mass
        dropped_BV[:, -1] = False
        return score_BV.masked_fill(dropped_BV.scatter(1, order_BV, dropped_BV), -math.inf)

    return keep


def min_p(share: float) -> Narrowing:
    """Keep the tokens of at least `share` (above 0) of the best one's probability [nguyen2024]."""

    def keep(score_BV: Tensor) -> Tensor:
        least_B1 = score_BV.amax(-1, keepdim=True) + math.log(share)
        return score_BV.masked_fill(score_BV < least_B1, -math.inf)

    return keep


def typical(mass: float) -> Narrowing:
    """Keep the most typical tokens whose probabilities reach `mass` [meister2023].

    A token is typical when its surprise -log p is near what is to be expected, the entropy H = -Σ p log p.
    """

    def keep(score_BV: Tensor) -> Tensor:
        log_BV = score_BV.log_softmax(-1)
        entropy_B1 = -(log_BV * log_BV.exp()).nansum(-1, keepdim=True)
        distance_BV = (-log_BV - entropy_B1).abs()
        sorted_BV, order_BV = distance_BV.sort()
        below_BV = score_BV.gather(1, order_BV).softmax(-1).cumsum(-1) < mass
        last_B1 = below_BV.sum(-1, keepdim=True).clamp(max=score_BV.shape[1] - 1)
        return score_BV.masked_fill(distance_BV > sorted_BV.gather(1, last_B1), -math.inf)

    return keep


def draw(score_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token of each row at which the cumulated softmax of its scores passes its number in [0, 1).

    A row is drawn alike alone and in a batch, and no token of probability 0 is.
    """
    cumulated_BV = score_BV.double().softmax(-1).cumsum(-1)
    total_B = cumulated_BV[:, -1]
    if not (total_B > 0).all():
        raise DecodingError(f"no token is left that may come in row {int((total_B > 0).int().argmin())}: forbid less")
    return torch.searchsorted(cumulated_BV, (uniform_B.to(total_B) * total_B)[:, None], right=True)[:, 0]


def _seen(row: Row) -> list[int]:
    return [*row.prompt, *row.written]


def _at(score_BV: Tensor, tokens: Iterable[Iterable[int]]) -> Tensor:
    """True at these tokens of each row; one that has no score cannot come anyway."""
    size = score_BV.shape[1]
    places = [(row, token) for row, found in enumerate(tokens) for token in found if token < size]
    row_N, token_N = torch.tensor(places, dtype=torch.long, device=score_BV.device).view(-1, 2).unbind(1)
    mask_BV = torch.zeros_like(score_BV, dtype=torch.bool)
    mask_BV[row_N, token_N] = True
    return mask_BV
