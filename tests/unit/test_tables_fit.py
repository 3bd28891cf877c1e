"""The estimators: what they learn, how they stop, what they keep."""

import io
import json
import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from clearhead.data.table_files import any_table
from clearhead.errors import CheckpointError, ClearheadError, ConfigError, DataError
from clearhead.models.ft_transformer import FTTransformer, FTTransformerConfig
from clearhead.nn.members import InTurn, member_weights, side_by_side
from clearhead.tap import watching
from clearhead.tasks.table_build import EMBEDDINGS
from clearhead.tasks.table_estimators import TableClassifier, TableRegressor, load_estimator
from clearhead.tasks.table_fit import Fitting, Rows, _Best, _optimizer, fit_members, usual_batch
from clearhead.tasks.table_inputs import held_out
from clearhead.tasks.table_objective import OBJECTIVES
from clearhead.train.step import DivergenceError
from tests.unit.small_tables import classifier, frame, regressor

PLAIN = FTTransformerConfig(
    numbers=2, outputs=1, width=8, heads=2, hidden=10, layers=2, attention_dropout=0.0, hidden_dropout=0.0
)


def rows(count: int = 40, seed: int = 0) -> Rows:
    random = torch.Generator().manual_seed(seed)
    number_BC = torch.randn(count, 2, generator=random)
    return Rows(number_BC, torch.empty(count, 0, dtype=torch.long), number_BC[:, :1] * 2, torch.ones(count))


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize("kind", ["ft", "tab"])
def test_an_interaction_is_learned(kind: str) -> None:
    X, y = frame(400)
    model = classifier(kind=kind, width=16, epochs=40, patience=40).fit(X, y)
    asked, truth = frame(200, seed=1)
    assert model.score(asked, truth) > 0.9
    assert model.n_iter_ <= 40


@pytest.mark.parametrize("numbers", sorted(EMBEDDINGS))
def test_every_embedding_of_numbers_learns(numbers: str) -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    model = regressor(numbers=numbers, bins=8, epochs=30, learning_rate=0.01).fit(X, np.abs(X[:, 0]))
    assert model.score(X, np.abs(X[:, 0])) > 0.5


def test_several_targets_and_several_classes() -> None:
    X, _ = frame()
    Y = np.stack([X["a"], X["b"], X["a"] - X["b"]], axis=1)
    assert regressor().fit(X, Y).predict(X).shape == (96, 3)
    labels = np.array(["x", "y", "z"])[np.arange(96) % 3]
    model = classifier().fit(X, labels)
    assert model.predict_proba(X).shape == (96, 3)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert set(model.predict(X)) <= set(labels)


def test_weights_of_rows_and_classes_matter() -> None:
    X = np.zeros((60, 1)) + np.arange(60)[:, None] % 2  # says nothing of the target
    y = (np.arange(60) % 3 == 0).astype(int)
    often = classifier(epochs=20).fit(X, y).predict_proba(X)[:, 1].mean()
    heavy = classifier(epochs=20).fit(X, y, sample_weight=np.where(y == 1, 10.0, 1.0)).predict_proba(X)[:, 1].mean()
    balanced = classifier(epochs=20, class_weight="balanced").fit(X, y).predict_proba(X)[:, 1].mean()
    assert often < balanced < heavy
    assert balanced == pytest.approx(0.5, abs=0.1)


def test_rows_of_no_weight_are_not_there() -> None:
    X, y = frame()
    weight = (np.arange(96) % 2).astype(float)
    y[weight == 0] = "nonsense"
    model = classifier(validation_fraction=0.0).fit(X, y, sample_weight=weight)
    assert model.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="zero"):
        classifier().fit(X, y, sample_weight=np.zeros(96))


def test_the_same_seed_gives_the_same_model_and_leaves_the_generator() -> None:
    X, y = frame()
    before = torch.get_rng_state()
    one, two = (classifier(epochs=2, dropout=0.2).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert torch.equal(before, torch.get_rng_state())
    assert (classifier(epochs=2, random_state=1).fit(X, y).predict_proba(X) != one).any()


def test_a_row_answers_alike_alone_and_in_a_batch() -> None:
    X, y = frame(70)
    model = classifier(epochs=1, n_ensemble=2).fit(X, y)
    alone = np.concatenate([model.predict_proba(X.iloc[[i]]) for i in range(70)])
    # Not to the bit: some processors multiply odd widths, as this model has, in an order that depends on a row's place.
    np.testing.assert_allclose(alone, model.predict_proba(X), rtol=0, atol=1e-6)


# ---------------------------------------------------------------- the loop


def fitting(**changes: Any) -> Fitting:
    return Fitting(**{"learning_rate": 0.01, "batch_size": 16, "epochs": 3, "patience": 0, **changes})


@pytest.mark.parametrize("wide", [0, 1 << 30], ids=["in turn", "side by side"])
def test_an_ensemble_learns_what_its_members_would_learn_alone(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows in one batch, so that their order does not matter, and no dropout."""
    monkeypatch.setattr("clearhead.tasks.table_fit.WIDE", wide)
    objective = OBJECTIVES["values", "loss"]
    made: list[FTTransformer] = []

    def build() -> FTTransformer:
        made.append(FTTransformer(PLAIN))
        return deepcopy(made[-1])

    how = fitting(n_ensemble=3, batch_size=40)
    together = fit_members(build, rows(), None, objective.cost, objective.judge, how).model
    for s, first in enumerate(made):
        copy = FTTransformer(PLAIN)
        copy.load_state_dict(first.state_dict())
        alone = fit_members(
            lambda copy=copy: copy, rows(), None, objective.cost, objective.judge, fitting(batch_size=40)
        )
        x_BC, code_BC = rows(seed=1)[:2]
        answers = together(x_BC.repeat(3, 1), code_BC.repeat(3, 1)).chunk(3)[s]
        torch.testing.assert_close(answers, alone.model(x_BC, code_BC), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("join", [side_by_side, InTurn])
def test_the_best_weights_of_each_member_are_kept(join: Any) -> None:
    model = join([nn_linear(), nn_linear()])
    best = _Best(model, fitting(n_ensemble=2, patience=2))
    for epoch, scores in enumerate([[3.0, 3.0], [2.0, 4.0], [2.5, 1.0], [5.0, 5.0], [5.0, 0.5]]):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float(epoch))
        assert best.done == (frozenset({0}) if epoch > 3 else frozenset())
        best.weigh(torch.tensor(scores, dtype=torch.float64))
    best.restore()
    assert [float(member_weights(model, s)["weight"][0, 0]) for s in range(2)] == [1.0, 4.0]
    assert best.score_S.tolist() == [2.0, 0.5]
    assert best.done == {0}, "the second member was better just now"
    for _ in range(2):
        best.weigh(torch.tensor([0.0, 9.0], dtype=torch.float64))
    assert best.done == {0, 1}
    assert best.score_S.tolist() == [2.0, 0.5], "a member out of patience stays as it is"


def test_a_member_that_is_out_of_patience_costs_nothing_more() -> None:
    """A judge that finds the first member worse from the second epoch on, and the other one better every time."""
    turns: dict[int, int] = {0: 0, 1: 0}
    judged: list[int] = []

    def build() -> FTTransformer:
        member, s = FTTransformer(PLAIN), len(made)
        member.register_forward_hook(lambda *_: turns.update({s: turns[s] + 1}) if member.training else None)
        made.append(member)
        return member

    def judge(model: Any, held: Any, members: int) -> torch.Tensor:
        judged.append(len(judged))
        return torch.tensor([float(len(judged)), -float(len(judged))])

    made: list[FTTransformer] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearhead.tasks.table_fit.WIDE", 0)
        how = fitting(n_ensemble=2, batch_size=40, epochs=6, patience=2)
        course = fit_members(build, rows(), rows(seed=1), OBJECTIVES["values", "loss"].cost, judge, how)
    assert turns == {0: 3, 1: 6}, "the first one's best epoch and two of patience; the other one's six"
    assert course.best == [1.0, -6.0]


def nn_linear() -> torch.nn.Linear:
    return torch.nn.Linear(2, 2)


def test_training_stops_early_and_says_so() -> None:
    X, y = frame(200)
    noise = np.random.default_rng(0).permutation(y)
    model = classifier(epochs=100, patience=3).fit(X, noise)
    assert model.n_iter_ < 100
    assert len(model.validation_) == 1
    yes = np.flatnonzero(y == "yes")[:10]
    held = classifier(epochs=4).fit(X, y, validation=(X.iloc[yes], y[yes]))
    assert held.validation_[0] <= 1
    with pytest.raises(DataError, match="label 'perhaps', which is none of"):
        classifier(epochs=1).fit(X, y, validation=(X.iloc[:2], np.array(["yes", "perhaps"])))


def test_only_matrices_of_linear_layers_decay() -> None:
    for model in (FTTransformer(PLAIN), side_by_side([FTTransformer(PLAIN) for _ in range(2)])):
        groups = _optimizer(model, fitting(weight_decay=0.1)).param_groups
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        decaying = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
        still = {names[id(p)] for group in groups if not group["weight_decay"] for p in group["params"]}
        assert decaying | still == set(names.values())
        assert all(name.endswith("weight") and "columns" not in name for name in decaying)
        norms = ("before", "norm", "columns", "bias")
        assert all(any(word in name for word in norms) for name in still), still


def test_a_loss_that_is_no_number_is_named() -> None:
    objective = OBJECTIVES["values", "loss"]
    given = rows()._replace(target=torch.full((40, 1), 1e38))
    with pytest.raises(DivergenceError, match="in epoch 1: lower learning_rate"):
        fit_members(lambda: FTTransformer(PLAIN), given, None, objective.cost, objective.judge, fitting())


def test_small_tables_have_small_batches() -> None:
    assert [usual_batch(n) for n in (1, 100, 1_000, 13_209, 10**6)] == [8, 8, 16, 256, 256]


def test_held_out_rows_leave_one_of_each_class() -> None:
    target = np.array([0] * 10 + [1] + [2] * 2)
    held = held_out(target, 0.5, np.random.default_rng(0), True)
    assert np.bincount(target[held], minlength=3).tolist() == [5, 0, 1]
    assert held_out(target, 0.0, np.random.default_rng(0), True).sum() == 0


# ---------------------------------------------------------------- looking at it


def test_importance_is_the_row_of_cls() -> None:
    X, y = frame()
    model = classifier(layers=2, epochs=2).fit(X, y)
    seen: list[torch.Tensor] = []

    def note(weights_BHLM: torch.Tensor) -> torch.Tensor:
        seen.append(weights_BHLM)
        return weights_BHLM

    taps = ("encoder.0.attention.weights", "encoder.1.attention.attention.weights")
    with watching(model.fitted_.model, dict.fromkeys(taps, note)):
        model.predict(X)
    assert [tuple(w.shape[2:]) for w in seen] == [(5, 5), (1, 5)]
    row = torch.stack([w[:, :, 0].mean((0, 1)) for w in seen]).mean(0)[1:].double().numpy()
    np.testing.assert_allclose(model.feature_importance(X), row / row.sum(), rtol=1e-5)
    assert model.feature_importance(X).sum() == pytest.approx(1)
    np.testing.assert_allclose(model.feature_importance(), model.feature_importance(X.iloc[:]), atol=0.05)


@pytest.mark.parametrize("members", [1, 2])
def test_importance_counts_the_rows_that_are_there(members: int) -> None:
    X, y = frame()
    model = classifier(layers=2, epochs=2, n_ensemble=members).fit(X, y)
    for one in (X.iloc[[5]], X.iloc[[8]]):
        many = pd.concat([one] * 40)
        np.testing.assert_allclose(model.feature_importance(one), model.feature_importance(many), rtol=1e-5)


def test_remembered_attention_is_that_of_rows_from_first_to_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.tasks.table_estimators.SHOWN", 3)
    X, y = frame(97)
    model = classifier(epochs=2, validation_fraction=0.0).fit(X, y)
    np.testing.assert_allclose(model.feature_importance(), model.feature_importance(X.iloc[[0, 48, 96]]), rtol=1e-5)


def test_both_importances_find_the_columns_that_matter() -> None:
    X, y = frame(400)
    model = classifier(width=16, epochs=40, patience=40).fit(X, y)
    for shares in (model.feature_importance(X), model.feature_importance(X, y, method="permutation")):
        assert set(np.argsort(shares)[-2:]) == {0, 2}, shares
    with pytest.raises(ConfigError, match="give X and y"):
        model.feature_importance(X, method="permutation")
    tab = model.set_params(kind="tab", epochs=1).fit(X, y)  # which forgets what the other looked at
    with pytest.raises(ConfigError, match="method='permutation'"):
        tab.feature_importance(X)
    with pytest.raises(ConfigError, match="Give X"):
        tab.feature_importance()


# ---------------------------------------------------------------- keeping it


@pytest.mark.parametrize("changes", [{}, {"kind": "tab"}, {"n_ensemble": 2}, {"numbers": "trees", "bins": 4}])
def test_a_model_directory_is_all_that_prediction_needs(tmp_path: Path, changes: dict[str, Any]) -> None:
    X, y = frame()
    model = classifier(epochs=2, **changes).fit(X, y)
    model.save_pretrained(tmp_path / "m", target="answer")
    assert {p.suffix for p in (tmp_path / "m").iterdir()} == {".json", ".safetensors", ".md"}
    again = load_estimator(tmp_path / "m")
    assert isinstance(again, TableClassifier)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.target_ == "answer"
    assert again.get_params() == {**model.get_params(), "device": "auto"}
    with pytest.raises(ConfigError, match="exists already"):
        model.save_pretrained(tmp_path / "m")
    with pytest.raises(CheckpointError, match="for table_classification, not for table_regression"):
        TableRegressor.from_pretrained(tmp_path / "m")


def test_a_broken_directory_is_refused(tmp_path: Path) -> None:
    X, y = frame()
    classifier(epochs=1).fit(X, y).save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "table.json").write_text("[]")
    with pytest.raises(CheckpointError, match="JSON object"):
        load_estimator(tmp_path / "m")
    (tmp_path / "m" / "table.json").write_text('{"members": 1}')
    with pytest.raises(CheckpointError, match="has no 'schema'"):
        load_estimator(tmp_path / "m")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda words: words.update(members="two"), r"table\.json is of another model than .*config\.json"),
        (lambda words: words["target"].update(labels=["no", "perhaps", "yes"]), "is of another model"),
        (lambda words: words["schema"]["numbers"].pop(), "is of another model"),
        (lambda words: words["schema"]["categories"][0]["values"].append("new"), "is of another model"),
        (lambda words: words.pop("names"), "names: this key is needed and not there"),
        (lambda words: words.update(estimator=[1]), "estimator: input should be a valid dictionary"),
        (lambda words: words["estimator"].update(class_weight={"yes": 1}), "has class_weight=.*, which holds no pairs"),
    ],
)
def test_a_table_that_does_not_belong_to_the_model_is_refused(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    X, y = frame(40)
    classifier(epochs=1).fit(X, y).save_pretrained(tmp_path / "m")
    words = json.loads((tmp_path / "m" / "table.json").read_text())
    spoil(words)
    (tmp_path / "m" / "table.json").write_text(json.dumps(words))
    with pytest.raises(ClearheadError, match=sentence):
        load_estimator(tmp_path / "m")


def test_pickles_hold_safetensors_and_no_module() -> None:
    X, y = frame()
    model = classifier(epochs=1, n_ensemble=2).fit(X, y)
    state = model.fitted_.__getstate__()
    assert {name: type(value) for name, value in state.items()} == {"words": str, "arrays": bytes, "weights": bytes}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict(X), model.predict(X))


def test_pipelines_and_grid_search() -> None:
    X, y = frame()
    pipe = make_pipeline(FunctionTransformer(), classifier(epochs=1))
    search = GridSearchCV(pipe, {"tableclassifier__width": [4, 8]}, cv=2).fit(X, y)
    assert set(search.predict(X)) <= {"yes", "no"}


def test_frames_files_and_dictionaries_are_one_table(tmp_path: Path) -> None:
    X, y = frame()
    model = classifier(epochs=1).fit(X, y)
    X.to_csv(tmp_path / "t.csv", index=False)
    expected = model.predict_proba(X)
    for other in (pl.from_pandas(X), X.to_dict("list"), tmp_path / "t.csv", str(tmp_path / "t.csv"), any_table(X)):
        np.testing.assert_allclose(model.predict_proba(other), expected, rtol=1e-6)
    by_path = classifier(epochs=1).fit(tmp_path / "t.csv", y)
    np.testing.assert_allclose(by_path.predict_proba(X), expected, rtol=1e-6)


def test_settings_that_cannot_be() -> None:
    X, y = frame()
    for changes, sentence in [
        ({"kind": "xt"}, "unknown kind of table model 'xt'"),
        ({"numbers": "linera"}, "did you mean 'linear'"),
        ({"scaling": "robust"}, "unknown scaling"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"learning_rate": 0}, "above 0"),
        ({"watch": "auc"}, "watch='auc'"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0"),
        ({"progress": "loud"}, "progress must be one of"),
        ({"layers": 9, "width": None}, "1 to 6 layers"),
        ({"kind": "tab", "numbers": "trees"}, "for kind='ft'"),
        ({"numbers": "trees", "bins": 0}, "bins must be at least 1"),
        ({"categories": ["z"]}, "no column 'z'"),
    ]:
        with pytest.raises((ConfigError, DataError), match=sentence):
            classifier(**changes).fit(X, y)


def test_a_bar_is_shown_where_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = frame()
    classifier(epochs=2, progress="auto").fit(X, y)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    classifier(epochs=2, progress="bar").fit(pd.DataFrame(X), y)
    assert "epoch" in capsys.readouterr().err
