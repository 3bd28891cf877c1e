"""Recordings: what passed the taps of a model, by name, with the letters of its axes; kept as safetensors.

A quantity is found by the name of its tap:

    seen["decoder.2.cross.weights"]    what passed there
        .axes                          "BHLM": rows, heads, queries, keys
        .tensor                        the one tensor of a whole pass
        .values, .steps                of a generation, a tensor for each step, and which step that was
        .whole()                       of a generation, the steps joined to what a whole pass would have shown
"""

import contextlib
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead import shapes
from clearhead.errors import ConfigError, DataError, ShapeError
from clearhead.nn.weights import write_tensors

__all__ = ["AXIS_NAMES", "Recording", "Seen"]

VERSION = 1
ABOUT = "clearhead_recording"
AXIS_NAMES: dict[str, str] = {
    "B": "row", "C": "class", "D": "feature", "F": "neuron", "G": "key-value head", "H": "head", "K": "head feature",
    "L": "query", "M": "key", "P": "slot", "T": "token", "V": "word", "W": "feature",
}  # fmt: skip


@dataclass
class Seen:
    """What passed one tap: a tensor each time, and the number of the step in which it did.

    axes    the letters of the dimensions, from the legend in `shapes.py`
    steps   a whole pass is step 0; layers that share a tap (ALBERT) pass it several times in one step
    """

    name: str
    axes: str
    values: list[Tensor] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The axes in words, for labels."""
        return tuple(AXIS_NAMES.get(letter, letter) for letter in self.axes)

    @property
    def tensor(self) -> Tensor:
        """The only tensor that passed; refused where several did."""
        if len(self.values) != 1:
            raise ShapeError(
                f"{self.name!r} was passed {len(self.values)} times: take one of `values`, or join them by `whole()`"
            )
        return self.values[0]

    def whole(self) -> Tensor:
        """The steps of a generation joined: along the queries where there are any, with keys not yet there as zeros."""
        if len(self.values) == 1:
            return self.values[0]
        if len(set(self.steps)) < len(self.steps):
            raise ShapeError(
                f"{self.name!r} was passed several times in one step, by layers that share it: see `values`"
            )
        along = next((letter for letter in "LTM" if letter in self.axes), None)
        if along is None or self.axes[:1] != "B" or len({len(value) for value in self.values}) > 1:
            raise ShapeError(f"the steps of {self.name!r} cannot be joined: they differ in more than their positions")
        if along == "M":  # those of a context pass whole at each step
            return self.values[-1]
        values = self.values
        if "M" in self.axes:
            keys = max(value.shape[self.axes.index("M")] for value in values)
            values = [_widened(value, self.axes.index("M"), keys) for value in values]
        return torch.cat(values, dim=self.axes.index(along))

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in self.values)


def _widened(x: Tensor, dim: int, size: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = size
    wide = x.new_zeros(shape)
    wide.narrow(dim, 0, x.shape[dim]).copy_(x)
    return wide


class Recording:
    """All that was asked for and passed, by the names of the taps; `tokens` are the texts, as the caller named them.

    >>> seen = Recording(tokens={"target": [["the", "cat"]]})
    >>> len(seen), seen.tokens["target"]
    (0, [['the', 'cat']])
    """

    def __init__(self, tokens: Mapping[str, Sequence[Sequence[str]]] | None = None) -> None:
        self.tokens: dict[str, list[list[str]]] = {
            side: [list(row) for row in rows] for side, rows in (tokens or {}).items()
        }
        self.passed: dict[str, Seen] = {}

    def __getitem__(self, name: str) -> Seen:
        if name not in self.passed:
            near = difflib.get_close_matches(name, self.passed, n=3) or sorted(self.passed)[:3]
            raise ConfigError(f"nothing named {name!r} was recorded; there are {len(self)} names, such as {near}")
        return self.passed[name]

    def __contains__(self, name: object) -> bool:
        return name in self.passed

    def __iter__(self) -> Iterator[str]:
        return iter(self.passed)

    def __len__(self) -> int:
        return len(self.passed)

    @property
    def nbytes(self) -> int:
        """The memory that the tensors take."""
        return sum(seen.nbytes for seen in self.passed.values())

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file; names, axes, steps and tokens stand in its header as JSON."""
        seen = [{"name": one.name, "axes": one.axes, "steps": one.steps} for one in self.passed.values()]
        about = {"version": VERSION, "tokens": self.tokens, "seen": seen}
        tensors = {_key(one.name, i): value for one in self.passed.values() for i, value in enumerate(one.values)}
        write_tensors(Path(path), tensors, {ABOUT: json.dumps(about)})

    @staticmethod
    def open(path: str | Path) -> "Recording":
        """Read what `save` wrote; a file that says anything else is refused."""
        with _refused(path), safe_open(path, "pt") as file:
            about = _checked(json.loads((file.metadata() or {}).get(ABOUT, "null")))
            recording = Recording(about["tokens"])
            for one in about["seen"]:
                name, axes, steps = one["name"], one["axes"], one["steps"]
                values = [file.get_tensor(_key(name, i)) for i in range(len(steps))]
                if any(value.dim() != len(axes) for value in values):
                    raise ValueError(f"{name!r} has not the axes {axes}")
                recording.passed[name] = Seen(name, axes, values, steps)
        return recording


def _key(name: str, index: int) -> str:
    return f"{name}@{index}"


@contextlib.contextmanager
def _refused(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"there is no recording at {str(path)!r}") from error
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        why = f"{error}"[:200] or type(error).__name__
        raise DataError(f"{str(path)!r} cannot be read as a recording: {why}") from error


def _checked(about: Any) -> dict[str, Any]:
    """What the header says, where it is of the right form; otherwise a ValueError that says what is not."""
    if not isinstance(about, dict) or about.get("version") != VERSION:
        raise ValueError(f"its header is not that of a recording of version {VERSION}")
    tokens, seen = about.get("tokens"), about.get("seen")
    if not isinstance(tokens, dict) or not all(_are_texts(rows) for rows in tokens.values()):
        raise ValueError("its tokens are not lists of texts")
    if not isinstance(seen, list) or not all(_is_seen(one) for one in seen):
        raise ValueError("its list of quantities is broken")
    return about


def _are_texts(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, list) and all(isinstance(token, str) for token in row) for row in rows
    )


def _is_seen(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and isinstance(one.get("axes"), str)
        and set(one["axes"]) <= shapes.LETTERS
        and isinstance(one.get("steps"), list)
        and all(isinstance(step, int) for step in one["steps"])
    )
