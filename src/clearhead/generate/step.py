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


class Step(Protocol):
    """A model that reads tokens and says what may come next.

    The state is Any here because each model knows only its own; `decode` hands back what it was given.
    """

    def step(
        self, token_BT: Tensor, state: Any, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, Any]:
        """Logits after each of T more tokens (with `last`, after the last real one alone), and the new state."""
