"""What requests and answers look like: OpenAI's forms, LibreTranslate's, and our own for tables.

A field that we do not know is refused: a misspelled option must not vanish.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

__all__ = [
    "ChatAnswer",
    "ChatChoice",
    "ChatLogprob",
    "ChatLogprobs",
    "ChatRequest",
    "Choice",
    "CompletionAnswer",
    "CompletionRequest",
    "Embedding",
    "EmbeddingAnswer",
    "EmbeddingRequest",
    "Language",
    "Logprobs",
    "Message",
    "ModelCard",
    "ModelList",
    "PredictAnswer",
    "PredictRequest",
    "Problem",
    "Said",
    "Sampling",
    "State",
    "StreamOptions",
    "TextPart",
    "TopLogprob",
    "TranslateAnswer",
    "TranslateRequest",
    "Trouble",
    "Usage",
]

Count = Annotated[StrictInt, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[StrictInt, Field(ge=0, lt=2**48)]
Stops = StrictStr | Annotated[list[StrictStr], Field(max_length=16)]
Texts = StrictStr | Annotated[list[StrictStr], Field(fail_fast=True)]


def _null_is(usual: Any, kind: Any) -> BeforeValidator:
    """A field that may be null in OpenAI's interface: that asks for what is usual."""
    return BeforeValidator(lambda given: usual if given is None else given, json_schema_input_type=kind | None)


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class _Answer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())


class Trouble(_Answer):
    """What went wrong, in a sentence."""

    message: str
    type: str
    code: str


class Problem(_Answer):
    """A refusal."""

    error: Trouble


class StreamOptions(_Form):
    include_usage: bool = False


class Sampling(_Form):
    """How to write; what is not said is as the model has it. The fields below `seed` are ours."""

    model: StrictStr
    temperature: Temperature | None = None
    top_p: Share | None = None
    n: Annotated[Count, _null_is(1, Count)] = 1
    stop: Stops | None = None
    seed: Seed | None = None
    top_k: Annotated[StrictInt, Field(ge=0, le=2**31)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    stream: Annotated[bool, _null_is(False, bool)] = False
    stream_options: StreamOptions | None = None
    user: StrictStr | None = None
    # Accepted where they ask for nothing.
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None

    def options(self, longest: int | None) -> dict[str, Any]:
        """The same, by the names that decoding has for it."""
        names = ("temperature", "top_p", "seed", "top_k", "min_p", "repetition_penalty", "stop")
        return {"longest": longest, "best": self.n, **{name: getattr(self, name) for name in names}}


class CompletionRequest(Sampling):
    prompt: Texts
    max_tokens: Annotated[Count, _null_is(16, Count)] = 16
    logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None
    echo: Annotated[bool, _null_is(False, bool)] = False
    best_of: Literal[1] | None = None
    suffix: None = None


class TextPart(_Form):
    type: Literal["text"]
    text: StrictStr


class Message(_Form):
    role: StrictStr
    content: StrictStr | Annotated[list[TextPart], Field(min_length=1)]
    name: StrictStr | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Sampling):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: Annotated[bool, _null_is(False, bool)] = False
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None


class Usage(_Answer):
    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class Logprobs(_Answer):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class Choice(_Answer):
    index: int
    text: str
    logprobs: Logprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class CompletionAnswer(_Answer):
    """Also each event of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class TopLogprob(_Answer):
    token: str
    logprob: float
    bytes: list[int] | None = None


class ChatLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(_Answer):
    content: list[ChatLogprob]


class Said(_Answer):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChoice(_Answer):
    """A whole answer has a message, an event of a stream a delta."""

    index: int
    message: Said | None = None
    delta: Said | None = None
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class ChatAnswer(_Answer):
    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None


class EmbeddingRequest(_Form):
    model: StrictStr
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    user: StrictStr | None = None


class Embedding(_Answer):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingAnswer(_Answer):
    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: Usage


class ModelCard(_Answer):
    """`task` and `languages` are ours."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["clearhead"] = "clearhead"
    task: str
    languages: list[str] = []


class ModelList(_Answer):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class TranslateRequest(_Form):
    """`model` is ours: the translator of that name, whatever its languages are."""

    q: Texts
    source: StrictStr = "auto"
    target: StrictStr | None = None
    format: Literal["text"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    api_key: StrictStr | None = None
    model: StrictStr | None = None


class TranslateAnswer(_Answer):
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None


class Language(_Answer):
    code: str
    name: str
    targets: list[str]


class PredictRequest(_Form):
    rows: Annotated[list[dict[str, StrictStr | StrictBool | StrictInt | StrictFloat | None]], Field(min_length=1)]


class PredictAnswer(_Answer):
    object: Literal["table.predictions"] = "table.predictions"
    model: str
    target: str
    predictions: list[Any]
    probabilities: list[dict[str, float]] | None = None


class State(_Answer):
    status: Literal["alive", "ready"]
