"""Small sentencepiece models, trained by sentencepiece itself."""

import io
from pathlib import Path
from typing import Any

import pytest

__all__ = ["LLAMA", "TEXTS", "train_model"]

spm = pytest.importorskip("sentencepiece")

TEXTS = [
    "Je suis étudiant, et toi ?",
    "The animal didn't cross the street because it was too tired.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "日本語のテキスト 2024 — naïve façade № 😀",
    "def f(x): return x  # <b>tag</b>",
    "  two  spaces ",
    "ＦＵＬＬ　ｗｉｄｔｈ ﬁne ①",
    "",
]

# As Llama's was trained.
LLAMA: dict[str, Any] = {
    "model_type": "bpe",
    "vocab_size": 450,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
}


def train_model(path: Path, texts: list[str] = TEXTS, **options: Any) -> Path:
    """Write a model file of the options that sentencepiece's trainer takes."""
    written = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 4), model_writer=written, minloglevel=2, hard_vocab_limit=False, **options
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written.getvalue())
    return path
