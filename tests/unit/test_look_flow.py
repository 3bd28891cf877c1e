"""Rollout against the sum over all paths, flow against the smallest of all cuts."""

from functools import cache
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import ConfigError
from clearhead.look.capture import look
from clearhead.look.flow import _greatest, attention_flow, attention_rollout
from tests.unit.small import MODES, read, small_model, tokens

TOPS = {"encoder_decoder": ("decoder", 4), "encoder_only": ("encoder", 2), "decoder_only": ("decoder", 2)}


def recorded(mode: str, length: int = 3, **changes):
    model = small_model(mode, init="xavier", **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    with look(model, "*.weights") as seen:
        if mode == "encoder_decoder":
            model(tokens(2, length + 1), tokens(2, length))
        else:
            read(model, tokens(2, length))
    return model, seen


def edges_below(seen, node: tuple[str, int, int]) -> dict[tuple[str, int, int], float]:
    """What a place reads: (side, sub-layers passed, position) -> weight, worked out anew from the weights."""
    side, level, position = node
    cross = f"{side}.0.cross.weights" in seen
    layer, part = divmod(level - 1, 2) if cross else (level - 1, 0)
    weights = seen[f"{side}.{layer}.{'cross' if part else 'attention'}.weights"].tensor[1].double().mean(0)[position]
    below = ("encoder", 2) if part else (side, level - 1)
    found = {(*below, j): 0.5 * float(weight) for j, weight in enumerate(weights)}
    found[side, level - 1, position] = found.get((side, level - 1, position), 0.0) + 0.5
    return found


@pytest.mark.parametrize("mode", sorted(MODES))
def test_rollout_is_the_sum_over_all_paths(mode: str) -> None:
    model, seen = recorded(mode)
    found = attention_rollout(model, seen, row=1)
    side, top = TOPS[mode]

    @cache
    def paths(node: tuple[str, int, int], end: tuple[str, int, int]) -> float:
        if node[1] == 0:
            return float(node == end)
        return sum(weight * paths(other, end) for other, weight in edges_below(seen, node).items())

    for i in range(3):
        for j in range(3):
            assert found.own_LL[i, j] == pytest.approx(paths((side, top, i), (side, 0, j)), abs=1e-9)
        for j in range(4 if mode == "encoder_decoder" else 0):
            assert found.source_LM[i, j] == pytest.approx(paths((side, top, i), ("encoder", 0, j)), abs=1e-9)
    total = found.own_LL.sum(1) + (0 if found.source_LM is None else found.source_LM.sum(1))
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64), atol=1e-5, rtol=0)


def smallest_cut(graph, start, end) -> float:
    """The greatest flow is the smallest cut: every set of nodes that holds the start and not the end."""
    nodes = sorted({*graph, *(other for edges in graph.values() for other in edges)} - {start, end})
    return min(
        sum(weight for node in some for other, weight in graph.get(node, {}).items() if other not in some)
        for count in range(len(nodes) + 1)
        for some in ({start, *chosen} for chosen in combinations(nodes, count))
    )


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda edge: edge[0] < edge[1]),
        st.integers(1, 5),
        max_size=9,
    )
)
def test_the_greatest_flow_is_the_smallest_cut(edges: dict[tuple[int, int], int]) -> None:
    graph: dict = {}
    for (a, b), weight in edges.items():
        graph.setdefault(("x", a, 0), {})["x", b, 0] = float(weight)
    start, end = ("x", 0, 0), ("x", 4, 0)
    assert _greatest(graph, start, end) == pytest.approx(smallest_cut(graph, start, end))


@pytest.mark.parametrize("mode", ["encoder_decoder", "decoder_only"])
def test_flow_through_a_model(mode: str) -> None:
    """So few tokens that all cuts of what lies below the last output can be tried."""
    (side, top), length = TOPS[mode], 1 if mode == "encoder_decoder" else 3
    model, seen = recorded(mode, length=length)
    found = attention_flow(model, seen, row=1)
    last = (side, top, length - 1)
    graph, open_nodes = {}, [last]
    while open_nodes:
        node = open_nodes.pop()
        if node[1] > 0 and node not in graph:
            graph[node] = {other: weight for other, weight in edges_below(seen, node).items() if weight > 0}
            open_nodes += graph[node]
    ends = [(found.own_LL[-1, j], (side, 0, j)) for j in range(length)]
    if found.source_LM is not None:
        ends += [(found.source_LM[-1, j], ("encoder", 0, j)) for j in range(length + 1)]
    for flow, end in ends:
        assert float(flow) == pytest.approx(smallest_cut(graph, last, end), abs=1e-9)
    assert (found.own_LL.triu(1) == 0).all()  # nothing of the future


def test_layers_in_rounds_and_memory() -> None:
    model, seen = recorded("encoder_only", layers=4, distinct=2, persistent=2)
    found = attention_rollout(model, seen)
    by_hand = torch.eye(3, dtype=torch.float64)
    for turn, layer in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weights = seen[f"encoder.{layer}.attention.weights"].values[turn][0].double().mean(0)[:, 2:]
        by_hand = (0.5 * torch.eye(3) + 0.5 * weights) @ by_hand
    torch.testing.assert_close(found.own_LL, by_hand)


def test_what_was_not_recorded_is_named() -> None:
    model = small_model("decoder_only")
    with look(model, "decoder.0.attention.weights") as seen:
        read(model, tokens())
    with pytest.raises(ConfigError, match=r"'decoder\.1\.attention\.weights'"):
        attention_rollout(model, seen)
