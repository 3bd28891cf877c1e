"""`clearhead translate`: text in one language to text in the other."""

from clearhead.cli.text import JsonOption, ModelOption, TextArguments, batches, say_json, say_line

__all__ = ["translate"]


def translate(model: ModelOption, text: TextArguments = None, as_json: JsonOption = False) -> None:
    """Translate texts, or stdin line by line."""
    from clearhead.tasks.translator import Translator

    translator = Translator.from_pretrained(model)
    for sources in batches(text):
        for source, translation in zip(sources, translator.translate(sources), strict=True):
            if as_json:
                say_json({"source": source, "translation": translation})
            else:
                say_line(translation)
