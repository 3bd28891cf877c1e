"""Imports go strictly downward (import-linter, contracts in pyproject.toml), and to the defining file."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, ROOT, python_files, tree_of

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"
MODULES = [
    *("cli.main", "serve.api", "lab.claims", "tasks.translator", "evaluate.bleu"),
    *("train.loop", "generate.beam", "look.capture", "convert.load", "draw.matrix"),
    *("models.gpt", "models.bert", "models.presets", "nn.masks", "data.batch"),
    *("tap", "shapes", "errors"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """The project's contracts, applied to the package `clearhead` below `folder`."""
    return subprocess.run(
        [sys.executable, "-c", LINT, str(ROOT / "pyproject.toml")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def build_package(folder: Path, imports: dict[str, str]) -> None:
    """A package of the same shape, empty but for the given imports."""
    for module in MODULES:
        path = (folder / "clearhead").joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(f"import clearhead.{imports[module]}\n" if module in imports else "")
    (folder / "clearhead" / "__init__.py").touch()


def uses_torch_nn(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(name.name.startswith("torch.nn") for name in names):
                return True
            case ast.ImportFrom(module=str(module)) if module.startswith("torch.nn"):
                return True
            case ast.ImportFrom(module="torch", names=names) if any(name.name == "nn" for name in names):
                return True
            case ast.Attribute(value=ast.Name(id="torch"), attr="nn"):
                return True
    return False


def test_contracts_hold() -> None:
    done = lint(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_that_are_allowed(tmp_path: Path) -> None:
    allowed = {"models.presets": "models.gpt", "tasks.translator": "draw.matrix", "nn.masks": "errors", "tap": "errors"}
    build_package(tmp_path, allowed)
    done = lint(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("nn.masks", "data.batch"),
        ("nn.masks", "models.gpt"),
        ("train.loop", "generate.beam"),
        ("look.capture", "draw.matrix"),
        ("tasks.translator", "cli.main"),
        ("errors", "nn.masks"),
        ("models.gpt", "models.bert"),
        ("models.gpt", "models.presets"),
    ],
)
def test_an_import_upward_or_sideways_would_be_found(tmp_path: Path, importer: str, imported: str) -> None:
    build_package(tmp_path, {importer: imported})
    done = lint(tmp_path)
    assert done.returncode == 1
    assert f"clearhead.{importer} -> clearhead.{imported}" in done.stdout


def test_a_folder_without_a_layer_would_be_found(tmp_path: Path) -> None:
    build_package(tmp_path, {})
    (tmp_path / "clearhead" / "helpers.py").touch()
    assert lint(tmp_path).returncode == 1


def test_folders_hide_nothing_in_their_init() -> None:
    full = [path for path in PACKAGE.glob("*/**/__init__.py") if tree_of(path).body]
    assert full == [], "import from the defining file: the __init__.py of a folder stays empty"


@pytest.mark.parametrize("path", python_files("src/clearhead/data"), ids=lambda path: path.name)
def test_data_knows_no_modules(path: Path) -> None:
    assert not uses_torch_nn(tree_of(path))


@pytest.mark.parametrize(
    "text",
    [
        "import torch.nn",
        "import torch.nn.functional as F",
        "from torch import Tensor, nn",
        "from torch.nn import Linear",
        "import torch\nx = torch.nn.Linear(1, 1)",
    ],
)
def test_a_module_in_data_would_be_found(text: str) -> None:
    assert uses_torch_nn(ast.parse(text))
    assert not uses_torch_nn(ast.parse("import torch\nfrom torch import Tensor\nfrom torch.utils.data import Dataset"))
