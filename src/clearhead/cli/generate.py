"""`clearhead generate`: go on with a text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.decoding import BeamOption, BestOption, MoreOptions, answer_values, beams_for, options_of
from clearhead.cli.text import (
    CompileOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    TextArguments,
    ThreadsOption,
    batches,
    say_as_written,
    say_json,
)

if TYPE_CHECKING:
    from clearhead.tasks.language_model import LanguageModel

__all__ = ["generate"]


Longest = Annotated[
    int | None, typer.Option(min=1, metavar="TOKENS", help="Stop after so many tokens. [default: the model's]")
]
Temperature = Annotated[
    float | None,
    typer.Option(min=0, help="0 takes the likeliest token, 1 draws as the model says. [default: the model's]"),
]
TopK = Annotated[int | None, typer.Option(min=0, help="Draw from the K likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(min=0, max=1, help="Draw from the likeliest tokens that make up P.")]
MinP = Annotated[
    float | None, typer.Option(min=0, max=1, help="Draw from tokens at least P times as likely as the best.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of what is drawn.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this text; can be repeated.")]
NoRepeat = Annotated[int | None, typer.Option(min=0, metavar="N", help="Repeat no phrase of N tokens.")]
Penalty = Annotated[float | None, typer.Option(help="Above 1 makes tokens that have occurred less likely.")]


def generate(
    model: ModelOption,
    text: TextArguments = None,
    longest: Longest = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Seed = 0,
    beam: BeamOption = None,
    n_best: BestOption = None,
    stop: Stop = None,
    no_repeat: NoRepeat = None,
    repetition_penalty: Penalty = None,
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
    compiled: CompileOption = False,
    option: MoreOptions = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Answer texts as messages, by the model's chat template.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with texts, or with each line of stdin.

    A single text appears as it is written. "" starts from nothing. A text longer than the model's context goes on
    from its second half, except in beam search, which refuses it. Characters that the model has never seen are read
    as <unk>, or in bytes where its tokenizer has them.
    """
    from clearhead.tasks.language_model import LanguageModel

    options: dict[str, Any] = {
        "longest": longest,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "beams": beams_for(beam, n_best, drawn=bool(temperature)),
        "best": n_best,
        "stop": stop,
        "no_repeat": no_repeat,
        "repetition_penalty": repetition_penalty,
        **options_of(option),
    }
    writer = LanguageModel.from_pretrained(model, precision=precision, threads=threads, compiled=compiled)
    if chat:
        _answer(writer, text, options, as_json)
        return
    if text and len(text) == 1 and not as_json and n_best is None:
        say_as_written(writer.stream(text[0], **options), text[0])
        return
    for prompts in batches(text):
        for prompt, answers in zip(prompts, writer.answers(prompts, **options), strict=True):
            if as_json:
                others = {"answers": [answer_values(one, "continuation") for one in answers]} if n_best else {}
                say_json({"prompt": prompt, **answer_values(answers[0], "continuation"), **others})
            else:
                for answer in answers:
                    score = f"{answer.score:.4f}\t" if n_best is not None else ""
                    typer.echo(f"{score}{prompt}{answer.text}")


def _answer(writer: "LanguageModel", text: list[str] | None, options: dict[str, Any], as_json: bool) -> None:
    """Answer each message by itself."""
    for messages in batches(text):
        for message in messages:
            if as_json:
                say_json({"message": message, "answer": writer.chat(message, **options)})
            else:
                say_as_written(writer.stream_chat(message, **options))
