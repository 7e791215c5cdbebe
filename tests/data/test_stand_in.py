"""Shapes without a corpus are those with one."""

import jax
import pytest

from bert_jax import model_init
from bert_jax.config import default_config, set_key
from bert_jax.tasks import pretraining


@pytest.mark.parametrize("objective", ["nsp", "sop", "none"])
def test_batches_of_nothing_have_the_shapes_of_batches(tiny_corpus, objective):
    config = default_config("pretraining")
    for key, value in {
        "data.objective": objective,
        "data.length": 20,
        "data.max_predictions": 4,
        "train.global_batch_size": 6,
        "model.size": "tiny",
        "tokenizer.path": str(tiny_corpus / "tokenizer"),
    }.items():
        set_key(config, key, value, where="test")
    without = pretraining.create_without_data(config, model_init.of_config(config))
    config.data.corpus = str(tiny_corpus)
    task = pretraining.create(config, model_init.of_config(config))
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    real = {key: jax.ShapeDtypeStruct(value.shape, value.dtype) for key, value in batch.items()}
    assert without.batch_shapes() == task.batch_shapes() == real
    assert without.description == task.description


def test_the_vocabulary_of_a_model_that_has_none_yet():
    config = default_config("pretraining")
    assert (
        pretraining.create_without_data(
            config, model_init.of_config(config)
        ).description.config.vocab_size
        == config.tokenizer.vocab_size
        == 30_522
    )
