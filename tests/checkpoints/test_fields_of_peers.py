"""The files and fields that transformers and sentence-transformers write are all listed.

One that a newer version adds fails here: decide whether it is computed, carried over or refused,
and add its row to the lists in `fields`.
"""

import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

from bert_jax.checkpoints.sentence_transformers import entries
from tests.checkpoints.fields import COMPUTED, OTHER_FILES, changed, write
from tests.checkpoints.fields.config_json import CONFIGS
from tests.checkpoints.fields.tokenizer_files import LIBRARY, TOKENIZERS, VOCABULARY
from tests.checkpoints.fields.vector_files import (
    COMPUTED_MODULES,
    ENCODER,
    EXPANDED_MODULES,
    REFUSED_MODULES,
    VECTORS,
)

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "camembert": "Camembert",
    "xlm-roberta": "XLMRoberta",
    "distilbert": "DistilBert",
    "mpnet": "MPNet",
    "electra": "Electra",
    "albert": "Albert",
    "mobilebert": "MobileBert",
    "dpr": "DPR",
    "modernbert": "ModernBert",
    "nomic_bert": "NomicBert",
    "deberta-v2": "DebertaV2",
    "gte": "Gte",
    "new": "Gte",
    "longformer": "Longformer",
    "vit": "ViT",
    "deit": "DeiT",
}


@pytest.mark.parametrize("model_type", CONFIGS)
def test_fields_of_config_json(model_type, tmp_path):
    make = getattr(transformers, f"{CLASSES[model_type]}Config")
    config = make(num_labels=3)
    config.save_pretrained(tmp_path)
    written = {*config.to_dict(), *json.loads((tmp_path / "config.json").read_text())}
    assert written - set(CONFIGS[model_type]) == set()


@pytest.mark.parametrize("model_type", CONFIGS)
def test_fields_that_a_model_reads(model_type):
    """Also those that are in no config of today, such as `summary_first_dropout`."""
    make = getattr(transformers, f"{CLASSES[model_type]}Config")
    models = inspect.getmodule(getattr(transformers, f"{CLASSES[model_type]}PreTrainedModel"))
    text = inspect.getsource(models)
    read = set(re.findall(r"\bconfig\.(\w+)", text))
    read |= set(re.findall(r"(?:getattr|hasattr)\((?:self\.)?config, \"(\w+)\"", text))
    methods = {name for name in read if callable(getattr(make, name, None))}
    assert read - methods - set(CONFIGS[model_type]) == set()


def kind(name: str) -> str:
    """A file of a module by its kind: "1_Pooling/config.json" is "Pooling/config.json"."""
    return re.sub(r"^\d+_", "", name)


def written(directory: Path) -> dict[str, set[str]]:
    """The names of the fields in each JSON file of a directory, by its kind."""
    result = {}
    for path in directory.rglob("*.json"):
        content = json.loads(path.read_text())
        entries = content if isinstance(content, list) else [content]
        result[kind(path.relative_to(directory).as_posix())] = {
            key for fields in entries for key in fields
        }
    return result


def listed(name: str) -> set[str]:
    """The names of the fields of a file in the lists."""
    fields = {kind(file): fields for file, fields in VECTORS.items()}[name]
    return {re.sub(r"^\d+\.", "", path).partition(".")[0] for path in fields}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> list[Path]:
    """Models of sentence-transformers with every module that is computed, and a cross-encoder."""
    root = tmp_path_factory.mktemp("saved")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"vocab_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 32}
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b")
    tokenizer = transformers.BertTokenizer(vocab={piece: n for n, piece in enumerate(pieces)})
    for name, labels in (("BertModel", 2), ("BertForSequenceClassification", 1)):
        config = transformers.BertConfig(**sizes, num_labels=labels)
        getattr(transformers, name)(config).save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    modules = sentence_transformers.sentence_transformer.modules
    parts = [
        modules.Transformer(str(root / "BertModel")),
        modules.Pooling(16, pooling_mode=("cls", "mean")),
        modules.Dense(32, 8),
        modules.Dense(8, 8, use_residual=True),
        modules.LayerNorm(8),
        modules.Dropout(),
        modules.Normalize(),
    ]
    vectors = sentence_transformers.SentenceTransformer(
        modules=parts, prompts={"query": "query: "}, truncate_dim=4
    )
    vectors.save(str(root / "vectors"))
    scores = str(root / "BertForSequenceClassification")
    sentence_transformers.CrossEncoder(scores).save(str(root / "scores"))
    return [root / "vectors", root / "scores"]


def test_files_of_sentence_transformers(saved):
    names = {
        kind(path.relative_to(directory).as_posix())
        for directory in saved
        for path in directory.rglob("*")
        if path.is_file()
    }
    assert names - set(map(kind, VECTORS)) - {*OTHER_FILES, *TOKENIZERS} == set()


def test_fields_of_sentence_transformers(saved):
    for directory in saved:
        for name, fields in written(directory).items():
            if name in map(kind, VECTORS):
                assert fields - listed(name) == set(), name


def test_modules_and_their_fields():
    """Every module of the library is computed or refused by its class; see `kind_of`."""
    result = {}
    for package in (
        "base",
        "sentence_transformer",
        "cross_encoder",
        "sparse_encoder",
        "multi_vector_encoder",
    ):
        modules = importlib.import_module(f"sentence_transformers.{package}.modules")
        result |= {name: getattr(modules, name) for name in modules.__all__}
    assert set(result) - COMPUTED_MODULES - EXPANDED_MODULES - REFUSED_MODULES == set()
    assert set(result["Router"].config_keys) == set(entries.PARAMETERS)
    for name in COMPUTED_MODULES - {"Transformer"}:
        assert set(result[name].config_keys) - listed(f"{name}/config.json") == set(), name
    arguments = set(inspect.signature(result["Transformer"].__init__).parameters)
    assert arguments - {"self", "model_name_or_path", "backend"} - listed(ENCODER) == set()


CLASSES_OF_TOKENIZERS = (
    *("Bert", "DistilBert", "Electra", "MobileBert", "Roberta", "Camembert", "XLMRoberta"),
    *("Albert", "MPNet", "DebertaV2", "DPRQuestionEncoder", "DPRContextEncoder", "DPRReader"),
)
# Fields whose content is of the model, or carried over as a whole.
CONTENTS = (
    *("vocab", "merges", "added_tokens_decoder", "special_tokens", "single", "pair"),
    *("decoder", "strategy", "normalizers", "pretokenizers"),
)


def paths(content: dict, prefix: str = "") -> set[str]:
    """The paths of all fields, without the numbers of entries of lists."""
    result = set()
    for key, value in content.items():
        result.add(f"{prefix}{key}")
        entries = value if isinstance(value, list) else [value]
        if key not in CONTENTS:
            inner = [entry for entry in entries if isinstance(entry, dict)]
            result |= {path for entry in inner for path in paths(entry, f"{prefix}{key}.")}
    return result


@pytest.mark.parametrize("name", CLASSES_OF_TOKENIZERS)
def test_fields_of_tokenizers(name, tmp_path):
    tokenizer = getattr(transformers, f"{name}Tokenizer")()
    tokenizer.add_tokens(["[E1]", transformers.AddedToken("<user>", special=True)])
    tokenizer.save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names - set(TOKENIZERS) == set()
    for file in names:
        rows = {re.sub(r"\.\d+\b", "", path) for path in TOKENIZERS[file]}
        known = {path[: match.start()] for path in rows for match in re.finditer(r"\.|$", path)}
        assert paths(json.loads((tmp_path / file).read_text())) - known == set(), file


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_are_those_of_transformers(name, tmp_path):
    """Of each row of a text that shows what is computed."""
    base = LIBRARY if name == "tokenizer.json" else VOCABULARY
    for number, (path, field) in enumerate(TOKENIZERS[name].items()):
        text, shown = field.shows
        if field.outcome != COMPUTED or field.test or not isinstance(shown, list) or " " in text:
            continue
        directory = tmp_path / str(number)
        directory.mkdir()
        write(directory, base | {name: changed(base.get(name, {}), path, field.value)})
        peer = transformers.AutoTokenizer.from_pretrained(directory)
        pair = peer("a", "a")
        types = pair.get("token_type_ids", [0] * len(pair["input_ids"]))
        assert (types if text == "types" else peer(text)["input_ids"]) == shown, path
