"""A made-up model behind the explorer's HTTP contract: every tensor follows from q, k, v by the formula of attention.

The numbers are drawn by a seeded generator, so that a test can compute what the page has to show.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORDS", "Answers", "Fake", "FakeRun", "decode", "positions", "rivals_of"]

Floats = NDArray[np.float32]
WORDS = "i am a student the cat sat on mat it was tired and so we go".split()
STATISTICS = ("entropy", "distance", "previous", "duplicate", "induction", "importance")


def seeded(*of: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(of).encode()))


def softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Fake:
    """The sizes of the made-up model."""

    mode: str = "encoder-decoder"
    layers: int = 2
    heads: int = 4
    head_width: int = 8
    longest: int = 512
    biased: bool = False  # positions add a term to the scores
    dot: bool = True  # a score is q · k and nothing else

    @property
    def width(self) -> int:
        return self.heads * self.head_width

    @cached_property
    def model(self) -> dict[str, Any]:
        """What `GET api/model` answers."""
        two = self.mode == "encoder-decoder"
        stacks = [("encoder", "source" if two else "text")] if self.mode != "decoder" else []
        stacks += [("decoder", "target" if two else "text")] if self.mode != "encoder" else []
        return {
            "name": "fake", "task": "translation" if two else "language model", "mode": self.mode,
            "languages": ["fr", "en"] if two else [], "parameters": 1_234_567, "width": self.width,
            "vocabulary": len(WORDS), "longest": self.longest, "residual": "post_norm", "norm": "layer_norm",
            "positions": "alibi" if self.biased else "sinusoidal_halves",
            "stacks": [self._stack(name, reads) for name, reads in stacks],
            "diagram": [], "examples": ["je suis étudiant", "le chat dort"], "writes": self.mode != "encoder",
        }  # fmt: skip

    def _stack(self, name: str, reads: str) -> dict[str, Any]:
        attends = {"heads": self.heads, "kv_heads": self.heads, "head_width": self.head_width, "queries": reads}
        layers = []
        for i in range(self.layers):
            kind = "masked" if name == "decoder" else "self"
            parts: list[dict[str, Any]] = [{"name": f"{name}.{i}.attention", "kind": kind, **attends, "keys": reads}]
            if name == "decoder" and self.mode == "encoder-decoder":
                parts.append({"name": f"{name}.{i}.cross", "kind": "cross", **attends, "keys": "source"})
            parts.append({"name": f"{name}.{i}.feedforward", "kind": "feedforward", "neurons": 4 * self.width})
            layers.append({"name": f"{name}.{i}", "parts": parts})
        return {"name": name, "reads": reads, "embed": f"{reads}_embed" if reads != "text" else "embed",
                "layers": layers}  # fmt: skip

    def attentions(self) -> list[dict[str, Any]]:
        parts = [part for stack in self.model["stacks"] for layer in stack["layers"] for part in layer["parts"]]
        return [part for part in parts if part["kind"] != "feedforward"]


@dataclass(frozen=True)
class FakeRun:
    """One text that went through: tokens by side, and any tensor that is asked for."""

    fake: Fake
    text: str
    answer: str | None
    off: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{zlib.crc32(json.dumps([self.text, self.answer, self.off], sort_keys=True).encode()):08x}"

    @cached_property
    def sides(self) -> dict[str, list[str]]:
        words = self.text.split()
        if self.fake.mode == "encoder-decoder":
            return {"source": [*words, "<eos>"], "target": ["<bos>", *self.said]}
        return {"text": words if self.fake.mode == "decoder" else ["[CLS]", *words, "[SEP]"]}

    @cached_property
    def said(self) -> list[str]:
        """The answer, which a head that is switched off changes."""
        if self.answer:
            return self.answer.split()
        start = 0 if not self.off else 5
        return [WORDS[(start + i) % len(WORDS)] for i in range(len(self.text.split()) + 1)]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What `POST api/runs` answers."""
        side = "target" if "target" in self.sides else "text"
        predicts = None
        if self.fake.mode != "encoder":
            tokens = [*self.sides[side][1:], "<eos>"]
            scores = [-round(float(x), 4) for x in seeded(self.id, "scores").random(len(tokens))]
            predicts = {"side": side, "tokens": tokens, "scores": scores, "loss": -float(np.mean(scores))}
        return {
            "id": self.id, "text": self.text, "answer": " ".join(self.said) if side == "target" else None,
            "sides": {name: self._side(tokens) for name, tokens in self.sides.items()}, "predicts": predicts,
            "attentions": [
                {**{key: part[key] for key in ("name", "kind", "queries", "keys", "heads")},
                 "scale": self.fake.head_width**-0.5, "dot": self.fake.dot, "placed_values": False,
                 "stats": self._statistics(part["name"])}
                for part in self.fake.attentions()
            ],
            "off": self.off, "layers_off": [], "bytes": 1000,
        }  # fmt: skip

    def _side(self, tokens: list[str]) -> dict[str, Any]:
        special = [token[:1] in "<[" and token[-1:] in ">]" and token[1:-1].isalpha() for token in tokens]
        return {"tokens": tokens, "ids": [zlib.crc32(token.encode()) % 1000 for token in tokens], "special": special}

    def _statistics(self, name: str) -> dict[str, list[float]]:
        return {key: seeded(name, key).random(self.fake.heads).round(4).tolist() for key in STATISTICS}

    def tensor(self, tap: str) -> tuple[Floats, str] | None:
        """The numbers and their axes; None where the model has no such tap."""
        place, _, what = tap.rpartition(".")
        part = next((part for part in self.fake.attentions() if part["name"] == place), None)
        if part is not None:
            return self._attention(part, what)
        if what in {"sum", "tokens", "placed", "branch", "hidden"}:
            side = next((s for s in self.sides if place.startswith(s)), "target" if "decoder" in place else None)
            tokens = self.sides.get(side or "source", next(iter(self.sides.values())))
            width = self.fake.width * (4 if what == "hidden" else 1)
            return seeded(self.id, tap).normal(size=(len(tokens), width)).astype(np.float32), "LD"
        return None

    def _attention(self, part: Mapping[str, Any], what: str) -> tuple[Floats, str] | None:
        known = self._kept.setdefault(part["name"], {})
        if not known:
            known |= self._steps(part)
        axes = {"output": "LD", **dict.fromkeys(("q", "k", "v", "heads"), "HLK")}
        return (known[what], axes.get(what, "HLM")) if what in known else None

    @cached_property
    def _kept(self) -> dict[str, dict[str, Floats]]:
        return {}

    def _steps(self, part: Mapping[str, Any]) -> dict[str, Floats]:
        """The six steps of every head."""
        rows, columns = len(self.sides[part["queries"]]), len(self.sides[part["keys"]])
        size, heads = self.fake.head_width, self.fake.heads

        def drawn(letter: str, length: int) -> Floats:
            return seeded(self.id, part["name"], letter).normal(size=(heads, length, size)).astype(np.float32)

        known = {"q": drawn("q", rows), "k": drawn("k", columns), "v": drawn("v", columns)}
        known["scores"] = known["q"] @ known["k"].transpose(0, 2, 1)
        known["scaled"] = known["scores"] * np.float32(size**-0.5)
        away = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        if self.fake.biased:
            slopes = 2.0 ** -np.arange(1, heads + 1)
            known["bias"] = (-np.abs(away) * slopes[:, None, None]).astype(np.float32)
        masked = known["scaled"] + known.get("bias", np.float32(0))
        if part["kind"] == "masked":
            masked = np.where(away > 0, np.float32(-np.inf), masked)
        known["masked"], known["weights"] = masked, softmax(masked)
        known["heads"] = known["weights"] @ known["v"]
        for head in self.off.get(part["name"], []):
            known["heads"][head] = 0
        mixed = known["heads"].transpose(1, 0, 2).reshape(rows, -1)
        w_o = seeded(part["name"], "output").normal(size=(self.fake.width, self.fake.width))
        known["output"] = (mixed @ w_o).astype(np.float32)
        return known

    def thumbnails(self, side: int) -> NDArray[np.uint8]:
        """Every head, the largest weight of each patch of `side` × `side`."""
        small = []
        for part in self.fake.attentions():
            found = self.tensor(f"{part['name']}.weights")
            assert found is not None
            rows, columns = (np.linspace(0, n, side, endpoint=False).astype(int) for n in found[0].shape[1:])
            pooled = np.maximum.reduceat(np.maximum.reduceat(found[0], rows, axis=1), columns, axis=2)
            small.append((pooled * 255).round().astype(np.uint8))
        return np.concatenate(small)


class Answers:
    """What the contract's GET routes say about a run; each takes the run and the query of the address."""

    @staticmethod
    def lens(run: FakeRun, query: Mapping[str, str]) -> dict[str, Any]:
        side, count = list(run.sides)[-1], int(query.get("top", 5))
        layers = [f"{side}_embed", *(f"decoder.{i}" for i in range(run.fake.layers))]
        tokens = run.sides[side]
        p = softmax(3 * seeded(run.id, "lens").normal(size=(len(layers), len(tokens), len(WORDS))).astype(np.float32))
        order = np.argsort(-p, axis=-1)[..., :count]
        best = [[[{"token": WORDS[w], "id": int(w), "probability": float(p[i, j, w])} for w in order[i, j]]
                 for j in range(len(tokens))] for i in range(len(layers))]  # fmt: skip
        rank = None if run.fake.mode == "encoder" else (p > p[..., :1]).sum(-1).tolist()
        moved = [None, *([Answers.moves(by) for by in layer] for layer in np.diff(p, axis=0))]
        return {"side": side, "layers": layers, "best": best, "moved": moved, "rank": rank,
                "probability": p[..., 0].tolist()}  # fmt: skip

    @staticmethod
    def moves(by: NDArray[np.float32]) -> dict[str, Any]:
        order = np.argsort(-by)[:3], np.argsort(by)[:3]
        return {name: [{"token": WORDS[w], "id": int(w), "by": float(by[w])} for w in ids if by[w] * sign > 0]
                for name, ids, sign in zip(("promoted", "suppressed"), order, (1, -1), strict=True)}  # fmt: skip

    @staticmethod
    def shares(run: FakeRun, query: Mapping[str, str]) -> dict[str, Any]:
        position, word = int(query["position"]), int(query.get("word", 0))
        shares = [{"name": "embed.tokens", "part": "embed", "head": None}]
        for part in run.fake.attentions():
            if not part["name"].startswith("encoder") or run.fake.mode == "encoder":
                shares += [{"name": f"{part['name']}.head.{h}", "part": part["name"], "head": h}
                           for h in range(run.fake.heads)]  # fmt: skip
        values = seeded(run.id, position, word).normal(size=len(shares)).round(4).tolist()
        against = {"token": WORDS[int(query["against"])], "id": int(query["against"])} if "against" in query else None
        return {"side": list(run.sides)[-1], "position": position, "word": {"token": WORDS[word], "id": word},
                "against": against, "logit": sum(values),
                "shares": [{**share, "value": v} for share, v in zip(shares, values, strict=True)]}  # fmt: skip

    @staticmethod
    def contributions(run: FakeRun, query: Mapping[str, str]) -> dict[str, Any]:
        norms, forward, stream = {}, {}, {}
        for part in run.fake.attentions():
            found = run.tensor(f"{part['name']}.weights")
            assert found is not None
            norms[part["name"]] = found[0].mean(0).round(5).tolist()
            layer = part["name"].rpartition(".")[0]
            forward[f"{layer}.feedforward"] = [1.0] * found[0].shape[1]
            stream[layer] = [4.0] * found[0].shape[1]
        return {"side": list(run.sides)[-1], "layers": list(norms), "norms": norms, "feedforward": forward,
                "stream": stream}  # fmt: skip

    @staticmethod
    def cell(run: FakeRun, query: Mapping[str, str]) -> dict[str, Any] | None:
        tap, head, row, column = query["tap"], int(query.get("head", 0)), int(query["row"]), int(query["column"])
        found = run.tensor(tap)
        if found is None:
            return None
        value = found[0][head, row, column] if found[0].ndim == 3 else found[0][row, column]
        part, _, what = tap.rpartition(".")
        cell = {"tap": tap, "head": head, "row": row, "column": column, "value": float(value), "combine": "sum",
                "rest": None, "says": f"{what} of the made-up model", "formula": "", "terms": []}  # fmt: skip
        if what == "scores":
            q, k = run.tensor(f"{part}.q"), run.tensor(f"{part}.k")
            assert q is not None
            assert k is not None
            pairs = [(float(q[0][head, row, i]), float(k[0][head, column, i])) for i in range(run.fake.head_width)]
            cell |= {"formula": "Σ q_i k_i", "terms": [
                {"label": f"q_{i} k_{i}", "factors": list(pair), "value": pair[0] * pair[1],
                 "from": [{"tap": f"{part}.q", "head": head, "row": row, "column": i},
                          {"tap": f"{part}.k", "head": head, "row": column, "column": i}]}
                for i, pair in enumerate(pairs)]}  # fmt: skip
        elif what == "weights":
            cell |= {"combine": "softmax", "formula": "exp(s) / Σ exp(s)", "terms": [
                {"label": "its score", "factors": [float(value)], "value": float(value),
                 "from": [{"tap": f"{part}.scores", "head": head, "row": row, "column": column}]}]}  # fmt: skip
        elif what in {"q", "k", "v"}:
            cell |= {"formula": "x W", "terms": [
                {"label": "x", "factors": [float(value), 1.0], "value": float(value), "from": [
                    {"tap": "source_embed.tokens", "head": None, "row": row, "column": 0}, None]}]}  # fmt: skip
        return cell


def rivals_of(seed: tuple[object, ...], request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ten words with logit, logit ÷ temperature, whether the filters keep it, and its probability."""
    logits = 2 * seeded(*seed).normal(size=len(WORDS))
    scaled = logits / max(float(request["temperature"]), 1e-3)
    order = np.argsort(-scaled)
    top = int(request["top_k"]) or len(WORDS)
    p = softmax(np.where(np.isin(np.arange(len(WORDS)), order[:top]), scaled, -np.inf).astype(np.float32))
    return [{"token": WORDS[i], "id": int(i), "logit": float(logits[i]), "scaled": float(scaled[i]),
             "kept": at < top, "probability": float(p[i])} for at, i in enumerate(order[:10])]  # fmt: skip


def decode(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `POST api/decode` answers: as many words as the text has, the forced ones first."""
    forced, steps = list(request["forced"]), []
    for at in range(min(40, max(len(request["text"].split()) + 1, len(forced) + 1))):
        before = tuple(step["id"] for step in steps)
        rivals = rivals_of((request["text"], before, bool(request["off"])), request)
        taken = forced[at] if at < len(forced) else rivals[0]["id"]
        steps.append({"token": WORDS[taken], "id": taken, "forced": at < len(forced), "rivals": rivals})
    beam = None
    if request["beams"] > 1:
        nodes: list[dict[str, Any]] = []
        for depth in range(3):
            for b in range(request["beams"]):
                dies = b > 0 and (depth == 2 or b == request["beams"] - 1)
                nodes.append({"id": len(nodes), "parent": None if not depth else (depth - 1) * request["beams"],
                              "token": WORDS[(3 * depth + b) % len(WORDS)], "score": -0.3 * (depth + 1) - 0.4 * b,
                              "alive": not dies, "reason": "outside the beam" if dies else "",
                              "winner": b == 0})  # fmt: skip
        beam = {"nodes": nodes}
    return {"answer": " ".join(step["token"] for step in steps), "ended": True, "steps": steps, "beam": beam}


def positions(fake: Fake, count: int) -> tuple[dict[str, Any], Floats]:
    """A table of sines and cosines, or the terms that are added to the scores."""
    if fake.biased:
        away = -np.abs(np.arange(count)[None] - np.arange(count)[:, None])
        bias = (away[None] * 2.0 ** -np.arange(1, fake.heads + 1)[:, None, None]).astype(np.float32)
        about = {"kind": "alibi", "what": "bias", "axes": "HLM", "shape": list(bias.shape), "tensor": "positions"}
        return about, bias
    angle = np.arange(count)[:, None] / 10_000 ** (np.arange(fake.width // 2) * 2 / fake.width)
    table = np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
    return {"kind": "sinusoidal_halves", "what": "table", "axes": "LD", "shape": list(table.shape),
            "tensor": "positions"}, table  # fmt: skip
