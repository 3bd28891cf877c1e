"""What is to be learned of a row: one of several classes, or one or more numbers, brought to a form for a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.data.tables import Cells
from clearhead.errors import CheckpointError, DataError

__all__ = ["Classes", "Values", "target_of"]


@dataclass(frozen=True, eq=False)
class Classes:
    """Labels of classes in order; a class is known to the model by its place among them."""

    labels: Cells

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise DataError(f"a classifier needs two classes or more, the target has 1 class: {self.labels.tolist()}")

    @property
    def outputs(self) -> int:
        """One logit for two classes would do; two make every number of classes alike."""
        return len(self.labels)

    def encode(self, target: Cells) -> Cells:
        """The place of each label; one that is not among them is refused."""
        place = np.searchsorted(self.labels, target).clip(max=len(self.labels) - 1)
        if (self.labels[place] != target).any():
            row = int((self.labels[place] != target).argmax())
            raise DataError(
                f"row {row} has the label {target.tolist()[row]!r}, which is none of {self.labels.tolist()}"
            )
        return place

    def words(self) -> dict[str, Any]:
        return {"kind": "classes", "labels": self.labels.tolist(), "dtype": self.labels.dtype.str}


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers, standardised by the mean and the standard deviation of the training data.

    flat    the target was a single column without a dimension of its own, and predictions are to be so too
    """

    mean_C: Cells
    deviation_C: Cells
    flat: bool

    @property
    def outputs(self) -> int:
        return len(self.mean_C)

    @classmethod
    def of(cls, target: Cells) -> "Values":
        """The target of training."""
        columns = target.reshape(len(target), -1).astype(np.float64)
        deviation_C = columns.std(axis=0)
        return cls(columns.mean(axis=0), np.where(deviation_C > 0, deviation_C, 1.0), target.ndim == 1)

    def encode(self, target: Cells) -> Cells:
        """Standardised, (rows, outputs), float32."""
        standard = (target.reshape(len(target), -1) - self.mean_C) / self.deviation_C
        return standard.astype(np.float32)

    def decode(self, standard_BC: Cells) -> Cells:
        """In the units of the target, in its shape."""
        values: Cells = standard_BC * self.deviation_C + self.mean_C
        return values[:, 0] if self.flat else values

    def words(self) -> dict[str, Any]:
        mean, deviation = self.mean_C.tolist(), self.deviation_C.tolist()
        return {"kind": "values", "mean": mean, "deviation": deviation, "flat": self.flat}


def target_of(words: Mapping[str, Any]) -> Classes | Values:
    """The target that gave these words."""
    try:
        if words["kind"] == "classes":
            return Classes(np.array(words["labels"], dtype=words["dtype"]))
        return Values(np.array(words["mean"]), np.array(words["deviation"]), bool(words["flat"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the table's target cannot be used: {error!r}") from error
