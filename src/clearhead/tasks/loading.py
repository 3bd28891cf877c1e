"""Any model that can be used: one that ships, a directory or run of ours, others' folders and files, a hub name."""

from pathlib import Path

from clearhead.convert.hub import fetched, is_hub_name
from clearhead.convert.load import is_foreign
from clearhead.errors import CheckpointError
from clearhead.tasks.directory import ModelParts, model_folder, own_parts
from clearhead.tasks.foreign import foreign_parts, gguf_parts
from clearhead.tasks.precision import for_use
from clearhead.tasks.shipped import shipped_model

__all__ = ["find_model", "load_model"]

GGUF = ".gguf"


def load_model(
    where: str | Path, task: str = "", *, precision: str = "", threads: int | None = None, stored: bool = False
) -> ModelParts:
    """The model that is there, in evaluation mode; where a `task` is asked for, it must be the model's.

    With a `precision` it is made ready for use (`tasks/precision.py`), without one it is as it was trained. Others'
    weights become float32, unless they are to stay as they are `stored`.
    """
    found = find_model(where)
    if found.suffix == GGUF:
        parts = gguf_parts(found)
    else:
        parts = foreign_parts(found, stored=stored) if is_foreign(found) else own_parts(found)
    if task and parts.settings.task != task:
        raise CheckpointError(f"{found} holds a model for {parts.settings.task}, not for {task}")
    if precision:
        for_use(parts.model, precision, threads)
    return parts


def find_model(where: str | Path) -> Path:
    """The folder or the GGUF file that is meant: as it is, a run's best checkpoint, or brought from the hub."""
    path = Path(where)
    if not path.exists() and (own := shipped_model(path)) is not None:
        return own
    if path.is_file():
        if path.suffix != GGUF:
            raise CheckpointError(f"{str(path)!r} is neither a folder with a model nor a {GGUF} file")
        return path
    if not path.exists() and is_hub_name(str(where)):
        path = fetched(str(where))
    files = sorted(path.glob(f"*{GGUF}")) if path.is_dir() and not (path / "config.json").is_file() else []
    if len(files) > 1:
        raise CheckpointError(f"{path} holds {len(files)} files with models: name one, for example {files[0]}")
    return files[0] if files else model_folder(path)
