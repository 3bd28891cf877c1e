"""Chat templates: written as `transformers` writes them, in a sandbox, and what is wrong is one sentence."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.chat import ChatTemplate, chat_template_of
from clearhead.errors import CheckpointError, ClearheadError, DataError

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Qui <es>-tu ?\n"},
    {"role": "assistant", "content": "A \"model\" & friend."},
    {"role": "user", "content": ""},
]  # fmt: skip
CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
BLOCKS = """
    {% for message in messages %}
        {% if loop.index > 3 %}
            {% break %}
        {% elif message.role == 'system' %}
            {% continue %}
        {% endif %}
{{ loop.index0 }} {{ message | tojson }} {{ message.content | trim | tojson(indent=2) }}
        {% generation %}
 [{{ message.content }}]
        {% endgeneration %}
    {% endfor %}
{{ bos_token }}{{ eos_token }}{{ nothing }}{{ tools is none }}{{ documents is none }}
"""
NAMESPACES = """{% set ns = namespace(last='') %}{% for m in messages %}{% set ns.last = m.role %}{% endfor %}
{{- ns.last }} {{ dict(a=1)['a'] }} {{ messages | length }} {{ messages | map(attribute='role') | join(',') }}"""


@pytest.mark.parametrize("source", [CHATML, BLOCKS, NAMESPACES])
@pytest.mark.parametrize("prompt", [True, False])
def test_messages_are_written_as_transformers_writes_them(source: str, prompt: bool) -> None:
    templates = pytest.importorskip("transformers.utils.chat_template_utils")
    theirs, _ = templates.render_jinja_template(
        [MESSAGES], chat_template=source, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"
    )
    assert ChatTemplate(source, bos="<s>", eos="</s>").render(MESSAGES, prompt) == theirs[0]


def test_the_answer_is_asked_for() -> None:
    template = ChatTemplate(CHATML)
    assert template.render(MESSAGES[1:2]) == "<|im_start|>user\nQui <es>-tu ?\n<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(MESSAGES[1:2], add_generation_prompt=False).endswith("<|im_end|>\n")


def test_a_template_knows_the_date() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]) == str(datetime.now().year)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("a\n{% for %}", CheckpointError, "line 2"),
        ("{% generation %}", CheckpointError, "cannot be read"),
        ("{% nothing %}", CheckpointError, "unknown tag"),
        ("{{ raise_exception('roles must\nalternate') }}", DataError, "roles must alternate"),
        ("{{ 1 / 0 }}", DataError, "division by zero"),
        ("{{ messages.x.y }}", DataError, "has no attribute"),
        ("{{ messages[0].content + 1 }}", DataError, "concatenate"),
        ("{{ messages.append(1) }}", DataError, "unsafe"),
        ("{{ messages.__class__.__mro__ }}", DataError, "unsafe"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", DataError, "unsafe"),
        ("{{ raise_exception.__globals__.items() }}", DataError, "unsafe"),
        ("{% for _ in range(10 ** 9) %}{% endfor %}", DataError, "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", DataError, "recursion"),
    ],
)
def test_what_a_template_cannot_do(source: str, error: type[ClearheadError], message: str) -> None:
    with pytest.raises(error, match=message) as found:
        ChatTemplate(source).render(MESSAGES)
    assert "\n" not in str(found.value)


def test_messages_are_plain_data() -> None:
    with pytest.raises(DataError, match="messages must be made of strings"):
        ChatTemplate(CHATML).render([{"role": "user", "content": Path("x")}])


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"bos_token": "<s>"}}, None),
        ({"tokenizer_config.json": {"chat_template": "one"}}, "one"),
        ({"tokenizer_config.json": {"chat_template": [{"name": "tool_use", "template": "two"}]}}, "two"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "rag", "template": "two"}, {"name": "default", "template": "one"}]
                }
            },
            "one",
        ),
        ({"tokenizer_config.json": {"chat_template": "one"}, "chat_template.json": {"chat_template": "two"}}, "two"),
        ({"chat_template.json": {"chat_template": "two"}, "chat_template.jinja": "three"}, "three"),
    ],
)
def test_where_a_template_is_found(tmp_path: Path, files: dict[str, Any], found: str | None) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    assert chat_template_of(tmp_path) == found


@pytest.mark.parametrize(
    "content", [b"[]", b"{", b'{"chat_template": 3}', b'{"chat_template": [{"name": "default", "template": 1}]}']
)
def test_what_is_no_template(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(DataError, match=r"must|JSON"):
        chat_template_of(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(DataError, match="cannot be read"):
        chat_template_of(tmp_path)
