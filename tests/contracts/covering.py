"""Settings to test: a set that covers every pair of values, and a larger random sample."""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

Setting = dict[str, Any]


def pairwise(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[Setting]:
    """Settings in which every pair of values of two factors occurs at least once (greedy, deterministic)."""
    draw = random.Random(seed)
    names = list(factors)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]}
    order = {name: i for i, name in enumerate(names)}

    def gain(setting: Setting, name: str, value: Any) -> int:
        pairs = (sorted([(name, value), pair], key=lambda p: order[p[0]]) for pair in setting.items())
        return sum(tuple(pair) in missing for pair in pairs)

    settings = []
    while missing:
        (a, x), (b, y) = min(missing, key=repr)
        setting = {a: x, b: y}
        for name in draw.sample(names, len(names)):
            if name not in setting:
                values = draw.sample(list(factors[name]), len(factors[name]))
                setting[name] = max(values, key=lambda value, name=name: gain(setting, name, value))
        setting = {name: setting[name] for name in names}
        missing -= {tuple(pair) for pair in itertools.combinations(setting.items(), 2)}
        settings.append(setting)
    return settings


def each(factors: Mapping[str, Sequence[Any]], per: str, seed: int = 0) -> list[Setting]:
    """Settings in which every value of every factor occurs at least once with each value of the factor `per`."""
    draw = random.Random(seed)
    columns = {name: draw.sample(list(values), len(values)) for name, values in factors.items() if name != per}
    rounds = max(map(len, columns.values()))
    return [
        {per: chosen, **{name: values[i % len(values)] for name, values in columns.items()}}
        for chosen in factors[per]
        for i in range(rounds)
    ]


def sample(factors: Mapping[str, Sequence[Any]], count: int, seed: int = 1) -> list[Setting]:
    """`count` settings drawn at random."""
    draw = random.Random(seed)
    return [{name: draw.choice(list(values)) for name, values in factors.items()} for _ in range(count)]


def label(setting: Setting) -> str:
    """A readable test id."""
    return "-".join(str(value) for value in setting.values())
