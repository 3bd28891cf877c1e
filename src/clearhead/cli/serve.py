"""`clearhead serve`: models for other programs, over HTTP."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.text import PrecisionOption, ThreadsOption
from clearhead.tasks.shipped import TRANSLATOR

__all__ = ["serve"]


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="[NAME=]MODEL",
            help="A model, called by its folder's name or NAME; can be repeated. [default: clearhead/fr-en]",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes any that is free.")] = 8000,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another name of this server; can be repeated.")
    ] = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys, one in each line; also from the variable CLEARHEAD_API_KEYS."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Pages from there may call: https://example.org; can be repeated."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Rows computed together; 1: each by itself.")] = 64,
    step_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens read in one step at most.")] = 4096,
    queue: Annotated[int, typer.Option(min=1, metavar="N", help="Rows that may wait for each model.")] = 256,
    deadline: Annotated[
        float, typer.Option(min=0.001, metavar="S", help="Seconds until an answer must be there.")
    ] = 60,
    max_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of an answer at most.")] = 1024,
    max_beams: Annotated[int, typer.Option(min=1, metavar="N", help="Beams, or alternatives, at most.")] = 8,
    max_n: Annotated[int, typer.Option(min=1, metavar="N", help="Answers to each prompt at most.")] = 8,
    max_texts: Annotated[int, typer.Option(min=1, metavar="N", help="Texts or rows of a request at most.")] = 256,
    max_body: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Bytes of a request at most.")] = 1 << 20,
    connections: Annotated[int, typer.Option(min=1, metavar="N", help="Open connections at most.")] = 512,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
) -> None:
    """Serve models over HTTP, as OpenAI and LibreTranslate do.

    /v1/completions, /v1/chat/completions, /v1/embeddings, /v1/models, /translate, /languages,
    /v1/tables/MODEL/predict, /health, /ready, /metrics, /openapi.json. Requests that come together are computed
    together. SIGTERM or Ctrl-C ends the server when it has answered all that it has accepted.
    """
    import logging

    from clearhead.serve.packages import need_packages

    need_packages("the server")
    from clearhead.serve.keys import load_keys
    from clearhead.serve.limits import Limits
    from clearhead.serve.models import wanted
    from clearhead.serve.run import Serving, run_server
    from clearhead.serve.work import Budget

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    serving = Serving(
        models=tuple(map(wanted, model or [TRANSLATOR])),
        host=host, port=port, names=tuple(host_name or ()), origins=tuple(cors or ()),
        keys=load_keys(api_keys), connections=connections, precision=precision, threads=threads,
        budget=Budget(batch, step_tokens, waiting=queue),
        limits=Limits(body=max_body, texts=max_texts, tokens=max_tokens, beams=max_beams, n=max_n, deadline=deadline),
    )  # fmt: skip
    run_server(serving, say=partial(typer.echo, err=True))
