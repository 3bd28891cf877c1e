"""The command `clearhead`: a table of verbs, each loaded only when it is called.

The verb `translate` is the function `translate` in `clearhead/cli/translate.py`, written as a typer command, and
one row of `VERBS` here: its name and the first line of its docstring. Listing the verbs therefore loads none of
them, and a verb's module leaves torch to the inside of its function, so that every `--help` answers at once.

Exit codes: 0 done · 1 the user's input cannot be used, said in one sentence on stderr · 2 wrong usage ·
130 interrupted (143 where training was terminated).
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from clearhead import __version__
from clearhead.errors import FULL, ClearheadError, unwritten

__all__ = ["VERBS", "main"]

VERBS: dict[str, str] = {
    "train": "Train a model as a recipe says.",
    "evaluate": "Measure how good a model is on a file.",
    "translate": "Translate texts, or stdin line by line.",
    "generate": "Go on with texts, or with each line of stdin.",
    "score": "Say how likely texts are, or lines of stdin.",
    "classify": "Say of which class texts are, or lines of stdin.",
    "fill": "Fill in the words that texts, or lines of stdin, hide.",
    "embed": "Give the vectors of texts, or of lines of stdin.",
    "look": "Draw what a model does with a text: attention, and much more.",
    "explore": "Explore a model in the browser: every number that it computes.",
    "prune": "Take the heads that matter least out of a model.",
    "convert": "Turn a model into another format, or another's into ours.",
    "fit": "Learn to predict a column of a table.",
    "predict": "Add what a model says to each row of a table.",
    "serve": "Serve models over HTTP, as OpenAI and LibreTranslate do.",
    "average": "Average the weights of several checkpoints.",
    "info": "Show what a model directory holds.",
}

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    code = _run(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except OSError:
        # What stdout did not take is dealt with; Python would flush it once more at exit and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    try:
        code = _call(arguments)
        sys.stdout.flush()
    except ClearheadError as error:
        return _refuse(str(error))
    except UnicodeEncodeError as error:
        if error.encoding == "utf-8":
            raise  # no stream's fault
        letter = error.object[error.start]
        return _refuse(f"stdout is in {sys.stdout.encoding}, which has no {letter!r}: set PYTHONIOENCODING=utf-8")
    except BrokenPipeError:
        return 1  # the reader (`| head`) has what it wants
    except OSError as error:
        if error.errno in FULL:
            return _refuse(unwritten(error.filename or "stdout", error))
        named = f": {error.filename}" if error.filename else ""
        return _refuse(f"{error.strerror or error}{named}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _call(arguments: Sequence[str]) -> int:
    try:
        _app(arguments)(arguments, prog_name="clearhead")
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


def _refuse(sentence: str) -> int:
    typer.echo(f"clearhead: {sentence}", err=True)
    return 1


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The typer application in which only the called verb is real; the others are names with a line of help."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog='To begin with: clearhead translate "Je suis étudiant."',
    )
    app.callback()(_clearhead)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for verb, line in VERBS.items():
        if verb == called:
            app.command(verb)(_load(verb))
        else:
            app.command(verb, help=line)(_listed_only)
    return app


def _load(verb: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(f"clearhead.cli.{verb}"), verb)
    return function


def _listed_only() -> None:
    """Stands for a verb that this call does not need."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


def _clearhead(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The whole Transformer in the open: build it, train it, use it, and look inside while it works."""
