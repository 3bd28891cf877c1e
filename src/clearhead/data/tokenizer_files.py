"""Other projects' tokenizer files: whatever a folder has becomes a `Tokenizer`.

| files | whose | what it is |
|---|---|---|
| `tokenizer.json` | anybody's, ours | the engine's own description |
| `source.spm`, `target.spm`, `vocab.json` | Marian | two sentencepiece models over one vocabulary |
| `vocab.json`, `merges.txt` | GPT-2, RoBERTa, BART, Qwen2 | byte-level BPE |
| `vocab.txt` | BERT, DistilBERT | WordPiece |
| `spiece.model` | T5, ALBERT | sentencepiece |
| `sentencepiece.bpe.model` | XLM-RoBERTa | sentencepiece, its special tokens in another order |
| `tokenizer.model` | Llama, Mistral | sentencepiece |

Beside them, `tokenizer_config.json` tells the special tokens and the options.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from clearhead.data.roles import CONFIG, read_object, read_roles
from clearhead.data.sentencepiece_file import build_sentencepiece, read_sentencepiece
from clearhead.data.tokenizer_build import GPT2, QWEN2, Frame, build_byte_level, build_tokenizer
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ClearheadError, DataError

__all__ = ["Draft", "Layout", "Tokenizers", "read_tokenizer", "read_tokenizers"]

TARGET = "target_tokenizer.json"
LANGUAGE = re.compile(r">>.+<<")
SENTINELS, MOST_SENTINELS = 100, 10_000  # of T5: how many where its settings do not say, and at most
# Names of classes that say nothing of whose files these are.
ANY_CLASS = ("", "PreTrained", "PreTrainedTokenizer", "TokenizersBackend")

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Tokenizers:
    """What encodes the source of a model and what encodes and decodes its target; one object for all but pairs."""

    source: Tokenizer
    target: Tokenizer


BARE = Frame("$A", "$A $B")
BERT = Frame("cls $A sep", "cls $A sep $B:1 sep:1")
ROBERTA = Frame("cls $A sep", "cls $A sep sep $B sep")
ENDED = Frame("$A eos", "$A eos $B eos")


@dataclass(frozen=True)
class Draft:
    """An engine; what its special tokens are called and where they stand, unless the folder says otherwise."""

    engine: Engine
    names: Mapping[str, str]
    frame: Frame


@dataclass(frozen=True)
class Layout:
    """One row of the table: the files, the tokenizer classes that write them so, and how they are read."""

    files: tuple[str, ...]
    classes: tuple[str, ...]
    read: Callable[[Path, Options], list[Draft]]


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder, ours or another project's; of a pair, that of the source."""
    return read_tokenizers(folder).source


def read_tokenizers(folder: Path) -> Tokenizers:
    """The tokenizers of a folder for source and target, which are the same object unless it has two."""
    if (folder / "tokenizer.json").is_file():
        source = Tokenizer.load(folder)
        return Tokenizers(source, Tokenizer.load(folder / TARGET) if (folder / TARGET).is_file() else source)
    layout = next((row for row in LAYOUTS if all((folder / name).is_file() for name in row.files)), None)
    if layout is None:
        known = ", ".join(["tokenizer.json", *(" + ".join(row.files) for row in LAYOUTS)])
        raise DataError(f"{str(folder)!r} has no tokenizer that is known here: none of {known}")
    options = read_object(folder / CONFIG)
    kind = str(options.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    if kind not in (*layout.classes, *ANY_CLASS):
        raise DataError(f"{str(folder / CONFIG)!r} names the tokenizer class {kind + 'Tokenizer'!r}, and the classes "
                        f"whose {layout.files[0]} is known here are {', '.join(layout.classes)}")  # fmt: skip
    try:
        drafts = layout.read(folder, options)
        made = [_finished(draft, folder, options) for draft in drafts]
    except ClearheadError as error:
        raise DataError(f"the tokenizer in {str(folder)!r} cannot be read: {error}") from error
    except Exception as error:  # the engine raises nothing narrower
        raise DataError(f"the tokenizer files in {str(folder)!r} do not fit together: {error}") from error
    return Tokenizers(made[0], made[-1])


def _word_pieces(folder: Path, options: Options) -> list[Draft]:
    names = {"pad": "[PAD]", "unknown": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    vocabulary = {token: id for id, token in enumerate(lines)}
    unknown = read_roles(folder).get("unknown") or names["unknown"]
    if unknown not in vocabulary:
        raise DataError(f"vocab.txt has {len(vocabulary)} tokens, and {unknown!r} is not among them")
    engine = Engine(models.WordPiece(vocabulary, unk_token=unknown))
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        strip_accents=options.get("strip_accents"),
        lowercase=bool(options.get("do_lower_case", True)),
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    return [Draft(engine, names, BERT)]


def _byte_pairs(folder: Path, options: Options) -> list[Draft]:
    vocabulary = _ids(folder / "vocab.json")
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [_merge(line, number) for number, line in enumerate(lines, 1) if line and not line.startswith("#version")]
    model_type = read_object(folder / "config.json").get("model_type")
    if model_type == "qwen2" or str(options.get("tokenizer_class", "")).startswith("Qwen2"):
        engine = build_byte_level(vocabulary, merges, QWEN2)
        return [Draft(engine, {"eos": "<|endoftext|>", "pad": "<|endoftext|>"}, BARE)]
    engine = build_byte_level(vocabulary, merges, GPT2, prefix=bool(options.get("add_prefix_space", False)))
    if {"<s>", "</s>"} <= vocabulary.keys():
        first = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>"}
        return [Draft(engine, {**first, "pad": "<pad>", "unknown": "<unk>", "mask": "<mask>"}, ROBERTA)]
    return [Draft(engine, {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}, BARE)]


def _pieces(folder: Path, options: Options) -> list[Draft]:
    """T5's and ALBERT's, which are told apart by their special tokens."""
    model = read_sentencepiece(folder / "spiece.model")
    if not {"[CLS]", "[SEP]"} <= set(model.names()):
        engine = build_sentencepiece(model)
        # The first sentinel is the last token of all.
        last = range(_sentinels(folder, options) - 1, -1, -1)
        engine.add_special_tokens([AddedToken(f"<extra_id_{n}>", normalized=False, special=True) for n in last])
        return [Draft(engine, {"pad": "<pad>", "eos": "</s>", "unknown": "<unk>"}, ENDED)]
    first: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not options.get("keep_accents", False):
        first += [normalizers.NFKD(), normalizers.StripAccents()]
    if options.get("do_lower_case", True):
        first.append(normalizers.Lowercase())
    names = {"bos": "[CLS]", "eos": "[SEP]", "cls": "[CLS]", "sep": "[SEP]", "pad": "<pad>", "unknown": "<unk>"}
    return [Draft(build_sentencepiece(model, first=first), {**names, "mask": "[MASK]"}, BERT)]


def _shifted_pieces(folder: Path, options: Options) -> list[Draft]:
    model = read_sentencepiece(folder / "sentencepiece.bpe.model")
    front = ("<s>", "<pad>", "</s>", "<unk>")
    names = [*front, *(name for name in model.names() if name not in front), "<mask>"]
    engine = build_sentencepiece(model, names=names, specials=("<pad>", "<mask>"))
    roles = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "unknown": "<unk>"}
    return [Draft(engine, {**roles, "mask": "<mask>"}, ROBERTA)]


def _llama_pieces(folder: Path, options: Options) -> list[Draft]:
    model = read_sentencepiece(folder / "tokenizer.model")
    model = replace(model, prefix=model.prefix and options.get("add_prefix_space") is not False)
    before = "bos " if options.get("add_bos_token", True) else ""
    after = " eos" if options.get("add_eos_token", False) else ""
    frame = Frame(f"{before}$A{after}", f"{before}$A{after} {before}$B{after}")
    return [Draft(build_sentencepiece(model), {"bos": "<s>", "eos": "</s>", "unknown": "<unk>"}, frame)]


def _paired_pieces(folder: Path, options: Options) -> list[Draft]:
    """Marian's: each side is cut by its own model and looked up in one vocabulary, or each in its own."""
    roles = {"eos": "</s>", "unknown": "<unk>", "pad": "<pad>"}
    apart = bool(options.get("separate_vocabs", False))
    drafts = []
    for side, table in (("source", "vocab.json"), ("target", "target_vocab.json" if apart else "vocab.json")):
        vocabulary = _ids(folder / table)
        names = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[name] for name in names] != list(range(len(names))):
            raise DataError(f"{table} does not number its {len(names)} pieces from 0 to {len(names) - 1}")
        languages = [name for name in names if LANGUAGE.fullmatch(name)]
        model = read_sentencepiece(folder / f"{side}.spm")
        engine = build_sentencepiece(model, names=names, specials=roles.values(), words=languages)
        drafts.append(Draft(engine, roles, ENDED))
    return drafts


LAYOUTS = (
    Layout(("source.spm", "target.spm", "vocab.json"), ("Marian",), _paired_pieces),
    Layout(("vocab.json", "merges.txt"), ("GPT2", "Roberta", "Bart", "Qwen2"), _byte_pairs),
    Layout(("vocab.txt",), ("Bert", "DistilBert", "Electra"), _word_pieces),
    Layout(("spiece.model",), ("T5", "MT5", "Albert"), _pieces),
    Layout(("sentencepiece.bpe.model",), ("XLMRoberta",), _shifted_pieces),
    Layout(("tokenizer.model",), ("Llama",), _llama_pieces),
)


def _finished(draft: Draft, folder: Path, options: Options) -> Tokenizer:
    _add_listed(draft.engine, folder, options)
    return build_tokenizer(draft.engine, {**draft.names, **read_roles(folder)}, draft.frame)


def _add_listed(engine: Engine, folder: Path, options: Options) -> None:
    """Add the tokens that the folder lists besides the vocabulary, each at its id, and mark those that are special."""
    listed: dict[int, Any] = {id: {"content": token} for token, id in read_object(folder / "added_tokens.json").items()}
    listed |= {int(id): token for id, token in (options.get("added_tokens_decoder") or {}).items()}
    for id, token in sorted(listed.items()):
        engine.add_tokens([_added(token)])
        found = engine.token_to_id(token["content"])
        if found != id:
            raise DataError(f"the token {token['content']!r} should have the id {id}, and it has {found}")
    further = options.get("additional_special_tokens") or options.get("extra_special_tokens") or []
    for token in further.values() if isinstance(further, Mapping) else further:
        engine.add_special_tokens([_added(token if isinstance(token, Mapping) else {"content": token})])


def _added(token: Mapping[str, Any]) -> AddedToken:
    return AddedToken(
        token["content"],
        single_word=bool(token.get("single_word")),
        lstrip=bool(token.get("lstrip")),
        rstrip=bool(token.get("rstrip")),
        normalized=bool(token.get("normalized")),
        special=bool(token.get("special")),
    )


def _sentinels(folder: Path, options: Options) -> int:
    """How many tokens `<extra_id_n>` T5 has behind its pieces."""
    further = [token for token in options.get("additional_special_tokens") or [] if "<extra_id_" in str(token)]
    said = str(options.get("tokenizer_class", "")).startswith("T5")
    usual = SENTINELS if said or read_object(folder / "config.json").get("model_type") == "t5" else 0
    count = options.get("extra_ids", len(further) or usual)
    if not isinstance(count, int) or not 0 <= count <= MOST_SENTINELS:
        raise DataError(f"extra_ids must be a number from 0 to {MOST_SENTINELS}, not {count!r}")
    return count


def _ids(path: Path) -> dict[str, int]:
    vocabulary = read_object(path)
    odd = next((entry for entry in vocabulary.items() if type(entry[1]) is not int or entry[1] < 0), None)
    if odd is not None or not vocabulary:
        raise DataError(f"{path.name} must give each of at least one token a number: {odd}")
    return vocabulary


def _merge(line: str, number: int) -> tuple[str, str]:
    first, space, second = line.partition(" ")
    if not space or " " in second:
        raise DataError(f"merges.txt, line {number}: {line!r:.60} is not two pieces with a space between")
    return first, second
