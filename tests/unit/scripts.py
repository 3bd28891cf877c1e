"""The scripts of `examples/` and `benchmarks/` as modules."""

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.conftest import ROOT

__all__ = ["benchmark", "example"]


def example(name: str) -> ModuleType:
    """`examples/NAME.py`, read anew; it does not run what it does as a script."""
    return _read("examples", name)


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benchmarks/NAME.py` likewise, which finds its neighbours as it does when it is run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return _read("benchmarks", name)


def _read(folder: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{folder}.{name}", ROOT / folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass in it asks for it
    spec.loader.exec_module(module)
    return module
