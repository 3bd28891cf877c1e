"""`generate` of transformers and our decoding, with the same weights: the same words, and the same scores."""

from collections.abc import Set
from itertools import takewhile
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.generate.beam import Found
from clearhead.generate.decode import Prompts
from clearhead.generate.decoding import decoding_of
from clearhead.generate.score import score
from clearhead.generate.write import search

pytest.importorskip("transformers")

from tests.parity.borrowed import EOS, PAD, WORDS, gpt2, marian

ROWS, LONGEST = 3, 12
LENGTHS = torch.tensor([4, 2, 3])
EARLY = [True, False, "never"]
PENALTIES = [0.6, 1.0, 2.0]
# The names are those of transformers, on both sides.
GREEDY: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.4},
    {"no_repeat_ngram_size": 2},
    {"min_new_tokens": 5},
    {"bad_words_ids": [[3], [4, 5], [6]]},
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 3},
]
BEAM: list[dict[str, Any]] = [
    *({"length_penalty": penalty, "early_stopping": early} for penalty in PENALTIES for early in EARLY),
    *({"length_penalty": 0.0, "early_stopping": early} for early in EARLY),
    *({**one, "early_stopping": False} for one in GREEDY),
]
EVERY = [
    *GREEDY,
    *({"num_beams": 4, **one} for one in BEAM),
    *({"num_beams": 4, "num_return_sequences": 4, **one} for one in BEAM[:9]),
]
CASES = [(number % 3, case) for number, case in enumerate(EVERY)]  # each with one of three random models


def tokens(seed: int) -> Tensor:
    return torch.randint(1, PAD, (ROWS, 4), generator=torch.Generator().manual_seed(seed))


def real(seed: int) -> list[list[int]]:
    """Texts of different lengths."""
    return [row[:n] for row, n in zip(tokens(seed).tolist(), LENGTHS.tolist(), strict=True)]


def padded(rows: list[list[int]], *, left: bool) -> tuple[Tensor, Tensor]:
    """Tokens, and 1 where they are real."""
    width = max(map(len, rows))
    fill = [[PAD] * (width - len(row)) for row in rows]
    token = [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, fill, strict=True)]
    return torch.tensor(token), (torch.tensor(token) != PAD).long()


def of_theirs(
    found: Any, prompt: int, times: int, ends: Set[int] = frozenset({EOS})
) -> list[list[tuple[list[int], float | None]]]:
    """What theirs has written, without prompt and end, by rows."""
    ranks = found.sequences_scores.tolist() if "sequences_scores" in found else [None] * len(found.sequences)
    answers = []
    for text, rank in zip(found.sequences[:, prompt:].tolist(), ranks, strict=True):
        answers.append(([*takewhile(lambda token: token not in ends, text)], rank))
    return [answers[start : start + times] for start in range(0, len(answers), times)]


def same(ours: list[Found], theirs: list[list[tuple[list[int], float | None]]]) -> None:
    for found, expected in zip(ours, theirs, strict=True):
        assert [one.tokens for one in found.best] == [text for text, _ in expected]
        if expected[0][1] is not None:
            assert found.ranks == pytest.approx([rank for _, rank in expected], abs=1e-4)


def options(case: dict[str, Any]) -> dict[str, Any]:
    return {**case, "max_new_tokens": LONGEST}


@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize(("seed", "case"), CASES, ids=str)
def test_gpt2_writes_the_same(seed: int, case: dict[str, Any]) -> None:
    theirs, ours = gpt2(seed)
    for row in real(seed + 5):  # each alone: the penalties of theirs would count the padding of shorter prompts as read
        found = theirs.generate(
            torch.tensor([row]), attention_mask=torch.ones(1, len(row)), **options(case),
            do_sample=False, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        expected = of_theirs(found, len(row), case.get("num_return_sequences", 1))
        prompts = Prompts(torch.tensor([row]), [LONGEST], EOS)
        same(search(ours, ours.start(), prompts, decoding_of(options(case))), expected)


@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize("early", EARLY)
@pytest.mark.parametrize("ends", [{EOS, 3}, {*range(12)}])
def test_many_tokens_that_end_leave_room_for_those_that_go_on(ends: set[int], early: bool | str) -> None:
    """However many of the best candidates end, as many as there are beams go on."""
    case = options({"num_beams": 3, "num_return_sequences": 3, "length_penalty": 4.0, "early_stopping": early})
    for seed in range(4):
        theirs, ours = gpt2(seed)
        found = theirs.generate(
            torch.tensor([[5, 7]]), attention_mask=torch.ones(1, 2), **case, eos_token_id=sorted(ends),
            do_sample=False, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        prompts = Prompts(torch.tensor([[5, 7]]), [LONGEST], ends)
        same(search(ours, ours.start(), prompts, decoding_of(case)), of_theirs(found, 2, 3, ends))


@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize(("seed", "case"), CASES, ids=str)
def test_marian_writes_the_same(seed: int, case: dict[str, Any]) -> None:
    theirs, ours = marian(seed)
    source_BM, real_BM = padded(real(seed + 9), left=False)
    found = theirs.generate(
        source_BM, attention_mask=real_BM, **options(case),
        do_sample=False, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    prompts = Prompts(torch.full((ROWS, 1), PAD), [LONGEST] * ROWS, EOS)
    state = ours.start(source_BM, real_BM.sum(1))
    same(
        search(ours, state, prompts, decoding_of(options(case))),
        of_theirs(found, 1, case.get("num_return_sequences", 1)),
    )


def test_the_weights_are_the_same() -> None:
    theirs, ours = gpt2()
    torch.testing.assert_close(ours(tokens(1)), theirs(tokens(1)).logits, atol=1e-4, rtol=1e-4)
    theirs, ours = marian()
    expected = theirs(tokens(1), decoder_input_ids=tokens(2)).logits
    torch.testing.assert_close(ours(tokens(1), tokens(2)), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")  # of theirs
def test_a_ragged_batch_is_their_left_padded_one() -> None:
    theirs, ours = gpt2()
    rows = real(3)
    token_BT, real_BT = padded(rows, left=True)
    found = theirs.generate(
        token_BT, attention_mask=real_BT, max_new_tokens=LONGEST, num_beams=4, do_sample=False,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    token_BT, real_BT = padded(rows, left=False)
    prompts = Prompts(token_BT, [LONGEST] * ROWS, EOS, real_BT.sum(1))
    ours_found = search(ours, ours.start(), prompts, decoding_of({"num_beams": 4}))
    same(ours_found, of_theirs(found, token_BT.shape[1], 1))


@torch.no_grad()
def test_scores_of_a_given_text() -> None:
    theirs, ours = gpt2()
    token_BL = tokens(7)
    expected = theirs(token_BL).logits[:, :-1].log_softmax(-1).gather(2, token_BL[:, 1:, None])[..., 0]
    torch.testing.assert_close(
        score(ours, ours.start(), token_BL[:, :-1], token_BL[:, 1:]), expected, atol=1e-4, rtol=1e-4
    )


SAMPLED: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.5, "top_k": 5},
    {"top_p": 0.8},
    {"temperature": 1.3, "top_k": 8, "top_p": 0.9},
]


@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize("case", SAMPLED, ids=str)
def test_what_is_drawn_is_as_frequent_as_theirs(case: dict[str, Any]) -> None:
    """Pearson's χ² of two samples of the second token; beyond the 99.99% quantile they would differ."""
    theirs, ours = gpt2()
    draws = 3000
    given = {"do_sample": True, "top_k": 0, "max_new_tokens": 2, **case}
    torch.manual_seed(0)
    sequences = theirs.generate(torch.tensor([[5]]), **given, num_return_sequences=draws)
    decoding = decoding_of({**given, "num_return_sequences": draws})
    (found,) = search(ours, ours.start(), Prompts(torch.tensor([[5]]), [2], EOS), decoding)
    written = torch.tensor([[*one.tokens, EOS, EOS][:2] for one in found.best])
    first, second = sequences[:, 1], sequences[:, 2]
    second = torch.where(first == EOS, EOS, second)  # where they fill up
    drawn = (written[:, 0] * WORDS + written[:, 1], first * WORDS + second)
    a, b = (torch.bincount(pair, minlength=WORDS**2).double() for pair in drawn)
    # What is rare counts together, so that the statistic is what its distribution says.
    rare = a + b < 20
    a, b = (torch.cat([x[~rare], x[rare].sum()[None]]) for x in (a, b))
    met = a + b > 0
    statistic, freedom = float(((a - b)[met] ** 2 / (a + b)[met]).sum()), int(met.sum()) - 1
    assert freedom > 2
    assert statistic < freedom + 3.72 * (2 * freedom) ** 0.5 + 3.72**2
