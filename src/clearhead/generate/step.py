"""What decoding asks of a model: one protocol, which every model that generates satisfies as it is."""

from typing import Any, Protocol, Self

from torch import Tensor

__all__ = ["DecodingState", "Step"]


class DecodingState(Protocol):
    """What a model carries from step to step, as a value."""

    def select(self, row_B: Tensor) -> Self:
        """These rows, in this order, each as often as it is named."""

    def join(self, other: Self) -> Self:
        """The rows of both, one batch after the other."""

    def branch(self, parent_BT: Tensor) -> Self:
        """T branches of each row that share what it has read, where the model's `branches` says that it can."""

    def rewind(self, length_B: Tensor) -> Self:
        """What was read up to these lengths; the state itself is used no more."""


class Step(Protocol):
    """A model that reads tokens and says what may come next.

    The state is Any here because each model knows only its own; `decode` hands back what it was given.
    """

    @property
    def branches(self) -> bool:
        """Whether `State.branch` may be used."""

    def step(
        self, token_BT: Tensor, state: Any, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, Any]:
        """Logits after each of T more tokens (with `last`, after the last real one alone), and the new state."""
