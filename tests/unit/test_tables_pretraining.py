"""Pre-training on rows without labels, and the fit that goes on from it."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from clearhead.errors import ConfigError
from clearhead.nn.members import member_weights
from clearhead.tasks.table_estimators import TableClassifier
from clearhead.tasks.table_pretrain import PRETEXTS
from tests.unit.small_tables import classifier, frame


@pytest.mark.parametrize("method", sorted(PRETEXTS))
@pytest.mark.parametrize("kind", ["ft", "tab"])
def test_pretraining_learns_and_is_where_the_fit_begins(method: str, kind: str) -> None:
    X, y = frame(200)
    X["e"] = X["a"] * 2
    X.loc[7, "d"] = "once"  # learned from, or met for the first time in validation
    model = classifier(kind=kind, epochs=8, patience=20, n_ensemble=2).pretrain(X, method=method)
    course = model.pretrained_.course
    assert course.history[-1] < course.history[0]
    start = [{name: tensor.clone() for name, tensor in own.items()} for own in model.pretrained_.weights]
    assert not any(name.startswith(("head", "mlp")) for own in start for name in own)
    model.set_params(epochs=1, learning_rate=1e-12).fit(X.iloc[:20], y[:20])
    for s, own in enumerate(start):
        after = member_weights(model.fitted_.model, s)
        for name, tensor in own.items():
            torch.testing.assert_close(after[name], tensor)
    with pytest.raises(ConfigError, match="was with n_ensemble=2, and it is now 1: pre-train again"):
        clone_with_memory(model).fit(X, y)
    missing = X.iloc[:3].astype({"a": object}).assign(a=None, c="new")
    assert np.isfinite(model.predict_proba(missing)).all()
    assert not hasattr(clone(model), "pretrained_")


def clone_with_memory(model: TableClassifier) -> TableClassifier:
    """One member alone, with what two have learned."""
    alone = clone(model).set_params(n_ensemble=1)
    alone.pretrained_ = model.pretrained_
    return alone


def test_pretraining_refuses_what_it_cannot() -> None:
    X, _ = frame()
    with pytest.raises(ConfigError, match="numbers='quantiles'"):
        classifier(numbers="trees").pretrain(X)
    with pytest.raises(ConfigError, match=r"unknown method of pre-training 'masks': did you mean 'mask'"):
        classifier().pretrain(X, method="masks")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        classifier().pretrain(X, rate=0.0)
    assert classifier(numbers="quantiles", epochs=1).pretrain(X).pretrained_.config.bins


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layers": 2}, "was with layers=1, and it is now 2"),
        ({"kind": "tab"}, "was with model='FTTransformer', and it is now 'TabTransformer'"),
        ({"scaling": "none"}, "was with scaling='quantile', and it is now 'none'"),
        ({"numbers": "periodic"}, "was with embedding='linear', and it is now 'periodic'"),
    ],
)
def test_a_fit_goes_on_with_the_settings_of_pretraining(changes: dict[str, Any], sentence: str) -> None:
    X, y = frame(40)
    model = classifier(epochs=1).pretrain(X).set_params(**changes)
    with pytest.raises(ConfigError, match=sentence):
        model.fit(X, y)


def test_a_fit_has_its_own_dropout_after_pretraining() -> None:
    X, y = frame(40)
    model = classifier(epochs=1, dropout=0.5).pretrain(X).set_params(dropout=0.25, unseen=0.125).fit(X, y)
    assert model.fitted_.config.attention_dropout == 0.25
    assert model.fitted_.config.unseen == 0.125
