"""Every family like BERT: packed rows, meshes, bfloat16, more words and positions."""

import dataclasses
import itertools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import google_files
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.prediction_batches import packed_batches
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.models import surgery
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.packed_rows import PackedRows
from bert_jax.tokenization import train_sentencepiece
from tests.random_params import random_params

pytestmark = pytest.mark.slow

FIELDS = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "pad_token_id": 1,
}
OWN = {
    "albert": {"embedding_size": 8},
    "electra": {"embedding_size": 8},
    "mobilebert": {"embedding_size": 8, "intra_bottleneck_size": 8},
    "longformer": {"attention_window": 4},
    "modernbert": {"num_hidden_layers": 4, "local_attention": 4},
    # More distances than buckets, a table of positions, and a convolution.
    "deberta_v2": {
        "embedding_size": 8,
        "position_buckets": 8,
        "position_biased_input": True,
        "conv_kernel_size": 3,
    },
}
NAMES = (
    *("albert", "deberta_v2", "distilbert", "electra", "gte", "longformer", "mobilebert"),
    *("modernbert", "mpnet", "nomic_bert", "roberta"),
)


def config_of(name):
    family = find_family(name)
    fields = FIELDS | OWN.get(name, {})
    own = {field: fields[field] for field in family.file_fields().keys() & fields.keys()}
    return family.new_config("tiny", **own)


def encoder_of(name):
    """The config of an encoder, and the function of ids and inputs → last hidden states."""
    config = config_of(name)
    module = Encoder(config, add_pooling_layer=False)
    params = random_params(module)

    @jax.jit
    def apply(ids, **inputs):
        return module.apply({"params": params}, ids, **inputs).last_hidden_state

    return config, apply


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_a_packed_row_equal_texts_in_separate_rows(name):
    """Positions restart in each text, and texts do not see each other or padding."""
    config, apply = encoder_of(name)
    texts = [[2, 10, 11, 12, 3], [2, 20, 3], [2, 30, 31, 3]]
    padding = 15 - sum(map(len, texts))
    packed = apply(
        np.array([[*itertools.chain(*texts), *[config.pad_token_id] * padding]]),
        segment_ids=np.array([[1] * 5 + [2] * 3 + [3] * 4 + [0] * padding]),
        position_ids=np.array([[*range(5), *range(3), *range(4), *[0] * padding]]),
    )
    for text, start in zip(texts, (0, 5, 8), strict=True):
        alone = apply(np.array([text]))
        np.testing.assert_allclose(packed[:, start : start + len(text)], alone, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_predictions_pack_equal_padded_rows(name):
    config, apply = encoder_of(name)
    lengths = [9, 5, 7, 3, 2, 8]
    (layout,) = packed_batches(lengths, batch_size=4, limit=20, row_multiple=2)
    ids = np.full((layout.count, layout.length), config.pad_token_id, np.int32)
    generator = np.random.default_rng(0)
    for b, row in layout.rows.items():
        ids[b, : lengths[row]] = generator.integers(4, 40, lengths[row])
    mask = (ids != config.pad_token_id).astype(np.int32)
    assert layout.indices["pack_indices"].shape == (2, 1, 20)
    padded = apply(ids, attention_mask=mask)
    packed = apply(ids, attention_mask=mask, packed_rows=PackedRows.from_batch(layout.indices))
    np.testing.assert_allclose(packed[mask == 1], padded[mask == 1], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near_float32(name):
    config = config_of(name)
    ids = np.arange(2, 14)[None]
    outputs = []
    for dtype in ("float32", "bfloat16"):
        module = find_head("masked_lm").make(config, Execution(dtype=dtype))
        params = random_params(module, scale=0.1)
        outputs.append(jax.jit(module.apply)({"params": params}, ids))
    exact, rounded = outputs
    assert rounded.dtype == jnp.float32
    assert np.isfinite(rounded).all()
    assert np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("name", NAMES)
def test_more_words_and_positions_leave_known_texts_alone(name):
    config = config_of(name)
    module = find_head("masked_lm").make(config)
    params = random_params(module)
    ids = np.arange(2, 14)[None]
    before = jax.jit(module.apply)({"params": params}, ids)
    grown, larger = surgery.add_vocabulary(params, config, [[5, 6], [7]], 40)
    grown, larger = surgery.extend_positions(grown, larger, 2 * config.max_length)
    assert larger.max_length == 2 * config.max_length
    assert larger.vocab_size == 42
    module = find_head("masked_lm").make(larger)
    after = jax.jit(module.apply)({"params": grown}, ids)
    np.testing.assert_allclose(after[..., :40], before, atol=1e-5)
    # A word starts as the mean of its pieces, in its logits, too.
    np.testing.assert_allclose(after[..., 40], before[..., [5, 6]].mean(-1), atol=1e-5)
    longer = np.concatenate([ids, ids, ids], axis=1)[:, : larger.max_length]
    assert jax.jit(module.apply)({"params": grown}, longer).shape[1] > config.max_length


ON_A_MESH = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import optax
from bert_jax.models.head import find_head
from bert_jax.models.parameter_sharding import gathered, state_shardings
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.rules import on_mesh
from tests.families.test_everywhere import NAMES, config_of
from tests.random_params import random_params

assert len(jax.devices()) == 4
ids = np.random.default_rng(0).integers(2, 40, (4, 12)).astype(np.int32)
for name in NAMES:
    module = find_head("masked_lm").make(config_of(name))
    params = random_params(module)
    results = []
    for shape, devices in ((MeshShape(data=1), 1), (MeshShape(data=1, fsdp=2, tensor=2), 4)):
        mesh = make_mesh(shape, jax.devices()[:devices])
        sharded = jax.device_put(params, state_shardings(mesh, params))

        def loss(params):
            logits = module.apply({"params": gathered(mesh, params)}, ids)
            return optax.softmax_cross_entropy_with_integer_labels(logits, ids).mean()

        with on_mesh(mesh):
            results.append(jax.device_get(jax.jit(jax.value_and_grad(loss))(sharded)))
    (one, expected), (other, gradients) = results
    np.testing.assert_allclose(other, one, rtol=1e-5)
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * scale), gradients, expected
    )
    print(name)
"""


def test_the_same_loss_and_gradients_on_a_mesh():
    done = subprocess.run(
        [sys.executable, "-c", ON_A_MESH],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(NAMES)


def test_googles_files_of_albert_there_and_back(tmp_path):
    family = find_family("albert")
    config = family.new_config("tiny", **FIELDS | {"pad_token_id": 0}, num_hidden_groups=2)
    description = ModelDescription(config, "pretraining", family=family)
    sentences = [f"the {letter} and {letter} ran" for letter in "abcdefghijklmnopqrstuvwxyz"] * 4
    tokenizer = train_sentencepiece(sentences, vocab_size=36)
    module = description.make_module(Execution())
    params = random_params(module)
    google_files.save(tmp_path / "albert", description, params, tokenizer)
    fields = json.loads((tmp_path / "albert" / "albert_config.json").read_text())
    assert fields["hidden_act"] == "gelu"  # Google's name of the tanh form
    assert "bert_jax_hidden_act" not in fields  # bert_jax reads the tanh form, too
    model = bert_jax.load(tmp_path / "albert")
    assert model.description.class_name == "AlbertForPreTraining"
    assert model.config == config
    jax.tree.map(np.testing.assert_array_equal, model.params, params)
    # A file of Google's names no family.
    (tmp_path / "albert" / "bert_jax.json").unlink()
    for name in ("model_type", "architectures"):
        del fields[name]
    (tmp_path / "albert" / "albert_config.json").write_text(json.dumps(fields))
    assert bert_jax.load(tmp_path / "albert").config == config
    other = dataclasses.replace(description, head="masked_lm", family=find_family("roberta"))
    with pytest.raises(UserError, match="Google's files of roberta models are not supported"):
        google_files.save(tmp_path / "other", other, params, tokenizer)
