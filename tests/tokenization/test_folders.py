"""Each fact of a tokenizer's files, in every file that has it, as transformers 5 reads it."""

import dataclasses
import json
from pathlib import Path

import pytest

from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.tokenization import load_tokenizer
from tests.tokenization.folders import (
    BERT,
    FAST,
    FOLDERS,
    PIECES,
    XLM_R,
    V,
    bert,
    of,
    template,
    token,
    unigram,
    wordpiece,
    write_folder,
)

TEXT, PAIR = "The dogs [E1] covid-19 <user>", ("the [MASK]", "[e1] Café 中国 <mask>")


def recorded() -> dict[str, tuple[str, str]]:
    _, *lines = Path(__file__).with_name("folders.txt").read_text().splitlines()
    triples = zip(lines[::3], lines[1::3], lines[2::3], strict=True)
    return {name: (one.strip(), pair.strip()) for name, one, pair in triples}


def load(path, model_type):
    return find_family(model_type).load_tokenizer(path)


def written(tokenizer) -> tuple[str, str]:
    """Ids of the text and the pair as in folders.txt."""
    (one,), (pair,) = tokenizer.encode_batch([TEXT]), tokenizer.encode_batch([PAIR[0]], [PAIR[1]])
    ids = list(map(str, pair.ids))
    if 1 in pair.type_ids:
        ids.insert(pair.type_ids.index(1), "|")
    return " ".join(map(str, one.ids)), " ".join(ids)


def test_the_ids_are_those_of_transformers_also_when_saved(tmp_path):
    expected, found, saved = recorded(), {}, {}
    assert expected.keys() == FOLDERS.keys()
    for number, name in enumerate(FOLDERS):
        path, again = tmp_path / str(number), tmp_path / f"{number}-saved"
        model_type = write_folder(path, name)
        tokenizer = load(path, model_type)
        tokenizer.save(again)
        (path / "config.json").rename(again / "config.json")
        found[name], saved[name] = written(tokenizer), written(load(again, model_type))
        assert load(again, model_type).fingerprint() == tokenizer.fingerprint()
    # transformers gives [MASK] the id 24, for which this model has no row; here it is text.
    single, pair = expected["no mask, no rows"]
    expected["no mask, no rows"] = single, pair.replace("4 24 3", "4 12 23 13 3")
    # The models of this one have no token types.
    name = "RoBERTa with BERT's tokenizer"
    expected[name] = tuple(ids.replace("| ", "") for ids in expected[name])
    assert found == expected
    assert saved == expected


def test_no_class_is_written_as_another_one(tmp_path):
    for number, name in enumerate(FOLDERS):
        config = FOLDERS[name]().get("tokenizer_config.json") or {}
        path = tmp_path / str(number)
        tokenizer = load(path, write_folder(path, name))
        tokenizer.save(tmp_path / "saved")
        saved = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
        named = config.get("tokenizer_class", saved["tokenizer_class"])
        assert saved["tokenizer_class"] == named, name


def write(path: Path, files) -> Path:
    path.mkdir()
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / name).write_text(text)
    return path


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            bert({"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"}),
            "tokenizer_config.json: tokenizer_class is BertJapaneseTokenizer, a program that",
        ),
        (
            bert(None) | {"config.json": {"tokenizer_class": "BertweetTokenizer"}},
            "config.json: tokenizer_class is BertweetTokenizer, a program that splits",
        ),
        (
            bert({"tokenizer_class": "MyTokenizer"}),
            "tokenizer_class is 'MyTokenizer', which is supported only with a tokenizer.json",
        ),
        (
            bert(added_tokens__json={"[E1]": 99}),
            r"'\[E1\]' has the id 25 after the vocabulary, but 99 in the file that adds it",
        ),
        (bert(added_tokens__json={"[E1]": "x"}), r"added_tokens.json: the id of '\[E1\]' is 'x'"),
        (
            bert({"tokenizer_class": "BertTokenizer", "split_special_tokens": True}),
            "tokenizer_config.json: split_special_tokens is True; only False is supported",
        ),
        (
            bert({"tokenizer_class": "BertTokenizer", "cls_token": "<s>"}, rows=len(PIECES)),
            "vocab.txt: the vocabulary has no <s>; copy all files of the model's tokenizer, or nam",
        ),
        (bert(added_tokens__json={"\ud800": V}), r"the id of '\\ud800' is 25; copy"),
        (bert(BERT | {"cls_token": "\ud800"}), r"cls_token has '\\ud800' for a token"),
        (bert(BERT | {"model_input_names": 1}), "model_input_names is 1; give a list of names"),
        (
            bert(FAST, tokenizer__json=wordpiece(template("[CLS] $A", "[CLS] $B [SEP] $A"))),
            "the post_processor TemplateProcessing cannot be read; known are",
        ),
        (of("bert", XLM_R), r"has no \*.model file, and no tokenizer.json with a Unigram model"),
        (
            of("bert", XLM_R | {"add_prefix_space": False}, tokenizer__json=unigram()),
            "add_prefix_space is false; a SentencePiece model is supported only with it",
        ),
    ],
)
def test_what_would_give_other_ids_is_refused(tmp_path, files, message):
    with pytest.raises(UserError, match=message) as error:
        load_tokenizer(write(tmp_path / "model", files))
    assert "\n" not in str(error.value)


LINES = "".join(f"{piece}\n" for piece in PIECES)


@pytest.mark.parametrize(
    ("vocabulary", "rows", "said"),
    [
        (LINES, len(PIECES), ""),
        (LINES.strip(), len(PIECES), ""),  # written without a last line end
        (LINES, 32, ""),  # rounded up to a multiple of 8
        (LINES, 128, ""),
        (LINES, 26, "the tokenizer has 25 ids, and the model's table 26 rows; if a file of the"),
        (LINES, 300, "the tokenizer has 25 ids, and the model's table 300 rows; if a file of the"),
    ],
)
def test_a_table_that_is_much_larger_is_said(tmp_path, capsys, vocabulary, rows, said):
    path = write(tmp_path / "model", bert(rows=rows) | {"vocab.txt": vocabulary})
    assert load_tokenizer(path).vocab_size == 25
    assert capsys.readouterr().err == (
        f"{path}: {said} tokenizer was cut off, copy it again\n" if said else ""
    )


@pytest.mark.parametrize(
    ("vocabulary", "rows", "message"),
    [
        (
            LINES[:-3],
            27,
            "last line, 25, has no line end, and there are 25 pieces for a model",
        ),
        (LINES[:40], 25, "the last line, 8, has no line end, .* 8 pieces .*: the file is cut off"),
        ("", 25, "the vocabulary is empty"),
    ],
)
def test_a_cut_vocabulary_is_refused(tmp_path, vocabulary, rows, message):
    path = write(tmp_path / "model", bert(rows=rows) | {"vocab.txt": vocabulary})
    with pytest.raises(UserError, match=message):
        load_tokenizer(path)


def test_tokens_that_are_only_named_need_rows(tmp_path):
    names = {"extra_special_tokens": ["[E1]", "<user>"]}
    config = {"tokenizer_class": "BertTokenizer", **names}
    with_rows = load_tokenizer(write(tmp_path / "with", bert(config, rows=27)))
    without = load_tokenizer(write(tmp_path / "without", bert(config, rows=26)))

    assert [with_rows.token_to_id(name) for name in ("[E1]", "<user>")] == [25, 26]
    assert [without.token_to_id(name) for name in ("[E1]", "<user>")] == [None, None]


def test_a_mask_beyond_the_table_is_text(tmp_path):
    """transformers gives a model that has no mask one when it saves the tokenizer."""
    pieces = [piece for piece in PIECES if piece != "[MASK]"]
    added = {"added_tokens_decoder": {str(V - 1): token("[MASK]", special=True)}}
    with_row = load_tokenizer(write(tmp_path / "with", bert(BERT | added, pieces, rows=V)))
    without = load_tokenizer(write(tmp_path / "without", bert(BERT | added, pieces, rows=V - 1)))

    assert (with_row.special_ids.mask, without.special_ids.mask) == (V - 1, None)
    assert without.vocab_size == V - 1


def test_the_table_of_a_roberta_decides_on_token_types(tmp_path, tiny_config):
    family, path = find_family("roberta"), write(tmp_path / "model", bert(rows=V))
    for rows, types in ((1, [0, 0, 0, 0, 0]), (2, [0, 0, 0, 1, 1])):
        config = dataclasses.replace(tiny_config, vocab_size=V, type_vocab_size=rows)
        (pair,) = family.load_tokenizer(path, config=config).encode_batch(["the"], ["dog"])
        assert pair.type_ids == types

    types = {"model_input_names": ["input_ids", "token_type_ids"]}
    ones = wordpiece(template("[CLS] $A:1", "[CLS] $A:1 $B:1"))
    path = write(tmp_path / "ones", bert(FAST | types, tokenizer__json=ones))
    config = dataclasses.replace(tiny_config, vocab_size=V, type_vocab_size=1)
    with pytest.raises(UserError, match="gives a text token type 1, but the model has type_vocab"):
        find_family("bert").load_tokenizer(path, config=config)


def test_what_a_use_needs_is_asked_for_there(tmp_path):
    write_folder(tmp_path / "model", "no mask, no rows")

    tokenizer = load_tokenizer(tmp_path / "model")

    assert tokenizer.special_ids.mask is None
    rule = "^pre-training: the tokenizer has no mask token; copy all files .* as mask_token in"
    with pytest.raises(UserError, match=rule):
        tokenizer.special_id("mask", "pre-training")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "no mask, no rows"])
def test_transformers_reads_the_folders_and_what_is_saved_of_them(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    texts = [TEXT, *PAIR, "", " [MASK] <mask> xcovid-19x  <USER>. [SEP] the", "\tdogs\n[E1] dog"]
    model_type = write_folder(tmp_path / "model", name)
    load(tmp_path / "model", model_type).save(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_bytes((tmp_path / "model/config.json").read_bytes())
    for folder in (tmp_path / "model", tmp_path / "saved"):
        own, peer = load(folder, model_type), transformers.AutoTokenizer.from_pretrained(folder)
        encodings = own.encode_batch(texts)
        found = peer(texts, return_offsets_mapping=True)
        assert [encoding.ids for encoding in encodings] == found["input_ids"]
        assert [encoding.offsets for encoding in encodings] == found["offset_mapping"]
        pairs = own.encode_batch(texts, texts[::-1])
        found = peer(texts, texts[::-1])
        assert [encoding.ids for encoding in pairs] == found["input_ids"]
        if find_family(model_type).token_types:
            zeros = [[0] * len(ids) for ids in found["input_ids"]]
            assert [each.type_ids for each in pairs] == found.get("token_type_ids", zeros)
