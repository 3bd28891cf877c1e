"""Talks: how a model that was taught to talk wants the messages written, by the template that came with it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, final

# A dependency of torch, so it is always there.
from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from clearhead.data.roles import CONFIG, read_object
from clearhead.errors import CheckpointError, DataError

__all__ = ["ChatTemplate", "chat_template_of"]

PLAIN, IN_JSON = "chat_template.jinja", "chat_template.json"


@final
class ChatTemplate:
    """A model's template, which writes messages as the one text that it was trained on.

    A template is a program of whoever published the model: it runs in a sandbox, which gives it the messages as
    plain data and nothing else.

    >>> source = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    >>> ChatTemplate(source, eos=".").render([{"role": "user", "content": "Hello"}])
    'user: Hello.'
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Compile a template; `bos` and `eos` are written where it asks for these tokens."""
        self._tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise CheckpointError(f"the chat template cannot be read, line {error.lineno}: {error.message}") from error
        except (TemplateError, RecursionError) as error:
            raise CheckpointError(f"the chat template cannot be read: {_sentence(error)}") from error

    def render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
        """The text of the messages (`{"role": "user", "content": "Hello"}`), up to where the answer begins."""
        try:
            plain = json.loads(json.dumps(list(messages)))
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"messages must be made of strings, numbers, lists and objects: {error}") from error
        given = {"messages": plain, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render({**given, **self._tokens})
        except Exception as error:  # whatever an expression of the template can raise
            raise DataError(f"the chat template cannot be applied to these messages: {_sentence(error)}") from error


def chat_template_of(folder: Path) -> str | None:
    """The chat template of a folder, where it has one; of several, the one that is called default."""
    if (folder / PLAIN).is_file():
        try:
            return (folder / PLAIN).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DataError(f"{str(folder / PLAIN)!r} cannot be read: {error}") from error
    found = read_object(folder / IN_JSON).get("chat_template") or read_object(folder / CONFIG).get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default") or next(iter(named.values()), None)
    if found is not None and not isinstance(found, str):
        raise DataError(f"the chat_template of {str(folder)!r} must be a text, not {found!r:.60}")
    return found


def _environment() -> ImmutableSandboxedEnvironment:
    """What templates may use, as `transformers` has it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}` marks what the assistant said, for training; here it is text."""

    tags = {"generation"}  # noqa: RUF012 - as the library declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The library's own filter would escape what HTML minds."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
