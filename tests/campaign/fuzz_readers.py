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
from bert_jax.data.readers import choices, collection, ranking, squad, tagged, texts
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.judgements import read_judgements
from bert_jax.data.readers.open_questions import read_open_questions, read_passages
from bert_jax.data.runs import read_run
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.vectors import Normalize
from tests.campaign.cases import PIECES, prepare
from tests.checkpoints.tensors.conftest import LINEAR_PICKLE, LINEAR_STORAGES
from tests.checkpoints.tensors.test_pytorch_file import LEGACY_STORAGES, LEGACY_TENSORS, legacy


class Reader(NamedTuple):
    """Writes a valid directory with these files, which are changed, and reads it."""

    make: Callable[[Path], object]
    files: tuple[str, ...]
    read: Callable[[Path], object]
    cases: int = 40


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
RANKED = """{"query": "who", "positives": ["the cat"], "negatives": ["a dog"], "scores": [2, -1.5]}
{"question": "why", "ctxs": [{"title": "T", "text": "a", "has_answer": true}], "hard_negative": "b"}
{"query": "who", "document": {"text": "a bird"}, "label": 0}
{"query": "how", "passages": {"is_selected": [1, 0], "passage_text": ["a", "b"]}, "answers": ["c"]}
"""
PAIRS = "question\ttitle\tsentence\tlabel\nwho ?\tT\tthe cat\t1\nwho ?\t\ta dog\t0\nwhy\tT\ta\t1\n"
TRIPLES = "2\t-1.5\twho ?\tthe cat\ta dog\n1\t0\twhy ?\ta\tb\n"
DPR = """[{"question": "who", "answers": ["the cat"],
"positive_ctxs": [{"title": "T", "text": "cat"}],
"negative_ctxs": [], "hard_negative_ctxs": [{"title": "", "text": "dog", "score": "8.5"}]}]"""
BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "T", "text": "a"}\n{"_id": 2, "text": "b"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "who"}\n{"_id": "q2", "text": "why"}\n',
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\t2\t0\nq2\t2\t1\n",
}
PASSAGES = 'id\ttext\ttitle\n1\t"the ""cat"", sat"\tT\n2\tthe dog\t\n'
TREC = "q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 1\n"
RUN = "q1 Q0 d1 1 12.5 bert_jax\nq1 Q0 d2 2 1e-3 bert_jax\nq2 Q0 d2 1 -3 bert_jax\n"
ASKED = "who sat ?\t['the cat', \"it's\"]\nwhy, then\t['so']\n"


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


def folder(files: dict[str, str], read: Callable[[Path], object]) -> Reader:
    def make(directory: Path) -> None:
        for name, content in files.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(content)

    return Reader(make, tuple(files), lambda directory: list(read(directory)))


def read_documents(source: Path) -> object:
    with collection.open_collection(source) as documents:
        return list(documents)


def read_with_passages(source: Path) -> object:
    return read_passages(source, RankingOptions(titles="pair"))


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
    "ranking jsonl": table("a.jsonl", RANKED, ranking.read_candidates),
    "ranking tsv": table("a.tsv", PAIRS, ranking.read_candidates),
    "ranking triples": table("a.tsv", TRIPLES, ranking.read_candidates),
    "ranking json": table("a.json", DPR, ranking.read_candidates),
    "ranking folder": folder(BEIR, ranking.read_candidates),
    "collection": folder(BEIR, read_documents),
    "collection tsv": table("a.tsv", PASSAGES, read_documents),
    "collection json": table("a.json", SQUAD, read_documents),
    "queries": folder(BEIR, collection.read_queries),
    "judgements": table("a.tsv", TREC, lambda path: read_judgements(path).items()),
    "judgements json": table("a.json", SQUAD, lambda path: read_judgements(path).items()),
    "run": table("a.txt", RUN, lambda path: read_run(path).items()),
    "open questions": table("a.jsonl", RANKED, read_open_questions),
    "open questions tsv": table("a.csv", ASKED, read_open_questions),
    "passages": table("a.json", DPR, read_with_passages),
    "corpus": Reader(corpus, (), read_corpus),
}
