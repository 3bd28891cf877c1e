"""The engine: who joins, who waits, who is refused, and what becomes of those who leave."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.decode import Decoded, Manner
from clearhead.generate.decoding import Decoding
from clearhead.generate.greedy import take_best
from clearhead.generate.write import search
from clearhead.serve.engine import Between, Engine
from clearhead.serve.guards import RefusedError
from clearhead.serve.work import Budget, Line
from tests.unit.serving import Gate, within
from tests.unit.toy_step import Toy, ragged

GREEDY = Manner(take_best)


class Start:
    """A toy behind a gate, as the engine wants it."""

    ends = frozenset[int]()

    def __init__(self, seed: int = 0) -> None:
        self.toy = Toy(5, seed)
        self.model: Any = Gate(self.toy)

    def start(self, lines: Sequence[Line], room: int) -> tuple[Any, Tensor, Tensor | None]:
        prompts = ragged([list(line.prompt) for line in lines], 9)
        return self.toy.start(len(lines)), prompts.token_BT, prompts.count_B

    def alone(self, prompt: list[int], longest: int) -> list[int]:
        (found,) = search(self.toy, self.toy.start(1), ragged([prompt], longest, eos=None), Decoding())
        return found.best[0].tokens


@contextmanager
def engine_of(start: Start | None, **budget: int) -> Iterator[Engine]:
    engine = Engine("toy", Budget(**budget), start)
    try:
        yield engine
    finally:
        if start is not None:
            start.model.open.set()
        engine.close()


def line(token: int, longest: int, **more: Any) -> Line:
    return Line([token], longest, GREEDY, **more)


def test_newcomers_join_at_the_next_step() -> None:
    start = Start()
    with engine_of(start) as engine:
        first = engine.write([line(1, 6)])
        assert start.model.arrived.wait(60)  # the first is being read, and no step passes the gate
        second = engine.write([line(2, 3), line(3, 4)])
        start.model.open.set()
        assert [one.tokens for one in first.result(60)] == [start.alone([1], 6)]
        assert [one.tokens for one in second.result(60)] == [start.alone([2], 3), start.alone([3], 4)]
        # Read 1; step 1; read 2 and 3; then all three together, of which the shorter ones leave.
        assert start.model.rows == [1, 1, 2, 3, 3, 2, 1]
        assert engine.figures.into_running == 2


def test_without_batching_each_is_by_itself() -> None:
    start = Start()
    start.model.open.set()
    with engine_of(start, rows=1) as engine:
        futures = [engine.write([line(token, 3)]) for token in (1, 2, 3)]
        assert [future.result(60)[0].tokens for future in futures] == [start.alone([t], 3) for t in (1, 2, 3)]
        assert set(start.model.rows) == {1}


def test_the_budget_of_tokens_bounds_what_is_read_at_once() -> None:
    start = Start()
    with engine_of(start, tokens=4) as engine:
        engine.write([line(1, 1)])
        assert start.model.arrived.wait(60)
        future = engine.write([Line([1, 2], 1, GREEDY) for _ in range(5)])
        start.model.open.set()
        future.result(60)
        assert start.model.rows == [1, 2, 2, 1]


def test_the_room_for_caches_is_bounded() -> None:
    start = Start()
    with engine_of(start, room=8) as engine:
        engine.write([line(1, 1)])
        assert start.model.arrived.wait(60)
        future = engine.write([line(token, 3) for token in (1, 2, 3)])
        start.model.open.set()
        assert [one.tokens for one in future.result(60)] == [start.alone([t], 3) for t in (1, 2, 3)]
        assert max(start.model.rows) == 2


def test_a_full_queue_refuses_and_recovers() -> None:
    start = Start()
    with engine_of(start, rows=1, waiting=2) as engine:
        accepted = [engine.write([line(1, 2)])]
        assert start.model.arrived.wait(60)
        accepted += [engine.write([line(1, 2)]) for _ in range(2)]
        with pytest.raises(RefusedError) as refused:
            engine.write([line(1, 2)])
        assert (refused.value.status, refused.value.headers) == (429, {"retry-after": "1"})
        accepted[1].cancel()  # whoever gives up makes room at once
        accepted.append(engine.write([line(1, 2)]))
        start.model.open.set()
        assert [len(future.result(60)) for future in (accepted[0], *accepted[2:])] == [1, 1, 1]
        assert engine.write([line(1, 2)]).result(60)


def test_who_leaves_frees_the_place() -> None:
    start = Start()
    with engine_of(start, rows=1) as engine:
        gone = engine.write([line(1, 1000)])
        assert start.model.arrived.wait(60)
        waiting = engine.write([line(2, 2)])
        assert gone.cancel()
        start.model.open.set()
        assert waiting.result(60)[0].tokens == start.alone([2], 2)
        assert len(start.model.rows) < 10
        with pytest.raises(CancelledError):
            gone.result(60)


def test_a_listener_hears_every_token_and_can_stop() -> None:
    start = Start()
    start.model.open.set()
    heard: list[int] = []

    def hear(written: Decoded) -> None:
        heard.append(len(written.tokens))
        written.stopped = len(written.tokens) == 3

    with engine_of(start) as engine:
        (written,) = engine.write([line(1, 9, heard=hear)]).result(60)
    assert heard == [1, 2, 3]
    assert written.tokens == start.alone([1], 9)[:3]


def test_a_listener_that_fails_harms_nobody_else() -> None:
    start = Start()

    def fail(written: Decoded) -> None:
        raise ValueError("out of order")

    with engine_of(start) as engine:
        bad, good = engine.write([line(1, 4, heard=fail), line(3, 1000)]), engine.write([line(2, 4)])
        start.model.open.set()
        assert good.result(60)[0].tokens == start.alone([2], 4)
        with pytest.raises(ValueError, match="out of order"):
            bad.result(60)
        within(lambda: engine.running == 0)  # the other row of the same request is given up
        assert len(start.model.rows) < 20


def test_a_step_that_fails_ends_those_in_it_and_no_others() -> None:
    start = Start()
    start.model.open.set()
    broken = start.toy.logits_WV.clone()
    with engine_of(start) as engine:
        start.toy.logits_WV = torch.full_like(broken, float("nan"))
        with pytest.raises(DecodingError, match="not numbers"):
            engine.write([line(1, 4)]).result(60)
        start.toy.logits_WV = broken
        assert engine.write([line(1, 4)]).result(60)[0].tokens == start.alone([1], 4)


def test_calls_of_one_kind_are_gathered() -> None:
    seen: list[list[int]] = []
    begun, go = threading.Event(), threading.Event()

    def run(items: list[int]) -> list[int]:
        begun.set()
        assert go.wait(60)
        seen.append(items)
        return [item * item for item in items]

    with engine_of(None) as engine:
        first = engine.call("a", run, [1])
        assert begun.wait(60)
        rest = [engine.call("a", run, [2, 3]), engine.call("b", run, [4]), engine.call("a", run, [5])]
        go.set()
        assert first.result(60) == [1]
        assert [future.result(60) for future in rest] == [[4, 9], [16], [25]]
        assert seen == [[1], [2, 3, 5], [4]]


def test_of_gathered_calls_only_the_culprit_is_refused() -> None:
    begun, go = threading.Event(), threading.Event()

    def run(items: list[int]) -> list[int]:
        begun.set()
        assert go.wait(60)
        if 3 in items:
            raise DecodingError("3 is too much")
        return items

    with engine_of(None) as engine:
        engine.call("a", run, [1])
        assert begun.wait(60)
        good, bad = engine.call("a", run, [2]), engine.call("a", run, [3])
        go.set()
        assert good.result(60) == [2]
        with pytest.raises(DecodingError, match="too much"):
            bad.result(60)


def test_a_search_lets_the_batch_go_on_and_ends_when_nobody_waits() -> None:
    start = Start()
    start.model.open.set()
    with engine_of(start) as engine:
        between, written = Between(start.toy, engine.between), list[Any]()
        inside, go = threading.Event(), threading.Event()

        def run(items: list[int]) -> list[int]:
            inside.set()
            assert go.wait(60)
            state = start.toy.start(1)
            for step in range(10_000):
                _, state = between.step(torch.tensor([[1]]), state)
                written.append(step)
            return items

        search_ = engine.call("search", run, [1])
        assert inside.wait(60)
        line_ = engine.write([line(2, 3)])
        go.set()
        assert line_.result(60)[0].tokens == start.alone([2], 3)
        assert not search_.done()  # the line was written between the steps of the search
        search_.cancel()
        assert engine.call("next", list, [7]).result(60) == [7]
        assert len(written) < 10_000


def test_closing_finishes_what_was_accepted() -> None:
    start = Start()
    engine = Engine("toy", Budget(rows=1), start)
    futures = [engine.write([line(token, 3)]) for token in (1, 2, 3)]
    closing = threading.Thread(target=engine.close)
    closing.start()
    within(lambda: engine._closed)
    with pytest.raises(RefusedError) as refused:
        engine.write([line(1, 3)])
    assert refused.value.status == 503
    start.model.open.set()
    closing.join()
    assert [future.result(60)[0].tokens for future in futures] == [start.alone([t], 3) for t in (1, 2, 3)]


def test_nothing_to_do_is_done_at_once() -> None:
    with engine_of(None) as engine:
        assert engine.write([]).result(60) == []
        assert engine.call("a", list, []).result(60) == []
