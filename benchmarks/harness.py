"""Compare the speed of several contenders on a noisy machine, fairly enough to believe the ratio.

Every contender lives in a process of its own and is driven in turn with the others. A sample during which anything else
used more than 6% of the cores is taken again. Ratios are taken within a round, beside a matrix multiply that tells how
fast the machine was just then. A script hands its contenders to `run`, which executes that script for every worker.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from subprocess import PIPE
from typing import Any

import torch

__all__ = ["Contender", "Suite", "Work", "run"]

RESULTS = Path(__file__).parent / "results"
CALIBRATOR = "matmul"
FOREIGN_LIMIT = 0.06  # share of all cores that others may use during a clean sample
PATIENCE = 5.0  # seconds to wait for a quiet machine before a sample is taken again
CPU_FLAGS = {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}
UNKNOWN = [float("nan")]


@dataclass(frozen=True)
class Work:
    """What a contender does at each step: units it handles, and floating-point operations that the task needs.

    A step may return the seconds that count, where not all of it does.
    """

    step: Callable[[], object]
    units: int
    flops: float
    note: str = ""


Contender = Callable[[], Work]
Suite = Mapping[str, Mapping[str, Contender]]  # setting -> contender -> how to build it


@dataclass(frozen=True)
class Sample:
    """One timing: seconds per step, and the share of the cores that others used meanwhile."""

    round: int
    seconds: float
    foreign: float
    clean: bool


@dataclass
class Result:
    """All that is known of one contender in one setting."""

    units: int = 0
    flops: float = 0.0
    note: str = ""
    error: str = ""
    samples: list[Sample] = field(default_factory=list)

    def kept(self) -> dict[int, Sample]:
        """The clean sample of each round that has one; where no round has, the quietest of each."""
        quietest = {s.round: s for s in sorted(self.samples, key=lambda s: -s.foreign)}
        return {at: sample for at, sample in quietest.items() if sample.clean} or quietest

    def times_faster(self, other: "Result", per: str) -> list[float]:
        """Ratios of speed in the rounds that both have; `per` names what is counted, "units" or "flops"."""
        ours, theirs, amount = self.kept(), other.kept(), getattr(self, per) / getattr(other, per)
        return [amount * theirs[at].seconds / ours[at].seconds for at in ours if at in theirs] or UNKNOWN

    def row(self, unit: str, first: str, results: Mapping[str, "Result"]) -> dict[str, str]:
        """The table's cells of one contender; `first` is the one that all are compared with."""
        seconds = median(sample.seconds for sample in self.kept().values())
        ratios = results[first].times_faster(self, "units")
        return {
            "ms/step": f"{seconds * 1e3:.1f}",
            f"{unit}/s": f"{self.units / seconds:,.0f}",
            "of peak": f"{median(self.times_faster(results[CALIBRATOR], 'flops')):.0%}",
            f"{first} ÷ it": f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
            "clean": f"{sum(sample.clean for sample in self.samples)}/{len({s.round for s in self.samples})}",
            "note": self.note,
        }


def serve(build: Contender, threads: int, seconds: float) -> None:
    """The worker: build and warm up one contender, then take one sample for every line on standard input."""
    answer = partial(print, file=os.fdopen(os.dup(sys.stdout.fileno()), "w"), flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not be taken for an answer
    try:
        torch.set_num_threads(threads)
        work = build()
        steps = warm_up(work.step, seconds)
        answer(json.dumps({"units": work.units, "flops": work.flops, "note": work.note}))
        for _ in sys.stdin:
            answer(json.dumps(measure(work.step, steps)))
    except Exception as error:
        traceback.print_exc()
        answer(json.dumps({"error": f"{type(error).__name__}: {error}"}))


def warm_up(step: Callable[[], object], seconds: float) -> int:
    """Run three steps or more, for `seconds` at least; return how many steps make a sample of about `seconds`."""
    times = [measure(step)["seconds"] for _ in range(3)]
    while sum(times) < seconds:
        times.append(measure(step)["seconds"])
    return max(1, round(seconds / min(times)))


def measure(step: Callable[[], object], steps: int = 1) -> dict[str, float]:
    """Time `steps` steps, and tell what share of all cores anything but this process used meanwhile."""
    busy, own, start = busy_seconds(), time.process_time(), time.perf_counter()
    counted = [step() for _ in range(steps)]
    wall, own, busy = time.perf_counter() - start, time.process_time() - own, busy_seconds() - busy
    foreign = max(0.0, busy - own) / wall / (os.cpu_count() or 1)
    seconds = sum(one for one in counted if isinstance(one, float)) or wall
    return {"seconds": seconds / steps, "foreign": foreign, "clean": foreign <= FOREIGN_LIMIT}


def busy_seconds() -> float:
    """Core-seconds that the machine has worked, or was kept from working by its host; 0 where nobody counts them."""
    ticks = read("/proc/stat").split(maxsplit=9)[1:9]  # user nice system idle iowait irq softirq steal
    return sum(map(int, ticks[:3] + ticks[5:])) / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def read(path: str) -> str:
    """A file of Linux's about itself; empty elsewhere."""
    return Path(path).read_text() if Path(path).exists() else ""


def matmul() -> Work:
    """The calibrator: a float32 matrix multiply large enough to reach what the machine can do."""
    a, b, product = torch.randn(3, 2048, 2048)
    return Work(step=lambda: torch.mm(a, b, out=product), units=1, flops=2.0 * 2048**3)


class Worker:
    """The driver's end of a contender's process; ready and warm once constructed."""

    def __init__(self, name: str, threads: int, seconds: float) -> None:
        command = [sys.executable, sys.argv[0], f"--worker={name}", f"--threads={threads}", f"--seconds={seconds}"]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        with (RESULTS / f"{name.replace('/', '.')}.log").open("w") as log:
            self.process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=log, text=True, env=environment)
        self.result = Result(**self._answer())

    def sample(self, at: int, tries: int) -> None:
        """Take the sample of round `at`; while others disturb it, wait for a quiet moment and take it again."""
        for attempt in range(tries):
            end = time.monotonic() + PATIENCE
            while attempt and time.monotonic() < end and not measure(lambda: time.sleep(0.1))["clean"]:
                pass
            print(file=self.process.stdin, flush=True)
            message = self._answer()
            if "error" in message:
                self.result.error = message["error"]
                return
            self.result.samples.append(Sample(round=at, **message))
            if self.result.samples[-1].clean:
                return

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        return json.loads(line) if line else {"error": f"died with code {self.process.wait()}"}


def compare(setting: str, names: Iterable[str], options: argparse.Namespace) -> dict[str, Result]:
    """Drive the contenders of one setting, and the calibrator, through all rounds."""
    workers: dict[str, Worker] = {}
    try:
        for name in (CALIBRATOR, *names):
            workers[name] = Worker(f"{setting}/{name}", options.threads, options.seconds)
        for at in range(options.rounds):
            for worker in list(workers.values())[:: -1 if at % 2 else 1]:
                if not worker.result.error:
                    worker.sample(at, options.tries)
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.process.communicate()
    return {name: worker.result for name, worker in workers.items()}


def table(setting: str, results: Mapping[str, Result], unit: str) -> str:
    """One setting as aligned text: the machine's peak, a line per contender, then what went wrong."""
    peak = results[CALIBRATOR]
    gflops = sorted(peak.flops / sample.seconds / 1e9 for sample in peak.kept().values()) or UNKNOWN
    title = f"{setting}: matrix multiply {median(gflops):.0f} GFLOPS ({gflops[0]:.0f}–{gflops[-1]:.0f})"
    measured = [name for name, result in results.items() if result.samples and name != CALIBRATOR]
    rows = {name: results[name].row(unit, measured[0], results) for name in measured}
    cells = [["", *row] for row in rows.values()][:1] + [[name, *row.values()] for name, row in rows.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in cells]
    return "\n".join([title, *lines, *(f"{name}: {each.error}" for name, each in results.items() if each.error), ""])


def surroundings(packages: Iterable[str]) -> dict[str, object]:
    """Date, commit, versions and machine, as far as they can be found out."""
    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    facts = (line.partition(":") for line in read("/proc/cpuinfo").splitlines())
    cpu = {key.strip(): value.strip() for key, _, value in facts}
    flags = sorted(CPU_FLAGS & set(cpu.get("flags", "").split()))
    present = {each.name: each.version for each in distributions()}
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or None,
        "versions": {"python": sys.version.split()[0]} | {name: present.get(name) for name in packages},
        "machine": {"cpu": cpu.get("model name"), "cores": os.cpu_count(), "flags": flags, "system": sys.platform},
    }


def run(name: str, suite: Suite, *, unit: str, packages: Sequence[str]) -> None:
    """The command line of a benchmark: compare what was asked for, print tables, write `results/<name>.json`."""
    parser = argparse.ArgumentParser(description=f"Settings: {', '.join(suite)}.")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender (5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (2)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one sample (1.0)")
    parser.add_argument("--tries", type=int, default=4, help="how often a disturbed sample is taken (4)")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="such as 'gpt-*/plain' 'pair/*'")
    parser.add_argument("--quick", action="store_true", help="two rounds of short samples: does everything run?")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        setting, contender = options.worker.split("/")
        serve({CALIBRATOR: matmul, **suite[setting]}[contender], options.threads, options.seconds)
        return
    if options.quick:
        options.rounds, options.seconds, options.tries = 2, 0.2, 1
    known = [(setting, contender) for setting, contenders in suite.items() for contender in contenders]
    chosen = [pair for pair in known if any(fnmatch("/".join(pair), pattern) for pattern in options.only)]
    if not chosen:
        parser.error(f"--only {' '.join(options.only)} matches none of {', '.join(map('/'.join, known))}")
    record: dict[str, Any] = {"config": vars(options), **surroundings(packages), "settings": {}}
    part = "-part" if options.quick or options.only != ["*"] else ""  # a look at one row never replaces a full record
    RESULTS.mkdir(exist_ok=True)
    for setting in dict(chosen):
        results = compare(setting, [each for at, each in chosen if at == setting], options)
        print(table(setting, results, unit), flush=True)
        record["settings"][setting] = {contender: asdict(result) for contender, result in results.items()}
        (RESULTS / f"{name}{part}.json").write_text(json.dumps(record, indent=1) + "\n")
