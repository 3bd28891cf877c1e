"""Corpora: how much of a batch of sentences is padding, and how much memory a text takes that is larger than it.

Padding is that of the batches of one epoch as the recipe makes them, on both sides of each pair; beside it, what the
same number of batches would have if sentences came as they are shuffled. It is measured where a folder is given.
Memory is the largest resident size of a process of its own while it encodes a text, and of another while it reads
windows from random places of it: it must not grow with the text.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

import harness
import numpy as np

from clearhead.data.batch import padding_share, random_windows, row_batches
from clearhead.data.corpus import text_corpus
from clearhead.data.phrasebook.corpus import sentences
from clearhead.data.sources import TextSource
from clearhead.data.token_array import TokenArray
from clearhead.data.tokenizers import Tokenizer

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

RECIPES = Path(__file__).parent.parent / "recipes"
FILES = {
    "multi30k-de-en": ("train=[{0}/train.de, {0}/train.en]", "valid=[{0}/val.de, {0}/val.en]"),
    "tatoeba-fra-eng": ("train={0}/train.tsv", "valid={0}/valid.tsv"),
}
SHARES = (1 / 8, 1 / 2, 1)  # of the gigabytes that are asked for
VOCABULARY = 8_000
LINES = 50_000
STEPS, ROWS, LENGTH = 2_000, 32, 257  # of reading


@dataclass(frozen=True)
class Padding:
    """The share of an epoch's positions that is padding."""

    pairs: int
    budget: int
    batches: int
    ours: float
    shuffled: float


@dataclass(frozen=True)
class Memory:
    """The resident size of one process, in megabytes, before it begins and at its peak."""

    megabytes: int  # of text
    tokens: int
    work: str
    before: float
    peak: float
    seconds: float


def padding(name: str, folder: Path) -> Padding:
    """Go through one epoch of a translation recipe, on the files in that folder."""
    from clearhead.tasks.recipe import load_recipe
    from clearhead.tasks.translator import Translator

    files = [f"data.{each.format(folder)}" for each in FILES[name]]
    recipe = load_recipe(RECIPES / f"{name}.yaml", [*files, "data.test=null", "train.steps=null", "train.epochs=1"])
    prepared = Translator.prepare(recipe)
    batches = [batch for step in range(1, prepared.training.steps + 1) for batch in prepared.job.batches(step)]
    counts = [np.stack([batch.source_count_B, batch.target_count_B], axis=1) for batch in batches]
    lengths, ends = np.concatenate(counts), np.cumsum([len(each) for each in counts])
    plan = np.split(np.arange(len(lengths)), ends[:-1])
    shuffled = row_batches(len(lengths), rows=round(len(lengths) / len(plan)), seed=0, epoch=0)
    shares = (padding_share(each, lengths) for each in (plan, shuffled))
    return Padding(len(lengths), recipe.train.tokens, len(plan), *shares)


def write_text(path: Path, megabytes: int) -> None:
    """A file of that size: the phrasebook's sentences, in another order each time."""
    lines = np.array([pair.target for pair in sentences(LINES, seed=0)])
    rng, left = np.random.default_rng(0), megabytes * 1_000_000
    with open(path, "wb") as file:
        while left > 0:
            block = ("\n".join(rng.permutation(lines)) + "\n").encode()[:left]
            left -= file.write(block)


def encode(text: Path, folder: Path) -> tuple[int, float, float]:
    """The number of tokens, and this process's memory before and at its peak, while a text becomes a corpus."""
    tokenizer, before = Tokenizer.load(folder), peak()
    return corpus_of(text, tokenizer, folder).size, before, peak()


def read(text: Path, folder: Path) -> tuple[int, float, float]:
    """The same, while windows are read from random places of the corpus, as a language model's training reads them."""
    corpus, before = corpus_of(text, Tokenizer.load(folder), folder), peak()
    for step in range(STEPS):
        windows = random_windows(corpus.size, length=LENGTH, rows=ROWS, seed=0, step=step)
        corpus.spans((int(start), int(stop)) for start, stop in windows)
    return corpus.size, before, peak()


def corpus_of(text: Path, tokenizer: Tokenizer, folder: Path) -> TokenArray:
    return text_corpus(TextSource(text), tokenizer, separator=tokenizer.eos, cache=folder / "cache")


def peak() -> float:
    """The largest resident size that this process ever had, in megabytes; not a number where nobody counts."""
    lines = (line.split() for line in harness.read("/proc/self/status").splitlines())
    return next((int(words[1]) / 1024 for words in lines if words[0] == "VmHWM:"), float("nan"))


def alone(function: Callable[Given, Answer], *arguments: Given.args, **options: Given.kwargs) -> Answer:
    """Call the function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **options).result()


def memory(megabytes: int, folder: Path) -> Iterator[Memory]:
    """Encode a generated text of that size in one process, and read it in another."""
    text = folder / f"{megabytes}.txt"
    write_text(text, megabytes)
    for work in (encode, read):
        start = time.perf_counter()
        tokens, before, most = alone(work, text, folder)
        yield Memory(megabytes, tokens, work.__name__, before, most, time.perf_counter() - start)
    text.unlink()


def all_paddings(folders: Mapping[str, Path]) -> dict[str, Any]:
    """What `padding` finds in each folder, printed as it comes."""
    record = {}
    for name, folder in folders.items():
        found = padding(name, folder)
        print(f"{name}: {found.ours:.1%} padding in {found.batches} batches of {found.pairs:,} pairs, "
              f"{found.shuffled:.1%} if shuffled", flush=True)  # fmt: skip
        record[name] = asdict(found)
    return record


def all_memories(gigabytes: float, folder: Path) -> list[Any]:
    """What `memory` finds for a text of that size and for smaller ones, printed as it comes."""
    sample = [pair.target for pair in sentences(LINES, seed=0)]
    Tokenizer.train("bpe", sample, VOCABULARY).save(folder / "tokenizer.json")
    record = []
    for share in SHARES if gigabytes else ():
        for found in memory(round(1_000 * share * gigabytes), folder):
            print(f"{found.megabytes:,} MB, {found.work}: {found.peak:.0f} MB at most, {found.before:.0f} MB before, "
                  f"{found.seconds:.0f} s", flush=True)  # fmt: skip
            record.append(asdict(found))
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in FILES:
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help="with its files, for the share of padding")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="the largest text to be encoded; 0 for none (2)")
    options = vars(parser.parse_args())
    folders = {name: folder for name in FILES if (folder := options[name.replace("-", "_")])}
    config = {"gigabytes": options["gigabytes"], "folders": sorted(folders)}
    with TemporaryDirectory() as scratch:
        os.environ["CLEARHEAD_CACHE"] = scratch
        paddings = all_paddings(folders)
        memories = all_memories(options["gigabytes"], Path(scratch))
    facts = harness.surroundings(("torch", "numpy", "tokenizers"))
    whole = len(folders) == len(FILES) and options["gigabytes"] >= parser.get_default("gigabytes")
    harness.RESULTS.mkdir(exist_ok=True)
    path = harness.RESULTS / f"corpus{'' if whole else '-part'}.json"
    path.write_text(json.dumps({"config": config, **facts, "padding": paddings, "memory": memories}, indent=1) + "\n")


if __name__ == "__main__":
    main()
