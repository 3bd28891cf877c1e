"""Toy tasks on sequences of symbols, for experiments: copy, reverse, sort, associative recall.

    from clearhead.data.tasks import examples
    examples("reverse", 2, length=3, symbols=10, seed=0)

Tokens are integers. The first four are what our tokenizers have there too, and no example contains them:
0 `<pad>`, 1 `<unk>`, 2 `<bos>`, 3 `<eos>`. Symbol number i is the token `FIRST + i`, so that a model for
`symbols` symbols needs a vocabulary of `FIRST + symbols`.

| task | source | target |
|---|---|---|
| copy | `length` symbols | the same |
| reverse | `length` symbols | the same from the last to the first |
| sort | `length` symbols, repeated ones too | the same, the smallest token first |
| recall | `length` pairs of a key and a value, then one of the keys: k₁ v₁ k₂ v₂ … kᵢ | that key's value: vᵢ |

In recall the keys are the lower half of the symbols, no key twice in one source, and the values the upper half.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from clearhead.errors import ConfigError

__all__ = ["FIRST", "TASKS", "Example", "Task", "examples"]

FIRST = 4


class Example(NamedTuple):
    """Tokens in, tokens out."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class Task:
    """A toy task: what it asks for, one example of it, and how many symbols it needs at least for a length."""

    summary: str
    make: Callable[[random.Random, int, int], Example]
    least_symbols: Callable[[int], int]


def _symbols(dice: random.Random, length: int, symbols: int) -> list[int]:
    return [FIRST + dice.randrange(symbols) for _ in range(length)]


def _copy(dice: random.Random, length: int, symbols: int) -> Example:
    source = _symbols(dice, length, symbols)
    return Example(source, source[:])


def _reverse(dice: random.Random, length: int, symbols: int) -> Example:
    source = _symbols(dice, length, symbols)
    return Example(source, source[::-1])


def _sort(dice: random.Random, length: int, symbols: int) -> Example:
    source = _symbols(dice, length, symbols)
    return Example(source, sorted(source))


def _recall(dice: random.Random, length: int, symbols: int) -> Example:
    half = symbols // 2
    keys = dice.sample(range(FIRST, FIRST + half), length)
    values = [FIRST + half + dice.randrange(symbols - half) for _ in keys]
    asked = dice.randrange(length)
    pairs = [token for pair in zip(keys, values, strict=True) for token in pair]
    return Example([*pairs, keys[asked]], [values[asked]])


TASKS: dict[str, Task] = {
    "copy": Task("say the source again", _copy, lambda length: 1),
    "reverse": Task("say the source backwards", _reverse, lambda length: 1),
    "sort": Task("say the source in order", _sort, lambda length: 1),
    "recall": Task("say the value that stood beside the key", _recall, lambda length: 2 * length),
}


def examples(name: str, count: int, *, length: int, symbols: int, seed: int) -> list[Example]:
    """`count` examples of the task `name`; a pure function of its arguments, and the first ones of any larger count."""
    if name not in TASKS:
        raise ConfigError(f"no toy task is named {name!r}; there are {', '.join(TASKS)}")
    task = TASKS[name]
    if length < 1 or count < 0:
        raise ConfigError(f"{name} wants a length of 1 or more and a count of 0 or more: {length=}, {count=}")
    if symbols < task.least_symbols(length):
        raise ConfigError(f"{name} of length {length} wants {task.least_symbols(length)} symbols or more: {symbols=}")
    dice = random.Random(seed)
    return [task.make(dice, length, symbols) for _ in range(count)]
