"""How much one request may ask for."""

from dataclasses import dataclass

from clearhead.serve.guards import RefusedError

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Each is refused with a sentence that names the limit.

    body         bytes of a request
    texts        prompts, texts or rows of a table
    characters   of all its texts together
    sentences    that its texts are cut into
    tokens       that each answer may have
    beams, n     hypotheses of a search; answers to each text
    deadline     seconds until an answer must be there
    """

    body: int = 1 << 20
    texts: int = 256
    characters: int = 100_000
    sentences: int = 512
    tokens: int = 1_024
    beams: int = 8
    n: int = 8
    deadline: float = 60.0

    def check(self, name: str, value: int, what: str) -> None:
        """Refuse more of something than the limit of that name."""
        most = getattr(self, name)
        if value > most:
            raise RefusedError(
                400, f"at most {most:,} {what} can be asked for at once, not {value:,}", f"too_many_{name}"
            )

    def check_texts(self, texts: list[str]) -> None:
        if not texts:
            raise RefusedError(400, "at least one text is needed", "no_texts")
        self.check("texts", len(texts), "texts")
        self.check("characters", sum(map(len, texts)), "characters")
