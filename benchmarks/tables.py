"""Training speed on tables: forward + backward + AdamW, in rows per second, against the papers' own and the best known.

Every contender gets the same batches of 256 rows, the same loss and fused AdamW, the paper's default sizes and rates of
dropout, and must come within 3% of the same number of parameters. `tab-transformer-pytorch` is given one residual
stream and, as a row of its own, the four that it has by default. A row of an ensemble counts once for each member: at
least 1.00 there means that five members cost at most five times one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from harness import Contender, Work, run
from torch import Tensor, nn

ROWS = 256
CARDINALITY = 10


@dataclass(frozen=True)
class Setting:
    """A table of so many numbers and categories, and a model for it."""

    kind: str  # ft or tab
    numbers: int
    categories: int
    members: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        return (CARDINALITY,) * self.categories

    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        random = torch.Generator().manual_seed(1)
        number_BC = torch.randn(ROWS, self.numbers, generator=random)
        code_BC = torch.randint(CARDINALITY, (ROWS, self.categories), generator=random)
        return number_BC, code_BC, torch.randn(ROWS, 1, generator=random)


def config(of: Setting) -> Any:
    """The paper's defaults; TabTransformer with the widths and the gate of its peer."""
    from clearhead.models.ft_transformer import FTTransformerConfig
    from clearhead.models.tab_transformer import TabTransformerConfig

    if of.kind == "ft":
        return FTTransformerConfig(numbers=of.numbers, categories=of.sizes)
    return TabTransformerConfig(
        numbers=of.numbers, categories=of.sizes, head_width=16, feedforward="geglu", dropout=0.0, mlp_dropout=0.0
    )


def clearhead(of: Setting) -> Work:
    from clearhead.models.presets import build
    from clearhead.tasks.table_fit import Rows, gradients, together
    from clearhead.tasks.table_objective import OBJECTIVES
    from clearhead.train.allocator import keep_freed_memory

    keep_freed_memory()
    model = together([build(config(of)) for _ in range(of.members)], ROWS)
    rows, cost = Rows(*of.batch(), torch.ones(ROWS)), OBJECTIVES["values", "loss"].cost
    every_SB = torch.arange(ROWS).expand(of.members, -1)
    return train(of, model, lambda: gradients(model, rows, every_SB, cost, ROWS))


def rtdl(of: Setting) -> Work:
    from rtdl_revisiting_models import FTTransformer

    model = FTTransformer(
        n_cont_features=of.numbers, cat_cardinalities=list(of.sizes), d_out=1, **FTTransformer.get_default_kwargs()
    )
    number_BC, code_BC, target_B1 = of.batch()
    codes = code_BC if of.categories else None
    return train(of, model, lambda: F.mse_loss(model(number_BC, codes), target_B1).backward())


def tab_transformer_pytorch(of: Setting, streams: int) -> Work:
    from tab_transformer_pytorch import TabTransformer

    model = TabTransformer(
        categories=of.sizes, num_continuous=of.numbers, dim=32, depth=6, heads=8, dim_head=16, dim_out=1,
        attn_dropout=0.1, ff_dropout=0.1, mlp_act=nn.ReLU(), num_residual_streams=streams,
    )  # fmt: skip
    number_BC, code_BC, target_B1 = of.batch()
    return train(of, model, lambda: F.mse_loss(model(code_BC, number_BC), target_B1).backward())


def train(of: Setting, model: nn.Module, backward: Callable[[], object]) -> Work:
    """One step: gradients to None, the loss and its gradients, AdamW."""
    from clearhead.models.presets import build

    ours: Any = build(config(replace(of, members=1)))
    count = sum(weight.numel() for weight in model.parameters())
    wanted = of.members * sum(weight.numel() for weight in ours.parameters())
    if abs(count / wanted - 1) > 0.03:
        raise ValueError(f"not the model that was asked for: {count:,} parameters instead of {wanted:,}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        backward()
        optimizer.step()

    units = ROWS * of.members
    return Work(step, units, 3.0 * ours.flops(units), note=f"{count / 1e3:,.0f} k parameters")


def contenders(of: Setting) -> dict[str, Contender]:
    if of.members > 1:
        return {
            f"clearhead-{of.members}": lambda: clearhead(of),
            "clearhead": lambda: clearhead(replace(of, members=1)),
        }
    if of.kind == "ft":
        return {"clearhead": lambda: clearhead(of), "rtdl": lambda: rtdl(of)}
    return {
        "clearhead": lambda: clearhead(of),
        "tab-transformer-pytorch": lambda: tab_transformer_pytorch(of, 1),
        "its-four-streams": lambda: tab_transformer_pytorch(of, 4),
    }


SUITE = {
    name: contenders(of)
    for name, of in {
        "ft-8": Setting("ft", 8, 0),
        "ft-6-8": Setting("ft", 6, 8),
        "ft-8-ensemble": Setting("ft", 8, 0, members=5),
        "tab-6-8": Setting("tab", 6, 8),
        "tab-6-8-ensemble": Setting("tab", 6, 8, members=5),
    }.items()
}

if __name__ == "__main__":
    run("tables", SUITE, unit="rows", packages=["torch", "rtdl_revisiting_models", "tab-transformer-pytorch"])
