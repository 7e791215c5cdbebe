"""The tokenizers of models that write text, trained here: transformers has the same ids and texts.

Both read the files of the other one.
"""

import json
import random

import pytest
import sentencepiece
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from benchmarks.tokenizers import generated_strings
from bert_jax.tokenization import (
    load_tokenizer,
    train_byte_level_bpe,
    train_gpt2,
    train_marian,
    train_t5,
)
from tests.tokenization.folders import trained

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

LINES = [
    "Thank you for inviting me to your party last week; I'd love to come.",
    "Le chat d'à côté mange 1,000 souris, n'est-ce pas ?",
    "Ελλάς Москва 中文 한국어 naïve café ﬁn 😀",
] * 20
MARKERS = (
    *("<extra_id_0>", "a<extra_id_1> b", " <extra_id_99>  <extra_id_5>x", "<extra_id_100>"),
    *("</s>", "a</s>b", "<unk> <pad>", "<|endoftext|>", "a <|endoftext|>  b", ">>fr<< le chat"),
)
TEXTS = [*LINES[:3], *MARKERS, "  several   spaces ", *generated_strings(700, seed=0)]


def assert_equal(own, peer, written=None):
    """Ids of texts and pairs, and the text of these and of any ids, of which `written` have one."""
    encodings = own.encode_batch(TEXTS)
    ids = [encoding.ids for encoding in encodings]
    assert ids == peer(TEXTS)["input_ids"]
    others = TEXTS[::-1]
    assert [each.ids for each in own.encode_batch(TEXTS, others)] == peer(TEXTS, others).input_ids
    draw = random.Random(0)
    ids += [draw.choices(range(own.vocab_size), k=draw.randint(1, 20)) for _ in range(500)]
    for row in ids:
        row = [i for i in row if i < (written or own.vocab_size)]
        assert own.decode(row) == peer.decode(row, skip_special_tokens=True)
        assert own.decode(row, skip_special_tokens=False) == peer.decode(row)
    for role in ("pad", "unk", "bos", "eos"):
        assert getattr(own.special_ids, role) == getattr(peer, f"{role}_token_id"), role


def compare(folder, tmp_path):
    """The files of a folder, what bert_jax saves of them, and what transformers saves."""
    own, peer = load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)
    own.save(tmp_path / "own")
    peer.save_pretrained(tmp_path / "peer")
    assert_equal(own, peer)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "own")
    assert type(again) is type(peer)
    assert_equal(own, again)
    for saved in ("own", "peer"):
        loaded = load_tokenizer(tmp_path / saved)
        assert loaded.fingerprint() == own.fingerprint()
        assert_equal(loaded, peer)


def config(folder, name, **fields):
    content = fields | {"tokenizer_class": name}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "fields", [{}, {"extra_ids": 7}, {"clean_up_tokenization_spaces": True}, {"extra_ids": 0}]
)
def test_t5(fields, tmp_path):
    model = trained(LINES, vocab_size=70, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "spiece.model").write_bytes(model)
    config(folder, "T5Tokenizer", **fields)
    compare(folder, tmp_path)


def bpe_files(folder, library, trainer):
    """vocab.json and merges.txt."""
    folder.mkdir()
    library.train_from_iterator([line.lower() for line in LINES], trainer)
    library.model.save(str(folder))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"add_prefix_space": True},
        {"add_bos_token": True},
        {"add_bos_token": False, "add_eos_token": True, "pad_token": "<|endoftext|>"},
        {"bos_token": "<s>", "pad_token": "<pad>"},
    ],
)
def test_gpt2(fields, tmp_path):
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=350, special_tokens=[*alphabet, "<|endoftext|>", "<s>"], show_progress=False
    )
    folder = tmp_path / "model"
    bpe_files(folder, library, trainer)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 400}))
    config(folder, "GPT2Tokenizer", **fields)
    compare(folder, tmp_path)


@pytest.mark.parametrize("fields", [{}, {"bos_token": "<unk>", "add_bos_token": True}])
def test_openai_gpt(fields, tmp_path):
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    folder = tmp_path / "model"
    bpe_files(folder, library, trainer)
    config(folder, "OpenAIGPTTokenizer", **fields)
    compare(folder, tmp_path)


def test_bart(tmp_path):
    tokenizer = train_byte_level_bpe(LINES, vocab_size=350, add_prefix_space=False)
    folder = tmp_path / "model"
    tokenizer.save(folder)
    fields = json.loads((folder / "tokenizer_config.json").read_text())
    config(folder, "BartTokenizer", **fields)
    compare(folder, tmp_path)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_marian(separate, model_type, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    pieces = {}
    for name, lines in (("source", LINES), ("target", LINES[1:2] * 9)):
        content = trained(lines, vocab_size=30 if name == "target" else 70, model_type=model_type)
        (folder / f"{name}.spm").write_bytes(content)
        library = sentencepiece.SentencePieceProcessor(model_proto=content)
        pieces[name] = [library.id_to_piece(i) for i in range(3, library.get_piece_size())]
    first = ["</s>", "<unk>", "<pad>"] if separate else ["</s>", "<unk>", ">>fr<<", ">>de<<"]
    last = [] if separate else ["<pad>"]
    both = pieces["source"] if separate else dict.fromkeys([*pieces["source"], *pieces["target"]])
    for name, content in (("vocab", both), ("target_vocab", pieces["target"])):
        ids = {piece: i for i, piece in enumerate([*first, *content, *last])}
        (folder / f"{name}.json").write_text(json.dumps(ids))
    fields = {"source_lang": "en", "target_lang": "fr", "separate_vocabs": separate}
    config(folder, "MarianTokenizer", **fields)
    own = load_tokenizer(folder)
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    own.save(tmp_path / "own")
    peer.save_pretrained(tmp_path / "peer")
    for path in (folder, tmp_path / "own", tmp_path / "peer"):
        loaded, again = load_tokenizer(path), transformers.AutoTokenizer.from_pretrained(path)
        assert loaded.fingerprint() == own.fingerprint()
        for left, right in ((own, again), (loaded, peer)):
            assert_equal(left, right, written=3 + len(pieces["target"]) if separate else None)
            targets = [each.ids for each in left.encode_targets(TEXTS)]
            assert targets == right(text_target=TEXTS)["input_ids"]
            for row in targets:
                assert left.decode(row) == right.decode(row, skip_special_tokens=True)


@pytest.mark.parametrize(
    "train",
    [
        lambda: train_t5(LINES, vocab_size=170),
        lambda: train_t5(LINES, vocab_size=165, lowercase=True),
        lambda: train_gpt2(LINES, vocab_size=350),
        lambda: train_marian(LINES, vocab_size=70, lowercase=True),
        lambda: train_marian(LINES, vocab_size=100, model_type="bpe"),
    ],
)
def test_trained_here(train, tmp_path):
    tokenizer = train()
    tokenizer.save(tmp_path / "model")
    assert load_tokenizer(tmp_path / "model").fingerprint() == tokenizer.fingerprint()
    compare(tmp_path / "model", tmp_path)
