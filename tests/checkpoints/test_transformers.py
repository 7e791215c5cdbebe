"""Models of Hugging Face's `transformers`: loaded, saved, and loaded by transformers again."""

import json
import re
import runpy
from pathlib import Path

import pytest
import safetensors

import bert_jax
from bert_jax.tokenization import WordPieceTokenizer

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

REFERENCE = runpy.run_path(str(Path(__file__).with_name("record_reference.py")))
Case, CASES, reference_model = (REFERENCE[name] for name in ("Case", "CASES", "reference_model"))

ROUND_TRIPS = CASES | {
    "no_pooler": Case("BertModel", options={"add_pooling_layer": False}),
    "pretraining_untied": Case("BertForPreTraining", {"tie_word_embeddings": False}),
    "regression": Case(
        "BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}
    ),
    "multi_label": Case(
        "BertForSequenceClassification",
        {"num_labels": 5, "problem_type": "multi_label_classification", "classifier_dropout": 0.3},
    ),
}


def tensors_of(directory: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Name to dtype, shape and bytes of all tensors in the safetensors files of a directory."""
    return {
        name: (tensor["dtype"], tuple(tensor["shape"]), bytes(tensor["data"]))
        for path in directory.glob("*.safetensors")
        for name, tensor in safetensors.deserialize(path.read_bytes())
    }


def config_of(directory: Path) -> dict:
    """The config as transformers understands it."""
    fields = transformers.AutoConfig.from_pretrained(directory).to_dict()
    return {key: value for key, value in fields.items() if key != "_name_or_path"}


def change_config(directory: Path, **changes) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def load_with_transformers(directory: Path, case):
    """The model in transformers, if every tensor of file and model has its counterpart."""
    model_class = getattr(transformers, case.architecture)
    model, information = model_class.from_pretrained(
        directory, output_loading_info=True, **case.options
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not information[kind], kind
    return model.eval()


# No model computes with it: beside an untied decoder, transformers stores a second bias.
DEAD_BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"


def with_one_bias(tensors):
    """Tensors as bert_jax writes them: the decoder's bias under both names."""
    if DECODER_BIAS not in tensors:
        return tensors
    return tensors | {DEAD_BIAS: tensors[DECODER_BIAS]}


def save_whole(model, directory: Path) -> None:
    model.save_pretrained(directory)


def save_sharded(model, directory: Path) -> None:
    model.save_pretrained(directory, max_shard_size="4KB")
    assert len(list(directory.glob("model-*.safetensors"))) > 2


def save_pickled(model, directory: Path) -> None:
    """With the duplicates of tied tensors, which torch.save stores once and names twice."""
    model.config.save_pretrained(directory)
    torch.save(model.state_dict(), directory / "pytorch_model.bin")


def save_pickled_shards(model, directory: Path) -> None:
    """As transformers 4 did it."""
    model.config.save_pretrained(directory)
    state = model.state_dict()
    shards = {name: f"pytorch_model-{number % 3}.bin" for number, name in enumerate(state)}
    for shard in set(shards.values()):
        held = {name: tensor for name, tensor in state.items() if shards[name] == shard}
        torch.save(held, directory / shard)
    index = {"metadata": {}, "weight_map": shards}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))


FORMATS = {
    "whole": (save_whole, "float32"),
    "sharded": (save_sharded, "float32"),
    "pickled": (save_pickled, "float32"),
    "float16": (save_whole, "float16"),
    "bfloat16": (save_whole, "bfloat16"),
    "pickled shards": (save_pickled_shards, "float32"),
    "pickled bfloat16": (save_pickled, "bfloat16"),
}

# Every format for tensors that are tied, untied and without a head; other models in one format, if
# tests/parity and tests/families do not save them.
EVERY_FORMAT = ("pretraining", "masked_lm_untied", "encoder_gelu")
ONE_FORMAT = ("no_pooler", "pretraining_untied", "regression", "multi_label", "albert")
ROUND_TRIPS_IN_FORMATS = [
    *((name, file_format) for name in EVERY_FORMAT for file_format in FORMATS),
    *((name, "whole") for name in ONE_FORMAT),
]


def save_tokenizer(tokenizer, directory: Path, case) -> None:
    """With the model's id of padding."""
    pieces = [tokenizer.id_to_token(number) for number in range(tokenizer.vocab_size)]
    pad = case.fields.get("pad_token_id", 0)
    pieces[0], pieces[pad] = pieces[pad], pieces[0]
    WordPieceTokenizer.from_vocabulary(pieces, tokenizer.switches).save(directory)


@pytest.mark.parametrize(("name", "file_format"), ROUND_TRIPS_IN_FORMATS)
def test_a_round_trip(name, file_format, tokenizer, tmp_path):
    case = ROUND_TRIPS[name]
    save, dtype = FORMATS[file_format]
    model = reference_model(case).to(getattr(torch, dtype))
    expected, source, saved = (tmp_path / name for name in ("expected", "source", "saved"))
    save_whole(model, expected)
    save(model, source)
    save_tokenizer(tokenizer, source, case)

    loaded = bert_jax.load(source)
    assert loaded.report.complete
    assert loaded.description.class_name == case.architecture
    loaded.save(saved)

    assert tensors_of(saved) == with_one_bias(tensors_of(expected))
    assert config_of(saved) == config_of(expected)
    load_with_transformers(saved, case)


def in_the_spelling_of_2018(tensors):
    """LayerNorm with gamma and beta, and the tied decoder a second time."""
    tensors = tensors | {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone(),
    }
    return {
        re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name.replace("Norm.weight", "Norm.gamma")): t
        for name, t in tensors.items()
    }


@pytest.mark.parametrize(
    ("source", "task", "architecture"),
    [
        ("pretraining", "embedding", "BertModel"),
        ("pretraining", "masked_lm", "BertForMaskedLM"),
        ("pretraining", "next_sentence", "BertForNextSentencePrediction"),
        ("sequence_classification", "embedding", "BertModel"),
    ],
)
def test_a_part_of_a_model(source, task, architecture, tokenizer, tmp_path):
    whole, expected, saved = (tmp_path / name for name in ("whole", "expected", "saved"))
    save_whole(reference_model(CASES[source]), whole)
    tokenizer.save(whole)
    getattr(transformers, architecture).from_pretrained(whole).save_pretrained(expected)
    loaded = bert_jax.load(whole, task=task)
    assert not loaded.report.new
    assert set(loaded.report.taken) | set(loaded.report.unexpected_keys) == set(tensors_of(whole))
    loaded.save(saved)
    assert tensors_of(saved) == tensors_of(expected)
    assert config_of(saved) == config_of(expected)


def test_a_file_as_bert_base_uncased_is(tokenizer, tmp_path):
    """Both heads, LayerNorm of 2018, and a config of transformers 4 that names one head."""
    source, saved = tmp_path / "source", tmp_path / "saved"
    save_whole(reference_model(CASES["pretraining"]), source)
    tokenizer.save(source)
    path = source / "model.safetensors"
    tensors = in_the_spelling_of_2018(safetensors_torch.load_file(path))
    safetensors_torch.save_file(tensors, path, metadata={"format": "pt"})
    change_config(
        source,
        architectures=["BertForMaskedLM"],
        gradient_checkpointing=False,
        position_embedding_type="absolute",
        transformers_version="4.6.0.dev0",
    )
    loaded = bert_jax.load(source)
    assert loaded.report.unexpected_keys == (
        "bert.pooler.dense.bias", "bert.pooler.dense.weight",
        "cls.seq_relationship.bias", "cls.seq_relationship.weight",
    )  # fmt: skip
    loaded.save(saved)
    saved = load_with_transformers(saved, Case("BertForMaskedLM")).state_dict()
    expected = transformers.BertForMaskedLM.from_pretrained(source).state_dict()
    assert list(saved) == list(expected)
    assert all(torch.equal(saved[name], expected[name]) for name in expected)
    assert bert_jax.load(source, task="pretraining").report.complete
