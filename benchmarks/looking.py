"""What looking costs while nobody looks, and what pruning half of the heads brings.

taps      the taps that one decoding step passes, times what one of them costs in a loop of its own, as a share of that
          step; the bar is 2% for the smallest preset
pruned    a model of GPT-2's size without every other head: the time of a decoding step beside that of the whole model,
          taken in turn, and how much of its parameters and of its directory is gone
"""

import argparse
import json
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from harness import RESULTS, surroundings
from torch import nn

from clearhead.data.tokenizers import Tokenizer
from clearhead.look.importance import attention_names
from clearhead.look.prune import prune_heads
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.presets import PRESETS, build
from clearhead.nn.layout import for_decoding
from clearhead.tap import Tap
from clearhead.tasks.directory import ModelParts, Settings, save_model
from clearhead.tasks.pruning import folder_bytes

SMALL = ("gpt-tiny", "transformer-tiny")
BAR = 0.02
CONTEXT = 32  # tokens before the step that is timed


def stepping(model: Any, context: int = CONTEXT) -> Callable[[], object]:
    """One more token behind a context, again and again from the same state."""
    given = (torch.zeros(1, context, dtype=torch.long),) if isinstance(model, EncoderDecoder) else ()
    with torch.inference_mode():
        _, state = model.step(torch.zeros(1, context, dtype=torch.long), model.start(*given, room=context + 1))
    token_B1 = torch.zeros(1, 1, dtype=torch.long)

    def step() -> object:
        with torch.inference_mode():
            return model.step(token_B1, state, last=True)

    return step


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often a tap is passed, and how often one is asked whether anybody watches."""
    passes, asks = Tap.__call__, Tap.watched
    counts = {"passed": 0, "asked": 0}

    def call(tap: Tap, x: torch.Tensor) -> torch.Tensor:
        counts["passed"] += 1
        return passes(tap, x)

    def asked(tap: Tap) -> bool:
        counts["asked"] += 1
        return tap.hook is not None

    Tap.__call__, Tap.watched = call, property(asked)  # type: ignore[method-assign, assignment]
    try:
        yield counts
    finally:
        Tap.__call__, Tap.watched = passes, asks  # type: ignore[method-assign, assignment]


def seconds_of_a_tap(loops: int) -> dict[str, float]:
    """What passing an unwatched tap costs, and asking it; what the loop itself costs is taken off."""
    known = {"tap": Tap(), "x": torch.zeros(1)}

    def least(statement: str) -> float:
        return min(timeit.repeat(statement, globals=known, number=loops, repeat=9)) / loops

    empty = least("x")
    return {"passed": max(0.0, least("tap(x)") - empty), "asked": max(0.0, least("tap.watched") - empty)}


def taps(steps: int, loops: int) -> dict[str, Any]:
    """The share of a decoding step that taps take which nobody watches."""
    each, found = seconds_of_a_tap(loops), {}
    for name in SMALL:
        step = stepping(for_decoding(build(name).eval()))
        with counted() as counts:
            step()
        for _ in range(steps // 4):
            step()
        took = min(timeit.repeat(step, number=1, repeat=steps))  # the fastest, of which taps take the largest share
        cost = sum(counts[what] * each[what] for what in counts)
        found[name] = {"counts": counts, "step": took, "taps": cost, "share": cost / took}
        print(
            f"{name}: {counts['passed']} taps of {each['passed'] * 1e9:.0f} ns and {counts['asked']} questions of "
            f"{each['asked'] * 1e9:.0f} ns in a step of {took * 1e3:.2f} ms: {cost / took:.2%} (bar {BAR:.0%})"
        )
    return {"seconds": each, "presets": found, "met": all(one["share"] < BAR for one in found.values())}


def pruned(rounds: int, steps: int) -> dict[str, Any]:
    """GPT-2 and the same without every other head: decoding in turn, parameters, directories."""
    torch.manual_seed(0)
    whole: Any = build("gpt2").eval()
    half: Any = prune_heads(whole, {name: range(0, PRESETS["gpt2"].heads, 2) for name in attention_names(whole)})
    parameters = [model.parameters_table().total for model in (whole, half)]
    sizes = [directory_bytes(model) for model in (whole, half)]
    contenders = [stepping(for_decoding(model), 128) for model in (whole, half)]
    for step in contenders:
        step()
    samples: list[list[float]] = [[], []]
    for at in range(rounds):
        for which in (0, 1) if at % 2 else (1, 0):
            start = time.perf_counter()
            for _ in range(steps):
                contenders[which]()
            samples[which].append((time.perf_counter() - start) / steps)
    ratios = [a / b for a, b in zip(*samples, strict=True)]
    gone = 1 - parameters[1] / parameters[0]
    print(
        f"gpt2 without half of its heads: {gone:.1%} of {parameters[0]:,} parameters gone, directory {sizes[0]:,} → "
        f"{sizes[1]:,} bytes ({1 - sizes[1] / sizes[0]:.1%})"
    )
    print(
        f"a step {median(samples[0]) * 1e3:.1f} → {median(samples[1]) * 1e3:.1f} ms: {median(ratios):.2f} "
        f"times as fast ({min(ratios):.2f}–{max(ratios):.2f}), in proportion to what was removed {1 / (1 - gone):.2f}"
    )
    return {"parameters": parameters, "bytes": sizes, "seconds": samples, "ratio": median(ratios), "removed": gone}


def directory_bytes(model: nn.Module) -> int:
    """The size of the directory in which the model is saved."""
    tokenizer = Tokenizer.train("character", ["a text"], 40, specials=("<unk>", "<eos>"))
    with TemporaryDirectory() as folder:
        save_model(Path(folder) / "model", ModelParts(model, tokenizer, Settings("language_model", model.config)))
        return folder_bytes(Path(folder) / "model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a few samples: does everything run?")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps, loops, rounds = (60, 20_000, 3) if options.quick else (400, 1_000_000, 15)
    record = {
        "config": vars(options),
        **surroundings(["torch", "clearhead"]),
        "taps": taps(steps, loops),
        "pruned": pruned(rounds, 4 if options.quick else 20),
    }
    RESULTS.mkdir(exist_ok=True)
    name = "looking-part.json" if options.quick else "looking.json"
    (RESULTS / name).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
