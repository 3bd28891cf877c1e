"""The way in for tables: a token for each column of a row.

A number x of column c becomes a token by one of three embeddings, a category by its own row of a table:

| name | token | from |
|---|---|---|
| linear | x w_c + b_c | gorishniy2021 §3.3 |
| piecewise | e(x) W_c + b_c, where e_t(x) says how much of the column's bin t lies below x | gorishniy2022 §3.2 |
| periodic | relu([cos v, sin v] W_c + b_c), v = 2π x f_c, the frequencies f_c learned | gorishniy2022 §3.3 |

A missing number (NaN) has a learned token of its own in those columns that are said to miss values; a missing category
is a category like any other. An unseen category has a learned token too, which training meets where it hides some.

All but the periodic ones are mixtures of a few learned rows. So a linear layer above them need not read every token:
the rows go through it, and are mixed as the tokens are (`ColumnTokens.projected`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearhead.errors import ConfigError, ShapeError
from clearhead.nn.dropout import check_rate, keep_mask
from clearhead.tap import Tap

__all__ = [
    "NUMBERS",
    "Categories",
    "ColumnAwareCategories",
    "ColumnTokens",
    "LinearNumbers",
    "NumberColumns",
    "PeriodicNumbers",
    "PiecewiseNumbers",
    "Scalars",
    "WithMissing",
]


def _uniform(*shape: int, inputs: int) -> nn.Parameter:
    """Values in ± 1/√inputs."""
    return nn.Parameter(torch.empty(*shape).uniform_(-(inputs**-0.5), inputs**-0.5))


def _mapped(table: Tensor, linear: nn.Linear | None) -> Tensor:
    """Rows that are mixed, through the layer where there is one; its bias comes with `_shifted`."""
    return table if linear is None else F.linear(table, linear.weight)


def _shifted(bias: Tensor, linear: nn.Linear | None) -> Tensor:
    """What is added once to each token, through the whole layer where there is one."""
    shifted: Tensor = bias if linear is None else linear(bias)
    return shifted


class _Line(torch.autograd.Function):
    """x w_c + b_c; its derivative by w is a product of matrices, where PyTorch's would store one number per element."""

    @staticmethod
    def forward(ctx: Any, number_BC: Tensor, weight_CD: Tensor, bias_CD: Tensor) -> Tensor:
        ctx.save_for_backward(number_BC, weight_CD)
        return torch.addcmul(bias_CD, number_BC[:, :, None], weight_CD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (grad_BCD,), (number_BC, weight_CD) = grads, ctx.saved_tensors
        by_number_BC = (grad_BCD * weight_CD).sum(2) if ctx.needs_input_grad[0] else None
        by_weight_C1D = number_BC.t()[:, None].bmm(grad_BCD.transpose(0, 1))
        return by_number_BC, by_weight_C1D[:, 0], grad_BCD.sum(0)


def _each_column(x_BCW: Tensor, weight_CWD: Tensor, bias_CD: Tensor) -> Tensor:
    """A linear layer for each column: (B, C, W) -> (B, C, D)."""
    return torch.baddbmm(bias_CD[:, None], x_BCW.transpose(0, 1), weight_CWD).transpose(0, 1)


class LinearNumbers(nn.Module):
    """x w_c + b_c."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.weight_CD = _uniform(columns, width, inputs=width)
        self.bias_CD = _uniform(columns, width, inputs=width)

    def forward(self, number_BC: Tensor, linear: nn.Linear | None = None) -> Tensor:
        weight_CD, bias_CD = _mapped(self.weight_CD, linear), _shifted(self.bias_CD, linear)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return torch.addcmul(bias_CD, number_BC[:, :, None], weight_CD)
        token_BCD: Tensor = _Line.apply(number_BC, weight_CD, bias_CD)  # type: ignore[no-untyped-call]
        return token_BCD

    def rows(self, batch: int) -> float:
        """As much work as so many tokens would be: what goes through a layer above, and mixing what comes out."""
        return 2 * len(self.weight_CD)


class PiecewiseNumbers(nn.Module):
    """e(x) W_c + b_c; e_t = (x − edge_t−1) / (edge_t − edge_t−1), held within 0 and 1 but for the two outermost sides.

    `bins` has the number of bins of each column. Their edges are data, and are put in place by `set_edges`; until then
    each column has its bins side by side between 0 and 1.
    """

    lower_CW: Tensor
    slope_CW: Tensor
    least_CW: Tensor
    most_CW: Tensor

    def __init__(self, bins: Sequence[int], width: int) -> None:
        super().__init__()
        if min(bins, default=1) < 1:
            raise ConfigError(f"every column needs at least one bin: {bins=}")
        self.bins, most = tuple(bins), max(bins, default=1)
        for name in ("lower_CW", "slope_CW", "least_CW", "most_CW"):
            self.register_buffer(name, torch.zeros(len(bins), most), persistent=name in ("lower_CW", "slope_CW"))
        self.weight_CWD = _uniform(len(bins), most, width, inputs=most)
        self.bias_CD = _uniform(len(bins), width, inputs=most)
        for c, count in enumerate(bins):  # bins that a column lacks are held at 0
            self.most_CW[c, :count] = 1.0
            self.least_CW[c, 0], self.most_CW[c, count - 1] = -torch.inf, torch.inf
        self.set_edges([torch.linspace(0, 1, count + 1) for count in bins])

    def set_edges(self, edges: Sequence[Tensor]) -> None:
        """The edges of each column's bins, rising, one more than there are bins."""
        for c, (edge_W, count) in enumerate(zip(edges, self.bins, strict=True)):
            if len(edge_W) != count + 1 or not (edge_W.diff() > 0).all():
                raise ShapeError(f"column {c} has {count} bins and needs {count + 1} rising edges: {edge_W.tolist()}")
            self.lower_CW[c, :count] = edge_W[:-1]
            self.slope_CW[c, :count] = 1 / edge_W.diff()

    def forward(self, number_BC: Tensor, linear: nn.Linear | None = None) -> Tensor:
        within_BCW = (number_BC[:, :, None] - self.lower_CW) * self.slope_CW
        weight_CWD, bias_CD = _mapped(self.weight_CWD, linear), _shifted(self.bias_CD, linear)
        return _each_column(within_BCW.clamp(self.least_CW, self.most_CW), weight_CWD, bias_CD)

    def rows(self, batch: int) -> float:
        """As much work as so many tokens would be: what goes through a layer above, and mixing what comes out."""
        columns, bins, width = self.weight_CWD.shape
        return columns * (bins + 1 + batch * bins / width)


class PeriodicNumbers(nn.Module):
    """relu([cos v, sin v] W_c + b_c) with v = 2π x (f_1 … f_K), f drawn from N(0, sigma²) and learned."""

    def __init__(self, columns: int, width: int, frequencies: int, sigma: float) -> None:
        super().__init__()
        self.frequency_CK = nn.Parameter(torch.randn(columns, frequencies) * sigma)
        self.weight_CWD = _uniform(columns, 2 * frequencies, width, inputs=2 * frequencies)
        self.bias_CD = _uniform(columns, width, inputs=2 * frequencies)

    def forward(self, number_BC: Tensor, linear: nn.Linear | None = None) -> Tensor:
        angle_BCK = 2 * torch.pi * number_BC[:, :, None] * self.frequency_CK
        wave_BCW = torch.cat([angle_BCK.cos(), angle_BCK.sin()], dim=-1)
        token_BCD = F.relu(_each_column(wave_BCW, self.weight_CWD, self.bias_CD))
        return _shifted(token_BCD, linear)

    def rows(self, batch: int) -> float:
        """As much work as so many tokens would be: these are tokens first, and bend."""
        return batch * len(self.weight_CWD)


@dataclass(frozen=True)
class NumberColumns:
    """What an embedding of numbers may ask for: piecewise for `bins`, periodic for `frequencies` and `sigma`."""

    columns: int
    width: int
    bins: tuple[int, ...] = ()
    frequencies: int = 48
    sigma: float = 0.01


def _piecewise(of: NumberColumns) -> PiecewiseNumbers:
    if len(of.bins) != of.columns:
        raise ConfigError(f"piecewise embeddings need the bins of each column: columns={of.columns}, bins={of.bins}")
    return PiecewiseNumbers(of.bins, of.width)


# name -> embedding of numbers: (B, C) -> (B, C, D)
NUMBERS: dict[str, Callable[[NumberColumns], nn.Module]] = {
    "linear": lambda of: LinearNumbers(of.columns, of.width),
    "piecewise": _piecewise,
    "periodic": lambda of: PeriodicNumbers(of.columns, of.width, of.frequencies, of.sigma),
}


class Scalars(nn.Module):
    """The number itself as a token of width 1, (B, C) -> (B, C, 1)."""

    def forward(self, number_BC: Tensor) -> Tensor:
        return number_BC[:, :, None]


class WithMissing(nn.Module):
    """An embedding of numbers, with a learned token for NaN in each of the columns `which`."""

    which: Tensor

    def __init__(self, embed: nn.Module, columns: int, width: int, which: Sequence[int]) -> None:
        super().__init__()
        if not set(which) <= set(range(columns)):
            raise ShapeError(f"missing values are said of columns that are not there: {which=}, {columns=}")
        self.embed, self.columns = embed, columns
        self.missing_CD = _uniform(len(which), width, inputs=width)
        self.register_buffer("which", torch.tensor(which, dtype=torch.long), persistent=False)

    def forward(self, number_BC: Tensor, linear: nn.Linear | None = None) -> Tensor:
        absent_BC = number_BC.isnan()
        present_BC = number_BC.masked_fill(absent_BC, 0.0)
        token_BCD: Tensor = self.embed(present_BC) if linear is None else self.embed(present_BC, linear)
        missing_CD = token_BCD.new_zeros(token_BCD.shape[1:])
        missing_CD = missing_CD.index_copy(0, self.which, _shifted(self.missing_CD, linear))
        return torch.where(absent_BC[:, :, None], missing_CD, token_BCD)

    def rows(self, batch: int) -> float:
        """As much work as so many tokens would be."""
        embed: Any = self.embed
        return len(self.missing_CD) + float(embed.rows(batch))


class Categories(nn.Module):
    """A learned token for each category of each column, and a vector for the column itself: T_c[code] + b_c.

    sizes    how many categories each column has; codes count from 0
    unseen   None, or the share of categories that training hides behind the token of unseen ones, code `sizes[c]`
    bias     whether there is the vector b_c of the column
    """

    offset_C: Tensor
    size_C: Tensor

    def __init__(self, sizes: Sequence[int], width: int, *, unseen: float | None = None, bias: bool = True) -> None:
        super().__init__()
        if min(sizes, default=1) < 1:
            raise ConfigError(f"every column needs at least one category: {sizes=}")
        self.hidden = check_rate(unseen or 0.0)
        rows = [size + (unseen is not None) for size in sizes]
        self.weight_VD = _uniform(sum(rows), width, inputs=width)
        self.bias_CD = _uniform(len(sizes), width, inputs=width) if bias else None
        self.register_buffer("offset_C", torch.tensor([0, *accumulate(rows[:-1])]), persistent=False)
        self.register_buffer("size_C", torch.tensor(sizes), persistent=False)

    def shown(self, code_BC: Tensor) -> Tensor:
        """The codes, in training some of them hidden behind that of unseen ones."""
        if not (self.training and self.hidden):
            return code_BC
        kept_BC = keep_mask(code_BC.shape, self.hidden, code_BC.device).bool()
        return torch.where(kept_BC, code_BC, self.size_C)

    def forward(self, code_BC: Tensor, linear: nn.Linear | None = None) -> Tensor:
        """The tokens of codes that are shown."""
        token_BCD = F.embedding(code_BC + self.offset_C, _mapped(self.weight_VD, linear))
        return token_BCD if self.bias_CD is None else token_BCD + _shifted(self.bias_CD, linear)

    def rows(self, batch: int) -> float:
        """As much work as so many tokens would be: what goes through a layer above."""
        return len(self.weight_VD) + len(self.size_C)


class ColumnAwareCategories(nn.Module):
    """[own, shared]: of each token the last `shared` numbers are the column's, alike for all its categories.

    [huang2020 §2]: the shared part lets the model tell the columns apart.
    """

    def __init__(self, sizes: Sequence[int], width: int, shared: int, *, unseen: float | None = None) -> None:
        super().__init__()
        if not 0 <= shared < width:
            raise ConfigError(f"the shared part must leave room for the category's own: {shared=}, {width=}")
        self.own = Categories(sizes, width - shared, unseen=unseen, bias=False)
        self.shared_CD = _uniform(len(sizes), shared, inputs=width)

    def forward(self, code_BC: Tensor) -> Tensor:
        own_BCD = self.own(self.own.shown(code_BC))
        return torch.cat([own_BCD, self.shared_CD.expand(len(code_BC), -1, -1)], dim=-1)


class ColumnTokens(nn.Module):
    """`[CLS]`, then a token for each numeric column, then one for each categorical column: x_BLD, L = 1 + C."""

    def __init__(self, width: int, *, numbers: nn.Module | None = None, categories: Categories | None = None) -> None:
        super().__init__()
        self.summary_D = _uniform(width, inputs=width)
        self.numbers, self.categories = numbers, categories
        self.see_tokens = Tap()

    def forward(self, number_BC: Tensor, code_BC: Tensor) -> Tensor:
        return self.see_tokens(self._tokens(number_BC, self._shown(code_BC), None))

    def projected(self, number_BC: Tensor, code_BC: Tensor, linear: nn.Linear) -> tuple[Tensor, Tensor]:
        """The tokens, and what the layer makes of them: not of each, but of the rows that they are mixed of."""
        code_BC = self._shown(code_BC)
        return self._tokens(number_BC, code_BC, None), self._tokens(number_BC, code_BC, linear)

    def rows(self, batch: int) -> float:
        """As much work as so many tokens would be: what goes through the layer in `projected`, and mixing it."""
        parts: list[Any] = [part for part in (self.numbers, self.categories) if part is not None]
        return 1 + sum(part.rows(batch) for part in parts)

    def _shown(self, code_BC: Tensor) -> Tensor:
        return code_BC if self.categories is None else self.categories.shown(code_BC)

    def _tokens(self, number_BC: Tensor, code_BC: Tensor, linear: nn.Linear | None) -> Tensor:
        tokens = [_shifted(self.summary_D, linear).expand(len(number_BC), 1, -1)]
        if self.numbers is not None:
            tokens.append(self.numbers(number_BC, linear))
        if self.categories is not None:
            tokens.append(self.categories(code_BC, linear))
        return torch.cat(tokens, dim=1)
