"""The way in for tables: a token for each column of a row.

A number x of column c becomes a token by one of three embeddings, a category by its own row of a table:

| name | token | from |
|---|---|---|
| linear | x w_c + b_c | gorishniy2021 §3.3 |
| piecewise | e(x) W_c + b_c, where e_t(x) says how much of the column's bin t lies below x | gorishniy2022 §3.2 |
| periodic | relu([cos v, sin v] W_c + b_c), v = 2π x f_c, the frequencies f_c learned | gorishniy2022 §3.3 |

A missing number (NaN) has a learned token of its own in those columns that are said to miss values; a missing category
is a category like any other. An unseen category has a learned token too, which training meets where it hides some.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


def _each_column(x_BCW: Tensor, weight_CWD: Tensor, bias_CD: Tensor) -> Tensor:
    """A linear layer for each column: (B, C, W) -> (B, C, D)."""
    return torch.baddbmm(bias_CD[:, None], x_BCW.transpose(0, 1), weight_CWD).transpose(0, 1)


class LinearNumbers(nn.Module):
    """x w_c + b_c."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.weight_CD = _uniform(columns, width, inputs=width)
        self.bias_CD = _uniform(columns, width, inputs=width)

    def forward(self, number_BC: Tensor) -> Tensor:
        return torch.addcmul(self.bias_CD, number_BC[:, :, None], self.weight_CD)


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

    def forward(self, number_BC: Tensor) -> Tensor:
        within_BCW = (number_BC[:, :, None] - self.lower_CW) * self.slope_CW
        return _each_column(within_BCW.clamp(self.least_CW, self.most_CW), self.weight_CWD, self.bias_CD)


class PeriodicNumbers(nn.Module):
    """relu([cos v, sin v] W_c + b_c) with v = 2π x (f_1 … f_K), f drawn from N(0, sigma²) and learned."""

    def __init__(self, columns: int, width: int, frequencies: int, sigma: float) -> None:
        super().__init__()
        self.frequency_CK = nn.Parameter(torch.randn(columns, frequencies) * sigma)
        self.weight_CWD = _uniform(columns, 2 * frequencies, width, inputs=2 * frequencies)
        self.bias_CD = _uniform(columns, width, inputs=2 * frequencies)

    def forward(self, number_BC: Tensor) -> Tensor:
        angle_BCK = 2 * torch.pi * number_BC[:, :, None] * self.frequency_CK
        wave_BCW = torch.cat([angle_BCK.cos(), angle_BCK.sin()], dim=-1)
        return F.relu(_each_column(wave_BCW, self.weight_CWD, self.bias_CD))


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

    def forward(self, number_BC: Tensor) -> Tensor:
        absent_BC = number_BC.isnan()
        token_BCD: Tensor = self.embed(number_BC.masked_fill(absent_BC, 0.0))
        missing_CD = token_BCD.new_zeros(token_BCD.shape[1:]).index_copy(0, self.which, self.missing_CD)
        return torch.where(absent_BC[:, :, None], missing_CD, token_BCD)


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

    def forward(self, code_BC: Tensor) -> Tensor:
        if self.training and self.hidden:
            kept_BC = keep_mask(code_BC.shape, self.hidden, code_BC.device).bool()
            code_BC = torch.where(kept_BC, code_BC, self.size_C)
        token_BCD = F.embedding(code_BC + self.offset_C, self.weight_VD)
        return token_BCD if self.bias_CD is None else token_BCD + self.bias_CD


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
        own_BCD = self.own(code_BC)
        return torch.cat([own_BCD, self.shared_CD.expand(len(code_BC), -1, -1)], dim=-1)


class ColumnTokens(nn.Module):
    """`[CLS]`, then a token for each numeric column, then one for each categorical column: x_BLD, L = 1 + C."""

    def __init__(self, width: int, *, numbers: nn.Module | None = None, categories: nn.Module | None = None) -> None:
        super().__init__()
        self.summary_D = _uniform(width, inputs=width)
        self.numbers, self.categories = numbers, categories
        self.see_tokens = Tap()

    def forward(self, number_BC: Tensor, code_BC: Tensor) -> Tensor:
        tokens = [self.summary_D.expand(len(number_BC), 1, -1)]
        if self.numbers is not None:
            tokens.append(self.numbers(number_BC))
        if self.categories is not None:
            tokens.append(self.categories(code_BC))
        return self.see_tokens(torch.cat(tokens, dim=1))
