"""The figures of docs/results.md again, one name at a time: its commands, run and timed as a user would.

    make results                                       the names
    make results NAME=multi30k DATA=DIR                DIR holds the folders multi30k-de-en, tatoeba-fra-eng, …
    python benchmarks/results.py multi30k --data DIR --quick          two steps of each training: does everything run?

What a training leaves goes to `runs/results/NAME`, which must not exist; an interrupted one goes on with `--resume`.
The figures are printed as a table and written to `results/results-NAME.json`, with each command and its minutes.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from harness import RESULTS, surroundings

HOME = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TRAIN = "clearhead train"


@dataclass(frozen=True)
class Result:
    """A heading of docs/results.md: what is run for it, and what stands beside it there.

    In the commands `{data}` is the folder of the data, `{run}` that of the run; what ends with `--json` gives figures.
    """

    about: str
    commands: tuple[str, ...]
    rival: str = ""


def trained(recipe: str, *files: str) -> str:
    """The command that trains as a recipe says, on these files below the data."""
    sets = " ".join(f"--set {shlex.quote(file)}" for file in files)
    return f"clearhead train recipes/{recipe}.yaml {sets} --out {{run}}"


def judged(files: str, *ways: str) -> tuple[str, ...]:
    """The commands that measure the trained model on these files, in each of these ways."""
    return tuple(f"clearhead evaluate {files} -m {{run}} {way} --json".replace("  ", " ") for way in ways)


def tables(*settings: str) -> tuple[str, ...]:
    return (f"python benchmarks/table_results.py --data {{data}} --only {' '.join(settings)}",)


FLICKR = "{data}/multi30k-de-en/test_2016_flickr"
TATOEBA = tuple(f"data.{part}={{data}}/tatoeba-fra-eng/{part}.tsv" for part in ("train", "valid", "test"))
SAME_SIZES = ("model.encoder_layers=3", "model.dropout=0.1", "train.precision=float32", "train.ema=0")
QUICKLY = ("data.as_typed=0", *SAME_SIZES, "train.steps=3300", "train.validate_every=0")
STANFORD = "{data}/sst2/stsa.binary"
STANFORD_PARTS = (("train", "train"), ("valid", "dev"), ("test", "test"))
SHAKESPEARE = "data.train={data}/tinyshakespeare/input.txt"
FEWER = "--set train.rows=8 --set train.steps=8000 --set model.init=xavier --set model.positions=rotary"
BATCHES = "python benchmarks/corpus.py --multi30k-de-en {data}/multi30k-de-en --tatoeba-fra-eng {data}/tatoeba-fra-eng"
NAMES: dict[str, Result] = {
    "phrasebook": Result(
        "French → English, built-in phrasebook",
        ("clearhead train recipes/phrasebook.yaml --out {run}",),
    ),
    "multi30k": Result(
        "German → English, Multi30k, test 2016",
        (
            trained(
                "multi30k-de-en",
                "data.train=[{data}/multi30k-de-en/train.de, {data}/multi30k-de-en/train.en]",
                "data.valid=[{data}/multi30k-de-en/val.de, {data}/multi30k-de-en/val.en]",
                f"data.test=[{FLICKR}.de, {FLICKR}.en]",
            ),
            *judged(f"{FLICKR}.de {FLICKR}.en", "", "--beam 5", "--beam 5 --precision int8"),
        ),
        "36.5 lower-cased, greedy, by the tutorials' model of 9 M parameters",
    ),
    "tatoeba": Result(
        "French → English, Tatoeba",
        (
            trained("tatoeba-fra-eng", *TATOEBA),
            *judged("{data}/tatoeba-fra-eng/test.tsv", "", "--beam 4", "--beam 4 --precision int8"),
        ),
        "48.1 greedy on the validation split by torch.nn.Transformer, 7.6 M parameters, 35 minutes",
    ),
    "tatoeba-35": Result(
        "French → English, Tatoeba, 35 minutes",
        (
            trained("tatoeba-fra-eng", *TATOEBA, *QUICKLY),
            *judged("{data}/tatoeba-fra-eng/valid.tsv", ""),
            *judged("{data}/tatoeba-fra-eng/test.tsv", "--beam 4"),
        ),
        "48.1 greedy on the validation split by torch.nn.Transformer, 7.6 M parameters, 35 minutes",
    ),
    "sst2": Result(
        "sentiment, SST-2",
        (
            trained("sst2", *(f"data.{key}={STANFORD}.{part}" for key, part in STANFORD_PARTS)),
            *judged(f"{STANFORD}.test", ""),
            f"python benchmarks/bag_of_words.py {STANFORD}.train {STANFORD}.test",
        ),
    ),
    "trec": Result(
        "kinds of questions, TREC",
        (
            trained("trec", "data.train={data}/trec/TREC.train.all", "data.test={data}/trec/TREC.test.all"),
            *judged("{data}/trec/TREC.test.all", "--encoding latin-1"),
            "python benchmarks/bag_of_words.py {data}/trec/TREC.train.all {data}/trec/TREC.test.all --encoding latin-1",
        ),
    ),
    "tinyshakespeare-cpu": Result(
        "characters of Shakespeare, nanoGPT's setting for a CPU",
        (trained("tinyshakespeare-cpu", SHAKESPEARE),),
        "1.88 nats per character, as nanoGPT states",
    ),
    "tinyshakespeare-large": Result(
        "characters of Shakespeare, nanoGPT's larger setting",
        (trained("tinyshakespeare-large", SHAKESPEARE) + f" {FEWER}",),
        "1.4697 nats per character, as nanoGPT states",
    ),
    "california": Result("house prices", tables("california-default", "california-trees", "california-trees-5")),
    "adult": Result("incomes", tables("adult-default", "adult-trees")),
    "adult-pretrain": Result("incomes, a hundredth of the labels", tables("adult-pretrain")),
    "bank": Result("bank marketing", tables("bank-tab", "bank-tab-5", "bank-tab-default", "bank-ft")),
    "tables": Result("training speed of table models", ("python benchmarks/tables.py",)),
    "looking": Result(
        "heads of the demo's model", ("python benchmarks/looking.py", "python benchmarks/looking_results.py runs/demo")
    ),
    "explorer": Result("how fast the explorer answers", ("python benchmarks/explorer_hover.py",)),
    "serve": Result("the server under load", ("python benchmarks/serve.py runs/demo",)),
    "training": Result("training speed", ("python benchmarks/train_step.py",)),
    "decoding": Result("decoding speed", ("python benchmarks/decode.py", "python benchmarks/growth.py")),
    "batches": Result("padding and memory", (BATCHES,)),
}


def shown(figures: dict[str, object]) -> str:
    """Figures with three digits after the point, each with its signature where it has one."""
    parts = []
    for name, value in figures.items():
        signature = figures.get(f"{name}_signature")
        if isinstance(value, float):
            parts.append(f"{name} {value:.3f}" + (f" ({signature})" if signature else ""))
    return ", ".join(parts)


def last_validation(run: Path) -> dict[str, object]:
    """What the last validation of a run found."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return next((one for one in reversed(records) if one["kind"] == "validation"), {})


def execute(words: list[str], run: Path) -> dict[str, object]:
    """Run one command from the project's own folder; stop everything where it fails."""
    command, (program, *rest) = shlex.join(words), words
    print(f"$ {command}", flush=True)
    start = time.perf_counter()
    ended = subprocess.run([str(BIN / program), *rest], cwd=HOME, stdout=subprocess.PIPE, text=True)
    minutes = round((time.perf_counter() - start) / 60, 1)
    print(ended.stdout, flush=True)
    if ended.returncode:
        sys.exit(f"it left with code {ended.returncode}")
    figures = json.loads(ended.stdout) if command.endswith("--json") else {}
    if command.startswith(TRAIN):
        figures = last_validation(run)
    return {"command": command, "minutes": minutes, "said": ended.stdout, "figures": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="which; without it, the names are shown")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder that holds the data's folders")
    parser.add_argument("--quick", action="store_true", help="two steps of each training")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted training")
    options = parser.parse_args()
    if options.name is None:
        print("\n".join(f"{name:<24}{of.about}" for name, of in NAMES.items()))
        return
    if options.name not in NAMES:
        sys.exit(f"{options.name!r} is none of {', '.join(NAMES)}")
    of = NAMES[options.name]
    folder = HOME / "runs" / "results" / (options.name + ("-quick" if options.quick else ""))
    places = {"data": options.data.resolve(), "run": folder}
    done = []
    for template in of.commands:
        words = [word.format_map(places) for word in shlex.split(template)]
        if template.startswith(TRAIN):
            words += ["--set", "train.epochs=null", "--set", "train.steps=2"] if options.quick else []
            words += ["--resume"] if options.resume else []
        done.append(execute(words, folder))
    RESULTS.mkdir(exist_ok=True)
    record = {"about": of.about, "rival": of.rival, "commands": done, **surroundings(["torch", "sacrebleu"])}
    path = RESULTS / f"results-{folder.name}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{of.about}\n\n| command | minutes | figures |\n|---|---|---|")
    for one in done:
        print(f"| `{one['command']}` | {one['minutes']} | {shown(one['figures'])} |")
    print(f"\nbeside it: {of.rival}" if of.rival else "", f"\nwritten to {path}")


if __name__ == "__main__":
    main()
