"""Files of sentence-transformers beside a model: read, written, removed with the model."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers.entries import encoder_directory, module_folders
from bert_jax.checkpoints.sentence_transformers.reading import module_shapes, read_vectors
from bert_jax.checkpoints.sentence_transformers.writing import vector_files
from bert_jax.errors import UserError
from bert_jax.files import as_path
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.vectors import Dense, Dropout, LayerNorm, Normalize, StoredVectors
from bert_jax.tasks.embed import say_default

OLD = "sentence_transformers.models."
V6 = "sentence_transformers.sentence_transformer.modules.pooling."


def modules(*parts, first=("", f"{OLD}Transformer")):
    """`modules.json` with (folder, type) after the encoder."""
    return [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate([first, *parts])
    ]


POOLED = {"modules.json": modules(("1_Pooling", f"{OLD}Pooling")), "1_Pooling/config.json": {}}
MODULES, POOLING, DENSE_FILE = "modules.json", "1_Pooling/config.json", "2/config.json"
ENCODER, MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.fixture
def read(tmp_path):
    """Writes files of a model directory, JSON by name, beside a pooling, and reads the vectors."""

    def write_and_read(files, beside=POOLED) -> TextVectors | None:
        for name, content in {**beside, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_vectors(tmp_path)

    return write_and_read


CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("fields", "poolings"),
    [
        ({"word_embedding_dimension": 16, **CLS}, ("cls",)),
        ({}, ("mean",)),
        ({"embedding_dimension": 16, "pooling_mode": "max"}, ("max",)),
        ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
        # The flags have a fixed order.
        (CLS | {"pooling_mode_mean_tokens": True}, ("cls", "mean")),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len_tokens",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({"pooling_mode_lasttoken": True, "pooling_mode_max_tokens": True}, ("max", "lasttoken")),
        (CLS | {"pooling_mode": "lasttoken"}, ("lasttoken",)),
    ],
)
def test_both_forms_of_a_pooling(read, fields, poolings):
    assert read({POOLING: fields}).poolings == poolings


@pytest.mark.parametrize(
    ("first", "pooling"),
    [
        (("", f"{OLD}Transformer"), f"{OLD}Pooling"),
        (("0_Transformer", f"{OLD}Transformer"), f"{OLD}Pooling.Pooling"),
        (("0_BERT", f"{OLD}BERT"), f"{OLD}Pooling"),
        (("", "sentence_transformers.base.modules.transformer.Transformer"), f"{V6}Pooling"),
        (("encoder", "sentence_transformers.sentence_transformer.modules.Transformer"),
         "sentence_transformers.sentence_transformer.modules.Pooling"),
    ],
)  # fmt: skip
def test_layouts_of_all_versions(read, tmp_path, first, pooling):
    end = ("last", "sentence_transformers.base.modules.normalize.Normalize")
    files = {"a/b/config.json": CLS, f"{first[0] or '.'}/{ENCODER}": LENGTH}
    result = read(files | {MODULES: modules(("a/b", pooling), end, first=first)})
    assert (result.poolings, result.modules) == (("cls",), (Normalize(),))
    assert result.max_length == 8
    assert encoder_directory(tmp_path) == tmp_path / first[0]
    assert module_folders(tmp_path) == [*filter(None, [first[0]]), "a/b", "last"]


LENGTH = {"max_seq_length": 8, "do_lower_case": False}
TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
POOLER = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
OUTPUT = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}


def test_the_file_of_the_encoder(read):
    fields = {"modality_config": TEXT, **OUTPUT}
    assert not read({ENCODER: fields}).unsupported
    assert read({ENCODER: LENGTH | {"tokenizer_args": {"model_max_length": 6}}}).max_length == 6
    assert read({ENCODER: LENGTH | {"tokenizer_args": {"use_fast": True}}}).max_length == 8
    fields = LENGTH | {"processing_kwargs": {"text": {"max_length": 5}}}
    assert read({ENCODER: fields}).max_length == 5
    fields = {"modality_config": POOLER, "module_output_name": "sentence_embedding"}
    assert read({ENCODER: fields, MODULES: modules()}).poolings == ("pooler",)


def test_the_file_of_the_model(read):
    fields = {
        "model_type": "SentenceTransformer",
        "__version__": {"sentence_transformers": "5.1.0"},
        "prompts": {"query": "query: ", "document": None},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 4,
        "requirements": ["torch>=2"],
    }
    result = read({MODEL: fields})
    assert result.prompt(None) == result.prompt("query") == "query: "
    assert result.prompt("document") == result.prompt("") == ""
    assert result.prompt("passage: ") == "passage: "
    assert (result.similarity, result.truncate_dim, result.width(16)) == ("dot", 4, 4)
    written = json.loads(vector_files(result, 16)[MODEL])
    assert written == fields | {"prompts": {"query": "query: ", "document": ""}}
    with pytest.raises(UserError, match="prompt is 'passage'; it is none of the model's prompts"):
        result.prompt("passage")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({MODULES: modules()}, "modules.json: an encoder alone is not supported"),
        ({MODULES: modules(("1", f"{OLD}LSTM"), ("2", f"{OLD}Pooling"))},
         "the module sentence_transformers.models.LSTM as the second is not supported"),
        ({MODULES: modules(first=("", "my.Transformer"))}, "the module my.Transformer is not supp"),
        ({POOLING: {"pooling_mode": "median"}}, "pooling_mode 'median' is not supported"),
        ({POOLING: {"pooling_mode": [["cls"]]}},
         "1_Pooling/config.json: pooling_mode [['cls']] is not supported"),
        ({POOLING: {"pooling_mode": {"cls": True}}}, "pooling_mode {'cls': True} is not supported"),
        ({POOLING: {"pooling_mode": ["mean"] * 4_000_000}},
         "1_Pooling/config.json: a pooling_mode of 4,000,000 names is not supported"),
        ({POOLING: {"pooling_mode": None}}, "pooling_mode None is not supported"),
        ({MODEL: {"model_type": ["SentenceTransformer"]}}, "model_type ['SentenceTransformer']"),
        ({ENCODER: {"processing_kwargs": {"text": {"truncation": False}}}},
         "processing_kwargs.truncation False is not supported"),
    ],
)  # fmt: skip
def test_unsupported_vectors(read, files, problem):
    assert problem in read(files).unsupported


@pytest.mark.slow
def test_unsupported_vectors_leave_the_other_methods(read, model):
    vectors = read({POOLING: {"pooling_mode": "median"}})
    description = dataclasses.replace(model.description, stored_vectors=vectors)
    refused = dataclasses.replace(model, description=description)
    message = "pooling_mode 'median' is not supported; name a pooling for the vectors of the encod"
    with pytest.raises(UserError, match=message):
        refused.embed(["a"])
    expected = model.embed(["a dog"], "max")
    np.testing.assert_array_equal(refused.embed(["a dog"], "max"), expected)
    assert refused.fill_mask("a [MASK]")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({MODULES: '[{"path": ""}]'}, r"modules\.json is damaged: KeyError"),
        ({MODULES: modules(*(("", f"{OLD}Normalize"),) * 300)}, "301 modules; the limit is 32"),
        ({MODULES: "{}"}, "modules.json is damaged: .*must be a list"),
        ({MODULES: modules(("no", f"{OLD}Pooling"))}, r"no/config\.json does not exist"),
        ({MODULES: modules(("../x", f"{OLD}Pooling"))}, r"modules.json names '\.\./x', wh"),
        ({ENCODER: {"max_seq_length": "8"}}, "max_seq_length is '8'"),
        ({ENCODER: {"model_args": 3}}, "bert_config.json is damaged: 'int' ob"),
        ({ENCODER: {"processing_kwargs": {"text": 3}}}, "fig.json is damaged"),
        ({MODEL: {"truncate_dim": 0}}, "truncate_dim is 0"),
        ({MODEL: {"default_prompt_name": []}}, "is damaged: .*hash"),
        ({MODEL: {"default_prompt_name": "x"}}, "default_prompt_n"),
        ({MODEL: {"prompts": {"x": 1}}}, "they must be texts"),
        ({DENSE_FILE: {"in_features": 16}}, "config.json is damaged: .*out_features"),
        ({DENSE_FILE: {"in_features": -1, "out_features": 4}}, "in_features is -1"),
    ],
)
def test_damage_is_named(read, files, message):
    listed = modules(("1_Pooling", f"{OLD}Pooling"), ("2", f"{OLD}Dense"))
    dense = {"in_features": 16, "out_features": 4}
    with pytest.raises(UserError, match=message):
        read({MODULES: listed, DENSE_FILE: dense, **files})


def test_without_these_files_the_family_decides(read, model_config, tmp_path):
    from bert_jax.families.dpr import FAMILY

    assert read({ENCODER: LENGTH}, beside={}) is None
    # A cross-encoder of version 5.4 has the same files; that library then uses the encoder alone.
    assert read({MODEL: {"model_type": "CrossEncoder"}}) is None
    vectors = read({MODEL: {"model_type": "OtherEncoder"}})
    assert "model_type 'OtherEncoder'" in vectors.unsupported
    read({MODULES: modules(first=("0", f"{OLD}WordEmbeddings"))})
    with pytest.raises(UserError, match=r"module sentence_transformers\.models\.WordEmbeddings"):
        encoder_directory(tmp_path)
    assert ModelDescription(model_config, "encoder").vectors.poolings == ("mean",)
    dpr = ModelDescription(model_config, "encoder", family=FAMILY)
    assert dpr.vectors.poolings == ("cls",)


def test_vectors_of_another_kind_are_not_made_by_embed(model):
    @dataclasses.dataclass(frozen=True)
    class Others(StoredVectors):
        method = "other_vectors"

    description = dataclasses.replace(model.description, stored_vectors=Others())
    others = dataclasses.replace(model, description=description)
    with pytest.raises(UserError, match="other vectors, with the method other_vectors; name a poo"):
        others.embed(["a"])
    np.testing.assert_array_equal(others.embed(["a dog"], "max"), model.embed(["a dog"], "max"))


DENSE = Dense(32, 8, activation_function="torch.nn.modules.activation.ReLU", use_residual=True)
EVERY = TextVectors(
    poolings=("mean", "cls"),
    include_prompt=False,
    modules=(DENSE, LayerNorm(8), Dropout(0.1), Dense(8, 6, bias=False), Normalize()),
    prompts={"query": "query: "},
    default_prompt_name="query",
    similarity="euclidean",
    truncate_dim=5,
    max_length=20,
    lower_case=True,
)


def test_half_of_a_surrogate_pair_is_written_back(read):
    vectors = read({MODULES: [{**entry, "name": "\ud800"} for entry in POOLED[MODULES]]})
    written = json.loads(vector_files(vectors, 16)[MODULES])
    assert [entry["name"] for entry in written] == ["\ud800", "\ud800"]


def without_other(vectors):
    return dataclasses.replace(vectors, other={})


@pytest.mark.parametrize(
    "vectors",
    [EVERY, TextVectors(), TextVectors(poolings=("cls", "max")), TextVectors(poolings=("pooler",))],
)
def test_what_is_written_is_read(tmp_path, vectors):
    for name, content in vector_files(vectors, 16).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert without_other(read_vectors(tmp_path)) == vectors


@pytest.fixture
def with_modules(make_model):
    """A bare encoder with all kinds of modules after the pooling, and random parameters."""
    bare = make_model("encoder", add_pooling_layer=False)
    description = dataclasses.replace(bare.description, stored_vectors=EVERY)
    draw = np.random.default_rng(0)
    modules = jax.tree.map(
        lambda leaf: draw.normal(size=leaf.shape).astype(np.float32), module_shapes(EVERY, 16)
    )
    return dataclasses.replace(bare, description=description, params=bare.params | modules)


@pytest.mark.slow
def test_weights_go_out_and_in(with_modules, tmp_path):
    texts = ["the cat sat on the mat .", "a dog"]
    expected = with_modules.embed(texts)
    assert expected.shape == (2, 5)
    directory = tmp_path / "model"
    with_modules.save(directory)
    again = bert_jax.load(directory)
    np.testing.assert_array_equal(again.embed(texts), expected)
    assert without_other(again.description.vectors) == EVERY
    again.add_words(["zebra"]).extend_positions(80).save(directory)  # over the older model
    np.testing.assert_allclose(bert_jax.load(directory).embed(texts), expected, atol=1e-6)
    assert bert_jax.load(directory, "masked_lm").embed(texts).shape == (2, 5)

    (directory / MANIFEST).unlink()
    dense = {"in_features": 32, "out_features": 8, "bias": False}
    for change, message in (
        (dense, r"model\.safetensors has the tensors .*; copy it again"),
        (dense | {"in_features": 9}, "the vectors have 32 values, and the model's Dense takes 9"),
    ):
        (directory / "2_Dense" / "config.json").write_text(json.dumps(change))
        with pytest.raises(UserError, match=message):
            bert_jax.load(directory)


def test_a_default_pooling_is_reported_once(with_modules, tmp_path, capsys):
    with_modules.save(tmp_path)
    (tmp_path / MANIFEST).unlink()
    (tmp_path / "modules.json").unlink()
    model = bert_jax.load(tmp_path)
    say_default.cache_clear()
    capsys.readouterr()
    model.embed(["a dog"], pooling="mean")
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(model.embed(["a dog"]), model.embed(["a dog"], "mean"))
    line = "the model has no modules.json: vectors have the pooling mean unless you name one\n"
    assert capsys.readouterr().err == line


@pytest.mark.slow
def test_in_a_bucket_too(with_modules, model, bucket):
    path = f"{bucket}/model"
    expected = with_modules.embed(["a dog"])
    with_modules.save(path)
    np.testing.assert_array_equal(bert_jax.load(path).embed(["a dog"]), expected)
    model.save(path)  # over it, without any
    assert bert_jax.load(path).description.stored_vectors is None
    foreign = as_path(f"{path}/pytorch_model.bin")
    foreign.write_bytes(b"of somebody else")
    with pytest.raises(UserError, match="pytorch_model.bin was not written by bert_jax"):
        model.save(path)
    assert foreign.read_bytes() == b"of somebody else"


def test_another_model_removes_them(with_modules, tmp_path, description, model_params, tokenizer):
    with_modules.save(tmp_path / "model")
    card = tmp_path / "model" / "README.md"
    card.write_text("Mine.")
    model_directory.save(tmp_path / "model", description, model_params, tokenizer)
    files = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert not {name for name in files if "modules" in name or "sentence" in name}
    assert {path.name for path in (tmp_path / "model").glob("*/*")} == set()
    assert card.exists()
    assert model_directory.load_description(tmp_path / "model") == description
