"""Values from a file as the types that they should have; what does not fit is refused in one sentence."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from clearhead.errors import ClearheadError, ConfigError

__all__ = ["as_dataclass", "complaint", "line_of", "unknown_key"]

Kind = TypeVar("Kind")


def as_dataclass(kind: type[Kind], values: Mapping[str, Any], place: str) -> Kind:
    """The dataclass with these values: every name known, every type right; `place` is where the values stand."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ConfigError(unknown_key(f"{place}.{name}", known))
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(complaint(error, place=place)) from error


def unknown_key(place: str, known: Iterable[str]) -> str:
    """`train.stpes: unknown key, did you mean 'steps'?`"""
    names = sorted(known)
    near = difflib.get_close_matches(place.rpartition(".")[2], names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    return f"{place}: unknown key, {hint}"


def complaint(error: ValidationError, *, place: str = "", known: Mapping[str, Iterable[str]] | None = None) -> str:
    """The first thing that is wrong, in one sentence; `known` gives the keys of each section."""
    first = error.errors()[0]
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, ClearheadError):
        return str(inner)
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    where = ".".join([place, *path] if place else path)
    if first["type"] == "extra_forbidden":
        return unknown_key(where, (known or {}).get(".".join(path[:-1]), ()))
    if first["type"] == "missing":
        return f"{where}: this key is needed and not there"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]}, not {first['input']!r}"


def line_of(text: str, key: str) -> int | None:
    """The line of a YAML text on which `key` stands, or the nearest section above it; None where there is neither.

    >>> line_of("task: translation\\ntrain:\\n  stpes: 10", "train.stpes")
    3
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = None
    for part in key.split("."):
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        found = next(((name, value) for name, value in entries if name.value == part), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line
