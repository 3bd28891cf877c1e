"""A fitted table model: the schema, the target, the weights; all that prediction needs, and nothing else.

Its model directory has, beside `config.json`, `model.safetensors` and `README.md`,

    table.json           columns, features, categories, target, how many members
    table.safetensors    quantiles and medians of the numbers
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from clearhead.data.table_schema import Encoded, Schema, schema_of
from clearhead.data.table_target import Classes, Values, target_of
from clearhead.data.tables import Cells, Table
from clearhead.errors import CheckpointError, ConfigError
from clearhead.models.presets import ARCHITECTURES, build
from clearhead.nn.members import side_by_side
from clearhead.nn.weights import distinct, load_tensors, load_weights, read_tensors, save_weights, write_tensors
from clearhead.tasks.checked import as_dataclass
from clearhead.tasks.directory import model_folder, read_settings
from clearhead.tasks.table_build import TableConfig
from clearhead.tasks.table_fit import Rows, apart
from clearhead.train.disk import aside

__all__ = ["TableModel", "blank", "rows_of"]

FORMAT_VERSION = 1
CHUNK = 1 << 14  # rows that are encoded at a time


class TableModel:
    """Rows of a table in, outputs out; a value that pickles as JSON and safetensors."""

    def __init__(self, schema: Schema, target: Classes | Values, model: Any, config: TableConfig, members: int) -> None:
        self.schema, self.target = schema, target
        self.model, self.config, self.members = model, config, members

    @property
    def device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    @torch.inference_mode()
    def outputs(self, table: Table) -> Iterator[Tensor]:
        """The outputs of each member for some rows at a time, (S, B, outputs), in bounded memory."""
        tokens = 1 + len(self.schema.features)
        for start in range(0, table.rows, CHUNK):
            encoded = self.schema.encode(table.take(slice(start, start + CHUNK)))
            yield from apart(self.model, rows_of(encoded).to(self.device), self.members, tokens)

    def probabilities(self, table: Table) -> Cells:
        """Of each class, averaged over the members, (rows, classes)."""
        return _joined([part_SBC.double().softmax(2).mean(0) for part_SBC in self.outputs(table)], self.target.outputs)

    def values(self, table: Table) -> Cells:
        """The predicted numbers, averaged over the members."""
        assert isinstance(self.target, Values)
        mean_BC = _joined([part_SBC.double().mean(0) for part_SBC in self.outputs(table)], self.target.outputs)
        return self.target.decode(mean_BC)

    def words(self) -> dict[str, Any]:
        return {"members": self.members, "schema": self.schema.words(), "target": self.target.words()}

    def arrays(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in self.schema.arrays().items()}

    def save(self, folder: Path, task: str, card: str, extra: Mapping[str, Any]) -> None:
        """Write a new model directory, whole or not at all; `extra` goes into table.json."""
        if folder.exists():
            raise ConfigError(f"the output folder {str(folder)!r} exists already; name another, or remove it first")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with aside(folder) as temporary:
            temporary.mkdir()
            save_weights(self.model, temporary / "model.safetensors")
            write_tensors(temporary / "table.safetensors", self.arrays())
            about = {"format_version": FORMAT_VERSION, "architecture": _architecture(self.config), "task": task}
            _write_json(temporary / "config.json", {**about, "config": asdict(self.config)})
            _write_json(temporary / "table.json", {**self.words(), **extra})
            (temporary / "README.md").write_text(card, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, task: str) -> tuple["TableModel", dict[str, Any]]:
        """The model of a directory, and the words of its table.json."""
        folder = model_folder(folder)
        settings = read_settings(folder)
        if settings.task != task:
            raise CheckpointError(f"{folder} holds a model for {settings.task}, not for {task}")
        words = _read_json(folder / "table.json")
        arrays = {name: tensor.numpy() for name, tensor in read_tensors(folder / "table.safetensors").items()}
        try:
            schema, target = schema_of(words["schema"], arrays), target_of(words["target"])
            members = words["members"]
        except KeyError as error:
            raise CheckpointError(f"{folder / 'table.json'} has no {error}") from error
        if not _belongs(schema, target, settings.config) or type(members) is not int or members < 1:
            raise CheckpointError(f"{folder / 'table.json'} is of another model than {folder / 'config.json'}")
        made = cls(schema, target, blank(settings.config, members), settings.config, members)
        load_weights(made.model, folder / "model.safetensors")
        return made, words

    def __getstate__(self) -> dict[str, Any]:
        words = {**self.words(), "architecture": _architecture(self.config), "config": asdict(self.config)}
        weights = {name: tensor.cpu().contiguous() for name, tensor in distinct(self.model).items()}
        return {"words": json.dumps(words), "arrays": save(self.arrays()), "weights": save(weights)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        words = json.loads(state["words"])
        config = as_dataclass(ARCHITECTURES[words["architecture"]][0], words["config"], "config")
        arrays = {name: tensor.numpy() for name, tensor in load(state["arrays"]).items()}
        model = blank(config, words["members"])
        load_tensors(model, load(state["weights"]), source="the pickled estimator")
        self.__init__(  # type: ignore[misc]
            schema_of(words["schema"], arrays), target_of(words["target"]), model, config, words["members"]
        )


def _belongs(schema: Schema, target: Classes | Values, config: object) -> bool:
    """Whether a model of this config reads what the schema gives, and gives what the target needs."""
    if not isinstance(config, TableConfig):
        return False
    read = len(schema.numbers), tuple(feature.size for feature in schema.categories)
    alike = all(array.shape[-1:] == read[:1] for array in schema.arrays().values())
    return alike and (*read, target.outputs) == (config.numbers, config.categories, config.outputs)


def blank(config: TableConfig, members: int) -> nn.Module:
    """A model of that config for evaluation, its weights still to come."""
    if members == 1:
        return build(config).eval()
    return side_by_side([build(config) for _ in range(members)]).eval()


def rows_of(encoded: Encoded, target: Tensor | None = None, weight_B: Tensor | None = None) -> Rows:
    """Encoded rows as tensors; where nothing else is said, nothing is to be learned of them, and all count alike."""
    number_BC, code_BC = map(torch.from_numpy, encoded)
    rows = len(number_BC)
    return Rows(
        number_BC,
        code_BC,
        torch.zeros(rows) if target is None else target,
        torch.ones(rows) if weight_B is None else weight_B,
    )


def _joined(parts: list[Tensor], outputs: int) -> Cells:
    joined: Cells = torch.cat(parts).cpu().numpy() if parts else np.empty((0, outputs))
    return joined


def _architecture(config: TableConfig) -> str:
    return next(name for name, (kind, _) in ARCHITECTURES.items() if type(config) is kind)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as a JSON object: {error}") from error
    if not isinstance(words, dict):
        raise CheckpointError(f"{path} cannot be read as a JSON object: it holds {words!r:.60}")
    return words


def _write_json(path: Path, words: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(words, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
