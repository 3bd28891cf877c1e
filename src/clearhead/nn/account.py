"""Accounts: what holds how many parameters."""

from dataclasses import dataclass

from torch import nn

__all__ = ["ParameterTable", "parameters_table"]


@dataclass(frozen=True)
class ParameterTable:
    """Rows of (part, parameters), every parameter counted once, where it is met first."""

    rows: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.rows)

    def __str__(self) -> str:
        rows = [*self.rows, ("total", self.total)]
        widest = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{widest}}  {count:>13,}" for name, count in rows)


def parameters_table(model: nn.Module, depth: int = 3) -> ParameterTable:
    """Parameters by part, down to `depth` levels of names; tied ones stand where they occur first.

    >>> print(parameters_table(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)), depth=1))
    0                  9
    1                  6
    total             15
    """
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = ".".join(name.split(".")[:-1][:depth]) or name
        counts[part] = counts.get(part, 0) + parameter.numel()
    return ParameterTable(tuple(counts.items()))
