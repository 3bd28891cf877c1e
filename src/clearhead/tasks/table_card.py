"""The README of a table model's directory."""

from clearhead.data.table_target import Classes
from clearhead.tasks.table_model import TableModel

__all__ = ["table_card"]


def table_card(fitted: TableModel, task: str, scores: str = "") -> str:
    """What the model knows, column by column."""
    target = fitted.target
    known = f"classes {target.labels.tolist()}" if isinstance(target, Classes) else f"{target.outputs} numbers"
    size = sum(parameter.numel() for parameter in fitted.model.parameters())
    lines = [
        f"# A model for {task.replace('_', ' ')}",
        f"{type(fitted.config).__name__.removesuffix('Config')}, {fitted.members} members, {size:,} parameters; "
        f"it predicts {known}.",
        *([scores] if scores else []),
        "| column | kind | different values | missing |\n|---|---|---|---|\n"
        + "\n".join(f"| {c.name} | {c.kind} | {c.distinct} | {c.missing} |" for c in fitted.schema.columns),
        'Use it with `clearhead predict TABLE -m DIR`, or from Python with `from_pretrained("DIR").predict(table)`.',
    ]
    return "\n\n".join(lines) + "\n"
