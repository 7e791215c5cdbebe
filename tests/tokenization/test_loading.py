"""Which files and arguments decide, in a directory and for a file by itself."""

import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenization import (
    BertSwitches,
    ByteLevelBPETokenizer,
    WordPieceTokenizer,
    load_tokenizer,
)
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE, WORDPIECE, XLM_ROBERTA
from bert_jax.tokenization.wordpiece import write_vocabulary

TEXT = "The café 中国"


def tokens(tokenizer, text=TEXT):
    return tokenizer.encode_batch([text], add_special_tokens=False)[0].tokens


def write_config(directory, **config):
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture
def vocabulary(tmp_path, cased_pieces):
    """A vocab.txt, the only file of its directory."""
    write_vocabulary(tmp_path / "vocab.txt", cased_pieces)
    return tmp_path / "vocab.txt"


def test_a_bare_vocabulary_tells_its_case(vocabulary, tmp_path, uncased_pieces):
    write_vocabulary(tmp_path / "lower.txt", uncased_pieces)

    assert tokens(load_tokenizer(vocabulary)) == ["The", "café", "中", "国"]
    assert tokens(load_tokenizer(vocabulary.parent)) == ["The", "café", "中", "国"]
    assert tokens(load_tokenizer(str(tmp_path / "lower.txt"))) == ["the", "cafe", "中", "国"]


def test_the_directory_overrules_the_vocabulary_and_arguments_overrule_both(vocabulary):
    directory = vocabulary.parent
    write_config(directory, do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False)

    assert tokens(load_tokenizer(directory)) == ["the", "café", "中国"]
    assert tokens(load_tokenizer(directory, lowercase=False)) == ["The", "café", "中国"]
    assert tokens(load_tokenizer(directory, strip_accents=True)) == ["the", "cafe", "中国"]
    assert tokens(load_tokenizer(directory, tokenize_chinese_chars=True))[2:] == ["中", "国"]
    write_config(directory, do_lower_case="no")
    with pytest.raises(UserError, match="do_lower_case is 'no'; give true or false"):
        load_tokenizer(directory)


def test_tokenizer_json_comes_before_vocab_txt_and_arguments_before_both(cased, vocabulary):
    directory = vocabulary.parent
    cased.save(directory)
    write_vocabulary(vocabulary, ["nothing", "of", "use"])

    assert load_tokenizer(directory).fingerprint() == cased.fingerprint()
    arguments = {"lowercase": True, "strip_accents": True, "tokenize_chinese_chars": False}
    for path in (directory, directory / "tokenizer.json"):
        loaded = load_tokenizer(path, **arguments)
        assert loaded.switches == BertSwitches(True, True, False)
        assert tokens(loaded) == ["the", "cafe", "中国"]


def test_a_tokenizer_json_with_its_own_rules(tmp_path, uncased_pieces):
    ids = {piece: token_id for token_id, piece in enumerate(uncased_pieces)}
    library = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.add_tokens(["ice cream"])
    library.enable_truncation(3)
    library.enable_padding(length=9)
    library.save(str(tmp_path / "tokenizer.json"))

    tokenizer = load_tokenizer(tmp_path)
    tokenizer.save(tmp_path / "again")

    assert tokenizer.vocab_size == 21
    for each in (tokenizer, load_tokenizer(tmp_path / "again")):
        (encoding,) = each.encode_batch(["The ice cream [MASK] plays the dog"])
        assert encoding.ids == [2, 5, 20, 4, 6, 8, 5, 10, 3]
        assert each.encode_sentences(["The ice cream [MASK]"]) == [[5, 20, 13, 15, 14]]
        assert each.fingerprint() == tokenizer.fingerprint()
    with pytest.raises(UserError, match="only for a BertNormalizer"):
        load_tokenizer(tmp_path, lowercase=False)


def test_a_model_file_tells_how_it_was_cleaned(cat_tokenizer, tmp_path):
    def cleaning(path, **arguments):
        cleaner = load_tokenizer(path, **arguments).cleaner
        return cleaner.lowercase, cleaner.keep_accents

    cat_tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    for path in (tmp_path, tmp_path / "spiece.model"):
        assert cleaning(path) == (True, True)
    assert cleaning(tmp_path, lowercase=False, strip_accents=True) == (False, False)
    with pytest.raises(UserError, match="tokenize_chinese_chars is for WordPiece only"):
        load_tokenizer(tmp_path, tokenize_chinese_chars=True)
    # The defaults of the class, if it is named.
    write_config(tmp_path, tokenizer_class="AlbertTokenizer")
    assert cleaning(tmp_path) == (True, False)
    # It comes before a tokenizer.json that is no WordPiece.
    cat_tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    assert load_tokenizer(tmp_path).fingerprint() == cat_tokenizer.fingerprint()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", '{"model": {"type": "WordLevel"}}', ": the model is WordLevel; only"),
        ("tokenizer.json", '{"model": {"vocab": {}}}', ": the model is of no known type;"),
        ("tokenizer.json", "{}", ": the model is missing;"),
        ("tokenizer.json", "{\n", ":2: not JSON: "),
        ("tokenizer.json", "[]", " is not a JSON object; give a file that"),
        ("tokenizer.json", '{"model": {"type": "WordPiece"}}', ": the vocabulary is not an object"),
        ("vocab.txt", "", ": the vocabulary is empty"),
        ("vocab.txt", "\n\r\n\n", ": the vocabulary is empty"),
        ("vocab.txt", b"[PAD]\nthe\ncaf\xe9\n", ":3: byte 0xe9 is not UTF-8"),
        ("vocab.txt", "the\n", ": the vocabulary has no [UNK]; copy all"),
        ("spiece.model", "x", ": not a SentencePiece model"),
    ],
)
def test_bad_files_are_explained(tmp_path, name, content, message):
    content = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(content)

    for path in (tmp_path, tmp_path / name):
        with pytest.raises(UserError) as error:
            load_tokenizer(path)
        assert str(error.value).startswith(f"{tmp_path / name}{message}")
        assert "\n" not in str(error.value)


def test_missing_paths_are_explained(tmp_path):
    with pytest.raises(UserError, match="absent does not exist"):
        load_tokenizer(tmp_path / "absent")
    with pytest.raises(UserError, match=r"has no tokenizer.json, vocab.txt, .* or \*.model file"):
        load_tokenizer(tmp_path)


def test_ids_may_have_gaps(uncased, tmp_path):
    uncased.save(tmp_path)
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["model"]["vocab"]["cafe"] = 30
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))

    tokenizer = load_tokenizer(tmp_path)

    assert tokenizer.vocab_size == 31
    assert (tokenizer.id_to_token(9), tokenizer.id_to_token(30)) == ("", "cafe")
    assert tokenizer.encode_sentences(["the cafe dog"]) == [[5, 30, 10]]


NO_CASE = "lowercase, strip_accents and tokenize_chinese_chars do not apply to "


@pytest.mark.parametrize(
    ("name", "file", "arguments", "message"),
    [
        ("uncased", "tokenizer.json", {"vocab_size": 19}, "has 20 ids, the model only 19; they do"),
        ("uncased", "vocab.txt", {"vocab_size": 19}, "has 20 ids, the model only 19; they do not"),
        ("uncased", "vocab.txt", {"kind": BYTE_LEVEL_BPE}, "a wordpiece tokenizer, but the model"),
        ("uncased", ".", {"kind": BYTE_LEVEL_BPE}, "the model needs byte-level BPE; give vocab"),
        ("uncased", ".", {"kind": XLM_ROBERTA}, "a wordpiece tokenizer, but the model needs the S"),
        ("cat_tokenizer", "spiece.model", {"vocab_size": 41}, "has 42 ids, the model only 41; the"),
        ("byte_level", ".", {"vocab_size": 267}, "has 268 ids, the model only 267; they do not"),
        ("byte_level", ".", {"lowercase": True}, f"{NO_CASE}byte-level BPE"),
        ("unigram", ".", {"vocab_size": 16}, "has 17 ids, the model only 16; they do not"),
        ("unigram", ".", {"lowercase": True}, f"{NO_CASE}a SentencePiece model"),
        ("unigram", ".", {"kind": BYTE_LEVEL_BPE}, "tokenizer, but the model needs byte-level BPE"),
    ],
)
def test_files_of_another_model_and_arguments_for_another_kind_are_refused(
    request, tmp_path, name, file, arguments, message
):
    tokenizer = request.getfixturevalue(name)
    tokenizer.save(tmp_path / "model")
    assert load_tokenizer(tmp_path / "model", vocab_size=tokenizer.vocab_size)
    (tmp_path / "model" / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match=message):
        load_tokenizer(tmp_path / "model" / file, **arguments)


def test_the_kind_of_the_model_counts_only_without_a_class(uncased, byte_level, tmp_path):
    uncased.save(tmp_path / "wordpiece")
    byte_level.save(tmp_path / "bpe")
    loaded = load_tokenizer(tmp_path / "wordpiece", kind=BYTE_LEVEL_BPE)
    assert isinstance(loaded, WordPieceTokenizer)
    loaded = load_tokenizer(tmp_path / "bpe", kind=WORDPIECE)
    assert isinstance(loaded, ByteLevelBPETokenizer)


def test_an_unknown_kind_is_refused(vocabulary):
    with pytest.raises(UserError, match="kind is 'word_piece'; known are wordpiece, mpnet, byte"):
        load_tokenizer(vocabulary, kind="word_piece")


@pytest.mark.parametrize(
    ("name", "mask", "others"),
    [
        ("uncased", "[MASK]", ["the", "[", "mask", "]", "the", "[", "sep", "]"]),
        ("cat_tokenizer", "[MASK]", None),
        ("byte_level", "<mask>", ["Ġthe", "Ġ", *"<mask>", "Ġthe", "Ġ", *"</s>"]),
        ("unigram", "<mask>", None),
    ],
)
def test_a_literal_mask_is_the_special_token_in_a_batch_but_text_in_sentences(
    request, name, mask, others
):
    tokenizer = request.getfixturevalue(name)
    ids = tokenizer.special_ids
    text = f"the {mask} the {tokenizer.id_to_token(ids.sep)}"

    (encoding,) = tokenizer.encode_batch([text])
    (sentence,) = tokenizer.encode_sentences([text])

    start, end = encoding.offsets[encoding.ids.index(ids.mask)]
    assert text[start:end].strip() == mask
    assert encoding.ids.count(ids.sep) == 2
    special = encoding.special_tokens_mask
    assert (special[0], special[-1], sum(special)) == (1, 1, 2)
    assert not {ids.pad, ids.cls, ids.sep, ids.mask} & set(sentence)
    if others:
        assert [tokenizer.id_to_token(i) for i in sentence] == others


def test_importing_the_package_loads_no_library():
    code = (
        "import sys, bert_jax.tokenization\n"
        "print([name for name in ('tokenizers', 'sentencepiece', 'jax') if name in sys.modules])"
    )

    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True)

    assert output.stdout == "[]\n"


@pytest.mark.parametrize(
    ("keys", "limit"),
    [
        ({}, None),
        ({"model_max_length": 8}, 8),
        ({"max_len": 8}, 8),  # the key of transformers 2
        ({"model_max_length": 1000000000000000019884624838656}, None),
        ({"model_max_length": 1e30}, None),
        ({"model_max_length": None}, None),
        ({"model_max_length": 0}, "tokenizer_config.json: model_max_length is 0; give a number"),
        ({"model_max_length": "8"}, "model_max_length is '8'; give a number of tokens from 1"),
        ({"truncation_side": "middle"}, "truncation_side is 'middle'; give right or left"),
        ({"padding_side": 1}, "padding_side is 1; give right or left"),
    ],
)
def test_the_limit_of_the_files(vocabulary, keys, limit):
    write_config(vocabulary.parent, **keys)
    if not isinstance(limit, str):
        assert load_tokenizer(vocabulary.parent).model_max_length == limit
        return
    with pytest.raises(UserError, match=limit):
        load_tokenizer(vocabulary.parent)


def test_what_the_files_say_is_saved_again(vocabulary, tmp_path):
    keys = {
        "model_max_length": 8,
        "truncation_side": "left",
        "padding_side": "left",
        "clean_up_tokenization_spaces": True,
        "chat_template": "{{ messages }}",
    }
    local = {"name_or_path": "/home/someone", "special_tokens_map_file": None}
    write_config(vocabulary.parent, tokenizer_class="BertTokenizer", **keys, **local)
    tokenizer = load_tokenizer(vocabulary.parent).with_words(["dogs"])
    tokenizer.save(tmp_path / "again", max_length=512)

    saved = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())

    assert saved.items() >= keys.items()
    assert not saved.keys() & local.keys()
    again = load_tokenizer(tmp_path / "again")
    assert (again.model_max_length, again.truncation_side) == (8, "left")
