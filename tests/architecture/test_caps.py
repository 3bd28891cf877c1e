"""Files, functions and argument lists stay short, and nothing dangerous is called."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, python_files, tree_of

FILE_LINES = 400
FUNCTION_LINES = 60
ARGUMENTS = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec"}
FILES = python_files("src", "tests", "examples", "benchmarks")
SOURCES = python_files("src")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from `def` to the end, the docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def argument_count(function: Function) -> int:
    arguments = function.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def estimator_constructors(tree: ast.AST) -> set[Function]:
    """scikit-learn asks that every hyper-parameter be an argument of `__init__`."""
    return {
        statement
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith(("Estimator", "Mixin")) for base in node.bases)
        for statement in node.body
        if isinstance(statement, Function) and statement.name == "__init__"
    }


def long_functions(tree: ast.AST) -> list[str]:
    return [
        f"{function.name}: {length(function)} lines"
        for function in functions(tree)
        if length(function) > FUNCTION_LINES
    ]


def wide_functions(tree: ast.AST) -> list[str]:
    allowed = estimator_constructors(tree)
    return [
        f"{function.name}: {argument_count(function)} arguments"
        for function in functions(tree)
        if argument_count(function) > ARGUMENTS and function not in allowed
    ]


def dangers(tree: ast.AST) -> list[str]:
    """Bare `except`, `eval`, `exec`, pickling of any kind, `torch.load` that could unpickle, a shell."""
    return [f"line {line}: {what}" for node in ast.walk(tree) for line, what in _dangers_of(node)]


def _dangers_of(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.ExceptHandler(type=None):
            yield node.lineno, "bare except"
        case ast.Import(names=names):
            yield from ((node.lineno, name.name) for name in names if name.name.split(".")[0] in FORBIDDEN_MODULES)
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in FORBIDDEN_MODULES:
            yield node.lineno, module
        case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
            yield node.lineno, name
        case ast.Call(func=function, keywords=keywords):
            said = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
            if ast.unparse(function) == "torch.load" and said.get("weights_only") != "True":
                yield node.lineno, "torch.load without weights_only=True"
            if said.get("shell") == "True":
                yield node.lineno, "shell=True"
            if said.get("allow_pickle") == "True":
                yield node.lineno, "allow_pickle=True"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_functions_are_short(path: Path) -> None:
    assert long_functions(tree_of(path)) == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parent.name != "cli"], ids=relative)
def test_argument_lists_are_short(path: Path) -> None:
    assert wide_functions(tree_of(path)) == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_dangerous_is_called(path: Path) -> None:
    assert dangers(tree_of(path)) == []


def test_a_long_function_would_be_found() -> None:
    body = "\n".join(["    x = 1"] * FUNCTION_LINES)
    assert long_functions(ast.parse(f"def f():\n{body}")) == [f"f: {FUNCTION_LINES + 1} lines"]
    docstring = '    """' + "\n" * FUNCTION_LINES + '    """'
    assert long_functions(ast.parse(f"def f():\n{docstring}\n    return 1")) == []


def test_a_wide_function_would_be_found() -> None:
    arguments = ", ".join("abcdefghi")
    assert wide_functions(ast.parse(f"def f({arguments}): ...")) == ["f: 9 arguments"]
    assert wide_functions(ast.parse(f"def f(a, *, {arguments[3:]}): ...")) == ["f: 9 arguments"]
    assert wide_functions(ast.parse(f"class C:\n  def __init__(self, {arguments}): ...")) == ["__init__: 9 arguments"]
    assert wide_functions(ast.parse(f"class C(BaseEstimator):\n  def __init__(self, {arguments}): ...")) == []
    assert wide_functions(ast.parse(f"def f({arguments[:-3]}): ...")) == []


@pytest.mark.parametrize(
    "text",
    [
        "try: f()\nexcept: g()",
        "eval(text)",
        "exec(text)",
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "subprocess.run(command, shell=True)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_a_danger_would_be_found(text: str) -> None:
    assert len(dangers(ast.parse(text))) == 1


def test_safe_forms_are_left_alone() -> None:
    text = "try: f()\nexcept OSError: g()\nmodel.eval()\ntorch.load(path, weights_only=True)\nre.compile('x')"
    assert dangers(ast.parse(text)) == []
