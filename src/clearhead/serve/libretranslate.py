"""LibreTranslate's addresses: /translate, by JSON or form, and /languages."""

import json
from collections import defaultdict
from email import message_from_bytes, policy
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic import ValidationError

from clearhead.serve.context import Context, refusals
from clearhead.serve.guards import RefusedError
from clearhead.serve.keys import bearer
from clearhead.serve.models import Models
from clearhead.serve.schemas import Language, TranslateAnswer, TranslateRequest
from clearhead.serve.translators import ServedTranslator
from clearhead.serve.waiting import finish
from clearhead.tasks.answers import Answer

__all__ = ["libretranslate_routes"]

FORM, PARTS, JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
FIELDS = 1_000
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "et": "Estonian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi",
    "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def libretranslate_routes(context: Context) -> APIRouter:
    """Translation; the key may come in the request itself. Which languages there are is no secret."""
    routes = APIRouter(responses=refusals())
    models, limits = context.models, context.limits
    body = {"schema": TranslateRequest.model_json_schema()}

    @routes.post(
        "/translate",
        response_model=TranslateAnswer,
        response_model_exclude_none=True,
        openapi_extra={"requestBody": {"required": True, "content": {JSON: body, FORM: body}}},
    )
    async def translate(request: Request) -> TranslateAnswer:
        """Translate a text, or each of several."""
        asked = _asked(await request.body(), request.headers.get("content-type", JSON))
        context.keys.check(asked.api_key or bearer(request))
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        limits.check_texts(texts)
        limits.check("beams", asked.alternatives + 1, "translations")
        several = asked.alternatives + 1 if asked.alternatives else None
        translator = _translator(models, asked)
        answers = await finish(request, translator.answers(texts, {"beams": several, "best": several}), limits.deadline)
        best, rest = [_texts(found)[0] for found in answers], [_texts(found)[1:] for found in answers]
        single = isinstance(asked.q, str)
        others = None if several is None else rest[0] if single else rest
        return TranslateAnswer(translatedText=best[0] if single else best, alternatives=others)

    @routes.get("/languages", response_model=list[Language])
    async def languages() -> list[Language]:
        """Which languages can be translated into which."""
        targets: dict[str, list[str]] = defaultdict(list)
        for source, target in _pairs(models):
            targets[source].append(target)
        return [
            Language(code=code, name=NAMES.get(code, code), targets=sorted({*found}))
            for code, found in sorted(targets.items())
        ]

    return routes


def _texts(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def _pairs(models: Models) -> dict[tuple[str, str], ServedTranslator]:
    """The translators by their languages; of several for the same ones, the first."""
    found: dict[tuple[str, str], ServedTranslator] = {}
    for one in models:
        if isinstance(one, ServedTranslator) and len(one.languages) == 2:
            found.setdefault((one.languages[0], one.languages[1]), one)
    return found


def _translator(models: Models, asked: TranslateRequest) -> ServedTranslator:
    if asked.model is not None:
        return models.pick(asked.model, ServedTranslator)
    if asked.target is None:
        raise RefusedError(400, "say into which language: target is missing", "no_target")
    pairs = _pairs(models)
    fitting = [
        one for (source, target), one in pairs.items() if target == asked.target and asked.source in (source, "auto")
    ]
    if not fitting:
        known = ", ".join(f"{source} into {target}" for source, target in pairs) or "no pair of languages"
        wanted = f"{asked.source[:20]} into {asked.target[:20]}"
        raise RefusedError(400, f"this server does not translate {wanted}; it knows {known}", "unknown_languages")
    if len(fitting) > 1:
        raise RefusedError(400, "this server does not detect languages: say which one the source is in", "no_detection")
    return fitting[0]


def _asked(body: bytes, content_type: str) -> TranslateRequest:
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in READERS:
        raise RefusedError(415, f"the body must be {JSON}, {FORM} or {PARTS}, not {kind[:60]}", "wrong_content_type")
    try:
        return TranslateRequest.model_validate(READERS[kind](body, content_type))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise RefusedError(400, f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}", "invalid_value") from error
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            400, f"the body cannot be read as {kind}: it must be UTF-8, whole, and not nested deeply", "unreadable"
        ) from error


def _of_json(body: bytes, content_type: str) -> Any:
    return json.loads(body.decode("utf-8"))


def _of_form(body: bytes, content_type: str) -> dict[str, Any]:
    fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    return _single(fields)


def _of_parts(body: bytes, content_type: str) -> dict[str, Any]:
    head = b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n"
    message = message_from_bytes(head + body, policy=policy.HTTP)
    fields: dict[str, list[str]] = defaultdict(list)
    for part in message.iter_parts():
        name, payload = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        if not isinstance(name, str) or part.get_filename() is not None or not isinstance(payload, bytes):
            raise ValueError("a part is no field")
        fields[name].append(payload.decode("utf-8"))
    return _single(fields)


def _single(fields: dict[str, list[str]]) -> dict[str, Any]:
    """A field that comes once is a text, one that comes more often a list of texts."""
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


READERS = {JSON: _of_json, FORM: _of_form, PARTS: _of_parts}
