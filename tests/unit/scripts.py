"""The scripts of `examples/` as modules."""

import importlib.util
import sys
from types import ModuleType

from tests.conftest import ROOT

__all__ = ["example"]


def example(name: str) -> ModuleType:
    """`examples/NAME.py`, read anew; it does not run what it does as a script."""
    spec = importlib.util.spec_from_file_location(f"examples.{name}", ROOT / "examples" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass in it asks for it
    spec.loader.exec_module(module)
    return module
