"""Models by the name that they have on Hugging Face's hub, where the package for that is installed and a network is."""

import re
from pathlib import Path

from clearhead.errors import CheckpointError, MissingPackageError

__all__ = ["fetched", "is_hub_name"]

NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Weights, tokenizers and their settings; no code, no other frameworks' weights.
WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja", "1_*/config.json", "2_*/config.json"]


def is_hub_name(name: str) -> bool:
    """Whether this could be a model's name there: `owner/name` or `name`.

    >>> is_hub_name("openai-community/gpt2"), is_hub_name("../models/mine"), is_hub_name("a/b/c")
    (True, False, False)
    """
    return bool(NAME.fullmatch(name)) and ".." not in name and not name.startswith((".", "-"))


def fetched(name: str) -> Path:
    """The folder into which the model of that name was brought, now or earlier; a bar shows the progress."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
    except ImportError as error:
        raise MissingPackageError(
            f"there is no folder {name!r}; to fetch a model of that name from the hub: pip install 'clearhead[convert]'"
        ) from error
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*WANTED, "pytorch_model*.bin"]))
    except GatedRepoError as error:  # a kind of what is not found
        raise CheckpointError(
            f"the hub does not give {name!r} to everybody: accept the terms on the model's page there, "
            "and log in by `hf auth login`"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise CheckpointError(f"there is no folder {name!r}, and no model of that name on the hub") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"there is no folder {name!r}, and the hub, where a model may have that name, cannot be reached"
        ) from error
    return folder
