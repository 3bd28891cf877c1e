"""The command line inside the test's own process, and a recipe that trains in a blink."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from clearhead.cli.main import main

__all__ = ["PAIRS", "Done", "refusal", "run", "write_pairs", "write_recipe"]

PAIRS = [("le chat dort", "the cat sleeps"), ("le chien dort", "the dog sleeps"), ("un chat court", "a cat runs")]

SMALL = {"width": 16, "heads": 2, "hidden": 16}
MODELS = {
    "translation": {"preset": "transformer-tiny", **SMALL, "encoder_layers": 1, "decoder_layers": 1},
    "language_model": {"preset": "gpt-tiny", **SMALL, "layers": 1, "length": 16},
    "masked_model": {"preset": "bert-tiny", **SMALL, "layers": 1, "length": 16},
    "text_classification": {"preset": "bert-tiny", **SMALL, "layers": 1, "length": 16},
    "token_classification": {"preset": "bert-tiny", **SMALL, "layers": 1, "length": 16},
}


class Done(NamedTuple):
    """How a call ended: its exit code, and what it said."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path, stdin: bytes = b"") -> Done:
    """Call `clearhead` with these arguments, and with that on its stdin."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as leaving:
            main([str(argument) for argument in arguments])
    return Done(int(leaving.value.code or 0), *capsys.readouterr())


def refusal(done: Done) -> str:
    """The one sentence by which a call refused its input."""
    assert done.code == 1, done
    assert done.out == ""
    *_, last = done.err.splitlines()
    assert last.startswith("clearhead: ")
    assert "Traceback" not in done.err
    return last.removeprefix("clearhead: ")


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]] = PAIRS) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def write_recipe(folder: Path, task: str = "translation", *, steps: int = 2, **data: object) -> Path:
    """A recipe of that task at the smallest size; pairs to learn from are there unless `data` says otherwise."""
    given = data or {"train": str(write_pairs(folder / "train.tsv"))}
    recipe = {
        "task": task,
        "data": given,
        "tokenizer": {"kind": "word", "vocabulary": 60},
        "model": MODELS[task],
        "train": {"steps": steps, "tokens": 64, "rows": 2, "schedule": "constant", "progress": "quiet", "log_every": 1},
    }
    path = folder / f"{task}.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path
