"""`clearhead translate`: text in one language to text in the other."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.decoding import BeamOption, BestOption, MoreOptions, answer_values, beams_for, options_of
from clearhead.cli.text import (
    SHIPPED,
    CompileOption,
    JsonOption,
    PrecisionOption,
    TextArguments,
    ThreadsOption,
    batches,
    say_as_written,
    say_json,
    say_line,
)

if TYPE_CHECKING:
    from clearhead.tasks.answers import Answer

__all__ = ["translate"]


def translate(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Model directory, or a run's: its best checkpoint. Several of one vocabulary decide together. "
            "[default: clearhead/fr-en, which comes with it]",
        ),
    ] = None,
    text: TextArguments = None,
    beam: BeamOption = None,
    n_best: BestOption = None,
    length_penalty: Annotated[
        float | None, typer.Option(metavar="A", help="Above 1 favours long translations. [default: the model's]")
    ] = None,
    alignments: Annotated[bool, typer.Option("--alignments", help="Say which words translate which: 0-0 1-2.")] = False,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="A word that must not appear; can be repeated.")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="A word that must appear; can be repeated.")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="How each translation begins.")] = "",
    no_split: Annotated[bool, typer.Option("--no-split", help="Do not cut texts into sentences.")] = False,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    compiled: CompileOption = False,
    option: MoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Translate texts, or stdin line by line.

    Each text is cut into sentences, which are put together again; a single text appears as it is written. Characters
    that the model has never seen are read as <unk>, or in bytes where its tokenizer has them.
    """
    from clearhead.tasks.translator import Translator

    options = {
        "beams": beams_for(beam, n_best),
        "best": n_best,
        "length_penalty": length_penalty,
        "split": not no_split,
        "prefix": prefix,
        "forbidden": forbid or (),
        "required": require or (),
        **options_of(option),
    }
    translator = Translator.from_pretrained(model or [SHIPPED], precision=precision, threads=threads, compiled=compiled)
    if text and len(text) == 1 and len(text[0].splitlines()) == 1 and not (as_json or alignments or n_best):
        say_as_written(translator.stream(text[0], **options))
        return
    for sources in batches(text):
        found = translator.answers(sources, alignments=alignments, **options)
        for source, answers in zip(sources, found, strict=True):
            if as_json:
                others = {"answers": [answer_values(one, "translation") for one in answers]} if n_best else {}
                say_json({"source": source, **answer_values(answers[0], "translation"), **others})
            else:
                for answer in answers:
                    say_line(_shown(answer, ranked=n_best is not None))


def _shown(answer: "Answer", *, ranked: bool) -> str:
    """An answer as a line: its score before it, its alignment behind it, where they were asked for."""
    score = f"{answer.score:.4f}\t" if ranked else ""
    links = "" if answer.links is None else "\t" + " ".join(f"{source}-{target}" for source, target in answer.links)
    return f"{score}{answer.text}{links}"
