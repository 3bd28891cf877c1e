"""Guessing ahead: what followed the last words earlier is tried at once, and kept as far as greedy decoding agrees.

Text repeats itself. The last few tokens are looked up in what was read and written; what followed them there is read by
the model in a single step, which costs little more than one token, and every guess that the model would have
chosen itself is a step saved [leviathan2023]. The words are those of greedy decoding, always.
"""

from collections.abc import Iterator, Sequence, Set

import torch
from torch import Tensor

from clearhead.generate.best import best
from clearhead.generate.decode import Decoded, Prompts, done, normaliser
from clearhead.generate.step import DecodingState, Step

__all__ = ["guess_ahead", "look_up"]

LONGEST_MATCH = 3


def look_up(text: Sequence[int], count: int) -> list[int]:
    """Up to `count` tokens that followed the text's own last ones earlier: the longest match, the latest of its kind.

    >>> look_up([5, 6, 7, 8, 5, 6], 2)
    [7, 8]
    """
    for size in range(min(LONGEST_MATCH, len(text) - 1), 0, -1):
        last = list(text[-size:])
        for start in range(len(text) - size - 1, -1, -1):
            if list(text[start : start + size]) == last:
                return list(text[start + size : start + size + count])
    return []


@torch.inference_mode()
def guess_ahead(model: Step, state: DecodingState, prompts: Prompts, *, count: int) -> Iterator[list[Decoded]]:
    """Greedy decoding with up to `count` tokens guessed at each step; all rows as they stand after each."""
    written = [Decoded() for _ in range(len(prompts))]
    going, texts = list(range(len(prompts))), prompts.lists()
    guesses: list[list[int]] = [[] for _ in going]
    logits_BTV, state = model.step(prompts.token_BT, state, count_B=prompts.count_B, last=True)
    while True:
        score_BT1, token_BT1 = best(logits_BTV.float(), 1)
        score_BT = (score_BT1 - normaliser(logits_BTV))[..., 0].tolist()
        for row, guess, *chosen in zip(going, guesses, token_BT1[..., 0].tolist(), score_BT, strict=True):
            texts[row] += _agreed(
                written[row], guess, list(zip(*chosen, strict=True)), prompts.longest_B[row], prompts.ends
            )
        yield written
        staying = [place for place, row in enumerate(going) if not done(written[row], prompts.longest_B[row])]
        if not staying:
            return
        if len(staying) < len(going):
            going = [going[place] for place in staying]
            state = state.select(torch.tensor(staying, device=logits_BTV.device))
        # All but the last token of each text was read; guesses that were not agreed on are forgotten.
        state = state.rewind(torch.tensor([len(texts[row]) - 1 for row in going], device=logits_BTV.device))
        # No row goes further than any may: padding beside a longer guess must not leave the model's positions either.
        most = min(prompts.longest_B[row] - len(written[row].tokens) - 1 for row in going)
        guesses = [look_up(texts[row], min(count, most)) for row in going]
        token_BT, count_B = _padded([[texts[row][-1], *guess] for row, guess in zip(going, guesses, strict=True)])
        logits_BTV, state = model.step(token_BT.to(logits_BTV.device), state, count_B=count_B.to(logits_BTV.device))


def _agreed(
    written: Decoded, guess: Sequence[int], chosen: Sequence[tuple[int, float]], longest: int, ends: Set[int]
) -> list[int]:
    """Write what the model has chosen after each guess, up to the first one that it would not have made itself."""
    new = []
    for place, (token, score) in enumerate(chosen):
        written.add(token, score, ends)
        new.append(token)
        if done(written, longest) or place >= len(guess) or guess[place] != token:
            break
    return new


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    count_B = torch.tensor([len(row) for row in rows])
    longest = int(count_B.max())
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows]), count_B
