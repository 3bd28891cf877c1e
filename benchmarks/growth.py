"""What a long text costs: milliseconds a word and bytes of cache as a generation grows to 4,096 words.

A word costs its way through the weights, the same at any length, and a look at every word before it:

    milliseconds(n) = a + b · n            bytes(n) = layers · 2 · key-value heads · head width · n · 4

The line is fitted by least squares, and the largest difference from it says how straight the measured one is.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch

from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig

LONGEST, BLOCK, THREADS = 4096, 256, 2
CONFIG = DecoderOnlyConfig(
    vocabulary=8_000, width=512, heads=8, layers=6, hidden=2048, positions="rotary", length=LONGEST
)
RESULTS = Path(__file__).parent / "results"


@torch.inference_mode()
def measure() -> tuple[list[float], int]:
    """The median milliseconds of a word in each block of words, and the bytes that the caches hold in the end."""
    torch.manual_seed(0)
    model = DecoderOnly(CONFIG).eval()
    state, token_B1 = model.start(room=LONGEST), torch.zeros(1, 1, dtype=torch.long)
    medians: list[float] = []
    for _ in range(LONGEST // BLOCK):
        times = []
        for _ in range(BLOCK):
            start = time.perf_counter()
            logits_BTV, state = model.step(token_B1, state)
            token_B1 = logits_BTV[:, -1].argmax(-1, keepdim=True)
            times.append(1e3 * (time.perf_counter() - start))
        medians.append(float(np.median(times)))
    held = (tensor for cache in state.own for tensor in (cache.keys_BGMK, cache.values_BGMK))
    return medians, sum(tensor.untyped_storage().nbytes() for tensor in held)


def main() -> None:
    torch.set_num_threads(THREADS)
    medians, held = measure()
    middle = np.arange(len(medians)) * BLOCK + BLOCK / 2
    slope, base = np.polyfit(middle, medians, 1)
    formula = CONFIG.layers * 2 * CONFIG.heads * (CONFIG.width // CONFIG.heads) * LONGEST * 4
    print("words so far   ms a word   on the line")
    for n, took in zip(middle, medians, strict=True):
        print(f"{n:12.0f}{took:12.2f}{base + slope * n:14.2f}")
    worst = float(np.max(np.abs(np.asarray(medians) / (base + slope * middle) - 1)))
    print(f"line: {base:.2f} ms + {1e3 * slope:.2f} µs · n, farthest from it {worst:.0%}")
    print(f"cache: {held:,} bytes, by the formula {formula:,} ({held / formula - 1:+.1%})")
    record = {"milliseconds": medians, "base": base, "slope": slope, "worst": worst, "bytes": held, "formula": formula}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
