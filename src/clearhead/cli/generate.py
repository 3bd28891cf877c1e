"""`clearhead generate`: go on with a text."""

from typing import Annotated

import typer

from clearhead.cli.text import JsonOption, ModelOption, TextArguments, batches, say_json

__all__ = ["generate"]


def generate(
    model: ModelOption,
    text: TextArguments = None,
    longest: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Stop after so many tokens. [default: the model's]")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="0 takes the likeliest token, 1 draws as the model says. [default: the model's]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Go on with texts, or with each line of stdin.

    "" starts from nothing. A text longer than the model's context goes on from its second half.
    """
    from clearhead.tasks.language_model import LanguageModel

    writer = LanguageModel.from_pretrained(model)
    for prompts in batches(text):
        answers = writer.generate(prompts, longest=longest, temperature=temperature, seed=seed)
        for prompt, continuation in zip(prompts, answers, strict=True):
            if as_json:
                say_json({"prompt": prompt, "continuation": continuation})
            else:
                typer.echo(prompt + continuation)
