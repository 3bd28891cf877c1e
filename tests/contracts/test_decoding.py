"""One answer: what every model that generates writes is the same however it is asked.

Cached = uncached = batched = single = streamed = compiled, token for token, by greedy decoding and by beam search.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.generate import beam as beam_search
from clearhead.generate.beam import Found
from clearhead.generate.branches import CopiedBranches
from clearhead.generate.decode import Decoded, Prompts
from clearhead.generate.decoding import STOPPINGS, Decoding
from clearhead.generate.write import search, write
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.nn.cache import State
from clearhead.nn.int8 import to_int8
from tests.contracts.covering import Setting, each, label, pairwise, sample
from tests.contracts.family import FACTORS, VOCABULARY, build
from tests.contracts.plain_decoding import Answer, Read, plain_beam, plain_greedy

GENERATING = {**FACTORS, "mode": ("encoder_decoder", "decoder_only")}
COVERING = pairwise(GENERATING)
SETTINGS = [
    *(pytest.param(setting, id=label(setting)) for setting in COVERING),
    *(pytest.param(s, id="more-" + label(s), marks=pytest.mark.slow) for s in sample(GENERATING, 300)),
]
# In 8 bits: every row in both modes here, every pair of rows in the slow suite.
INTEGERS = [
    *(pytest.param(s, id=label(s)) for s in each(GENERATING, per="mode")),
    *(pytest.param(s, id="pair-" + label(s), marks=pytest.mark.slow) for s in COVERING),
]
LONGEST = 4


@dataclass(frozen=True)
class Case:
    """A ragged batch: prompts, how far each goes on, and sources, which a decoder alone leaves unread."""

    prompts: list[list[int]]
    longest: list[int]
    sources: list[list[int]]
    eos: int | None
    decoding: Decoding

    @staticmethod
    def of(seed: int) -> "Case":
        draw = random.Random(seed)

        def text() -> list[int]:
            return [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 4))]

        rows = 2
        decoding = Decoding(
            beams=draw.randint(2, 4),
            length_penalty=draw.choice([0.0, 0.6, 1.0, 2.0, -0.5]),
            stopping=draw.choice(sorted(STOPPINGS)),
        )
        return Case(
            [text() for _ in range(rows)],
            [draw.randint(1, LONGEST) for _ in range(rows)],
            [text() for _ in range(rows)],
            draw.choice([None, 2, 7]),
            decoding,
        )

    def __len__(self) -> int:
        return len(self.prompts)

    def row(self, number: int) -> "Case":
        one = slice(number, number + 1)
        return Case(self.prompts[one], self.longest[one], self.sources[one], self.eos, self.decoding)

    def given(self) -> Prompts:
        token_BT, count_B = padded(self.prompts)
        return Prompts(token_BT, self.longest, self.eos, count_B if len(self) > 1 else None)

    @torch.inference_mode()
    def start(self, model: Any) -> State:
        """Room is reserved as a caller that knows the lengths would, or not at all."""
        room = (0, 12)[len(self.prompts[0]) % 2]
        state: State
        if isinstance(model, EncoderDecoder):
            state = model.start(*padded(self.sources), room=room)
        else:
            state = model.start(room=room)
        return state


cases = st.integers(0, 10**6).map(Case.of)


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Right-padded, by a token that means something."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[3] * (longest - len(row))] for row in rows]), torch.tensor([len(row) for row in rows])


def whole(model: Any, case: Case, row: int) -> Read:
    """The model without a cache, one row's texts at a time."""

    @torch.no_grad()
    def read(texts: Any) -> Tensor:
        token_NL = torch.tensor(texts)
        if isinstance(model, EncoderDecoder):
            source_NM = torch.tensor([case.sources[row]]).expand(len(texts), -1)
            return model(source_NM, token_NL)[:, -1].log_softmax(-1)
        return model(token_NL)[:, -1].log_softmax(-1)

    return read


def greedy(model: Any, case: Case, step: Any = None) -> list[Decoded]:
    found = search(step or model, case.start(model), case.given(), Decoding())
    return [one.best[0] for one in found]


def beam(model: Any, case: Case, step: Any = None) -> list[Found]:
    return search(step or model, case.start(model), case.given(), case.decoding)


def same(found: Decoded, expected: Decoded | Answer) -> None:
    assert found.tokens == expected.tokens
    assert found.scores == pytest.approx(expected.scores, abs=1e-4)


def same_search(found: list[Found], expected: list[Found]) -> None:
    for one, other in zip(found, expected, strict=True):
        same(one.best[0], other.best[0])
        assert one.ranks == pytest.approx(other.ranks, abs=1e-4)


def test_the_settings_cover_every_pair_of_rows() -> None:
    for a, b in [("mode", "positions"), ("mode", "score"), ("positions", "residual"), ("score", "feedforward")]:
        assert {(s[a], s[b]) for s in COVERING} == {(x, y) for x in GENERATING[a] for y in GENERATING[b]}


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=1)
@given(case=cases)
def test_greedy_and_beam_are_one_answer(setting: Setting, case: Case) -> None:
    model = build(setting)
    check_greedy(model, case)
    check_beam(model, case)


def check_greedy(model: Any, case: Case) -> None:
    batched = greedy(model, case)
    streamed: list[list[int]] = [[] for _ in batched]
    for written in write(model, case.start(model), case.given(), Decoding()):
        for text, row in zip(streamed, written, strict=True):
            assert 0 <= len(row.tokens) - len(text) <= 1
            text += row.tokens[len(text) :]
    for number, found in enumerate(batched):
        same(found, plain_greedy(whole(model, case, number), case.prompts[number], case.longest[number], case.eos))
        same(found, *greedy(model, case.row(number)))
        assert streamed[number] == found.tokens


def check_beam(model: Any, case: Case) -> None:
    batched = beam(model, case)
    for number, found in enumerate(batched):
        (rank, expected), *_ = plain_beam(
            whole(model, case, number), case.prompts[number], case.longest[number], case.eos,
            beams=case.decoding.beams, length_penalty=case.decoding.length_penalty, stopping=case.decoding.stopping,
        )  # fmt: skip
        same(found.best[0], expected)
        assert found.ranks == pytest.approx([rank], abs=1e-4)
    same_search([one for number in range(len(case)) for one in beam(model, case.row(number))], batched)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_search, "branches_of", CopiedBranches)
        same_search(beam(model, case), batched)


@pytest.mark.parametrize("positions", FACTORS["positions"])
def test_branches_are_shared_where_positions_are_no_slots(positions: str) -> None:
    """The search above meets both kinds of branches."""
    model: Any = build({**COVERING[0], "positions": positions})
    assert model.branches == (positions not in {"alibi", "shaw", "t5", "transformer_xl"})


@pytest.mark.parametrize("setting", INTEGERS)
@settings(max_examples=1)
@given(case=cases)
def test_in_8_bits_a_row_answers_alone_as_in_a_batch(setting: Setting, case: Case) -> None:
    model = to_int8(build(setting))
    batched, searched = greedy(model, case), beam(model, case)
    for number in range(len(case)):
        same(batched[number], *greedy(model, case.row(number)))
        same_search([searched[number]], beam(model, case.row(number)))


@dataclass(frozen=True)
class Compiled:
    """A model whose step is compiled."""

    step: Callable[..., tuple[Tensor, State]]
    branches: bool


COMMON = {"score": "scaled_dot", "norm": "layer_norm", "combination": "latest", "persistent": 0, "kv_heads": None}
ROTARY = {"mode": "decoder_only", "positions": "rotary", "residual": "pre_norm", "feedforward": "swiglu"}


# Rows of different lengths are data that the compiler stops at: many short graphs, of which nothing is gained.
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({**COMMON, **ROTARY}, id="rotary"),
        *(pytest.param(s, id=label(s), marks=pytest.mark.slow) for s in each(GENERATING, per="mode")),
    ],
)
@torch.no_grad()
def test_compiled_is_eager(setting: Setting) -> None:
    torch.compiler.reset()
    model: Any = build(setting, layers=1)
    compiled = Compiled(torch.compile(model.step, backend="eager"), model.branches)
    case = Case([[1, 2]], [3], [[1, 2]], 7, Decoding(beams=2))
    for found, expected in zip(greedy(model, case, compiled), greedy(model, case), strict=True):
        same(found, expected)
    same_search(beam(model, case, compiled), beam(model, case))


@torch.inference_mode()
def test_a_compiled_step_leaves_older_states_as_they_are() -> None:
    torch.compiler.reset()
    model: Any = build({**COMMON, **ROTARY}, layers=1)
    step = torch.compile(model.step, backend="eager", fullgraph=True)
    _, state = model.step(torch.tensor([[1, 2]]), model.start(room=16))
    for word in (3, 4, 5):
        _, state = step(torch.tensor([[word]]), state)
    for other in (6, 7):  # two ways on from the same state
        _, forked = step(torch.tensor([[other]]), state)
        logits_BTV, _ = step(torch.tensor([[8]]), forked)
        expected_BLV = model(torch.tensor([[1, 2, 3, 4, 5, other, 8]]))
        torch.testing.assert_close(logits_BTV[:, -1], expected_BLV[:, -1], rtol=1e-4, atol=1e-5)
