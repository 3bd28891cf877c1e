"""Talks: messages as the tokens that a model with a chat template goes on with."""

from collections.abc import Mapping, Sequence
from typing import Any

from clearhead.data.chat import ChatTemplate
from clearhead.errors import CheckpointError, DataError
from clearhead.tasks.directory import ModelParts

__all__ = ["Messages", "talk_tokens"]

# What one says as the user, or all that was said: [{"role": "user", "content": "Hello"}, …]
Messages = str | Sequence[Mapping[str, Any]]


def talk_tokens(parts: ModelParts, messages: Messages) -> list[int]:
    """The talk so far, up to where the model answers, as its template writes it."""
    if parts.chat is None:
        raise CheckpointError("this model was not made to talk: it has no chat template; use generate")
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    if not said:
        raise DataError("a talk needs at least one message")
    tokenizer = parts.tokenizer
    for message in said:
        _check_plain(message, [tokenizer.token_of(id) for id in sorted(tokenizer.special_ids)])
    names = {role: "" if id is None else tokenizer.token_of(id) for role, id in _marks(parts).items()}
    return tokenizer.encode_marked(ChatTemplate(parts.chat, **names).render(said))


def _marks(parts: ModelParts) -> dict[str, int | None]:
    return {"bos": parts.tokenizer.bos, "eos": parts.settings.config.eos}


def _check_plain(message: Mapping[str, Any], specials: Sequence[str]) -> None:
    """Refuse a message with a special token in it: it could pass for the words of somebody else."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
        raise DataError(
            f'a message has a role and a content, like {{"role": "user", "content": …}}, not {message!r:.60}'
        )
    found = next((token for token in specials if token in str(message["content"])), None)
    if found is not None:
        raise DataError(f"a message holds {found!r}, by which the model knows who speaks: write it otherwise")
