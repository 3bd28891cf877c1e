"""`clearhead look`: a text in a model, in the terminal, as a figure, as a page, or as a recording."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearhead.cli.text import SHIPPED, ModelOption, ThreadsOption

if TYPE_CHECKING:
    from clearhead.tasks.spots import Asked
    from clearhead.tasks.viewing import Off, View

__all__ = ["PICTURES", "look"]

PICTURES = (
    "attention", "lines", "heads", "square", "graph", "steps", "qkv", "lens", "shares", "stream", "rollout", "flow",
    "neurons", "circuits", "qk", "ov", "positions", "decoding", "beam", "minimal", "diagram", "box", "stack", "blocks",
)  # fmt: skip
FIGURES, PAGE, RECORDING = (".svg", ".pdf", ".png"), ".html", ".safetensors"
IN_TERMINAL = ("attention", "lines")
TREES = ("beam",)  # pictures that grow sideways, and have a page even where a column is usual


def look(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    model: ModelOption = SHIPPED,
    answer: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What a translator is to answer. [default: its own answer]")
    ] = None,
    what: Annotated[str, typer.Option(metavar="PICTURE", help=f"One of: {', '.join(PICTURES)}.")] = "attention",
    layer: Annotated[
        str | None, typer.Option(metavar="N|NAME", help="A number from 0 on, or a name such as decoder.1.cross.")
    ] = None,
    head: Annotated[list[int] | None, typer.Option(metavar="N", help="From 0 on; can be repeated.")] = None,
    side: Annotated[
        Literal["encoder", "decoder", "cross"] | None, typer.Option(help="Which attention. [default: cross, if any]")
    ] = None,
    position: Annotated[
        int | None, typer.Option(metavar="N", help="For pictures of one position: from 0 on, or from the end as -1.")
    ] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:HEAD]", help="Switch off a head (decoder.1.cross:3) or a layer; can be repeated."),
    ] = None,
    tap: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="What a .safetensors records, such as '*.weights'. [default: all]"),
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="A figure as wide as a page, not a column; a beam always is.")
    ] = False,
    dark: Annotated[bool, typer.Option("--dark", help="A figure on a dark ground.")] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", "-s", metavar="FILE", help=".svg, .pdf or .png; .html: a page; .safetensors."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Draw what a model does with a text: attention, and much more.

    An .html holds everything in one page that opens without a network, a .safetensors what passed the taps. The path of
    what was saved is printed.
    """
    _check(save, force, what)
    import torch

    from clearhead.draw.figure import Sheet, need_matplotlib
    from clearhead.tasks.loading import load_model
    from clearhead.tasks.spots import Asked
    from clearhead.tasks.viewing import Viewer

    if save is not None and save.suffix.lower() in FIGURES:
        need_matplotlib()
    if threads is not None:
        torch.set_num_threads(threads)
    view = Viewer(load_model(model)).view(text, answer, off=_off(off or ()))
    sheet = Sheet("page" if wide or what in TREES else "column", dark)
    where = int(layer) if layer is not None and layer.isdecimal() else layer
    asked = Asked(where, tuple(head or ()), side, position, sheet)
    if save is None:
        _say(view, asked)
        return
    _save(view, save, what, asked, tap or ("*",))
    typer.echo(save)


def _check(save: Path | None, force: bool, what: str) -> None:
    """Refuse what cannot be saved before a model is loaded."""
    from clearhead.errors import ConfigError

    if what not in PICTURES:
        raise ConfigError(f"there is no picture {what!r}: choose one of {', '.join(PICTURES)}")
    if save is None:
        if what not in IN_TERMINAL:
            raise ConfigError(f"a terminal shows attention alone: name a file for {what!r}, such as --save {what}.svg")
        return
    known = (*FIGURES, PAGE, RECORDING)
    if save.suffix.lower() not in known:
        raise ConfigError(f"what is seen is saved as one of {', '.join(known)}, not as {save.name!r}")
    if not save.parent.is_dir():
        raise ConfigError(f"no directory {str(save.parent)!r} to save {save.name!r} in: make it first")
    if save.exists() and not force:
        raise ConfigError(f"{str(save)!r} exists already: name another file, or say --force")


def _off(named: Sequence[str]) -> "Off":
    """What is switched off: heads as `decoder.1.cross:3`, layers as `decoder.1`."""
    from clearhead.errors import ConfigError
    from clearhead.tasks.viewing import Off

    heads: dict[str, list[int]] = {}
    layers: list[str] = []
    for one in named:
        name, colon, number = one.rpartition(":")
        if not colon:
            layers.append(one)
        elif not number.isdecimal():
            raise ConfigError(f"a head is switched off as decoder.1.cross:3, a layer as decoder.1, not {one!r}")
        else:
            heads.setdefault(name, []).append(int(number))
    return Off(heads, layers)


def _save(view: "View", save: Path, what: str, asked: "Asked", taps: Sequence[str]) -> None:
    from clearhead.train.disk import aside

    suffix = save.suffix.lower()
    if suffix == PAGE:
        from clearhead.tasks.page import page_of

        with aside(save) as temporary:
            temporary.write_text(page_of(view), encoding="utf-8")
    elif suffix == RECORDING:
        seen = view.seen(taps)
        with aside(save) as temporary:
            seen.save(temporary)
    else:
        from clearhead.tasks.picturing import picture

        drawn = picture(
            view, what, layer=asked.layer, head=asked.heads, side=asked.side, position=asked.position, on=asked.on
        )
        drawn.save(save)


def _say(view: "View", asked: "Asked") -> None:
    """One matrix of attention in the terminal: shaded where it is wide enough, otherwise what each word reads most."""
    from rich.console import Console

    from clearhead.cli.shades import pointed, shaded, width_of_shades
    from clearhead.tasks.picturing import attention_shown
    from clearhead.tasks.spots import labels_of

    weights_LM, spot, called = attention_shown(view, asked)
    rows, columns = ([token.strip() or repr(token)[1:-1] for token in side] for side in labels_of(view, spot))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{called}: each row reads the columns", markup=False, style="bold")
    fits = width_of_shades(columns, rows) <= console.width
    for line in (shaded if fits else pointed)(weights_LM, columns, rows):
        console.print(line)
