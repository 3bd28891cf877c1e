"""What the heads of a translator do, on the phrasebook's gold data: word alignment, what "it" stands for, importance.

    python benchmarks/looking_results.py runs/demo

Prints tables in Markdown and writes `results/looking_results.json`. The model is one that learned from the built-in
phrasebook as its recipe says, so that the sentences here are unseen ones; heads are chosen on the validation part.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from harness import RESULTS, surroundings
from numpy.typing import NDArray

from clearhead.data.phrasebook.corpus import Pair, splits, words
from clearhead.data.tokenizers import Tokenizer
from clearhead.look.importance import spearman
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.pair_data import Frame
from clearhead.tasks.pruning import importance_by, prune_task
from clearhead.tasks.registry import load
from clearhead.tasks.translator import Translator
from clearhead.tasks.viewing import Viewer
from clearhead.tasks.word_alignment import alignment_errors, pieces_of_words

SENTENCES, HELD_OUT, SEED = 60_000, 1_000, 0  # as recipes/phrasebook.yaml has them
KEEPS = (0.75, 0.5)
HIDDEN = -1.0  # in place of the weight of a word that does not count


class Pointing(NamedTuple):
    """Where one head looks from "it" of one sentence: the weight of each word, and which is meant."""

    head: str
    weights: NDArray[np.float64]
    nouns: list[int]
    gold: int

    @property
    def at_gold(self) -> bool:
        return int(self.weights.argmax()) == self.gold

    @property
    def is_choice(self) -> bool:
        """Whether there are several nouns that it could stand for."""
        return len(self.nouns) > 1 and self.gold in self.nouns

    @property
    def prefers_gold(self) -> bool:
        """Whether of the nouns that it could stand for, it looks most at the right one."""
        return max(self.nouns, key=lambda noun: self.weights[noun]) == self.gold


def alignment(parts: ModelParts, valid: Sequence[Pair], test: Sequence[Pair]) -> list[dict[str, Any]]:
    """The alignment error rate of each head, in both readings, and which was best where it was chosen."""
    chosen, errors = alignment_errors(parts, valid), alignment_errors(parts, test)
    best = min(chosen, key=lambda head: chosen[head])
    return [
        {"layer": head.layer, "head": head.head, "reads": head.reads, "error": error, "chosen": head == best}
        for head, error in errors.items()
    ]


def pointings(parts: ModelParts, pairs: Sequence[Pair], nouns: dict[str, set[str]]) -> Iterator[list[Pointing]]:
    """For each sentence in which "it" stands for a noun, where each head of each attention looks from it."""
    viewer, frame = Viewer(parts), Frame.of(parts.tokenizer, parts.settings)
    places = viewer.attentions()
    first = {"source": len(frame.before), "target": len(frame.begin)}
    for pair in pairs:
        meant = pair.referent
        if meant is None or words(pair.target)[meant.pronoun_target].lower() != "it":
            continue
        seen = viewer.view(pair.source, pair.target).seen([f"{place.name}.weights" for place in places])
        texts = {"source": pair.source, "target": pair.target}
        asking = {"source": meant.pronoun_source, "target": meant.pronoun_target}
        wanted = {"source": meant.noun_source, "target": meant.noun_target}
        found = []
        for place in places:
            rows, columns = (word_pieces(parts, side, texts[side]) for side in (place.queries, place.keys))
            known = candidates(words(texts[place.keys]), nouns[place.keys], before=place, at=asking[place.keys])
            weights_HLM = seen[f"{place.name}.weights"].tensor[0].double().numpy()
            for head, weights_LM in enumerate(weights_HLM):
                row = rows[:, asking[place.queries]] / max(1.0, rows[:, asking[place.queries]].sum())
                given = row @ weights_LM[first[place.queries] :][: len(row)]
                by_word = given[first[place.keys] :][: len(columns)] @ columns
                if place.queries == place.keys:  # that it looks at itself says nothing; nor can it look ahead
                    by_word[asking[place.keys] : None if place.kind == "masked" else asking[place.keys] + 1] = HIDDEN
                found.append(Pointing(f"{place.name}:{head}", by_word, known, wanted[place.keys]))
        yield found


def word_pieces(parts: ModelParts, side: str, text: str) -> NDArray[np.float64]:
    tokenizer: Tokenizer = parts.tokenizer if side == "source" else parts.writer
    return np.asarray(pieces_of_words(tokenizer, text), dtype=np.float64)


def candidates(text: Sequence[str], nouns: set[str], *, before: Any, at: int) -> list[int]:
    """The nouns of a sentence that a pronoun could stand for, by their places."""
    end = len(text) if before.kind == "cross" else at
    return [place for place, word in enumerate(text[:end]) if word.lower() in nouns]


def nouns_of(pairs: Sequence[Pair]) -> dict[str, set[str]]:
    """All words that a pronoun stands for anywhere, on both sides."""
    found: dict[str, set[str]] = {"source": set(), "target": set()}
    for pair in pairs:
        if pair.referent is not None:
            found["source"].add(words(pair.source)[pair.referent.noun_source].lower())
            found["target"].add(words(pair.target)[pair.referent.noun_target].lower())
    return found


def reference(parts: ModelParts, valid: Sequence[Pair], test: Sequence[Pair], train: Sequence[Pair]) -> dict[str, Any]:
    """How often a head of "it" looks at what it stands for, beside what uniform attention would give."""
    nouns = nouns_of(train)
    chosen = _shares(list(pointings(parts, valid, nouns)))
    best = {way: max(chosen[way], key=chosen[way].__getitem__) for way in ("at_gold", "prefers_gold")}
    sentences = list(pointings(parts, test, nouns))
    shares, kinds = _shares(sentences), defaultdict(list)
    for name in (pointing.head for pointing in sentences[0]):
        kinds[_kind(name)].append(name)
    rows = {}
    for kind, names in kinds.items():
        own = [[one for one in sentence if one.head in names] for sentence in sentences]
        rows[kind] = {
            "heads": len(names),
            "some_head": float(np.mean([any(one.at_gold for one in sentence) for sentence in own])),
            "some_by_chance": float(np.mean([1 - (1 - 1 / _room(s[0])) ** len(names) for s in own])),
            "best_head": max(names, key=lambda name: chosen["at_gold"][name]),
            "chance": float(np.mean([1 / _room(sentence[0]) for sentence in own])),
            "among_nouns_head": max(names, key=lambda name: chosen["prefers_gold"][name]),
            "among_nouns_chance": float(np.mean([1 / len(s[0].nouns) for s in own if s[0].is_choice])),
        }
        rows[kind]["best_share"] = shares["at_gold"][rows[kind]["best_head"]]
        rows[kind]["among_nouns_share"] = shares["prefers_gold"][rows[kind]["among_nouns_head"]]
    some = float(np.mean([any(one.at_gold for one in sentence) for sentence in sentences]))
    return {"sentences": len(sentences), "some_head_of_all": some, "best": best, "kinds": rows}


def _room(pointing: Pointing) -> int:
    return int((pointing.weights > HIDDEN).sum())


def _kind(name: str) -> str:
    stack, _, part = name.split(":")[0].split(".")
    return "cross-attention" if part == "cross" else f"{stack} self-attention"


def _shares(sentences: Sequence[Sequence[Pointing]]) -> dict[str, dict[str, float]]:
    """Of each head, in what share of the sentences it points at the referent, and prefers it to other nouns."""
    found: dict[str, dict[str, list[bool]]] = {"at_gold": defaultdict(list), "prefers_gold": defaultdict(list)}
    for sentence in sentences:
        for one in sentence:
            found["at_gold"][one.head].append(one.at_gold)
            if one.is_choice:
                found["prefers_gold"][one.head].append(one.prefers_gold)
    return {way: {head: float(np.mean(each)) for head, each in heads.items()} for way, heads in found.items()}


def importance(translator: Translator, valid: Sequence[Pair], test: Sequence[Pair]) -> dict[str, Any]:
    """Whether gradient and ablation agree on which heads matter, and what pruning by the one costs."""
    pairs = [(pair.source, pair.target) for pair in valid]
    losses = list(translator.losses(pairs))
    measured = {by: importance_by(by, translator.model, losses) for by in ("gradient", "ablation")}
    flat = [torch.cat([value.double() for value in one.values()]) for one in measured.values()]
    kept = []
    for keep in KEEPS:
        for by in measured:
            smaller = prune_task(translator, pairs, keep=keep, by=by)
            after = smaller.task.evaluate([(pair.source, pair.target) for pair in test])
            kept.append({"keep": keep, "by": by, "bleu": after["bleu"], "loss": after["loss"],
                         "parameters": smaller.parameters[1] / smaller.parameters[0]})  # fmt: skip
    whole = translator.evaluate([(pair.source, pair.target) for pair in test])
    named = {by: {name: value.tolist() for name, value in one.items()} for by, one in measured.items()}
    return {"spearman": spearman(*flat), "importance": named, "pruned": kept, "whole": whole}


def say(record: dict[str, Any]) -> None:
    """The tables in Markdown."""
    print("| layer | head | AER, predicting | AER, reading |\n|---|---|---|---|")
    cells = {(one["layer"], one["head"], one["reads"]): one for one in record["alignment"]}
    for layer, head in sorted({(layer, head) for layer, head, _ in cells}):
        both = [cells[layer, head, reads] for reads in (False, True)]
        shown = [f"**{one['error']:.3f}**" if one["chosen"] else f"{one['error']:.3f}" for one in both]
        print(f"| {layer} | {head} | {' | '.join(shown)} |")
    found = record["reference"]
    print(f"\n{found['sentences']} sentences; some head of all: {found['some_head_of_all']:.1%}\n")
    print("| attention | heads | some head | by chance | best head | share | by chance | among nouns | by chance |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, one in found["kinds"].items():
        print(
            f"| {kind} | {one['heads']} | {one['some_head']:.1%} | {one['some_by_chance']:.1%} | `{one['best_head']}` "
            f"| {one['best_share']:.1%} | {one['chance']:.1%} | {one['among_nouns_share']:.1%} "
            f"(`{one['among_nouns_head']}`) | {one['among_nouns_chance']:.1%} |"
        )
    heads = record["importance"]
    print(f"\nSpearman of gradient and ablation: {heads['spearman']:.3f}\n")
    print("| heads kept | judged by | BLEU | loss | parameters |\n|---|---|---|---|---|")
    print(f"| all | | {heads['whole']['bleu']:.1f} | {heads['whole']['loss']:.3f} | 100% |")
    for one in heads["pruned"]:
        print(f"| {one['keep']:.0%} | {one['by']} | {one['bleu']:.1f} | {one['loss']:.3f} | {one['parameters']:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a translator that learned from the phrasebook")
    parser.add_argument("--sentences", type=int, default=HELD_OUT, help="of each part")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train, valid, test = splits(SENTENCES, HELD_OUT, HELD_OUT, SEED)
    valid, test = valid[: options.sentences], test[: options.sentences]
    translator = load(options.model, precision="")
    record = {
        "model": str(options.model),
        "sentences": len(test),
        **surroundings(["torch", "clearhead"]),
        "alignment": alignment(translator.parts, valid, test),
        "reference": reference(translator.parts, valid, test, train),
        "importance": importance(translator, valid[:300], test),
    }
    say(record)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "looking_results.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
