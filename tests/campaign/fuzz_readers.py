"""The readers that are fuzzed: for each a valid file or directory, and what reads it."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import sentencepiece
from safetensors.numpy import save_file

import bert_jax
from bert_jax import tokenization
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.checkpoints.tensors import tensorflow_checkpoint as google
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.readers import choices, squad, tagged, texts
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import Normalize, TextVectors
from tests.campaign.cases import PIECES, prepare
from tests.checkpoints.tensors.conftest import LINEAR_PICKLE, LINEAR_STORAGES
from tests.checkpoints.tensors.test_pytorch_file import LEGACY_STORAGES, LEGACY_TENSORS, legacy


class Reader(NamedTuple):
    """Writes a valid directory with these files, which are changed, and reads it."""

    make: Callable[[Path], object]
    files: tuple[str, ...]
    read: Callable[[Path], object]
    cases: int = 80


TEXTS = [
    "the dog sat on a warm mat.",
    "[MASK] zzz \u4e2d\u56fd \u00c9\u00df \u200d " + "a" * 16,
    "",
]
LINES = ["the cat sat on the mat", "the dog sat on the cat", "a caf\u00e9 in the street"] * 5
TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1.5], np.float16),
    "c": np.zeros((2, 0), np.int64),
}
SWITCHES = tokenization.BertSwitches(True, None, True)
TOKENIZER = tokenization.WordPieceTokenizer.from_vocabulary(PIECES, SWITCHES)
CONLL = (
    "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\u00e9 NN I-NP B-LOC\n. . O O\n"
)
SQUAD = """{"version": "v2.0", "data": [{"title": "Cats", "paragraphs": [{
"context": "The cat sat on the mat.", "qas": [
{"id": "q1", "question": "Who?", "is_impossible": false,
 "answers": [{"text": "The cat", "answer_start": 0}]},
{"id": "q2", "question": "Why?", "is_impossible": true, "answers": []}]}]}]}"""
CSV = 'sentence,label,id\n"the ""cat"", sat",good,1\nthe dog,bad,2\n"two\nlines",good,3\n'
TSV = 'sentence1\tsentence2\tlabel\nthe cat\tthe dog\t1\n"a ""b"""\tc\t0\n'
JSONL = """{"text": "the cat", "label": "x", "id": 1, "n": {"a": [1, null]}}
{"text": "caf\\u00e9", "label": "y", "id": 2, "n": {"a": [1, null]}}
{"text": "dog", "label": "x", "id": "3", "n": {"a": [1, null]}}
"""
CHOICE = '{"question": {"stem": "Who?", "choices": [%s]}, "answerKey": "B"}\n'
CHOICES = 2 * (CHOICE % '{"label": "A", "text": "a"}, {"label": "B", "text": "b"}')
TAGGED = '{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}\n{"tokens": [], "ner_tags": []}\n'


def use(tokenizer: tokenization.Tokenizer, directory: Path) -> object:
    tokenizer.encode_batch(TEXTS, TEXTS[::-1], max_length=20)
    ids = tokenizer.encode_sentences(TEXTS)
    tokenizer.decode([token for row in ids for token in row])
    tokenizer.continuations()
    tokenizer.fingerprint()
    tokenizer.save(directory / "saved", max_length=7)
    return ids


def without(make: Callable[[Path], object], name: str) -> Callable[[Path], None]:
    """The same directory without one of its files."""

    def make_others(directory: Path) -> None:
        make(directory)
        (directory / name).unlink()

    return make_others


def bpe(directory: Path) -> None:
    tokenization.train_byte_level_bpe(LINES, vocab_size=290).with_words(["covid"]).save(directory)


def spiece(directory: Path) -> None:
    options = {"vocab_size": 36, "lowercase": True, "model_type": "bpe"}
    tokenization.train_sentencepiece(LINES, **options).save(directory)


def bpe_model(directory: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES[:2] * 5), model_writer=model, vocab_size=16, minloglevel=2
    )
    (directory / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    config = {"tokenizer_class": "XLMRobertaTokenizer"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def unigram(directory: Path) -> None:
    bpe_model(directory)
    tokenization.load_tokenizer(directory).save(directory)
    (directory / "sentencepiece.bpe.model").unlink()


def model(directory: Path) -> None:
    config = EncoderConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    vectors = TextVectors(modules=(Normalize(),))
    description = ModelDescription(config, "encoder", stored_vectors=vectors)
    init = jax.jit(lambda key: init_params(description.make_module(Execution()), key))
    model_directory.save(directory, description, init(jax.random.key(0)), TOKENIZER)


def read_model(directory: Path) -> object:
    loaded = bert_jax.load(directory, "embedding")
    ids = use(loaded.tokenizer, directory)
    loaded.save(directory / "again")
    params = [np.asarray(value).tobytes() for value in jax.tree.leaves(loaded.params)]
    return params, ids, repr(loaded.description)


def shards(directory: Path) -> None:
    name = "model-00001-of-00001.safetensors"
    save_file(TENSORS, directory / name)
    index = {"metadata": {"total_size": 26}, "weight_map": dict.fromkeys(TENSORS, name)}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def pickled(directory: Path) -> None:
    with zipfile.ZipFile(directory / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", LINEAR_PICKLE)
        archive.writestr("archive/byteorder", b"little")
        for key, elements in LINEAR_STORAGES.items():
            archive.writestr(f"archive/data/{key}", elements)


def read_tensors(directory: Path) -> object:
    with open_tensors(directory) as file:
        return [np.asarray(file.read(name)).tobytes() for name in file.tensors]


def read_google(directory: Path) -> object:
    with google.TensorflowCheckpoint(directory / "bert_model.ckpt") as file:
        return [file.read(name).tobytes() for name in file.tensors]


def corpus(directory: Path) -> None:
    (directory / "text.txt").write_text(
        "the cat sat.\nit was warm.\n\nthe dog ran.\na bird sang.\n"
    )
    (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    prepare(directory, directory / "corpus")


def read_corpus(directory: Path) -> object:
    opened = Corpus.open(directory / "corpus")
    tokenizer = opened.tokenizer()
    opened.check_tokenizer(tokenizer)
    options = PretrainingOptions(length=16, max_predictions=3)
    PretrainingBatches(opened.splits["train"], tokenizer, options).batch(0, 4)
    names = ("tokens", "sentence_offsets", "document_offsets", "source_documents")
    return [getattr(split, n).tobytes() for split in opened.splits.values() for n in names]


def tensors(make: Callable[[Path], object], file: str) -> Reader:
    return Reader(make, (file,), read_tensors)


def tokenizer(make: Callable[[Path], None], *files: str) -> Reader:
    def read(directory: Path) -> None:
        use(tokenization.load_tokenizer(directory), directory)

    return Reader(make, files, read)


def table(name: str, content: str, read: Callable[[Path], object]) -> Reader:
    def make(directory: Path) -> None:
        (directory / name).write_text(content, encoding="utf-8")

    return Reader(make, (name,), lambda directory: list(read(directory / name)))


LEGACY = legacy(LEGACY_TENSORS, LEGACY_STORAGES)
CONFIG = "tokenizer_config.json"
READERS = {
    "safetensors": tensors(
        lambda d: save_file(TENSORS, d / "model.safetensors"), "model.safetensors"
    ),
    "shards": tensors(shards, "model.safetensors.index.json"),
    "pickle": tensors(pickled, "pytorch_model.bin"),
    "legacy pickle": tensors(
        lambda d: (d / "pytorch_model.bin").write_bytes(LEGACY), "pytorch_model.bin"
    ),
    "tf1": Reader(
        lambda directory: google.write_checkpoint(directory / "bert_model.ckpt", TENSORS),
        ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"),
        read_google,
    ),
    "model": Reader(
        model,
        ("config.json", "model.safetensors", CONFIG, "modules.json", "1_Pooling/config.json"),
        read_model,
        cases=30,
    ),
    "tokenizer.json": tokenizer(TOKENIZER.save, "tokenizer.json", CONFIG),
    "vocab.txt": tokenizer(without(TOKENIZER.save, "tokenizer.json"), "vocab.txt", CONFIG),
    "bpe tokenizer.json": tokenizer(bpe, "tokenizer.json", CONFIG),
    "vocab.json": tokenizer(without(bpe, "tokenizer.json"), "vocab.json", "merges.txt", CONFIG),
    "unigram tokenizer.json": tokenizer(unigram, "tokenizer.json", CONFIG),
    "unigram model": tokenizer(bpe_model, "sentencepiece.bpe.model", CONFIG),
    "sentencepiece": tokenizer(spiece, "spiece.model"),
    "conll": table("a.conll", CONLL, tagged.read_tagged),
    "tagged jsonl": table("a.jsonl", TAGGED, tagged.read_tagged),
    "squad": table("a.json", SQUAD, squad.read_questions),
    "csv": table("a.csv", CSV, texts.read_texts),
    "tsv": table("a.tsv", TSV, texts.read_texts),
    "jsonl": table("a.jsonl", JSONL, texts.read_texts),
    "choices": table("a.jsonl", CHOICES, choices.read_choices),
    "corpus": Reader(corpus, (), read_corpus),
}
