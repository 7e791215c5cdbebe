"""Late interaction beside sentence-transformers 6, with random weights: vectors, scores, losses.

What PyLate itself computes is recorded, see `tests/checkpoints/record_pylate.py`.
"""

import importlib
import json
import random
import shutil
import string
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.model_directory import load_description
from bert_jax.config import complete_config
from bert_jax.experiment import Experiment
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.encoder_with_head import apply_model

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

WIDTH, VECTOR = 16, 8
# With a text without tokens, with punctuation alone, and above the limits.
QUERIES = ["where was the cat ?", "sea", "", "the sea was low and warm . " * 4]
DOCUMENTS = ["the cat sat on the mat .", "a dog [MASK]", "", ". ! , .", "the sea was low . " * 9]
PIECES = ["[unused0]", "[unused1]", "?", "!", ","]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, pieces) -> Path:
    """A model directory of transformers."""
    directory = tmp_path_factory.mktemp("encoder")
    (directory / "vocab.txt").write_text("\n".join([*pieces, *PIECES]) + "\n")
    transformers.BertTokenizerFast(str(directory / "vocab.txt")).save_pretrained(directory)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(pieces) + len(PIECES),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    return directory


def native(encoder: Path, directory: Path, settings: dict, mask: dict, **model) -> None:
    """A model of sentence-transformers with a projection."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    of_tokens = {"module_input_name": "token_embeddings"}
    identity = torch.nn.Identity()
    modules = [
        Transformer(str(encoder), **settings),
        Dense(WIDTH, VECTOR, bias=False, activation_function=identity, **of_tokens),
        MultiVectorMask(**mask),
        Normalize(**of_tokens),
    ]
    sentence_transformers.MultiVectorEncoder(modules=modules, device="cpu", **model).save(
        str(directory)
    )


def of_stanford(encoder: Path, directory: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(encoder, directory, dirs_exist_ok=True)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    tensors = load_file(directory / "model.safetensors")
    tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    tensors["linear.weight"] = torch.randn(VECTOR, WIDTH)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    settings = {"query_maxlen": 12, "doc_maxlen": 20, "mask_punctuation": True}
    (directory / "artifact.metadata").write_text(json.dumps(settings))


def of_pylate(encoder: Path, directory: Path) -> None:
    from safetensors.torch import save_file

    shutil.copytree(encoder, directory, dirs_exist_ok=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    tokenizer.save_pretrained(directory)
    model = transformers.BertModel.from_pretrained(directory, add_pooling_layer=False)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(directory)
    entries = [
        ("", "sentence_transformers.models.Transformer"),
        ("1_Dense", "pylate.models.Dense.Dense"),
    ]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(entries)
    ]
    dense = {"in_features": WIDTH, "out_features": VECTOR, "bias": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    settings = {"model_type": "ColBERT", "query_prefix": "[Q] ", "document_prefix": "[D] "}
    settings |= {"query_length": 14, "document_length": 19, "attend_to_expansion_tokens": True}
    (directory / "1_Dense").mkdir()
    save_file(
        {"linear.weight": torch.randn(VECTOR, WIDTH)}, directory / "1_Dense/model.safetensors"
    )
    for name, content in {
        "modules.json": modules,
        "1_Dense/config.json": dense,
        "config_sentence_transformers.json": settings,
    }.items():
        (directory / name).write_text(json.dumps(content))


PROMPTS = {"query": "the sea : ", "document": "a "}
PUNCTUATION = {"skiplist_words": list(string.punctuation)}
MODELS = {
    "bare": lambda *paths: native(*paths, {"document_length": 20}, {}),
    "fixed": lambda *paths: native(
        *paths,
        {"query_expansion": {"strategy": "fixed", "length": 12}},
        PUNCTUATION,
        prompts=PROMPTS,
    ),
    "min": lambda *paths: native(
        *paths,
        {"query_expansion": {"strategy": "min", "length": 10, "attend": True, "token": "cat"},
         "query_length": 12},
        {"skiplist_words": ["the"], "skiplist_tasks": ["query", "document"]},
        similarity_fn_name="meanmaxsim",
    ),
    "pylate": of_pylate,
    "stanford": of_stanford,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_vectors_equal_sentence_transformers(encoder, tmp_path, name):
    MODELS[name](encoder, tmp_path / "theirs")
    reference = sentence_transformers.MultiVectorEncoder(str(tmp_path / "theirs"), device="cpu")
    model = bert_jax.load(tmp_path / "theirs")
    model.save(tmp_path / "ours")
    (tmp_path / "ours" / MANIFEST).unlink()
    again = sentence_transformers.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    queries = reference.encode_query(QUERIES, convert_to_numpy=True)
    documents = reference.encode_document(DOCUMENTS, convert_to_numpy=True)
    ours = model.token_vectors(QUERIES, "query") + model.token_vectors(DOCUMENTS)
    theirs = again.encode_query(QUERIES, convert_to_numpy=True) + again.encode_document(
        DOCUMENTS, convert_to_numpy=True
    )
    for expected, mine, back in zip(queries + documents, ours, theirs, strict=True):
        np.testing.assert_allclose(mine.vectors, expected, atol=1e-5)
        np.testing.assert_allclose(back, expected, atol=1e-5)
    scores = reference.similarity(queries, documents).numpy()
    for query, expected in zip(QUERIES, scores, strict=True):
        ranked = sorted(model.rank(query, DOCUMENTS), key=lambda hit: hit.index)
        np.testing.assert_allclose([hit.score for hit in ranked], expected, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_an_index_finds_what_sentence_transformers_ranks_first(encoder, tmp_path, name):
    MODELS[name](encoder, tmp_path / "theirs")
    reference = sentence_transformers.MultiVectorEncoder(str(tmp_path / "theirs"), device="cpu")
    draw = random.Random(0)
    words = ["the", "cat", "dog", "sat", "sun", "sea", "warm", "long", "boys", "mat", ".", ",", "!"]
    texts = [" ".join(draw.choices(words, k=draw.randrange(3, 25))) for _ in range(200)]
    queries = [text for text in QUERIES if text]
    vectors = (
        encode(each, convert_to_numpy=True)
        for encode, each in ((reference.encode_query, queries), (reference.encode_document, texts))
    )
    scores, numbers = reference.similarity(*vectors).topk(10)
    index = bert_jax.load(tmp_path / "theirs").index(texts, path=tmp_path / "index")
    for hits, score, order in zip(index.search(queries), scores, numbers, strict=True):
        assert [hit.id for hit in hits] == [str(number) for number in order.tolist()]
        np.testing.assert_allclose([hit.score for hit in hits], score.numpy(), atol=1e-5)


def test_scores_of_hofstaetter(encoder, tmp_path):
    """As his notebook: 8 masks behind [SEP], a linear layer, the sum of the greatest products."""
    from safetensors.torch import save_file

    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(1)
    sizes = {"dim": WIDTH, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "initializer_range": 0.3}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 40}
    config = transformers.DistilBertConfig(**sizes)
    distilbert, compressor = transformers.DistilBertModel(config).eval(), torch.nn.Linear(WIDTH, 8)
    parts = {"bert_model": distilbert, "compressor": compressor}
    tensors = {
        f"{part}.{name}": x for part in parts for name, x in parts[part].state_dict().items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    own = {"model_type": "ColBERT", "architectures": ["ColBERT"], "compression_dim": 8}
    own |= {"bert_model": "distilbert-base-uncased", "dropout": 0.0, "return_vecs": False}
    (tmp_path / "config.json").write_text(json.dumps(sizes | own))

    @torch.inference_mode()
    def vectors(text, masks=0):
        ids = torch.tensor([tokenizer(text)["input_ids"] + [tokenizer.mask_token_id] * masks])
        return compressor(distilbert(ids, attention_mask=torch.ones_like(ids))[0])[0]

    model = bert_jax.load(tmp_path)
    query, documents = "where was the cat ?", ["the cat sat on the mat .", "a dog", ""]
    ranked = sorted(model.rank(query, documents), key=lambda hit: hit.index)
    for hit, document in zip(ranked, documents, strict=True):
        products = vectors(query, masks=8) @ vectors(document).T
        assert hit.score == pytest.approx(products.max(dim=1).values.sum().item(), rel=1e-5)


# Query, positive, negative, and scores of a teacher.
TRIPLES = [
    ("where was the cat ?", "the cat sat on the mat .", "a dog ran .", [3.0, 1.0]),
    ("the sea", "it was low and warm .", "a bird sang , long .", [2.5, 2.0]),
    ("one boy", "the boy went up to the tree and down .", "the sun !", [0.5, -1.0]),
    ("a shell found", "one found a shell in the sea .", "the song was long .", [4.0, 3.5]),
]
# The loss there, and the options that both have.
LOSSES = {
    "multiple_negatives": ("MultiVectorMultipleNegativesRankingLoss", {"scale": 0.7}),
    "margin_mse": ("MultiVectorMarginMSELoss", {}),
    "kl_divergence": ("MultiVectorDistillKLDivLoss", {"temperature": 2.0}),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_gradients_equal_sentence_transformers(encoder, tmp_path, loss):
    name, options = LOSSES[loss]
    settings = {"query_expansion": {"strategy": "fixed", "length": 12}, "document_length": 10}
    native(encoder, tmp_path / "model", settings, PUNCTUATION, prompts=PROMPTS)
    # Loss and gradients there, without dropout.
    reference = sentence_transformers.MultiVectorEncoder(str(tmp_path / "model"), device="cpu")
    reference.eval()
    *columns, scores = zip(*TRIPLES, strict=True)
    features = [
        reference.preprocess(list(texts), prompt=PROMPTS[task], task=task) | {"task": task}
        for texts, task in zip(columns, ["query", "document", "document"], strict=True)
    ]
    losses = importlib.import_module("sentence_transformers.multi_vector_encoder.losses")
    expected = getattr(losses, name)(reference, **options)(features, torch.tensor(scores))
    expected.backward()
    # And here.
    rows = [
        {"query": query, "positives": [positive], "negatives": [negative], "scores": teacher}
        for query, positive, negative, teacher in TRIPLES
    ]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": str(file), "validation": (str(file),), "loss": loss, **options}
    config = {
        "task": "late_interaction",
        "init_from": str(tmp_path / "model"),
        "model": {"pad_vocab_to_multiple_of": 1},
        "data": data,
        "train": {"global_batch_size": 4},
    }
    task = Experiment.from_config(complete_config(config, where="a test")).task
    description = load_description(tmp_path / "model")
    params, report = task.load_params(tmp_path / "model", description, task.module)
    assert report.new == ()
    batch = next(task.train_batches(0, 1, host=0, hosts=1))

    @jax.jit
    @jax.value_and_grad
    def loss_of(params):
        outputs = apply_model(task.module, params, task.inputs(batch))
        return task.loss(params, outputs, batch)[""]["loss"] / len(TRIPLES)

    value, gradients = loss_of(params)
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    embeddings = gradients["bert"]["embeddings"]["word_embeddings"]["embedding"]
    named = dict(reference.named_parameters())
    for gradient, parameter in (
        (gradients["text_vectors"]["0_dense"]["kernel"].T, "1.linear.weight"),
        (embeddings, "0.model.embeddings.word_embeddings.weight"),
    ):
        wanted = named[parameter].grad.numpy()
        np.testing.assert_allclose(gradient, wanted, atol=1e-5 * abs(wanted).max())
