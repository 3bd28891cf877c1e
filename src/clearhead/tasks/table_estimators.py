"""`TableClassifier` and `TableRegressor`: Transformers for tables, as scikit-learn estimators.

>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(64, 3))
>>> model = TableClassifier(layers=1, width=8, heads=2, epochs=2, random_state=0).fit(X, X[:, 0] > 0)
>>> model.predict(X[:2]).dtype, model.predict_proba(X[:2]).shape
(dtype('bool'), (2, 2))
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np

from clearhead.errors import CheckpointError, ConfigError, MissingPackageError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingPackageError("tables need the package 'scikit-learn': install clearhead[tables]") from error

from clearhead.convert.load import is_foreign
from clearhead.data.table_columns import columns_of
from clearhead.data.table_scaling import SCALINGS
from clearhead.data.table_target import Classes, Values
from clearhead.data.tables import Cells, Table
from clearhead.nn.tables import check_rates, pick
from clearhead.tasks.checked import as_dataclass
from clearhead.tasks.directory import read_settings
from clearhead.tasks.loading import find_model
from clearhead.tasks.table_build import MODELS, Wish
from clearhead.tasks.table_card import table_card
from clearhead.tasks.table_fit import Fitting, usual_batch
from clearhead.tasks.table_importance import IMPORTANCES, attention_to_columns, evenly
from clearhead.tasks.table_inputs import held_out, held_out_known, labels_in, table_in, values_in, weights_in
from clearhead.tasks.table_model import TableModel
from clearhead.tasks.table_training import Part, Plan, Pretrained, fit_table, pretrain_table
from clearhead.train.distributed import pick_device

__all__ = ["ESTIMATORS", "TableClassifier", "TableRegressor", "load_estimator"]

SHOWN = 1000  # training rows from which the attention to columns is taken
SEEDS = 2**31 - 1


@dataclass(frozen=True)
class _Kept:
    """What table.json keeps of an estimator: its settings, the columns that it was given, what it predicts."""

    names: tuple[str, ...]
    named: bool
    estimator: dict[str, Any] = field(default_factory=dict)
    called: str = "target"


class _TableEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators have in common.

    kind               "ft" (FT-Transformer: a token for each column) or "tab" (TabTransformer: categories in context)
    layers, width, heads, dropout   of the model; None takes the paper's
    numbers            how numbers become tokens: "linear", "quantiles" or "trees" (piecewise linear, bins by ranks or
                       by the target), "periodic"
    bins               of piecewise linear embeddings, at most
    scaling            of numbers: "quantile" (to normal), "standard", "none"
    categories         columns (names, or places in an array) that hold categories, whatever they look like
    unseen             share of categories hidden in training, which teaches what to make of unseen ones; at 0 these
                       are refused
    learning_rate, batch_size   None takes what is usual for the kind, and for the number of rows
    epochs, patience   at most so many; stops when so many have passed without a better validation, 0 for never
    validation_fraction   of the rows that are held out for this; the best weights are kept
    watch              what validation looks at: "score" (errors, RMSE) or "loss"
    n_ensemble         members trained side by side, their predictions averaged
    device             "auto", "cpu", "cuda"
    random_state       of everything
    progress           "auto" (a bar on a terminal), "bar", "quiet"
    """

    TASK: str

    def __init__(
        self,
        kind: str = "ft",
        *,
        layers: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        dropout: float | None = None,
        numbers: str = "linear",
        bins: int = 48,
        scaling: str = "quantile",
        categories: Sequence[str | int] | None = None,
        unseen: float = 0.01,
        learning_rate: float | None = None,
        weight_decay: float = 1e-5,
        batch_size: int | None = None,
        epochs: int = 200,
        patience: int = 16,
        validation_fraction: float = 0.2,
        watch: str = "score",
        n_ensemble: int = 1,
        device: str = "auto",
        random_state: Any = None,
        progress: str = "auto",
    ) -> None:
        self.kind, self.layers, self.width, self.heads, self.dropout = kind, layers, width, heads, dropout
        self.numbers, self.bins, self.scaling = numbers, bins, scaling
        self.categories, self.unseen = categories, unseen
        self.learning_rate, self.weight_decay, self.batch_size = learning_rate, weight_decay, batch_size
        self.epochs, self.patience, self.validation_fraction, self.watch = epochs, patience, validation_fraction, watch
        self.n_ensemble, self.device, self.random_state, self.progress = n_ensemble, device, random_state, progress

    @abstractmethod
    def _checked(self, y: Any) -> Cells:
        """The target as an array: labels, or numbers, none of them missing."""

    @abstractmethod
    def _learned(self, target: Cells) -> Classes | Values:
        """What is to be learned."""

    @abstractmethod
    def _weighed(self, target: Cells, weight_B: Cells) -> Cells:
        """How much each row counts, all considered."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: tuple[Any, Any] | None = None) -> Self:
        """Learn from the rows of a table: a frame, an array, a dictionary of lists, a path of a CSV or Parquet file.

        validation   rows and target to stop by, in place of a part that is held out of X
        """
        table = table_in(self, X, reset=True)
        values = self._checked(y)
        weight_B = self._weighed(values, weights_in(sample_weight, table, values))
        whole = Part(table, values, weight_B)
        if not (weight_B > 0).all():
            whole = whole.take(weight_B > 0)
        target = self._learned(whole.target)
        plan = self._plan(whole.table)
        train, valid = self._parted(whole, isinstance(target, Classes), validation, plan)
        before: Pretrained | None = getattr(self, "pretrained_", None)
        self.fitted_, course = fit_table(train, valid, target, plan, before)
        self.n_iter_, self.validation_ = course.epochs, course.best
        if isinstance(target, Classes):
            self.classes_ = target.labels
        self.__dict__.pop("attention_", None)  # of an earlier fit
        if self.kind == "ft":
            shown = train.table.take(evenly(train.table.rows, SHOWN))
            self.attention_ = attention_to_columns(self.fitted_, shown, self.columns_)
        return self

    def pretrain(self, X: Any, *, method: str = "mask", rate: float = 0.3) -> Self:
        """Learn from rows without labels; a `fit` that follows begins with what was learned (a clone does not).

        method   "mask": guess hidden values; "replace": tell which values come from another row
        rate     share of the cells that are hidden or replaced
        """
        table = table_in(self, X, reset=True)
        plan = self._plan(table)
        held = self._held(np.zeros(table.rows), False, plan)
        valid = table.take(held) if held.any() else None
        self.pretrained_ = pretrain_table(table.take(~held), valid, plan, method=method, rate=rate)
        return self

    def _plan(self, table: Table) -> Plan:
        said = self._said()
        kind = pick(MODELS, said["kind"], "kind of table model")
        pick(SCALINGS, said["scaling"], "scaling")
        fitting = Fitting(
            learning_rate=kind.learning_rate if said["learning_rate"] is None else said["learning_rate"],
            batch_size=usual_batch(table.rows) if said["batch_size"] is None else said["batch_size"],
            seed=int(check_random_state(self.random_state).randint(SEEDS)),
            device=pick_device(self.device),
            **{name: said[name] for name in ("weight_decay", "epochs", "patience", "n_ensemble", "progress")},
        )
        wish = Wish(**{wished.name: said[wished.name] for wished in fields(Wish)})
        columns = columns_of(table, _chosen(said["categories"], [*table.columns]))
        return Plan(said["kind"], wish, said["scaling"], columns, said["watch"], fitting)

    def _said(self) -> dict[str, Any]:
        """What the user said, by name; NumPy's numbers, which searches over settings give, as Python's."""
        said = self.get_params(deep=False)
        for name, usual in signature(type(self)).parameters.items():
            if said[name] is None and usual.default is not None:
                raise ConfigError(f"{name} cannot be None: leave it out for {name}={usual.default!r}")
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in said.items()}

    def _parted(
        self, whole: Part, classes: bool, given: tuple[Any, Any] | None, plan: Plan
    ) -> tuple[Part, Part | None]:
        """The rows to learn from, and those to validate with."""
        if given is not None:
            table, target = table_in(self, given[0], reset=False), self._checked(given[1])
            return whole, Part(table, target, weights_in(None, table, target))
        held = self._held(whole.target, classes, plan)
        if not self.unseen:
            held = held_out_known(held, whole.table, plan.columns)
        return (whole.take(~held), whole.take(held)) if held.any() else (whole, None)

    def _held(self, target: Cells, classes: bool, plan: Plan) -> Cells:
        check_rates(self, "validation_fraction")
        share = self.validation_fraction if self.patience else 0.0
        return held_out(target, share, np.random.default_rng(plan.fitting.seed), classes)

    def _asked(self, X: Any) -> Table:
        check_is_fitted(self, "fitted_")
        return table_in(self, X, reset=False)

    def feature_importance(self, X: Any = None, y: Any = None, *, method: str = "attention") -> Cells:
        """How much each column matters, in the order of the columns.

        attention     the row of `[CLS]` averaged over heads, layers and rows: of X, or of up to 1,000 training rows
        permutation   what the score loses when the column of X is shuffled, to check the other against
        """
        check_is_fitted(self, "fitted_")
        table = None if X is None else table_in(self, X, reset=False)
        return pick(IMPORTANCES, method, "method")(self, table, y)

    def save_pretrained(self, folder: str | Path, *, target: str = "target") -> None:
        """Write a new model directory, with the schema of the table in it; `target` is what predictions are called."""
        check_is_fitted(self, "fitted_")
        named = hasattr(self, "feature_names_in_")
        said = {name: _worded(value) for name, value in self.get_params(deep=False).items() if name != "device"}
        if not isinstance(said["random_state"], int):
            said["random_state"] = None  # a generator is no setting
        extra = {"estimator": said, "names": list(self.columns_), "named": named, "called": target}
        self.fitted_.save(Path(folder), self.TASK, table_card(self.fitted_, self.TASK), extra)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The estimator of a model directory, ready to predict."""
        fitted, words = TableModel.load(Path(folder), cls.TASK)
        kept = as_dataclass(_Kept, {at: words[at] for at in _Kept.__annotations__ if at in words}, "table.json")
        known = cls._get_param_names()
        made = cls(**{name: _meant(name, word) for name, word in kept.estimator.items() if name in known})
        fitted.model.to(pick_device(made.device))
        made.fitted_, made.columns_ = fitted, kept.names
        made.n_features_in_, made.target_ = len(made.columns_), kept.called
        if kept.named:
            made.feature_names_in_ = np.array(made.columns_, dtype=object)
        if isinstance(fitted.target, Classes):
            made.classes_ = fitted.target.labels
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags


def _chosen(categories: Any, names: list[str]) -> tuple[str, ...]:
    """The names of columns that are given by name or by place, one or several."""
    if categories is None:
        return ()
    if isinstance(categories, str | int):
        categories = [categories]
    for at in categories:
        if isinstance(at, int | np.integer) and not -len(names) <= at < len(names):
            raise ConfigError(f"categories={[*categories]}: there is no column {at}, the table has {len(names)}")
    return tuple(names[name] if isinstance(name, int | np.integer) else name for name in categories)


class TableClassifier(ClassifierMixin, _TableEstimator):  # type: ignore[misc]
    """A Transformer that says of which class a row is.

    class_weight   as scikit-learn has it: None, "balanced", or a dictionary; all other arguments as `TableRegressor`
    """

    TASK = "table_classification"

    def __init__(
        self,
        kind: str = "ft",
        *,
        layers: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        dropout: float | None = None,
        numbers: str = "linear",
        bins: int = 48,
        scaling: str = "quantile",
        categories: Sequence[str | int] | None = None,
        unseen: float = 0.01,
        learning_rate: float | None = None,
        weight_decay: float = 1e-5,
        batch_size: int | None = None,
        epochs: int = 200,
        patience: int = 16,
        validation_fraction: float = 0.2,
        watch: str = "score",
        n_ensemble: int = 1,
        class_weight: Any = None,
        device: str = "auto",
        random_state: Any = None,
        progress: str = "auto",
    ) -> None:
        super().__init__(
            kind, layers=layers, width=width, heads=heads, dropout=dropout, numbers=numbers, bins=bins, scaling=scaling,
            categories=categories, unseen=unseen, learning_rate=learning_rate, weight_decay=weight_decay,
            batch_size=batch_size, epochs=epochs, patience=patience, validation_fraction=validation_fraction,
            watch=watch, n_ensemble=n_ensemble, device=device, random_state=random_state, progress=progress,
        )  # fmt: skip
        self.class_weight = class_weight

    def predict_proba(self, X: Any) -> Cells:
        """The probability of each class for each row, in the order of `classes_`."""
        table = self._asked(X)
        return self.fitted_.probabilities(table)

    def predict(self, X: Any) -> Cells:
        """The most probable class of each row."""
        probability_BC = self.predict_proba(X)
        labels: Cells = self.classes_[probability_BC.argmax(1)]
        return labels

    def _checked(self, y: Any) -> Cells:
        return labels_in(y)

    def _learned(self, target: Cells) -> Classes:
        return Classes(np.unique(target))

    def _weighed(self, target: Cells, weight_B: Cells) -> Cells:
        balance_B: Cells = compute_sample_weight(self.class_weight, target)
        if (balance_B < 0).any():
            raise ConfigError(f"no class can count less than nothing: class_weight={self.class_weight}")
        return weight_B * balance_B


class TableRegressor(RegressorMixin, _TableEstimator):  # type: ignore[misc]
    """A Transformer that predicts a number, or several, for each row."""

    __doc__ = f"{__doc__}\n\n{_TableEstimator.__doc__}"

    TASK = "table_regression"

    def predict(self, X: Any) -> Cells:
        """The predicted number of each row; where the target had several columns, as many."""
        table = self._asked(X)
        return self.fitted_.values(table)

    def _checked(self, y: Any) -> Cells:
        return values_in(y)

    def _learned(self, target: Cells) -> Values:
        return Values.of(target)

    def _weighed(self, target: Cells, weight_B: Cells) -> Cells:
        return weight_B

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _worded(value: Any) -> Any:
    """A setting as JSON has a word for it: NumPy's numbers as Python's, a dictionary (its keys are labels) as pairs."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"pairs": [[_worded(key), _worded(each)] for key, each in value.items()]}
    return [_worded(each) for each in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


def _meant(name: str, word: Any) -> Any:
    """The setting that was worded so."""
    try:
        return dict(word["pairs"]) if isinstance(word, dict) else word
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"table.json has {name}={word}, which holds no pairs: fit the model again") from error


ESTIMATORS: dict[str, type[TableClassifier] | type[TableRegressor]] = {
    kind.TASK: kind for kind in (TableClassifier, TableRegressor)
}


def load_estimator(folder: str | Path) -> TableClassifier | TableRegressor:
    """The estimator of a model directory, of whichever kind it is."""
    found = find_model(folder)
    task = "" if found.is_file() or is_foreign(found) else read_settings(found).task
    if task not in ESTIMATORS:
        held = f"a model for {task}" if task else "another project's model"
        raise CheckpointError(f"{found} holds {held}, not one for tables: `clearhead fit` makes those")
    return ESTIMATORS[task].from_pretrained(found)
