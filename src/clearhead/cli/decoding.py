"""What the verbs that write have in common: options of decoding, and answers with their scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.tasks.answers import Answer

__all__ = ["BeamOption", "BestOption", "MoreOptions", "answer_values", "beams_for", "options_of"]

BeamOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Search with so many beams. [default: the model's]")
]
BestOption = Annotated[
    int | None, typer.Option(min=1, metavar="K", help="Answer with the K best, each on a line after its score.")
]
MoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Any other option of decoding, by our name or another project's: num_beam_groups=2; can be repeated.",
    ),
]


def options_of(pairs: Sequence[str] | None) -> dict[str, Any]:
    """What `--option` was given, as names and values."""
    import yaml

    options: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not name.isidentifier() or not equals or value == "":
            raise ConfigError(f"an option is written like num_beams=4, not {pair!r}")
        options[name] = read
    return options


def beams_for(beam: int | None, best: int | None, *, drawn: bool = False) -> int | None:
    """The beams that are asked for: where only a number of answers is, as many, unless answers are drawn."""
    return best if beam is None and best is not None and best > 1 and not drawn else beam


def answer_values(answer: "Answer", name: str) -> dict[str, Any]:
    """An answer for programs; its text goes by that name."""
    values: dict[str, Any] = {
        name: answer.text,
        "score": answer.score,
        "tokens": [[token, score] for token, score in zip(answer.tokens, answer.scores, strict=True)],
    }
    return values if answer.links is None else {**values, "alignments": [[*link] for link in answer.links]}
