"""What `make demo` shows: a Transformer learns to translate, is measured, and is looked into, in about three minutes.

It learns from 60,000 sentences of the built-in phrasebook, and is then asked for others, which it has never seen. The
phrasebook knows which words translate each other, so that we can say how often attention looks at the right one.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from clearhead.cli.shades import shaded
from clearhead.data.phrasebook.corpus import Pair, splits, words
from clearhead.errors import ClearheadError
from clearhead.tasks.recipe import Recipe, load_recipe
from clearhead.tasks.registry import run_recipe
from clearhead.tasks.translator import Translator
from clearhead.tasks.word_alignment import AlignmentHead, alignment_errors, best_head
from clearhead.train.interrupt import InterruptionError

RECIPE = Path(__file__).parent.parent / "recipes" / "phrasebook.yaml"
LEAST_BLEU, MOST_ERROR = 95.0, 0.25
FROM_THE_LITERATURE = ("je suis étudiant", "i am a student")
CHOSEN_ON = 300  # validation sentences on which the head to be shown is chosen
WIDEST = 76  # columns of a picture


def main(sets: Sequence[str] = ()) -> int:
    """Train, measure, translate, draw; 0 if both figures are as good as they should be.

    `sets` override keys of the recipe: `python examples/demo.py train.steps=100` has less time to learn.
    """
    console = Console(highlight=False, soft_wrap=True)
    recipe = load_recipe(RECIPE, sets)
    out = _free_folder()
    console.print(f"\n[bold]A Transformer learns French[/] from {recipe.data.sentences:,} pairs of sentences.")
    console.print(f"The recipe is recipes/{RECIPE.name}, the model goes to {out}.\n")
    outcome = run_recipe(recipe, out=out)
    translator = Translator.from_pretrained(out)
    _, valid, test = _sentences(recipe)
    head = best_head(translator.parts, valid[:CHOSEN_ON])
    error = alignment_errors(translator.parts, test, [head])[head]
    bleu, signature = float(outcome.scores["bleu"]), outcome.scores["bleu_signature"]

    console.print(f"\n[bold]Measured on {len(test):,} sentences that it has never seen[/]")
    console.print(f"  BLEU {bleu:.1f}, at least {LEAST_BLEU:g} is expected ({signature})")
    console.print(f"  alignment error rate {error:.3f}, at most {MOST_ERROR:g} is expected ({_named(head)})")
    console.print("\n[bold]Translated by it[/]")
    _show_translations(console, translator, test)
    console.print(f"\n[bold]Where it looks[/] for each word that it writes: {_named(head)}; • is where it should\n")
    for line in _picture(translator, head, test):
        console.print(line)
    _say_what_next(console, out)
    return 0 if bleu >= LEAST_BLEU and error <= MOST_ERROR else 1


def _free_folder() -> Path:
    """runs/demo, or the first of runs/demo-2, runs/demo-3, … that is not there yet."""
    names = ("demo", *(f"demo-{number}" for number in range(2, 1000)))
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())


def _named(head: AlignmentHead) -> str:
    return f"decoder layer {head.layer + 1}, cross-attention head {head.head + 1}"


def _sentences(recipe: Recipe) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """The very pairs of which the recipe speaks, with their gold alignments."""
    data = recipe.data
    return splits(data.sentences, data.held_out, data.held_out, data.seed)


def _show_translations(console: Console, translator: Translator, test: Sequence[Pair]) -> None:
    """The literature's own example, and an unseen sentence of each of four kinds."""
    kinds = (
        lambda pair: pair.source.endswith("?"),
        lambda pair: " pas " in pair.source,
        lambda pair: pair.referent is not None,
        lambda pair: len(words(pair.source)) > 12,
    )
    shown = dict([FROM_THE_LITERATURE])
    for is_wanted in kinds:
        shown |= next(({pair.source: pair.target} for pair in test if is_wanted(pair) and pair.source not in shown), {})
    for (source, target), answer in zip(shown.items(), translator.translate(list(shown)), strict=True):
        mark = "[green]✓[/]" if answer == target else f"[red]✗ wanted: {escape(target)}[/]"
        console.print(f"  {escape(source)}\n    → {escape(answer)} {mark}")


def _picture(translator: Translator, head: AlignmentHead, test: Sequence[Pair]) -> list[Text]:
    """The cross-attention of one head over an unseen sentence: rows are the words written, columns those read."""
    for pair in test:
        attended = translator.alignments(pair.source, pair.target)
        source, target = ([piece.strip() for piece in pieces[:-1]] for pieces in (attended.source, attended.target))
        if (source, target) == (words(pair.source), words(pair.target)) and _is_telling(pair, source, target):
            weights_LM = attended.rows(head.reads)[head.layer, head.head]
            return shaded(weights_LM, [*source, "(end)"], target, pair.alignment)
    return [Text("  (none of these sentences is short enough to be drawn)")]


def _is_telling(pair: Pair, source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether words change places, and whether the picture would fit."""
    links = sorted(pair.alignment)
    crossing = any(i < later and j > earlier for i, j in links for later, earlier in links)
    return crossing and len(source) > 6 and sum(len(word) + 2 for word in source) + max(map(len, target)) < WIDEST - 9


def _say_what_next(console: Console, out: Path) -> None:
    command = Path(sys.executable).with_name("clearhead")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    console.print("\n[bold]Now you[/]")
    for line in (
        f'{command} translate "Le chien ne dort pas." -m {out}',
        f"{command} info {out}",
        f"{command} train tatoeba-fra-eng --set data.train=YOUR-PAIRS.tsv --set data.valid=null --set data.test=null "
        "--set data.split=0.95",
    ):
        console.print(f"  {line}", markup=False)
    console.print()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InterruptionError as interruption:
        print(interruption, file=sys.stderr)
        sys.exit(interruption.exit_code)
    except ClearheadError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)
