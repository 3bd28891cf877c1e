"""`clearhead explore`: a model in the browser."""

from typing import Annotated

import typer

from clearhead.cli.text import SHIPPED, ModelOption, ThreadsOption

__all__ = ["explore"]


def explore(
    model: ModelOption = SHIPPED,
    text: Annotated[str, typer.Option(metavar="TEXT", help="What to begin with. [default: an example]")] = "",
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes any that is free.")] = 8765,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    longest: Annotated[int, typer.Option(min=2, max=4096, metavar="N", help="Tokens that a text may have.")] = 512,
    memory: Annotated[int, typer.Option(min=1, metavar="MB", help="What recordings may take.")] = 512,
    threads: ThreadsOption = None,
) -> None:
    """Explore a model in the browser: every number that it computes.

    Attention as lines, as a matrix and head by head; the six steps; where each number comes from; decoding with rivals
    and beams; what each layer would say; heads and layers switched off. Nothing leaves this machine. Ctrl-C ends.
    """
    import threading
    import webbrowser
    from urllib.parse import urlencode

    import torch

    from clearhead.serve.packages import need_packages

    need_packages("the explorer")

    from clearhead.serve.connections import Patience
    from clearhead.serve.explorer import Bounds, explorer_app
    from clearhead.serve.run import bind, is_loopback, make_server
    from clearhead.tasks.loading import load_model
    from clearhead.tasks.viewing import Viewer

    if threads is not None:
        torch.set_num_threads(threads)
    viewer, name = Viewer(load_model(model)), model.resolve().name
    bounds = Bounds(longest=longest, memory=memory << 20)
    with bind(host, port) as listening:
        server = make_server(
            lambda closing: explorer_app(viewer, name=name, host=host, bounds=bounds, closing=closing),
            Patience(),
        )
        if not is_loopback(host):
            typer.echo(f"Warning: {host} can be reached from other machines, and anybody there can use it.", err=True)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        address += f"#{urlencode({'text': text})}" if text else ""
        typer.echo(address)
        if browser:
            # a browser in a terminal stays until it is left, and must not hold the server up
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.run(sockets=[listening])
