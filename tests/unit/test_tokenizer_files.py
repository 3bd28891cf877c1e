"""Other projects' tokenizer files: the same ids as the projects' own programs give, and what is broken says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.sentencepiece_file import read_sentencepiece
from clearhead.data.tokenizer_files import read_tokenizer, read_tokenizers
from clearhead.data.tokenizers import SPECIALS, Tokenizer
from clearhead.errors import DataError
from tests.unit.tiny_sentencepiece import LLAMA, TEXTS, train_model

spm = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def framed(tokenizer: Tokenizer, text: str) -> list[int]:
    before, after = tokenizer.around
    return [*before, *tokenizer.encode(text), *after]


def roles(tokenizer: Tokenizer) -> list[int | None]:
    names = ("pad", "bos", "eos", "unknown", "mask", "cls", "sep")
    return [getattr(tokenizer, name) for name in names]


def their_roles(tokenizer: Any) -> list[int | None]:
    return [getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "bos", "eos", "unk", "mask", "cls", "sep")]


# Folders as Hugging Face has them

T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "vocab_size": 200}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
          "vocab_size": 200}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "training", "options", "marked"),
    [
        ("T5", "spiece.model", T5, {"extra_ids": 10}, "The <extra_id_0> walks <extra_id_9> in"),
        ("T5", "spiece.model", T5, {"tokenizer_class": "T5Tokenizer"}, "The<extra_id_99>animal"),
        ("Albert", "spiece.model", ALBERT, {}, "The [MASK] animal [SEP] ''x``"),
        ("Albert", "spiece.model", ALBERT, {"do_lower_case": False, "keep_accents": True}, "É [MASK]"),
        ("XLMRoberta", "sentencepiece.bpe.model", {"vocab_size": 200}, {}, "The <mask> animal </s>"),
    ],
)
def test_sentencepiece_folders(
    tmp_path: Path, name: str, file: str, training: dict[str, Any], options: dict[str, Any], marked: str
) -> None:
    train_model(tmp_path / file, **training)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": f"{name}Tokenizer", **options})
    theirs = getattr(transformers, f"{name}Tokenizer").from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path)
    assert ours.vocabulary_size == len(theirs)
    assert [framed(ours, text) for text in TEXTS] == [theirs(text).input_ids for text in TEXTS]
    assert ours.encode_marked(marked) == theirs(marked, add_special_tokens=False).input_ids
    assert roles(ours) == their_roles(theirs)
    assert not (ours.special_ids - {ours.unknown}) & set(ours.encode(marked)), "a name in a text is text"
    assert ours.decode_batch(ours.encode_batch(TEXTS)) == [
        theirs.decode(ids, skip_special_tokens=True) for ids in ours.encode_batch(TEXTS)
    ]


def test_a_llama_folder(tmp_path: Path) -> None:
    path = train_model(tmp_path / "tokenizer.model", **LLAMA)
    theirs = transformers.LlamaTokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path)
    texts = [text for text in TEXTS if not text.startswith(" ")]  # where sentencepiece and transformers differ
    assert [ours.encode(text) for text in texts] == [theirs(text, add_special_tokens=False).input_ids for text in texts]
    assert [ours.encode(text) for text in TEXTS] == spm.SentencePieceProcessor(model_file=str(path)).encode(TEXTS)
    assert ours.around == ((ours.bos,), ())
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": False, "add_eos_token": True,
                                                    "add_prefix_space": False})  # fmt: skip
    changed = read_tokenizer(tmp_path)
    assert changed.around == ((), (changed.eos,))
    assert changed.encode(" the") == ours.encode("the")


def marian_folder(folder: Path) -> tuple[Path, list[str]]:
    source = train_model(folder / "source.spm", vocab_size=150)
    target = train_model(folder / "target.spm", ["Xylophone jumps!", *TEXTS[2:]], vocab_size=200)
    pieces = [*read_sentencepiece(source).names(), *read_sentencepiece(target).names()]
    names = [name for name in dict.fromkeys(["</s>", "<unk>", ">>fra<<", *pieces, "<pad>"]) if name != "<s>"]
    write_json(folder / "vocab.json", {name: id for id, name in enumerate(names)})
    write_json(folder / "tokenizer_config.json", {"source_lang": "fr", "target_lang": "en"})
    return folder, names


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_a_marian_folder_has_two_tokenizers_over_one_vocabulary(tmp_path: Path) -> None:
    folder, names = marian_folder(tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    ours = read_tokenizers(folder)
    assert [framed(ours.source, text) for text in TEXTS] == [theirs(text).input_ids for text in TEXTS]
    for text in (*TEXTS, "jump X"):
        assert framed(ours.target, text) == theirs(text_target=text).input_ids
    assert ours.source.encode(">>fra<< jump") == theirs(">>fra<< jump", add_special_tokens=False).input_ids
    assert roles(ours.source) == roles(ours.target) == their_roles(theirs)
    for tokenizer in (ours.source, ours.target):
        assert tokenizer.vocabulary_size == len(names)
        words = range(3, len(names) - 1)
        assert [tokenizer.decode([id]) for id in words] == [theirs.decode([id]) for id in words]
    assert ours.source.encode_batch(TEXTS) != ours.target.encode_batch(TEXTS)


def test_a_pair_of_tokenizers_is_kept(tmp_path: Path) -> None:
    ours = read_tokenizers(marian_folder(tmp_path / "theirs")[0])
    (tmp_path / "ours").mkdir()
    ours.source.save(tmp_path / "ours" / "tokenizer.json")
    ours.target.save(tmp_path / "ours" / "target_tokenizer.json")
    again = read_tokenizers(tmp_path / "ours")
    assert again.source.fingerprint == ours.source.fingerprint
    assert again.target.fingerprint == ours.target.fingerprint != ours.source.fingerprint
    assert roles(again.target) == roles(ours.target)


@pytest.mark.parametrize(
    "options",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}],
)
def test_a_bert_folder(tmp_path: Path, options: dict[str, Any]) -> None:
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the The animal ##s stre ##et je étudiant etudiant , ' t didn 日 本 日本 . <"
    (tmp_path / "vocab.txt").write_text("\n".join(words.split()) + "\n", encoding="utf-8")
    write_json(tmp_path / "tokenizer_config.json", options)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path)
    assert read_tokenizers(tmp_path).source.vocabulary_size == len(theirs) == len(words.split())
    for text in (*TEXTS, "The animals 日本 street [CLS]", "Étudiant"):
        assert framed(ours, text.replace("[CLS]", "x")) == theirs(text.replace("[CLS]", "x")).input_ids
        assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids
    assert roles(ours) == their_roles(theirs)
    assert ours.cls not in ours.encode("[CLS]")
    assert ours.decode(ours.encode("the animals")) == "the animals"


def byte_level_folder(folder: Path, specials: list[str], **options: Any) -> None:
    """GPT-2's files, of a vocabulary that was learned here."""
    trained = Tokenizer.train("bytes", TEXTS * 3, 400)
    folder.mkdir(parents=True, exist_ok=True)
    trained.save(folder / "trained.json")
    model = json.loads((folder / "trained.json").read_text(encoding="utf-8"))["model"]
    (folder / "trained.json").unlink()
    words = [word for word in model["vocab"] if word not in SPECIALS]
    write_json(folder / "vocab.json", {word: id for id, word in enumerate([*specials, *words])})
    merges = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"]), ""]
    (folder / "merges.txt").write_text("\n".join(merges), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", options)


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MASK = {"mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "special": True}}


@pytest.mark.parametrize(
    ("name", "specials", "options", "marked"),
    [
        ("GPT2", ["<|endoftext|>"], {}, "a<|endoftext|> b"),
        ("Roberta", ROBERTA, MASK, "The <mask> animal</s>"),
        ("Roberta", ROBERTA, {**MASK, "add_prefix_space": True}, "The <mask> animal</s>"),
        ("Bart", ROBERTA, MASK, "The <mask> animal</s>"),
        ("Qwen2", ["<|endoftext|>"], {"tokenizer_class": "Qwen2Tokenizer"}, "I'LL e\u0301 <|endoftext|>12"),
    ],
)
def test_folders_of_byte_pairs(
    tmp_path: Path, name: str, specials: list[str], options: dict[str, Any], marked: str
) -> None:
    byte_level_folder(tmp_path, specials, **options)
    theirs = getattr(transformers, f"{name}Tokenizer").from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path)
    assert [framed(ours, text) for text in TEXTS] == [theirs(text).input_ids for text in TEXTS]
    assert ours.encode_marked(marked) == theirs(marked, add_special_tokens=False).input_ids
    if specials is ROBERTA:
        assert (roles(ours), ours.around) == (their_roles(theirs), ((0,), (2,)))
    else:
        assert (ours.eos, ours.around) == (theirs.eos_token_id, ((), ()))
    space = " " * options.get("add_prefix_space", False)
    assert ours.decode(ours.encode("the étudiant 😀")) == space + "the étudiant 😀"


# Special tokens


def test_the_files_beside_a_tokenizer_say_which_token_is_what(tmp_path: Path) -> None:
    Tokenizer.train("bytes", TEXTS, 300, specials=("<pad>", "<a>", "<b>", "<s>")).save(tmp_path)
    assert Tokenizer.load(tmp_path).bos == 3
    write_json(tmp_path / "special_tokens_map.json", {"eos_token": {"content": "<a>"}, "cls_token": "<b>"})
    write_json(tmp_path / "tokenizer_config.json", {"bos_token": None, "cls_token": "<a>", "mask_token": "<nowhere>"})
    tokenizer = read_tokenizer(tmp_path)
    assert roles(tokenizer) == [0, None, 1, None, None, 1, None]
    (tmp_path / "again").mkdir()
    tokenizer.save(tmp_path / "again")
    assert roles(Tokenizer.load(tmp_path / "again")) == roles(tokenizer)
    assert Tokenizer.load(tmp_path / "again", {"bos": "<b>"}).bos == 2


def test_what_stands_around_a_text_is_kept(tmp_path: Path) -> None:
    byte_level_folder(tmp_path / "theirs", ROBERTA)
    tokenizer = read_tokenizer(tmp_path / "theirs")
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).around == tokenizer.around == ((0,), (2,))
    assert Tokenizer.train("bytes", TEXTS, 300).around == ((), ())
    assert Tokenizer.train("character", ["xyz"], 30).around == ((), ())


def test_tokens_listed_besides_the_vocabulary(tmp_path: Path) -> None:
    train_model(tmp_path / "tokenizer.model", **LLAMA)
    size = read_tokenizer(tmp_path).vocabulary_size
    write_json(tmp_path / "added_tokens.json", {"<|one|>": size})
    decoder = {str(size + 1): {"content": "<|two|>", "special": True}}
    special = ["<|three|>", {"content": "<|one|>"}]
    options = {"added_tokens_decoder": decoder, "additional_special_tokens": special}
    write_json(tmp_path / "tokenizer_config.json", options)
    tokenizer = read_tokenizer(tmp_path)
    assert [tokenizer.id_of(token) for token in ("<|one|>", "<|two|>", "<|three|>")] == [size, size + 1, size + 2]
    assert {size, size + 1, size + 2} <= tokenizer.special_ids
    write_json(tmp_path / "added_tokens.json", {"<|one|>": size + 7})
    with pytest.raises(DataError, match="should have the id"):
        read_tokenizer(tmp_path)


# What cannot be read


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no tokenizer that is known here.*vocab.txt"),
        ({"vocab.txt": "a\nb\n"}, r"'\[UNK\]' is not among them"),
        ({"vocab.txt": b"\xff"}, "codec can't decode"),
        ({"vocab.json": "[]", "merges.txt": ""}, "must hold a JSON object"),
        ({"vocab.json": "{}", "merges.txt": ""}, "at least one token"),
        ({"vocab.json": '{"a": -1}', "merges.txt": ""}, r"\('a', -1\)"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "#version\na b c\n"}, "merges.txt, line 2: 'a b c'"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b\n"}, "the merge 'a b' needs 'b'"),
        ({"vocab.json": "{", "merges.txt": ""}, "cannot be read as JSON"),
        ({"spiece.model": "what"}, "no sentencepiece model"),
        ({"spiece.model": "", "tokenizer_config.json": '{"tokenizer_class": "XLNetTokenizer"}'}, "'XLNetT.*Albert"),
        ({"source.spm": "", "target.spm": "", "vocab.json": '{"a": 3}'}, "from 0 to 0"),
        ({"tokenizer.json": "{}"}, "not a tokenizer file"),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": "[]"}, "must hold a JSON object"),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": '{"strip_accents": "no"}'}, "do not fit together"),
    ],
)  # fmt: skip
def test_what_is_no_tokenizer(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message) as found:
        read_tokenizer(tmp_path)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("count", [-1, "many", 10**9])
def test_sentinels_are_counted(tmp_path: Path, count: object) -> None:
    train_model(tmp_path / "spiece.model", **T5)
    write_json(tmp_path / "tokenizer_config.json", {"extra_ids": count})
    with pytest.raises(DataError, match="extra_ids must be"):
        read_tokenizer(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"additional_special_tokens": ["<extra_id_0>", "<extra_id_1>"]})
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer.id_of("<extra_id_0>") == tokenizer.vocabulary_size - 1
