"""The fields that transformers and sentence-transformers write are all in the lists of `fields`.

A field that a newer version adds fails here: decide whether it is computed, carried over or
refused, and add its row.
"""

import inspect
import json
import re

import pytest

from tests.checkpoints.fields.config_json import CONFIGS

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "camembert": "Camembert",
    "xlm-roberta": "XLMRoberta",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "albert": "Albert",
    "mobilebert": "MobileBert",
    "dpr": "DPR",
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
