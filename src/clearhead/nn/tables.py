"""Looking a name up in a table, and checking sizes and rates, with a helpful answer where these cannot be."""

import difflib
from collections.abc import Mapping
from numbers import Integral
from typing import SupportsFloat, TypeVar

from clearhead.errors import ConfigError

__all__ = ["check_rates", "check_sizes", "pick"]

Row = TypeVar("Row")


def pick(table: Mapping[str, Row], name: str, what: str) -> Row:
    """The row of that name.

    >>> pick({"relu": 1, "gelu": 2}, "rellu", "feedforward")
    Traceback (most recent call last):
    clearhead.errors.ConfigError: unknown feedforward 'rellu': did you mean 'relu'? There are gelu, relu
    """
    if not isinstance(name, str):
        raise ConfigError(f"{what} is a name, one of {', '.join(sorted(table))}: not {name!r}")
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown {what} {name!r}: {hint}There are {', '.join(sorted(table))}")
    return table[name]


def check_sizes(config: object, *names: str, least: int = 1) -> None:
    """These fields of a config, where they are set, are whole numbers, and at least that large."""
    for name in names:
        size = getattr(config, name)
        if size is not None and not isinstance(size, Integral):
            raise ConfigError(f"{name} must be a whole number, at least {least}: {name}={size!r}")
        if size is not None and size < least:
            raise ConfigError(f"{name} must be at least {least}: {name}={size}")


def check_rates(config: object, *names: str) -> None:
    """These fields of a config, where they are set, are probabilities of dropout."""
    for name in names:
        rate = getattr(config, name)
        if rate is not None and not (isinstance(rate, SupportsFloat) and 0 <= float(rate) < 1):
            raise ConfigError(f"{name} must be at least 0 and below 1: {name}={rate!r}")
