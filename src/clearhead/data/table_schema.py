"""The schema of a table: everything that stands between its cells and a model, fitted once to the training data.

A schema is a value of plain words and arrays: `words` goes to JSON, `arrays` to safetensors, and `schema_of` makes it
whole again. So a model directory needs neither the training data nor a pickle.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from clearhead.data.table_columns import PARTS, Column, categories_in, dates_in, numbers_in
from clearhead.data.table_scaling import SCALINGS, Scaling, fit_scaling
from clearhead.data.tables import Cells, Table
from clearhead.errors import CheckpointError, DataError

__all__ = ["CategoryFeature", "Encoded", "NumberFeature", "Schema", "fit_schema", "schema_of"]

VALUE = "value"


@dataclass(frozen=True)
class NumberFeature:
    """A number of each row: a column's own value, or a part of its date; whether it was ever missing in training."""

    column: str
    part: str = VALUE
    missing: bool = False

    @property
    def name(self) -> str:
        return self.column if self.part == VALUE else f"{self.column} ({self.part.replace('_', ' ')})"


@dataclass(frozen=True)
class CategoryFeature:
    """A category of each row: codes count up the values, then comes the missing one where training had any."""

    column: str
    values: tuple[str, ...]
    missing: bool = False

    @property
    def name(self) -> str:
        return self.column

    @property
    def size(self) -> int:
        return len(self.values) + self.missing


class Encoded(NamedTuple):
    """Rows as a model takes them: scaled numbers, NaN where one is missing, and codes of categories."""

    number_BC: Cells
    code_BC: Cells


@dataclass(frozen=True, eq=False)
class Schema:
    """Which columns there are, which features come of them, and how numbers are scaled.

    unseen      whether categories that training never showed have a code of their own, `size`
    middle_C    the median of each number, for those that are missing where training never missed any
    """

    columns: tuple[Column, ...]
    numbers: tuple[NumberFeature, ...]
    categories: tuple[CategoryFeature, ...]
    unseen: bool
    scaling: Scaling
    middle_C: Cells

    @property
    def features(self) -> tuple[NumberFeature | CategoryFeature, ...]:
        """In the order in which a model reads them."""
        return (*self.numbers, *self.categories)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that features come from."""
        return tuple(column.name for column in self.columns if column.used)

    def encode(self, table: Table) -> Encoded:
        """The rows of any table that has the columns in use; in which order, and what else it has, does not matter."""
        absent = [name for name in self.used if name not in table.columns]
        if absent:
            raise DataError(f"the table lacks {len(absent)} of the columns that the model knows: {absent}")
        numbers = [
            self._filled(feature, middle, table) for feature, middle in zip(self.numbers, self.middle_C, strict=True)
        ]
        codes = [_codes(feature, table, self.unseen) for feature in self.categories]
        number_BC = np.stack(numbers, axis=1) if numbers else np.empty((table.rows, 0))
        code_BC = np.stack(codes, axis=1) if codes else np.empty((table.rows, 0), dtype=np.int64)
        return Encoded(self.scaling.apply(number_BC), code_BC)

    def _filled(self, feature: NumberFeature, middle: float, table: Table) -> Cells:
        values = _numbers(feature, table)
        missing = np.isnan(values)
        if feature.missing or not missing.any():
            return values
        warnings.warn(
            f"column {feature.column!r} misses {int(missing.sum())} values but missed none in training: "
            "they are taken as its median",
            UserWarning, stacklevel=2,
        )  # fmt: skip
        return np.where(missing, middle, values)

    def words(self) -> dict[str, Any]:
        """All but the arrays, for JSON."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "numbers": [asdict(feature) for feature in self.numbers],
            "categories": [asdict(feature) for feature in self.categories],
            "unseen": self.unseen,
            "scaling": self.scaling.name,
        }

    def arrays(self) -> dict[str, Cells]:
        """All but the words, for safetensors."""
        return {"middle": self.middle_C, **{f"scaling.{name}": array for name, array in self.scaling.arrays.items()}}


def fit_schema(table: Table, columns: tuple[Column, ...], *, scaling: str, unseen: bool) -> Schema:
    """The schema of training data whose columns are known; of rows that were held out, it learns nothing more."""
    numbers, values = [], []
    for column in columns:
        for feature in _number_features(column):
            found = _numbers(feature, table)
            if np.isnan(found).all():
                continue
            if np.nanmin(found) < np.nanmax(found) or feature.part == VALUE:
                numbers.append(replace(feature, missing=bool(np.isnan(found).any())))
                values.append(found)
    named = [_category(column.name, table) for column in columns if column.kind in ("category", "boolean")]
    if not numbers and not named:
        kinds = {column.name: column.kind for column in columns}
        raise DataError(f"no column is left to learn from ({table.rows} samples): {kinds}")
    number_BC = np.stack(values, axis=1) if values else np.empty((table.rows, 0))
    middle_C = np.nanmedian(number_BC, axis=0) if values else np.empty(0)
    return Schema(columns, tuple(numbers), tuple(named), unseen, fit_scaling(scaling, number_BC), middle_C)


def schema_of(words: Mapping[str, Any], arrays: Mapping[str, Cells]) -> Schema:
    """The schema that gave these words and arrays."""
    try:
        known = _WORDS.validate_python(words)
    except ValidationError as error:
        raise CheckpointError(f"the table's schema cannot be used: {error.errors()[0]['msg']}") from error
    if known.scaling not in SCALINGS or any(f.part not in (VALUE, *PARTS) for f in known.numbers):
        raise CheckpointError("the table's schema names a scaling or a part of dates that this clearhead does not know")
    scaling = Scaling(
        known.scaling, {n.removeprefix("scaling."): array for n, array in arrays.items() if n.startswith("scaling.")}
    )
    return Schema(known.columns, known.numbers, known.categories, known.unseen, scaling, arrays["middle"])


@dataclass(frozen=True)
class _Words:
    columns: tuple[Column, ...]
    numbers: tuple[NumberFeature, ...]
    categories: tuple[CategoryFeature, ...]
    unseen: bool
    scaling: str


_WORDS = TypeAdapter(_Words)


def _number_features(column: Column) -> list[NumberFeature]:
    if column.kind == "number":
        return [NumberFeature(column.name)]
    return [NumberFeature(column.name, part) for part in PARTS if column.kind == "date"]


def _numbers(feature: NumberFeature, table: Table) -> Cells:
    cells = table[feature.column]
    if feature.part == VALUE:
        return numbers_in(cells, feature.column, table.place)
    moments = dates_in(cells, feature.column)
    there = ~np.isnat(moments)
    values = np.full(len(cells), np.nan)
    values[there] = PARTS[feature.part](moments[there])
    return values


def _category(name: str, table: Table) -> CategoryFeature:
    texts = set(categories_in(table[name]).tolist())
    return CategoryFeature(name, tuple(sorted(texts - {None})), None in texts)


def _codes(feature: CategoryFeature, table: Table, unseen: bool) -> Cells:
    place: dict[str | None, int] = {value: code for code, value in enumerate(feature.values)}
    if feature.missing:
        place[None] = len(feature.values)
    if feature.values and {*feature.values} <= {"True", "False"}:
        place |= {number: place[text] for number, text in (("0", "False"), ("1", "True")) if text in place}
    texts = categories_in(table[feature.column])
    codes = np.array([place.get(text, feature.size) for text in texts], dtype=np.int64)
    if not unseen and (codes == feature.size).any():
        row = int((codes == feature.size).argmax())
        raise DataError(
            f"column {feature.column!r} has {texts[row]!r} in row {table.place(row)}, "
            "a category that training never showed: fit with unseen above 0 to be ready for such"
        )
    return codes
