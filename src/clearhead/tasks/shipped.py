"""What comes with clearhead: a translator, and recipes to start from; known by their names wherever one works."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from clearhead.errors import ConfigError

__all__ = ["TRANSLATOR", "find_recipe", "recipe_names", "shipped_model"]

PACKAGE = Path(__file__).parent.parent
TRANSLATOR = "clearhead/fr-en"
MODELS: Mapping[str, Path] = MappingProxyType({TRANSLATOR: PACKAGE / "shipped" / "fr-en"})
HOMES = (PACKAGE / "recipes", PACKAGE.parent.parent / "recipes")  # where it is installed, and where it is worked on


def shipped_model(wanted: str | Path) -> Path | None:
    """The directory of a model that comes with clearhead, where this is the name of one."""
    return MODELS.get(Path(wanted).as_posix())


def find_recipe(wanted: Path) -> Path:
    """The file that is meant: as it stands, or by its name alone one of those that come with clearhead."""
    if wanted.is_file() or wanted.suffix or len(wanted.parts) != 1:
        return wanted
    known = recipe_names()
    if wanted.name not in known:
        near = get_close_matches(wanted.name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"name a file, or one of {', '.join(known)}"
        raise ConfigError(f"no recipe is called {wanted.name!r}: {hint}")
    return next(file for home in HOMES if (file := home / f"{wanted.name}.yaml").is_file())


def recipe_names() -> list[str]:
    """The names of the recipes that come with clearhead."""
    return sorted({file.stem for home in HOMES for file in home.glob("*.yaml")})
