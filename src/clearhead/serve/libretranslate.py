"""LibreTranslate's addresses: /translate, by JSON or form, and /languages."""

import json
import re
from collections import defaultdict
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
HEAD = 1_024  # bytes that may stand before the text of a part
BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))\s*(?:;|$)', re.IGNORECASE)
NAMED = re.compile(rb'content-disposition:\s*form-data\s*;\s*name=("?)([^\s;"]+)\1\s*', re.IGNORECASE)
CODED = re.compile(rb"content-transfer-encoding:\s*(?:base64|quoted-printable)", re.IGNORECASE)
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
        key, content_type = bearer(request), request.headers.get("content-type", JSON)
        if key is not None:  # then nothing is read for whoever has a wrong one
            context.keys.check(key)
        fields = _fields(await request.body(), content_type)
        if key is None:
            context.keys.check(_key(fields))
        asked = _asked(fields)
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


def _fields(body: bytes, content_type: str) -> Any:
    """What the body says, not yet looked at."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in READERS:
        raise RefusedError(415, f"the body must be {JSON}, {FORM} or {PARTS}, not {kind[:60]}", "wrong_content_type")
    try:
        return READERS[kind](body, content_type)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            400, f"the body cannot be read as {kind}: it must be UTF-8, whole, and not nested deeply", "unreadable"
        ) from error


def _key(fields: Any) -> str | None:
    """The key that comes in the request itself."""
    found = fields.get("api_key") if isinstance(fields, dict) else None
    return found if isinstance(found, str) else None


def _asked(fields: Any) -> TranslateRequest:
    try:
        return TranslateRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise RefusedError(400, f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}", "invalid_value") from error


def _of_json(body: bytes, content_type: str) -> Any:
    return json.loads(body.decode("utf-8"))


def _of_form(body: bytes, content_type: str) -> dict[str, Any]:
    fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    return _single(fields)


def _of_parts(body: bytes, content_type: str) -> dict[str, Any]:
    """The parts between the boundaries, read as clients write them: `email` would take seconds for what some send."""
    found = BOUNDARY.search(content_type)
    if found is None:
        raise ValueError("no boundary")
    line = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
    _, *parts, end = (b"\r\n" + body).split(line, FIELDS + 1)
    if not end.startswith(b"--"):
        raise ValueError("no end, or too many parts before it")
    fields: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        name, text = _field(part)
        fields[name].append(text)
    return _single(fields)


def _field(part: bytes) -> tuple[str, str]:
    """The name of a part and its text; a file has more to its name."""
    head, blank, text = part.partition(b"\r\n\r\n")
    padding, *headers = head.split(b"\r\n") if len(head) <= HEAD else [head]
    names = [found[2] for found in map(NAMED.fullmatch, headers) if found]
    if not blank or padding.strip() or len(names) != 1 or any(map(CODED.match, headers)):
        raise ValueError("a part is no field")
    return names[0].decode("utf-8"), text.decode("utf-8")


def _single(fields: dict[str, list[str]]) -> dict[str, Any]:
    """A field that comes once is a text, one that comes more often a list of texts."""
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


READERS = {JSON: _of_json, FORM: _of_form, PARTS: _of_parts}
