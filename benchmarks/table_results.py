"""How good the table models are: California, Adult and bank marketing, beside gradient boosting on the same splits.

    python benchmarks/table_results.py --data DIR [--only california-default …] [--seeds 0 1 2]

Each run of a setting under one seed is written to `results/table-<setting>.json` as soon as it is done, and is not done
again: what was interrupted goes on where it stood. `--rows` and `--epochs` make a short trial, which is written to
`results/table-<setting>-trial.json`.

California: a fifth for the test, a fifth of the rest for validation, by scikit-learn's `train_test_split` under the
seed. Adult: its own split, a fifth of the training rows for validation. Bank: a fifth for the test, 15 of the other 80
percent for validation, each class alike. Gradient boosting is scikit-learn's, with its defaults, on the training rows.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from harness import RESULTS, surroundings
from scipy.stats import t as student
from sklearn.model_selection import train_test_split

from clearhead.data.table_files import read_table
from clearhead.data.tables import Cells, Table
from clearhead.tasks.table_baseline import yardsticks
from clearhead.tasks.table_estimators import TableClassifier, TableRegressor
from clearhead.tasks.table_report import figures_of


class Rows(NamedTuple):
    """Some rows and their target."""

    table: Table
    target: Cells

    def take(self, which: Cells) -> "Rows":
        return Rows(self.table.take(which), self.target[which])


class Split(NamedTuple):
    train: Rows
    valid: Rows
    test: Rows


def cut(rows: Rows, share: float, seed: int, *, alike: bool = False) -> tuple[Rows, Rows]:
    """Rows, and the share that is taken away from them."""
    kept, away = train_test_split(
        np.arange(len(rows.target)), test_size=share, random_state=seed, stratify=rows.target if alike else None
    )
    return rows.take(kept), rows.take(away)


def california(data: Path, seed: int) -> Split:
    whole = read_table(data / "california" / "california_housing.csv")
    rows = Rows(whole.without("MedHouseVal"), whole["MedHouseVal"].astype(np.float64))
    rest, test = cut(rows, 0.2, seed)
    return Split(*cut(rest, 0.2, seed), test)


def adult(data: Path, seed: int) -> Split:
    parts = []
    for name in ("adult.data", "adult.test"):
        whole = read_table(data / "adult" / name)
        labels = np.array([str(label).removesuffix(".") for label in whole["Y"]])  # the test file ends them with a dot
        parts.append(Rows(whole.without("Y"), labels))
    return Split(*cut(parts[0], 0.2, seed), parts[1])


def bank(data: Path, seed: int) -> Split:
    whole = read_table(data / "bank" / "bank-full.csv")
    rest, test = cut(Rows(whole.without("y"), whole["y"].astype(str)), 0.2, seed, alike=True)
    return Split(*cut(rest, 0.15 / 0.8, seed, alike=True), test)


@dataclass(frozen=True)
class Setting:
    """Data, the figure that counts, and what the estimator is told."""

    split: Callable[[Path, int], Split]
    figure: str
    options: dict[str, Any] = field(default_factory=dict)
    labels: float = 1.0  # the share of the training rows whose labels are known
    pretrain: str = ""  # by which method on all training rows; then the same without stands beside it
    seeds: tuple[int, ...] = (0, 1, 2)


# Chosen by the validation rows of seed 0 among 1 or 2 layers of width 8 or 16 and dropout from 0.1 to 0.4; larger ones
# learn the training rows by heart.
SMALL: dict[str, Any] = {
    "kind": "tab",
    "watch": "loss",
    "layers": 1,
    "width": 8,
    "heads": 2,
    "dropout": 0.4,
    "learning_rate": 1e-3,
    "patience": 8,
}
FEW: dict[str, Any] = {"patience": 16, "epochs": 100}
SETTINGS = {
    "california-default": Setting(california, "rmse"),
    "california-trees": Setting(california, "rmse", {"numbers": "trees"}),
    "california-trees-5": Setting(california, "rmse", {"numbers": "trees", "n_ensemble": 5}),
    "adult-default": Setting(adult, "accuracy"),
    "adult-trees": Setting(adult, "accuracy", {"numbers": "trees"}),
    "bank-tab": Setting(bank, "auc", SMALL),
    "bank-tab-5": Setting(bank, "auc", {**SMALL, "n_ensemble": 5}),
    "bank-tab-default": Setting(bank, "auc", {"kind": "tab", "watch": "loss"}),
    "bank-ft": Setting(bank, "auc", {"watch": "loss"}),
    "adult-pretrain": Setting(
        adult, "auc", {**FEW, "watch": "loss", "layers": 2}, labels=0.01, pretrain="mask", seeds=tuple(range(5))
    ),
    "adult-replace": Setting(
        adult, "auc", {**FEW, "watch": "loss", "layers": 2}, labels=0.01, pretrain="replace", seeds=tuple(range(5))
    ),
}


def run(of: Setting, data: Path, seed: int, trial: argparse.Namespace) -> dict[str, Any]:
    """Fit under one seed, with and without pre-training where that is the question, and measure on the test rows."""
    split = of.split(data, seed)
    if trial.rows:
        split = Split(*(part.take(np.arange(min(trial.rows, len(part.target)))) for part in split))
    options = {**of.options, "random_state": seed, **({"epochs": trial.epochs} if trial.epochs else {})}
    labelled = split
    if of.labels < 1:
        whole = Rows(split.train.table, split.train.target)
        labelled = Split(*cut(cut(whole, of.labels, seed, alike=True)[1], 0.2, seed, alike=True), split.test)
    record: dict[str, Any] = {"seed": seed, "options": options, "rows": [len(part.target) for part in labelled]}
    if of.pretrain:
        record["clearhead"] = fit(of, options, labelled, split.train.table)
        record["without pre-training"] = fit(of, options, labelled)
    else:
        record["clearhead"] = fit(of, options, labelled)
    fitted, classes = record["clearhead"].pop("fitted"), of.split is not california
    record.get("without pre-training", {}).pop("fitted", None)
    for stick in yardsticks(fitted.schema, labelled.train, split.test.table, classes=classes, seed=seed):
        known = getattr(fitted.target, "labels", None)
        record[stick.name] = figures_of(split.test.target, stick.predicted, stick.probability_BC, known)
    return record


def fit(of: Setting, options: dict[str, Any], split: Split, unlabelled: Table | None = None) -> dict[str, Any]:
    start = time.perf_counter()
    kind = TableRegressor if of.split is california else TableClassifier
    estimator: Any = kind(**options)
    if unlabelled is not None:
        estimator.pretrain(unlabelled, method=of.pretrain)
    estimator.fit(*split.train, validation=split.valid)
    minutes = (time.perf_counter() - start) / 60
    if kind is TableRegressor:
        figures = figures_of(split.test.target, estimator.predict(split.test.table), None)
    else:
        probability_BC = estimator.predict_proba(split.test.table)
        predicted = estimator.classes_[probability_BC.argmax(1)]
        figures = figures_of(split.test.target, predicted, probability_BC, estimator.classes_)
    parameters = sum(weight.numel() for weight in estimator.fitted_.model.parameters())
    about = {"epochs": estimator.n_iter_, "minutes": round(minutes, 2), "parameters": parameters}
    return {**figures, **about, "fitted": estimator.fitted_}


def summary(name: str, of: Setting, runs: list[dict[str, Any]]) -> str:
    """The mean of each model's figure, and our difference from each with its 95% interval (paired, Student's t)."""
    models = [model for model in runs[0] if isinstance(runs[0][model], dict) and of.figure in runs[0][model]]
    lines = [f"{name}: {of.figure} on the test rows, {len(runs)} seeds"]
    ours = [one["clearhead"][of.figure] for one in runs]
    for model in models:
        theirs = [one[model][of.figure] for one in runs]
        line = f"  {model:<22} {mean(theirs):.4f}"
        if model != "clearhead":
            differences = [a - b for a, b in zip(ours, theirs, strict=True)]
            line += f"   clearhead − it: {mean(differences):+.4f}"
            if len(runs) > 1:
                half = student.ppf(0.975, len(runs) - 1) * stdev(differences) / len(runs) ** 0.5
                line += f" ± {half:.4f}"
        lines.append(line)
    minutes = [one["clearhead"]["minutes"] for one in runs]
    return "\n".join([*lines, f"  {mean(minutes):.1f} minutes a seed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds california, adult and bank")
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--seeds", nargs="+", type=int, help="in place of the setting's own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=0, help="a trial: at most so many rows of each part")
    parser.add_argument("--epochs", type=int, default=0, help="a trial: at most so many epochs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    RESULTS.mkdir(exist_ok=True)
    for name in options.only:
        of = SETTINGS[name]
        path = RESULTS / f"table-{name}{'-trial' if options.rows or options.epochs else ''}.json"
        record = json.loads(path.read_text()) if path.exists() else {"runs": []}
        record |= surroundings(["torch", "scikit-learn", "numpy"])
        for seed in options.seeds or of.seeds:
            if all(one["seed"] != seed for one in record["runs"]):
                record["runs"].append(run(of, options.data, seed, options))
                path.write_text(json.dumps(record, indent=1) + "\n")
        print(summary(name, of, record["runs"]), flush=True)


if __name__ == "__main__":
    main()
