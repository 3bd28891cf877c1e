"""Attention: every kernel equals a loop over positions and its finite differences, and blindness gives zeros."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clearhead.errors import ShapeError
from clearhead.nn import kernels
from clearhead.nn.dropout import keep_scale
from clearhead.nn.kernels import attend, causal_mask, masked, safe_softmax, scores_to_weights

KERNELS = {"plain": kernels._plain, "fused": kernels._fused, "blocked": kernels._blocked}
SCALE = 0.7


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """Blocks of three queries and few rows, so that tiny cases have many."""
    names = ("_QUERIES", "_ONE_ROW", "_MANY_ROWS")
    before = [getattr(kernels, name) for name in names]
    for name, value in zip(names, (3, 24, 48), strict=True):
        setattr(kernels, name, value)
    yield
    for name, value in zip(names, before, strict=True):
        setattr(kernels, name, value)


def heads(rows: int, count: int, length: int, width: int = 2) -> Tensor:
    """Heads as attention has them: cut out of (B, L, D), so not contiguous; in double precision."""
    return torch.randn(rows, length, count, width, dtype=torch.float64).transpose(1, 2).requires_grad_()


@torch.no_grad()
def by_loops(q: Tensor, k: Tensor, v: Tensor, causal: bool, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """One query at a time, one key at a time, in Python numbers."""
    (B, H, L, K), (G, M) = q.shape, k.shape[1:3]
    sees = torch.ones(B, H, L, M, dtype=torch.bool) if allowed is None else allowed.expand(B, H, L, M)
    added = torch.zeros(B, H, L, M) if bias is None else bias.expand(B, H, L, M)
    y = torch.zeros(B, H, L, K, dtype=q.dtype)
    for b in range(B):
        for h in range(H):
            g = h // (H // G)
            for i in range(L):
                keys = [j for j in range(M) if sees[b, h, i, j] and (not causal or j <= i + M - L)]
                powers = [math.exp(SCALE * float(q[b, h, i] @ k[b, g, j]) + float(added[b, h, i, j])) for j in keys]
                for j, power in zip(keys, powers, strict=True):
                    y[b, h, i] += power / sum(powers) * v[b, g, j]
    return y


MASKS = st.sampled_from(["none", "keys", "pairs", "heads", "rows of queries"])


def draw_mask(kind: str, B: int, H: int, L: int, M: int) -> Tensor | None:
    """Random masks of every shape that broadcasts; some leave queries with nothing to look at."""
    shapes = {"keys": (B, 1, 1, M), "pairs": (L, M), "heads": (1, H, L, M), "rows of queries": (B, 1, L, 1)}
    return torch.rand(shapes[kind]) < 0.6 if kind in shapes else None


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@given(
    rows=st.integers(1, 3), groups=st.integers(1, 2), group=st.integers(1, 2), queries=st.integers(1, 7),
    more=st.integers(0, 3), causal=st.booleans(), mask=MASKS, bias=st.sampled_from([None, "heads", "all"]),
)  # fmt: skip
def test_every_kernel_equals_the_loops(
    kernel: str, rows: int, groups: int, group: int, queries: int, more: int, causal: bool, mask: str, bias: str | None
) -> None:
    H, M = groups * group, queries + more
    q, k, v = heads(rows, H, queries), heads(rows, groups, M), heads(rows, groups, M)
    allowed = draw_mask(mask, rows, H, queries, M)
    added = None if bias is None else torch.randn(rows if bias == "all" else 1, H, queries, M, dtype=q.dtype)
    rule = kernels._Rule(SCALE, causal, allowed, added, 0.0)
    torch.testing.assert_close(KERNELS[kernel](q, k, v, rule), by_loops(q, k, v, causal, allowed, added))


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 5), (5, 2), (1, 4), (1, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_whichever_is_chosen_equals_the_loops(queries: int, keys: int, causal: bool) -> None:
    q, k, v = heads(2, 4, queries), heads(2, 2, keys), heads(2, 2, keys)
    torch.testing.assert_close(attend(q, k, v, scale=SCALE, causal=causal), by_loops(q, k, v, causal, None, None))
    with torch.no_grad():
        torch.testing.assert_close(attend(q, k, v, scale=SCALE, causal=causal), by_loops(q, k, v, causal, None, None))


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("mask", ["none", "keys", "pairs", "heads"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_equal_finite_differences(kernel: str, mask: str, causal: bool) -> None:
    q, k, v = heads(2, 4, 5), heads(2, 2, 6), heads(2, 2, 6)
    allowed = draw_mask(mask, 2, 4, 5, 6)

    def read(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return KERNELS[kernel](q, k, v, kernels._Rule(SCALE, causal, allowed, None, 0.0))

    assert torch.autograd.gradcheck(read, (q, k, v))


@pytest.mark.parametrize("shape", [(1, 4, 5, 6), (2, 4, 5, 6), (5, 6), (1, 4, 1, 6), (2, 1, 5, 1)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_a_bias_and_through_dropout(shape: tuple[int, ...], dropout: float, causal: bool) -> None:
    q, k, v = heads(2, 4, 5), heads(2, 2, 6), heads(2, 2, 6)
    bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    allowed = draw_mask("keys", 2, 4, 5, 6)

    def read(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(1)
        return attend(q, k, v, scale=SCALE, causal=causal, allowed=allowed, bias_BHLM=bias, dropout=dropout)

    assert torch.autograd.gradcheck(read, (q, k, v, bias), fast_mode=True)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_may_look_at_nothing_gives_zeros_and_no_gradient(kernel: str, causal: bool) -> None:
    q, k, v = heads(2, 2, 4), heads(2, 2, 4), heads(2, 2, 4)
    allowed = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    allowed[0, :, 2] = False
    allowed[1] = False
    y = KERNELS[kernel](q, k, v, kernels._Rule(SCALE, causal, allowed, None, 0.0))
    gradients = torch.autograd.grad(y.sum(), (q, k, v))
    for x in (y, gradients[0]):
        assert not x[0, :, 2].any()
        assert not x[1].any()
    assert y[0, :, [0, 1, 3]].all()
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert not gradient[1].any()


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_no_keys_and_no_queries(dropout: float) -> None:
    q, none = heads(2, 2, 3), heads(2, 2, 0)
    y = attend(q, none, none, scale=SCALE, causal=True, dropout=dropout)
    assert y.shape == q.shape
    assert not y.any()
    assert not torch.autograd.grad(y.sum(), q)[0].any()
    assert attend(none, q, q, scale=SCALE, dropout=dropout).shape == none.shape


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_more_queries_than_keys_leave_the_first_ones_blind(dropout: float) -> None:
    q, k, v = heads(40, 1, 5), heads(40, 1, 2), heads(40, 1, 2)
    y = attend(q, k, v, scale=SCALE, causal=True, dropout=dropout)
    assert not y[:, 0, :3].any()
    kept = y[:, 0, 3].all(-1)
    assert kept.any()
    torch.testing.assert_close(y[kept, 0, 3], v[kept, 0, 0] * keep_scale(dropout))


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ShapeError, match="H=3, G=2"):
        attend(heads(1, 3, 2), heads(1, 2, 2), heads(1, 2, 2), scale=SCALE)


def test_dropout_scales_what_it_keeps_and_weighs_with_the_undropped_rest() -> None:
    """With the identity as values, what is read are the weights themselves."""
    p, length = 0.3, 24
    q, k = heads(8, 4, length), heads(8, 2, length)
    eye = torch.eye(length, dtype=torch.float64).expand(8, 2, length, length)
    wide = [torch.nn.functional.pad(x, (0, length - 2)) for x in (q, k)]
    weights = attend(*wide, eye, scale=SCALE, causal=True)
    dropped = attend(*wide, eye, scale=SCALE, causal=True, dropout=p)
    kept = dropped != 0
    torch.testing.assert_close(dropped, torch.where(kept, weights * keep_scale(p), 0.0))
    seen = causal_mask(length, length).expand_as(kept)
    assert kept[seen].double().mean().item() == pytest.approx(1 - p, abs=5 * math.sqrt(p * (1 - p) / seen.sum().item()))


def test_dropout_follows_the_generator_and_a_checkpoint() -> None:
    q, k, v = heads(2, 2, 7), heads(2, 2, 7), heads(2, 2, 7)

    def read(q: Tensor) -> Tensor:
        return attend(q, k, v, scale=SCALE, causal=True, dropout=0.5)

    results = []
    for run in (read, read, lambda q: checkpoint(read, q, use_reentrant=False)):
        torch.manual_seed(2)
        y = run(q)
        results.append((y, *torch.autograd.grad(y.sum(), q)))
    for result in results[1:]:
        assert all(map(torch.equal, results[0], result))
    assert not torch.equal(read(q), read(q))


def test_one_query_reads_stored_keys_in_place() -> None:
    storage = torch.randn(2, 3, 2, 16, 4)
    k, v = storage[:, :, :, :9].unbind(0)
    q = torch.randn(3, 1, 4, 4).transpose(1, 2)
    allowed = torch.rand(3, 4, 1, 9) < 0.7
    for mask in (None, allowed, allowed[:, :1]):
        y = attend(q, k, v, scale=SCALE, causal=True, allowed=mask)
        torch.testing.assert_close(y, by_loops(q, k, v, False, mask, None))


@pytest.mark.parametrize("bias", [False, True])
def test_compiled_without_breaks(bias: bool) -> None:
    q, k, v = heads(2, 4, 5), heads(2, 2, 5), heads(2, 2, 5)
    allowed = draw_mask("keys", 2, 4, 5, 5)
    added = torch.randn(1, 4, 5, 5, dtype=q.dtype, requires_grad=True) if bias else None

    def read(q: Tensor, dropout: float) -> Tensor:
        return attend(q, k, v, scale=SCALE, causal=True, allowed=allowed, bias_BHLM=added, dropout=dropout)

    torch._dynamo.reset()
    compiled = torch.compile(read, backend="aot_eager", fullgraph=True)
    ours, theirs = read(q, 0.0), compiled(q, 0.0)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours.sum(), q), torch.autograd.grad(theirs.sum(), q))
    torch.manual_seed(0)
    dropped = compiled(q, 0.5)
    assert not torch.equal(compiled(q, 0.5), dropped)
    torch.manual_seed(0)
    torch.testing.assert_close(dropped, kernels._plain(q, k, v, kernels._Rule(SCALE, True, allowed, added, 0.5)))


def test_lower_precision_is_served_too() -> None:
    q, k, v = (heads(2, 2, 4).detach().bfloat16().requires_grad_() for _ in range(3))
    y = attend(q, k, v, scale=SCALE, causal=True)
    torch.testing.assert_close(y.double(), by_loops(q, k, v, True, None, None).double(), atol=0.05, rtol=0.05)
    dropped = attend(q, k, v, scale=SCALE, causal=True, dropout=0.5)
    assert dropped.dtype == torch.bfloat16
    assert torch.autograd.grad(dropped.sum(), q)[0].isfinite().all()


@given(queries=st.integers(1, 5), keys=st.integers(1, 5), causal=st.booleans())
def test_weights_sum_to_one_or_are_zero(queries: int, keys: int, causal: bool) -> None:
    scores = torch.randn(2, 3, queries, keys, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(2, 1, queries, keys) < 0.5
    weights = scores_to_weights(scores, causal=causal, allowed=allowed)
    sees = (allowed & causal_mask(queries, keys) if causal else allowed).expand_as(weights)
    torch.testing.assert_close(weights.sum(-1), sees.any(-1).double())
    assert not weights[~sees].any()
    (gradient,) = torch.autograd.grad(weights, scores, torch.randn_like(weights))
    assert gradient.isfinite().all()
    assert not gradient[~sees].any()


def test_a_row_of_nothing_but_minus_infinity_has_no_gradient() -> None:
    """Here no mask stands before it that would hide a NaN."""
    scores = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]], requires_grad=True)
    weights = safe_softmax(scores)
    assert weights.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert not torch.autograd.grad(weights, scores, torch.ones(2, 2))[0].any()


def test_the_pieces() -> None:
    scores = torch.zeros(1, 1, 2, 2)
    assert masked(scores, None) is scores
    assert safe_softmax(masked(scores, causal_mask(2, 2)))[0, 0].tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]
