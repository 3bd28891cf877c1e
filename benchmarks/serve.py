"""The server under load: many clients at once, with and without batching; too many; rude ones; and its end.

Two servers of the same model run side by side, one of which answers each request by itself (`--batch 1`); clients ask
them in turn, a slice of time each, so that a noisy machine is unfair to neither. Every answer is compared with what the
translator says of the same text alone. Then one server is asked by ten times as many clients, by clients that never
read, that vanish or never speak, and at last it is told to stop while it is busy.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from harness import RESULTS, read, surroundings

from clearhead.data.phrasebook.corpus import sentences
from clearhead.tasks.translator import Translator

SLICES = 4
TEXTS = 200
OVERLOAD = 10  # times as many clients
RUDE, PAUSE = 32, 2.0  # clients of each rude kind, and seconds between their requests
SILENT = 5_000
RETRY = 1.0  # what Retry-After says
HEAD = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


@dataclass
class Tally:
    """What clients have seen: seconds of each answer, statuses, and what was wrong."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    broken: int = 0
    refused: list[float] = field(default_factory=list)
    elapsed: float = 0.0

    def add(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        (self.seconds if status == 200 else self.refused).append(seconds)

    def summary(self) -> dict[str, Any]:
        return {
            "answers": len(self.seconds),
            "per_second": len(self.seconds) / self.elapsed if self.elapsed else None,
            "p50_ms": percentile(self.seconds, 50),
            "p99_ms": percentile(self.seconds, 99),
            "refused_p50_ms": percentile(self.refused, 50),
            "refused_p99_ms": percentile(self.refused, 99),
            "statuses": dict(self.statuses),
            "wrong": self.wrong[:5],
            "wrong_count": len(self.wrong),
            "broken": self.broken,
        }


def percentile(seconds: Sequence[float], percent: int) -> float | None:
    return round(1e3 * quantiles(seconds, n=100)[percent - 1], 2) if len(seconds) > 1 else None


@dataclass(frozen=True)
class Task:
    """A text, and what the translator says of it alone."""

    text: str
    answer: str

    @property
    def request(self) -> bytes:
        body = json.dumps({"q": self.text, "model": "demo"}).encode()
        return HEAD.format(len(body)).encode() + body


class Server:
    """A server in a process of its own."""

    def __init__(self, model: Path, threads: int, *options: str) -> None:
        command = [sys.executable, "-c", "from clearhead.cli.main import main; main()"]
        command += ["serve", "-m", f"demo={model}", "--port", "0", f"--threads={threads}", *options]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        log = (RESULTS / "serve.log").open("a")
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        self.port = int(line.split("127.0.0.1:")[1].split(";")[0])
        # Lines about refusals must not fill the pipe.
        self.drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=log)

    def memory(self) -> int:
        """Resident megabytes."""
        lines = (line.split() for line in read(f"/proc/{self.process.pid}/status").splitlines())
        return next((int(words[1]) // 1024 for words in lines if words[0] == "VmRSS:"), 0)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(streams: Streams, request: bytes) -> tuple[int, dict[str, Any], bool]:
    """One request on an open connection, and whether it stays open.

    As little work as can be, since clients and server share the cores.
    """
    reader, writer = streams
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.split("content-length:")[1].split("\r\n")[0])
    return int(head[9:12]), json.loads(await reader.readexactly(length)), "connection: close" not in head


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    streams = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield streams
    finally:
        streams[1].close()


async def client(port: int, tasks: Sequence[Task], number: int, until: float, tally: Tally) -> None:
    """Ask one thing after another, on a new connection where the old one was closed."""
    place = number * 7
    while time.perf_counter() < until:
        try:
            async with connected(port) as streams:
                while time.perf_counter() < until:
                    task, place = tasks[place % len(tasks)], place + 1
                    begun = time.perf_counter()
                    status, answer, _ = await ask(streams, task.request)
                    tally.add(status, time.perf_counter() - begun)
                    if status == 200 and answer["translatedText"] != task.answer:
                        tally.wrong.append((task.text, answer["translatedText"]))
                    if status == 429:
                        await asyncio.sleep(RETRY)
        except (OSError, asyncio.IncompleteReadError):
            tally.broken += 1


async def load(port: int, tasks: Sequence[Task], clients: int, seconds: float, tally: Tally) -> None:
    begun = time.perf_counter()
    await asyncio.gather(*(client(port, tasks, number, begun + seconds, tally) for number in range(clients)))
    tally.elapsed += time.perf_counter() - begun


async def compare(servers: dict[str, Server], tasks: Sequence[Task], options: argparse.Namespace) -> dict[str, Tally]:
    """All servers in turn, some slices of time each."""
    tallies = {name: Tally() for name in servers}
    for at in range(SLICES):
        for name in list(servers)[:: -1 if at % 2 else 1]:
            await load(servers[name].port, tasks, options.clients, options.seconds / SLICES, tallies[name])
    return tallies


async def overload(server: Server, tasks: Sequence[Task], options: argparse.Namespace) -> dict[str, Any]:
    """Ten times as many clients as usual; then one alone."""
    tally, before, most = Tally(), server.memory(), 0
    work = asyncio.ensure_future(load(server.port, tasks, OVERLOAD * options.clients, options.seconds / 4, tally))
    while not work.done():
        most = max(most, server.memory())
        await asyncio.sleep(0.1)
    await work
    after = Tally()
    await load(server.port, tasks, 1, 1.0, after)
    memory = {"before_mb": before, "most_mb": most}
    return {**tally.summary(), **memory, "alone_afterwards": after.summary()}


async def rude(server: Server, tasks: Sequence[Task], options: argparse.Namespace) -> dict[str, Any]:
    """Clients that ask and never read, clients that ask and vanish, and the usual ones beside them."""
    until = time.perf_counter() + options.seconds / 4

    async def deaf(number: int) -> None:
        """Ask again and again without reading, until the server cuts the line."""
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        while time.perf_counter() < until and not writer.is_closing():
            writer.write(tasks[number].request)
            await asyncio.sleep(PAUSE)
        writer.transport.abort()

    async def fleeting(number: int) -> None:
        while time.perf_counter() < until:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(tasks[number].request)
            await asyncio.sleep(PAUSE)
            writer.transport.abort()

    tally = Tally()
    others = [kind(number) for number in range(RUDE) for kind in (deaf, fleeting)]
    await asyncio.gather(load(server.port, tasks, options.clients, options.seconds / 4, tally), *others)
    return tally.summary()


async def silent(server: Server, tasks: Sequence[Task]) -> dict[str, Any]:
    """Thousands of connections that never speak, and one client that does."""
    opened, held = 0, list[Streams]()
    for _ in range(SILENT):
        try:
            held.append(await asyncio.open_connection("127.0.0.1", server.port))
            opened += 1
        except OSError:
            pass
    tally = Tally()
    await load(server.port, tasks, 4, 1.0, tally)
    closed = sum(reader.at_eof() or reader.exception() is not None for reader, _ in held)
    for _, writer in held:
        writer.transport.abort()
    return {**tally.summary(), "opened": opened, "closed_by_then": closed}


async def ending(server: Server, tasks: Sequence[Task], options: argparse.Namespace) -> dict[str, Any]:
    """SIGTERM under load: what was in flight by then is answered, what comes later is refused."""
    sent: dict[int, float] = {}
    outcome: Counter[str] = Counter()
    told: list[float] = []

    async def one(number: int) -> None:
        place, alive = number, True
        while alive:
            try:
                async with connected(server.port) as streams:
                    stays = True
                    while stays:
                        task, place = tasks[place % len(tasks)], place + 7
                        sent[number] = time.perf_counter()
                        status, answer, stays = await ask(streams, task.request)
                        begun = sent.pop(number)
                        after = bool(told) and begun > told[0]
                        if told:
                            when = "sent_after" if after else "in_flight"
                            right = status == 200 and answer["translatedText"] == task.answer
                            outcome[f"{when}_{'answered' if right else status}"] += 1
            except (OSError, asyncio.IncompleteReadError):
                alive = not told
                # What was sent after the signal may cross the closing of its connection: it was never accepted.
                late = number not in sent or (bool(told) and sent[number] > told[0])
                outcome["not_accepted" if late else "lost"] += 1

    clients = [asyncio.ensure_future(one(number)) for number in range(options.clients)]
    await asyncio.sleep(2.0)
    told.append(time.perf_counter())
    code = await asyncio.to_thread(server.stop)
    await asyncio.gather(*clients)
    return {**outcome, "exit": code, "seconds_to_end": round(time.perf_counter() - told[0], 2)}


async def measure(model: Path, tasks: Sequence[Task], options: argparse.Namespace) -> dict[str, Any]:
    servers = {"batched": Server(model, options.threads), "one by one": Server(model, options.threads, "--batch=1")}
    record: dict[str, Any] = {}

    def note(name: str, found: Any) -> None:
        record[name] = found
        print(f"{name}: {json.dumps(found, ensure_ascii=False)}", flush=True)

    try:
        tallies = await compare(servers, tasks, options)
        for name, tally in tallies.items():
            note(name, tally.summary())
        note("times the throughput", record["batched"]["per_second"] / record["one by one"]["per_second"])
        servers["one by one"].stop()
        servers["small queue"] = Server(model, options.threads, "--queue=64", "--connections=900")
        note("overload", await overload(servers["small queue"], tasks, options))
        note("rude clients", await rude(servers["batched"], tasks, options))
        note("silent connections", await silent(servers["batched"], tasks))
        note("memory_mb", {name: server.memory() for name, server in servers.items()})
        note("SIGTERM", await ending(servers["batched"], tasks, options))
    finally:
        for server in servers.values():
            server.process.kill()
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description="A translator under load, batched and not.")
    parser.add_argument("model", type=Path, help="model directory of a translator from French")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load for each server (60)")
    parser.add_argument("--clients", type=int, default=64, help="at the same time (64)")
    parser.add_argument("--threads", type=int, default=1, help="of each server (1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    translator = Translator.from_pretrained(options.model)
    texts = list(dict.fromkeys(pair.source for pair in sentences(TEXTS, seed=1)))
    tasks = [Task(text, translator.translate(text)) for text in texts]
    RESULTS.mkdir(exist_ok=True)
    results = asyncio.run(measure(options.model, tasks, options))
    whole = options.seconds >= 60 and options.clients == 64
    config = {name: str(value) for name, value in vars(options).items() if name != "model"}
    record = {"config": config, **surroundings(("torch", "fastapi", "uvicorn")), "results": results}
    (RESULTS / f"serve{'' if whole else '-part'}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
