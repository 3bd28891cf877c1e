"""A tensor's name ends with its dimensions, in letters of the one legend."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead import shapes
from tests.architecture.sources import ROOT, python_files, tree_of

SUFFIX = re.compile(r"[a-z][a-z0-9_]*_([A-Z1]*[A-Z][A-Z1]*)")


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name):
                yield name


def unknown_letters(tree: ast.AST) -> list[str]:
    """Names such as `x_BXD` whose suffix holds a letter outside the legend; 1 is a dimension of size one."""
    found = {(name, match[1]) for name in names(tree) if (match := SUFFIX.fullmatch(name.lstrip("_")))}
    return sorted(name for name, suffix in found if not set(suffix) <= shapes.LETTERS | {"1"})


@pytest.mark.parametrize("path", python_files("src"), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_suffixes_are_in_the_legend(path: Path) -> None:
    assert unknown_letters(tree_of(path)) == []


def test_the_legend_explains_each_letter_once() -> None:
    explained = re.findall(r"^\| ([A-Z]) \|", shapes.__doc__ or "", flags=re.MULTILINE)
    assert sorted(explained) == sorted(shapes.LETTERS)


def test_an_unknown_letter_would_be_found() -> None:
    text = "x_BLY = f(x_BLD)\ndef f(mask_1LY, *, k_BHMK): return self.cache_Q\ng(w_Z=1)"
    assert unknown_letters(ast.parse(text)) == ["cache_Q", "mask_1LY", "w_Z", "x_BLY"]


def test_constants_and_plain_names_are_left_alone() -> None:
    assert unknown_letters(ast.parse("MAX_SIZE = max_size = x_1 = _Q = HF_HUB\nx_B1LM = mask_1LM")) == []
