"""clearhead: the whole Transformer in the open.

What most programs need is here; everything else is imported from the file that defines it.

>>> from clearhead import Translator
>>> Translator.__module__
'clearhead.tasks.translator'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.errors import ClearheadError
    from clearhead.models.presets import build
    from clearhead.tasks.image_classifier import ImageClassifier
    from clearhead.tasks.language_model import LanguageModel
    from clearhead.tasks.masked_model import MaskedModel
    from clearhead.tasks.registry import load
    from clearhead.tasks.sentence_encoder import SentenceEncoder
    from clearhead.tasks.table_estimators import TableClassifier, TableRegressor
    from clearhead.tasks.text_classifier import TextClassifier
    from clearhead.tasks.token_classifier import TokenClassifier
    from clearhead.tasks.translator import Translator
    from clearhead.tasks.viewing import Viewer

__all__ = [
    "ClearheadError",
    "ImageClassifier",
    "LanguageModel",
    "MaskedModel",
    "SentenceEncoder",
    "TableClassifier",
    "TableRegressor",
    "TextClassifier",
    "TokenClassifier",
    "Translator",
    "Viewer",
    "__version__",
    "build",
    "load",
]

__version__ = "0.1.0"

# name -> the file that defines it, which is imported when the name is first asked for: PyTorch takes a second
DEFINED_IN = {
    "ClearheadError": "errors",
    "ImageClassifier": "tasks.image_classifier",
    "LanguageModel": "tasks.language_model",
    "MaskedModel": "tasks.masked_model",
    "SentenceEncoder": "tasks.sentence_encoder",
    "TableClassifier": "tasks.table_estimators",
    "TableRegressor": "tasks.table_estimators",
    "TextClassifier": "tasks.text_classifier",
    "TokenClassifier": "tasks.token_classifier",
    "Translator": "tasks.translator",
    "Viewer": "tasks.viewing",
    "build": "models.presets",
    "load": "tasks.registry",
}


def __getattr__(name: str) -> Any:
    if name not in DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{DEFINED_IN[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
