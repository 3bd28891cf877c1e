"""Encoders and table models that many requests share."""

from asyncio import wrap_future
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from clearhead.data.tables import table_of
from clearhead.errors import DataError
from clearhead.serve.engine import Engine
from clearhead.serve.work import Budget
from clearhead.tasks.sentence_encoder import SentenceEncoder

__all__ = ["Cell", "Predicted", "ServedEncoder", "ServedTable"]

Cell = str | float | bool | None


@final
class ServedEncoder:
    """An encoder behind an engine: texts that wait are encoded together."""

    TASK = SentenceEncoder.TASK

    def __init__(self, name: str, encoder: SentenceEncoder, budget: Budget) -> None:
        self.name, self.encoder = name, encoder
        self.engine = Engine(name, budget)

    @property
    def width(self) -> int:
        return self.encoder.config.width

    async def encode(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """The vector of each text."""
        return await wrap_future(self.engine.call("encode", self._encode, texts))

    def count(self, texts: list[str]) -> int:
        """The tokens of all the texts."""
        return sum(map(len, self.encoder.tokenizer.encode_batch(texts)))

    def _encode(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return list(self.encoder.encode(texts))


@dataclass(frozen=True)
class Predicted:
    """What is said of each row: a class or a number, or several; of classes their probabilities, too."""

    values: list[Any]
    probabilities: list[dict[str, float]] | None = None


@final
class ServedTable:
    """A `TableClassifier` or `TableRegressor` behind an engine: one request at a time, each of many rows."""

    TASK = "table"

    def __init__(self, name: str, estimator: Any, budget: Budget) -> None:
        self.name, self.estimator = name, estimator
        self.target: str = getattr(estimator, "target_", "target")
        self.engine = Engine(name, budget)

    async def predict(self, rows: Sequence[Mapping[str, Cell]]) -> Predicted:
        """What the model says of these rows; each has every column that the model knows."""
        (predicted,) = await wrap_future(self.engine.call(object(), self._predict, [rows]))
        return predicted

    def _predict(self, requests: list[Sequence[Mapping[str, Cell]]]) -> list[Predicted]:
        return [self._of(rows) for rows in requests]

    def _of(self, rows: Sequence[Mapping[str, Cell]]) -> Predicted:
        columns = self.estimator.columns_
        for number, row in enumerate(rows):
            missing = next((name for name in columns if name not in row), None)
            if missing is not None:
                raise DataError(f"row {number} has no column {missing!r}: give null where a value is missing")
            unknown = next((name for name in row if name not in columns), None)
            if unknown is not None:
                raise DataError(f"row {number} has a column {unknown!r:.60} that the model does not know")
        table = table_of({name: [row[name] for row in rows] for name in columns})
        if not hasattr(self.estimator, "classes_"):
            return Predicted(self.estimator.predict(table).tolist())
        classes = [str(label) for label in self.estimator.classes_.tolist()]
        probability_BC = self.estimator.predict_proba(table)
        each = [dict(zip(classes, row, strict=True)) for row in probability_BC.tolist()]
        return Predicted(self.estimator.classes_[probability_BC.argmax(1)].tolist(), each)
