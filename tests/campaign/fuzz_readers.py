"""The readers that are fuzzed: for each a valid file or directory, and what reads it."""

import contextlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.tokenization import BertSwitches, Tokenizer, WordPieceTokenizer

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "the", "a", "cat", "dog", "bird"),
    *("sat", "on", "in", "mat", "it", "was", "warm", "ran", "sang", "and", "##s", "##ed", "\u4e2d"),
]


class Reader(NamedTuple):
    """One kind of file.

    Attributes:
        make: writes a valid directory.
        files: the names of the files in it that are changed.
        read: reads the directory; may raise a UserError, and nothing else.
        cases: number of cases in a process, for about 20 s.
    """

    make: Callable[[Path], None]
    files: tuple[str, ...]
    read: Callable[[Path], None]
    cases: int


TEXTS = [
    "the dog sat on a warm mat.",
    "[MASK] zzz \u4e2d\u56fd \u00c9\u00df \u200d 'aaaaaaaaaaaaaaaa",
    "",
]
TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1.5], np.float16),
    "c": np.zeros((2, 0), np.int64),
}


def _tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True))


def _use(tokenizer: Tokenizer, directory: Path) -> None:
    tokenizer.encode_batch(TEXTS, TEXTS[::-1], max_length=20)
    ids = tokenizer.encode_sentences(TEXTS)
    tokenizer.decode([token for row in ids for token in row])
    tokenizer.continuations()
    tokenizer.fingerprint()
    tokenizer.save(directory / "saved", max_length=7)


def _read_tokenizer(directory: Path) -> None:
    from bert_jax.tokenization import load_tokenizer

    _use(load_tokenizer(directory), directory)


def _make_tokenizer(directory: Path) -> None:
    _tokenizer().save(directory)


def _make_vocabulary(directory: Path) -> None:
    _make_tokenizer(directory)
    (directory / "tokenizer.json").unlink()


def _make_sentencepiece(directory: Path) -> None:
    from bert_jax.tokenization import train_sentencepiece

    texts = ["the cat sat on the mat", "the dog sat on the cat", "a caf\u00e9 in the street"]
    train_sentencepiece(texts * 5, vocab_size=36, lowercase=True, model_type="bpe").save(directory)


def _make_byte_level_json(directory: Path) -> None:
    from bert_jax.tokenization import train_byte_level_bpe

    texts = ["the cat sat on the mat", "the dog sat on the cat", "a caf\u00e9 in the street"]
    train_byte_level_bpe(texts * 5, vocab_size=290).with_words(["covid"]).save(directory)


def _make_byte_level(directory: Path) -> None:
    _make_byte_level_json(directory)
    (directory / "tokenizer.json").unlink()


def _make_bpe_model(directory: Path) -> None:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "the dog sat on the cat"] * 5),
        model_writer=model,
        vocab_size=16,
        minloglevel=2,
    )
    (directory / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    config = {"tokenizer_class": "XLMRobertaTokenizer"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def _make_unigram_json(directory: Path) -> None:
    from bert_jax.tokenization import load_tokenizer

    _make_bpe_model(directory)
    load_tokenizer(directory).save(directory)
    (directory / "sentencepiece.bpe.model").unlink()


def _make_model(directory: Path) -> None:
    import jax

    from bert_jax.checkpoints import model_directory
    from bert_jax.checkpoints.config_file import ModelDescription
    from bert_jax.models.config import EncoderConfig, Head
    from bert_jax.models.encoder import init_params
    from bert_jax.models.execution import Execution
    from bert_jax.models.text_vectors import Normalize, TextVectors

    config = EncoderConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    vectors = TextVectors(modules=(Normalize(),))
    description = ModelDescription(config, Head.ENCODER, stored_vectors=vectors)
    init = jax.jit(lambda key: init_params(description.make_module(Execution()), key))
    model_directory.save(directory, description, init(jax.random.key(0)), _tokenizer())


def _read_model(directory: Path) -> None:
    import bert_jax

    model = bert_jax.load(directory, "embedding")
    _use(model.tokenizer, directory)
    model.save(directory / "again")


def _make_safetensors(directory: Path) -> None:
    from safetensors.numpy import save_file

    save_file(TENSORS, directory / "model.safetensors", metadata={"format": "pt"})


def _make_shards(directory: Path) -> None:
    _make_safetensors(directory)
    (directory / "model.safetensors").rename(directory / "model-00001-of-00001.safetensors")
    names = dict.fromkeys(TENSORS, "model-00001-of-00001.safetensors")
    index = {"metadata": {"total_size": 26}, "weight_map": names}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def _make_pickle(directory: Path) -> None:
    from tests.checkpoints.tensors.conftest import LINEAR_PICKLE, LINEAR_STORAGES

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", LINEAR_PICKLE)
        archive.writestr("archive/byteorder", b"little")
        for key, elements in LINEAR_STORAGES.items():
            archive.writestr(f"archive/data/{key}", elements)
    (directory / "pytorch_model.bin").write_bytes(content.getvalue())


def _make_legacy_pickle(directory: Path) -> None:
    from tests.checkpoints.tensors.test_pytorch_file import LEGACY_STORAGES, LEGACY_TENSORS, legacy

    (directory / "pytorch_model.bin").write_bytes(legacy(LEGACY_TENSORS, LEGACY_STORAGES))


def _read_tensors(directory: Path) -> None:
    from bert_jax.checkpoints.tensors import open_tensors

    with open_tensors(directory) as file:
        for name in file.tensors:
            np.asarray(file.read(name)).tobytes()


def _make_google(directory: Path) -> None:
    from bert_jax.checkpoints.tensors.tensorflow_checkpoint import write_checkpoint

    write_checkpoint(directory / "bert_model.ckpt", TENSORS)


def _read_google(directory: Path) -> None:
    from bert_jax.checkpoints.tensors.tensorflow_checkpoint import TensorflowCheckpoint

    with TensorflowCheckpoint(directory / "bert_model.ckpt") as file:
        for name in file.tensors:
            file.read(name).tobytes()


def _text(name: str, content: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).write_text(content, encoding="utf-8") and None


CONLL = (
    "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\u00e9 NN I-NP B-LOC\n. . O O\n"
)
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Cats",
            "paragraphs": [
                {
                    "context": "The cat sat on the mat.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "Who?",
                            "is_impossible": False,
                            "answers": [{"text": "The cat", "answer_start": 0}],
                        },
                        {"id": "q2", "question": "Why?", "is_impossible": True, "answers": []},
                    ],
                }
            ],
        }
    ],
}
CSV = 'sentence,label,id\n"the ""cat"", sat",good,1\nthe dog,bad,2\n"two\nlines",good,3\n'
TSV = 'sentence1\tsentence2\tlabel\nthe cat\tthe dog\t1\n"a ""b"""\tc\t0\n'
JSONL = "".join(
    json.dumps({"text": text, "label": label, "id": id_, "n": {"a": [1, None]}}) + "\n"
    for text, label, id_ in (("the cat", "x", 1), ("caf\u00e9", "y", 2), ("dog", "x", "3"))
)
CHOICES = "".join(
    json.dumps({"question": {"stem": "Who?", "choices": choices}, "answerKey": "B"}) + "\n"
    for choices in ([{"label": "A", "text": "a"}, {"label": "B", "text": "b"}],) * 2
)
TAGGED = '{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}\n{"tokens": [], "ner_tags": []}\n'
OVERRIDES = """\
optimizer.learning_rate=3e-5
train.global_batch_size=32
train.seeds=1,2
model.hidden_size=64
mesh=auto
data.length=128
data.train=["a.tsv","b.tsv"]
precision=bfloat16
"""


def _read_conll(directory: Path) -> None:
    from bert_jax.data.readers.conll import read_blocks
    from bert_jax.data.readers.lines import open_lines
    from bert_jax.data.readers.tagged import TaggedOptions, read_tagged

    list(read_tagged(directory / "a.conll", TaggedOptions()))
    with open_lines(directory / "a.conll") as lines:
        list(read_blocks(lines))


def _read_tagged(directory: Path) -> None:
    from bert_jax.data.readers.tagged import read_tagged

    list(read_tagged(directory / "a.jsonl"))


def _read_squad(directory: Path) -> None:
    from bert_jax.data.readers.squad import read_questions

    list(read_questions(directory / "a.json"))


def _read_texts(name: str) -> Callable[[Path], None]:
    def read(directory: Path) -> None:
        from bert_jax.data.readers.texts import TextOptions, open_texts, read_texts

        with open_texts(directory / name, TextOptions()) as entries:
            list(entries)
        list(read_texts(directory / name))

    return read


def _read_choices(directory: Path) -> None:
    from bert_jax.data.readers.choices import read_choices

    list(read_choices(directory / "a.jsonl"))


def _read_overrides(directory: Path) -> None:
    from bert_jax.config import default_config, override_keys
    from bert_jax.options import from_keys
    from bert_jax.sharding.mesh import MeshShape
    from bert_jax.training.options import TrainOptions

    # Arguments of a process: what is no text reaches it as surrogates.
    lines = (directory / "a.overrides").read_bytes().decode(errors="surrogateescape").split("\n")
    pairs = [line.partition("=")[::2] for line in lines if line]
    config = override_keys(default_config("classification"), pairs)
    from_keys(TrainOptions, config.train)
    from_keys(MeshShape, config.mesh)


def _make_corpus(directory: Path) -> None:
    from bert_jax.data.pretraining.preparation.options import PrepareOptions
    from bert_jax.data.pretraining.preparation.prepare import prepare
    from bert_jax.data.pretraining.sources import SourceSpec

    (directory / "text.txt").write_text(
        "the cat sat.\nit was warm.\n\nthe dog ran.\na bird sang.\n"
    )
    (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    options = PrepareOptions(
        (SourceSpec(f"text:{directory}/text.txt"),),
        tokenizer=str(directory / "vocab.txt"),
        validation_fraction=0.3,
        sentences="lines",
    )
    prepare(options, directory / "corpus", workers=1, progress=False)


def _read_corpus(directory: Path) -> None:
    from bert_jax.data.pretraining.batches import PretrainingBatches
    from bert_jax.data.pretraining.corpus import Corpus, _checksum
    from bert_jax.data.pretraining.options import PretrainingOptions

    # An attacker can compute the checksum, too.
    path = directory / "corpus" / "manifest.json"
    with contextlib.suppress(ValueError, RecursionError):
        fields = json.loads(path.read_bytes())
        if isinstance(fields, dict) and fields.pop("checksum", None):
            path.write_text(json.dumps(fields | {"checksum": _checksum(fields)}))

    corpus = Corpus.open(directory / "corpus")
    options = PretrainingOptions(length=16, max_predictions=3)
    tokenizer = corpus.tokenizer()
    corpus.check_tokenizer(tokenizer)
    PretrainingBatches(corpus.splits["train"], tokenizer, options).batch(0, 4)


READERS = {
    "safetensors": Reader(_make_safetensors, ("model.safetensors",), _read_tensors, 800),
    "shards": Reader(_make_shards, ("model.safetensors.index.json",), _read_tensors, 800),
    "pickle": Reader(_make_pickle, ("pytorch_model.bin",), _read_tensors, 800),
    "legacy pickle": Reader(_make_legacy_pickle, ("pytorch_model.bin",), _read_tensors, 800),
    "tf1": Reader(
        _make_google,
        ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"),
        _read_google,
        600,
    ),
    "config.json": Reader(_make_model, ("config.json",), _read_model, 60),
    "model": Reader(
        _make_model,
        *(("model.safetensors", "tokenizer_config.json", "modules.json", "1_Pooling/config.json"),),
        _read_model,
        60,
    ),
    "tokenizer.json": Reader(
        _make_tokenizer, ("tokenizer.json", "tokenizer_config.json"), _read_tokenizer, 500
    ),
    "vocab.txt": Reader(
        _make_vocabulary, ("vocab.txt", "tokenizer_config.json"), _read_tokenizer, 500
    ),
    "bpe tokenizer.json": Reader(
        _make_byte_level_json, ("tokenizer.json", "tokenizer_config.json"), _read_tokenizer, 500
    ),
    "vocab.json": Reader(
        _make_byte_level,
        ("vocab.json", "merges.txt", "tokenizer_config.json"),
        _read_tokenizer,
        500,
    ),
    "unigram tokenizer.json": Reader(
        _make_unigram_json, ("tokenizer.json", "tokenizer_config.json"), _read_tokenizer, 200
    ),
    "unigram model": Reader(
        _make_bpe_model, ("sentencepiece.bpe.model", "tokenizer_config.json"), _read_tokenizer, 200
    ),
    "sentencepiece": Reader(_make_sentencepiece, ("spiece.model",), _read_tokenizer, 500),
    "conll": Reader(_text("a.conll", CONLL), ("a.conll",), _read_conll, 800),
    "tagged jsonl": Reader(_text("a.jsonl", TAGGED), ("a.jsonl",), _read_tagged, 800),
    "squad": Reader(_text("a.json", json.dumps(SQUAD)), ("a.json",), _read_squad, 800),
    "csv": Reader(_text("a.csv", CSV), ("a.csv",), _read_texts("a.csv"), 800),
    "tsv": Reader(_text("a.tsv", TSV), ("a.tsv",), _read_texts("a.tsv"), 800),
    "jsonl": Reader(_text("a.jsonl", JSONL), ("a.jsonl",), _read_texts("a.jsonl"), 800),
    "choices": Reader(_text("a.jsonl", CHOICES), ("a.jsonl",), _read_choices, 800),
    "overrides": Reader(_text("a.overrides", OVERRIDES), ("a.overrides",), _read_overrides, 500),
    "corpus": Reader(_make_corpus, ("corpus/manifest.json",), _read_corpus, 800),
}
