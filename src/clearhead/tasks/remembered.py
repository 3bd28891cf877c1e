"""A prompt that is read once and gone on with as often as one likes."""

from collections.abc import Iterator
from typing import Any, final, overload

import torch

from clearhead.errors import DecodingError
from clearhead.tasks.answers import Answer
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.writing import Known, Writing, first_tokens

__all__ = ["Remembered"]


@final
class Remembered:
    """What a language model keeps of a prompt: every continuation starts from there, as if it had just been read.

    Each call may add `more` to the prompt, a text or several, whose tokens follow those of the prompt. The options are
    those of `LanguageModel.generate`.
    """

    def __init__(self, parts: ModelParts, prompt: str) -> None:
        config = parts.settings.config
        self.parts = parts
        self.ids = first_tokens(parts.tokenizer.encode(prompt), parts)
        if len(self.ids) > config.length:
            raise DecodingError(
                f"the prompt has {len(self.ids)} tokens, and this model has positions for {config.length} alone: "
                "shorten it"
            )
        self._known = self._read()

    @torch.inference_mode()
    def _read(self) -> Known | None:
        """All but the last token, whose logits are for whoever goes on."""
        model, *read = self.parts.model, *self.ids[:-1]
        if not read:
            return None
        device = next(iter(model.parameters())).device
        _, state = model.step(torch.tensor([read], device=device), model.start(room=2 * len(self.ids)), last=True)
        return Known(state, len(read), device)

    @overload
    def generate(self, more: str = "", **options: Any) -> str: ...

    @overload
    def generate(self, more: list[str], **options: Any) -> list[str]: ...

    def generate(self, more: str | list[str] = "", **options: Any) -> str | list[str]:
        """What follows the prompt, or the prompt and each of several texts."""
        if isinstance(more, str):
            return self.generate([more], **options)[0]
        return [best[0].text for best in self.answers(more, **options)]

    def answers(self, more: list[str], **options: Any) -> list[list[Answer]]:
        """The best continuations, with their scores."""
        rows = [[*self.ids, *ids] for ids in self.parts.tokenizer.encode_batch(more)]
        return Writing(self.parts, options).answers(rows, self._known)

    def stream(self, more: str = "", **options: Any) -> Iterator[str]:
        """What follows, in pieces as it is written."""
        return Writing(self.parts, options).stream([*self.ids, *self.parts.tokenizer.encode(more)], self._known)
