"""Answers of language models in OpenAI's two forms: a completion, and a talk; as a whole, or in events of a stream."""

import time
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, final

from pydantic import BaseModel

from clearhead.serve.schemas import (
    ChatAnswer,
    ChatChoice,
    ChatLogprob,
    ChatLogprobs,
    ChatRequest,
    Choice,
    CompletionAnswer,
    CompletionRequest,
    Logprobs,
    Said,
    Sampling,
    TopLogprob,
    Usage,
)
from clearhead.serve.writers import Token, Written

__all__ = ["ChatForm", "CompletionForm", "Form"]


class Form(Protocol):
    """One of the two."""

    @property
    def asked(self) -> Sampling: ...

    def whole(self, written: Sequence[Written], usage: Usage) -> BaseModel: ...

    def first(self, answers: int) -> Iterator[BaseModel]:
        """What a stream begins with."""

    def piece(self, number: int, new: Written) -> BaseModel: ...

    def last(self, number: int, rest: str, *, ended: bool) -> BaseModel: ...

    def usage(self, usage: Usage) -> BaseModel: ...


@final
class CompletionForm:
    """Completions; each begins with what is echoed of its prompt."""

    def __init__(self, id: str, asked: CompletionRequest, echoes: Sequence[str]) -> None:
        self.id, self.asked, self.created = id, asked, int(time.time())
        self.echoes = [echo for echo in echoes for _ in range(asked.n)]

    def whole(self, written: Sequence[Written], usage: Usage) -> CompletionAnswer:
        choices = [
            Choice(
                index=number,
                text=self.echoes[number] + one.text,
                logprobs=self._logprobs(one.tokens),
                finish_reason=_reason(one.ended),
            )
            for number, one in enumerate(written)
        ]
        return self._answer(choices, usage=usage)

    def first(self, answers: int) -> Iterator[CompletionAnswer]:
        for number, echo in enumerate(self.echoes):
            if echo:
                yield self._event(Choice(index=number, text=echo, logprobs=None, finish_reason=None))

    def piece(self, number: int, new: Written) -> CompletionAnswer:
        return self._event(Choice(index=number, text=new.text, logprobs=self._logprobs(new.tokens), finish_reason=None))

    def last(self, number: int, rest: str, *, ended: bool) -> CompletionAnswer:
        return self._event(Choice(index=number, text=rest, logprobs=None, finish_reason=_reason(ended)))

    def usage(self, usage: Usage) -> CompletionAnswer:
        return self._answer([], usage=usage)

    def _event(self, choice: Choice) -> CompletionAnswer:
        return self._answer([choice], usage=None)

    def _answer(self, choices: list[Choice], usage: Usage | None) -> CompletionAnswer:
        return CompletionAnswer(
            id=self.id,
            object="text_completion",
            created=self.created,
            model=self.asked.model,
            choices=choices,
            usage=usage,
        )

    def _logprobs(self, tokens: Sequence[Token]) -> Logprobs | None:
        if self.asked.logprobs is None:
            return None
        return Logprobs(
            tokens=[token.name for token in tokens],
            token_logprobs=[token.score for token in tokens],
            top_logprobs=[token.rivals for token in tokens] if self.asked.logprobs else None,
            text_offset=[token.offset for token in tokens],
        )


@final
class ChatForm:
    """Answers to a talk."""

    def __init__(self, id: str, asked: ChatRequest) -> None:
        self.id, self.asked, self.created = id, asked, int(time.time())

    def whole(self, written: Sequence[Written], usage: Usage) -> ChatAnswer:
        choices = [
            ChatChoice(
                index=number,
                message=Said(role="assistant", content=one.text.strip()),
                logprobs=self._logprobs(one.tokens),
                finish_reason=_reason(one.ended),
            )
            for number, one in enumerate(written)
        ]
        return self._answer(choices, usage=usage, whole=True)

    def first(self, answers: int) -> Iterator[ChatAnswer]:
        for number in range(answers):
            yield self._event(ChatChoice(index=number, delta=Said(role="assistant", content=""), finish_reason=None))

    def piece(self, number: int, new: Written) -> ChatAnswer:
        logprobs = self._logprobs(new.tokens)
        return self._event(
            ChatChoice(index=number, delta=Said(content=new.text), logprobs=logprobs, finish_reason=None)
        )

    def last(self, number: int, rest: str, *, ended: bool) -> ChatAnswer:
        delta = Said(content=rest) if rest else Said()
        return self._event(ChatChoice(index=number, delta=delta, finish_reason=_reason(ended)))

    def usage(self, usage: Usage) -> ChatAnswer:
        return self._answer([], usage=usage)

    def _event(self, choice: ChatChoice) -> ChatAnswer:
        return self._answer([choice], usage=None)

    def _answer(self, choices: list[ChatChoice], usage: Usage | None, *, whole: bool = False) -> ChatAnswer:
        return ChatAnswer(
            id=self.id,
            object="chat.completion" if whole else "chat.completion.chunk",
            created=self.created,
            model=self.asked.model,
            choices=choices,
            usage=usage,
        )

    def _logprobs(self, tokens: Sequence[Token]) -> ChatLogprobs | None:
        if not self.asked.logprobs:
            return None
        return ChatLogprobs(
            content=[
                ChatLogprob(
                    token=token.name,
                    logprob=token.score,
                    bytes=None,
                    top_logprobs=[
                        TopLogprob(token=name, logprob=score, bytes=None) for name, score in token.rivals.items()
                    ],
                )
                for token in tokens
            ]
        )


def _reason(ended: bool) -> Literal["stop", "length"]:
    return "stop" if ended else "length"
