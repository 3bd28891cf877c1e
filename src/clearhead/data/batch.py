"""Batches: which examples make up a step, as a pure function of seed, epoch and step.

Nothing here has a state, so the number of its step is all that a resumed run needs. Plans hold numbers of
examples; whoever holds the arrays fetches and pads them. With several ranks every rank makes the same plan and
takes its share of each batch.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.errors import ConfigError

__all__ = [
    "pad",
    "padding_share",
    "parallel_windows",
    "random_windows",
    "row_batches",
    "sequential_windows",
    "shard",
    "split",
    "token_batches",
]

Indices = NDArray[np.int64]
Plan = list[Indices]

POOL = 100  # in batches: larger ones have less padding, smaller ones mix better


def token_batches(lengths: ArrayLike, *, tokens: int, seed: int, epoch: int, pool: int = POOL) -> Plan:
    """One epoch's batches of examples of similar length, each example once.

    `lengths` is (examples,) or (examples, sides), two sides for pairs. A batch is as large as `tokens` allows:
    its number of rows times the longest of each side, so padding counts. Examples are shuffled, sorted by
    length within pools of about `pool` batches, and the batches shuffled.
    """
    sides = np.maximum(_as_sides(lengths), 1)
    if not len(sides):
        return []
    _check_budget(sides, tokens)
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(sides))
    size = max(1, round(pool * tokens / float(sides.max(axis=1).mean())))
    pools = [_by_length(order[start : start + size], sides) for start in range(0, len(order), size)]
    # Every second pool runs backwards, so that one ends with lengths like those with which the next begins.
    batches = _cut(np.concatenate([part[:: -1 if turn % 2 else 1] for turn, part in enumerate(pools)]), sides, tokens)
    return [batches[index] for index in rng.permutation(len(batches))]


def row_batches(count: int, *, rows: int, seed: int, epoch: int) -> Plan:
    """One epoch's batches of `rows` examples each (the last may be smaller), each example once."""
    if rows < 1:
        raise ConfigError(f"a batch needs at least one row: {rows=}")
    order = np.random.default_rng((seed, epoch)).permutation(count)
    return [order[start : start + rows] for start in range(0, count, rows)]


def random_windows(size: int, *, length: int, rows: int, seed: int, step: int) -> Indices:
    """(rows, 2): stretches [start, stop) of `length` tokens at random places of a stream of `size` tokens.

    A model that predicts the next token with a context of n wants `length = n + 1`.
    """
    _check_window(size, length)
    starts = np.random.default_rng((seed, step)).integers(0, size - length + 1, rows)
    return _spans(starts, length, size)


def sequential_windows(size: int, *, length: int) -> Indices:
    """(windows, 2): the whole stream in order, in stretches of `length` tokens of which the last may be shorter.

    Each stretch starts with the token that ended the one before: every token but the first is predicted once.
    """
    _check_window(size, min(length, size))
    return _spans(np.arange(0, size - 1, length - 1), length, size)


def parallel_windows(size: int, *, length: int, rows: int, step: int) -> Indices:
    """(rows, 2): as `rows` readers who share a stream out see it, each going on where its last stretch ended.

    For models that carry a memory from segment to segment. After the last whole stretch all begin again: the
    number of steps between is `(size // rows - 1) // (length - 1)`.
    """
    share = size // rows
    _check_window(share, length)
    turn = step % ((share - 1) // (length - 1))
    return _spans(np.arange(rows) * share + turn * (length - 1), length, size)


def split(indices: Indices, parts: int, lengths: ArrayLike | None = None) -> Plan:
    """A batch in `parts` consecutive parts, some maybe empty, with about the same number of tokens each.

    Without `lengths` (of all examples, as for `token_batches`) each example counts the same.
    """
    if parts < 1:
        raise ConfigError(f"a batch is split into at least one part: {parts=}")
    weights = np.ones(len(indices)) if lengths is None else _as_sides(lengths)[indices].sum(axis=1).astype(float)
    middles = np.cumsum(weights) - weights / 2
    cuts = np.searchsorted(middles, weights.sum() * np.arange(1, parts) / parts)
    return np.split(indices, cuts)


def shard(indices: Indices, rank: int, world: int, lengths: ArrayLike | None = None) -> Indices:
    """The part of a global batch that belongs to `rank`."""
    if not 0 <= rank < world:
        raise ConfigError(f"a rank lies between 0 and the number of ranks: {rank=}, {world=}")
    return split(indices, world, lengths)[rank]


def pad(rows: Sequence[ArrayLike], value: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of ids as one array (B, L), `value` behind each row's end, and the number of real ids of each (B,).

    >>> pad([[5, 6], [7]], 0)[0].tolist()
    [[5, 6], [7, 0]]
    """
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    counts = np.array([len(row) for row in arrays], dtype=np.int64)
    padded = np.full((len(arrays), counts.max(initial=0)), value, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < counts[:, None]] = np.concatenate([np.empty(0, np.int64), *arrays])
    return padded, counts


def padding_share(batches: Sequence[Indices], lengths: ArrayLike) -> float:
    """Which share of the positions of all batches, on all sides, is padding."""
    sides = _as_sides(lengths)
    positions = sum(int(sides[batch].max(axis=0).sum()) * len(batch) for batch in batches if len(batch))
    return 1 - sum(int(sides[batch].sum()) for batch in batches) / positions if positions else 0.0


def _as_sides(lengths: ArrayLike) -> NDArray[np.int64]:
    sides = np.asarray(lengths, dtype=np.int64)
    return sides[:, None] if sides.ndim == 1 else sides


def _by_length(indices: Indices, sides: NDArray[np.int64]) -> Indices:
    """Sorted by the longer side, which decides what fits, then by how much longer it is, up and down by turns."""
    longest = sides[indices].max(axis=1)
    lead = sides[indices, 0] - sides[indices, -1]
    return indices[np.lexsort((np.where(longest % 2, -lead, lead), longest))]


def _cut(order: Indices, sides: NDArray[np.int64], tokens: int) -> Plan:
    """Cut as few batches as fit the budget, in this order."""
    batches: Plan = []
    start = 0
    while start < len(order):
        most = tokens // int(sides[order[start]].max())
        longest = np.maximum.accumulate(sides[order[start : start + most]]).max(axis=1)
        fitting = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= tokens))
        batches.append(order[start : start + fitting])
        start += fitting
    return batches


def _check_budget(sides: NDArray[np.int64], tokens: int) -> None:
    worst = int(sides.max(axis=1).argmax())
    longest = int(sides[worst].max())
    if longest > tokens:
        raise ConfigError(f"example {worst} has {longest} tokens, more than a batch may have: {tokens=}; "
                          f"raise it or leave out such long examples")  # fmt: skip


def _check_window(size: int, length: int) -> None:
    if not 2 <= length <= size:
        raise ConfigError(f"windows of at least 2 tokens must fit into the text: {length=}, tokens there: {size}")


def _spans(starts: Indices, length: int, size: int) -> Indices:
    return np.stack([starts, np.minimum(starts + length, size)], axis=1)
