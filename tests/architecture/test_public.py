"""`__all__` is exact: what a module offers is in it, what is in it exists, and nothing else is imported from there."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clearhead
from tests.architecture.sources import ROOT, module_name, python_files, tree_of

FILES = python_files("src")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def declared(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`, or None where there is none."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
    return None


def defined(tree: ast.Module) -> Iterator[str]:
    """Every name that the module itself binds at its top level, imports left out."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def slips(tree: ast.Module) -> list[str]:
    """What is wrong with `__all__`. Constants and type aliases may stay out of it, functions and classes may not."""
    listed = declared(tree)
    offered = {node.name for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")}
    if listed is None:
        return ["no __all__"] if offered else []
    return sorted(
        [f"missing in __all__: {name}" for name in offered - set(listed)]
        + [f"in __all__ but not defined here: {name}" for name in set(listed) - set(defined(tree))]
        + [f"twice in __all__: {name}" for name in set(listed) if listed.count(name) > 1]
    )


def taken_unoffered(tree: ast.Module, offers: dict[str, set[str]]) -> list[str]:
    """Names imported from a module of ours that are not in its `__all__`."""
    return sorted(
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in offers
        for alias in node.names
        if alias.name not in offers[node.module] and f"{node.module}.{alias.name}" not in offers
    )


@pytest.fixture(scope="module")
def offers() -> dict[str, set[str]]:
    found = {module_name(path): set(declared(tree_of(path)) or ()) for path in FILES}
    found["clearhead"].add("__version__")
    return found


# The root is where the public names of the whole package meet; it defines none of them.
@pytest.mark.parametrize(
    "path",
    [path for path in FILES if module_name(path) != "clearhead"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_all_is_exact(path: Path) -> None:
    assert slips(tree_of(path)) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_offered_names_are_imported(path: Path, offers: dict[str, set[str]]) -> None:
    assert taken_unoffered(tree_of(path), offers) == []


@pytest.mark.parametrize(
    ("text", "slip"),
    [
        ("def f(): ...", "no __all__"),
        ("__all__ = []\nclass C: ...", "missing in __all__: C"),
        ("__all__ = ['f']", "in __all__ but not defined here: f"),
        ("from x import f\n__all__ = ['f']", "in __all__ but not defined here: f"),
        ("__all__ = ['f', 'f']\ndef f(): ...", "twice in __all__: f"),
    ],
)
def test_a_slip_would_be_found(text: str, slip: str) -> None:
    assert slips(ast.parse(text)) == [slip]


def test_exact_lists_are_left_alone() -> None:
    text = "__all__ = ['A', 'f']\nA: int = 1\nLIMIT, _B = 2, 3\ndef f(): ...\ndef _g(): ..."
    assert slips(ast.parse(text)) == []
    assert slips(ast.parse("LETTERS = 'abc'")) == []


def test_a_borrowed_private_name_would_be_found() -> None:
    offers = {"clearhead.nn.masks": {"causal"}, "clearhead.nn": set()}
    text = "from clearhead.nn.masks import causal, _helper\nfrom clearhead.nn import masks\nfrom torch import nn"
    assert taken_unoffered(ast.parse(text), offers) == ["clearhead.nn.masks._helper"]


def test_the_package_offers_what_it_says_without_importing_it() -> None:
    """`import clearhead` is quick; each public name is found where it is said to be defined, and a checker sees it."""
    alone = "import sys, clearhead; assert not {'torch', 'numpy'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", alone], check=True, timeout=60)
    names = {*clearhead.__all__} - {"__version__"}
    assert {*clearhead.DEFINED_IN} == names
    for name in names:
        assert getattr(clearhead, name).__module__ == f"clearhead.{clearhead.DEFINED_IN[name]}"
        assert name in dir(clearhead)
    seen = next(node for node in tree_of(ROOT / "src/clearhead/__init__.py").body if isinstance(node, ast.If))
    shown = {
        (f"{node.module}", alias.name)
        for node in ast.walk(seen)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == {(f"clearhead.{place}", name) for name, place in clearhead.DEFINED_IN.items()}
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = clearhead.Translater
