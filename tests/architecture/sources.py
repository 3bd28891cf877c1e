"""The project's own source text, for the tests that read it."""

import ast
from pathlib import Path

__all__ = ["PACKAGE", "ROOT", "module_name", "python_files", "tree_of"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "clearhead"


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the named folders of the repository."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: Path) -> str:
    """`src/clearhead/nn/masks.py` -> `clearhead.nn.masks`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
