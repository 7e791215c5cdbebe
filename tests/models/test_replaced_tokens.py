"""ELECTRA's joint model: drawn words, replaced tokens, gradients, and the training of PyTorch."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.families.electra import FAMILY
from bert_jax.models.head import fields_of, find_head
from bert_jax.models.heads.replaced_tokens import (
    ReplacedTokenOutput,
    ReplacedTokenPretraining,
    draw_ids,
    generator_config,
    generator_params,
)
from bert_jax.tasks.replaced_tokens import ReplacedTokensTask
from tests.random_params import random_params

CONFIG = FAMILY.new_config(
    "small",
    vocab_size=30,
    embedding_size=12,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
MODULE = ReplacedTokenPretraining(CONFIG, generator_size=0.5)

# Two rows of 8 tokens, the second with two of padding; 3 [MASK] is 4, and one token unchanged.
BATCH = {
    "input_ids": np.array([[2, 4, 11, 12, 4, 14, 15, 3], [2, 21, 4, 23, 24, 3, 0, 0]]),
    "attention_mask": np.array([[1] * 8, [1] * 6 + [0] * 2]),
    "masked_lm_positions": np.array([[1, 4, 5], [2, 0, 0]]),
    "masked_lm_ids": np.array([[10, 13, 14], [22, 0, 0]]),
    "masked_lm_weights": np.array([[1, 1, 1], [1, 0, 0]], np.float32),
}
ARRAYS = jax.tree.map(jnp.asarray, BATCH)


@pytest.fixture(scope="module")
def params():
    return random_params(MODULE)


@functools.partial(jax.jit, static_argnums=0)
def apply(module, params, batch):
    return module.apply({"params": params}, **batch)


@pytest.mark.slow
def test_found_are_only_replaced_tokens():
    output = ReplacedTokenOutput(
        jnp.zeros((1, 1, 30)),
        jnp.array([[2, 11, 12, 3]]),
        replaced=jnp.array([[False, True, True, False]]),
        replaced_logits=jnp.array([[5.0, 5.0, -5.0, -5.0]]),
    )
    batch = {name: jnp.ones((1, 1), int) for name in ("masked_lm_ids", "masked_lm_weights")}
    batch["attention_mask"] = jnp.ones((1, 4), int)
    sums = ReplacedTokensTask.loss(None, None, output, batch)["rtd"]
    assert [int(sums[name]) for name in ("replaced", "found", "accuracy")] == [2, 1, 2]


def test_the_sizes_of_generators():
    # configure_pretraining.py: small 1/4, base 1/3, large 1/4; heads of width 64.
    for size, fraction, expected in (
        ("small", 1 / 4, (64, 1, 256, 128)),
        ("base", 1 / 3, (256, 4, 1024, 768)),
        ("large", 1 / 4, (256, 4, 1024, 1024)),
    ):
        config = generator_config(FAMILY.new_config(size), fraction)
        sizes = config.hidden_size, config.num_attention_heads, config.intermediate_size
        assert (*sizes, config.embedding_size) == expected


def test_words_are_drawn_with_their_probabilities():
    logits = jnp.log(jnp.array([0.5, 0.3, 0.2])) * jnp.ones((1, 20_000, 1))
    for temperature, powers in ((1.0, [0.5, 0.3, 0.2]), (0.5, [0.25, 0.09, 0.04])):
        drawn = draw_ids(logits, jax.random.key(1), temperature)
        shares = np.bincount(np.asarray(drawn).ravel(), minlength=3) / 20_000
        np.testing.assert_allclose(shares, np.array(powers) / sum(powers), atol=0.015)


@pytest.mark.slow
def test_only_masked_tokens_that_differ_are_replaced(params):
    output = apply(MODULE, params, BATCH)
    drawn = np.asarray(draw_ids(output.prediction_logits, jax.random.key(0)))
    expected = BATCH["input_ids"].copy()
    expected[0, [1, 4, 5]], expected[1, 2] = drawn[0], drawn[1, 0]
    np.testing.assert_array_equal(output.input_ids, expected)
    replaced = np.zeros((2, 8), bool)
    replaced[0, [1, 4, 5]] = drawn[0] != [10, 13, 14]
    replaced[1, 2] = drawn[1, 0] != 22
    np.testing.assert_array_equal(output.replaced, replaced)
    assert replaced.any()

    # A generator that always predicts the originals replaces nothing.
    bias = np.full(30, -1e9, np.float32)
    bias[10] = 0
    sure = {**params, "mlm_head": {**params["mlm_head"], "bias": bias}}
    originals = BATCH | {"masked_lm_ids": np.full((2, 3), 10)}
    output = apply(MODULE, sure, originals)
    assert not np.asarray(output.replaced).any()
    assert np.asarray(output.input_ids)[0, [1, 4, 5]].tolist() == [10] * 3
    assert np.asarray(output.input_ids)[1].tolist() == [2, 21, 10, 23, 24, 3, 0, 0]


@pytest.mark.slow
def test_the_loss_of_the_discriminator_reaches_only_the_shared_embeddings(params):
    def loss(params):
        output = MODULE.apply({"params": params}, **ARRAYS)
        return optax.sigmoid_binary_cross_entropy(output.replaced_logits, output.replaced).sum()

    gradients = jax.jit(jax.grad(loss))(params)
    for scope in ("generator", "mlm_head"):
        assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradients[scope]))
    embeddings = gradients["bert"]["embeddings"]
    assert np.asarray(embeddings["word_embeddings"]["embedding"]).any()
    assert np.asarray(embeddings["layer_norm"]["scale"]).any()


@pytest.mark.slow
def test_twenty_steps_equal_pytorch(params):
    """The joint loss of the paper (equations 1 to 4) with SGD, from the same weights and noise."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    noise = np.array(jax.random.gumbel(jax.random.key(0), (2, 3, 30)))
    rate = 1e-3

    def loss(params):
        output = MODULE.apply({"params": params}, **ARRAYS)
        words = optax.softmax_cross_entropy_with_integer_labels(
            output.prediction_logits, ARRAYS["masked_lm_ids"]
        )
        replaced = optax.sigmoid_binary_cross_entropy(output.replaced_logits, output.replaced)
        weights, mask = ARRAYS["masked_lm_weights"], ARRAYS["attention_mask"]
        return (words * weights).sum() / weights.sum() + 50 * (replaced * mask).sum() / mask.sum()

    @jax.jit
    def step(params):
        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda leaf, d: leaf - rate * d, params, gradients), value

    losses, current = [], params
    for _ in range(20):
        current, value = step(current)
        losses.append(float(value))

    def torch_model(class_name, config, parameters, module):
        fields = {key: fields_of(config)[name] for name, key in FAMILY.file_fields().items()}
        model = getattr(transformers, class_name)(transformers.ElectraConfig(**fields))
        tensors = to_tensors(parameters, FAMILY.huggingface, module)
        state = {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected
        assert {name.split(".")[0] for name in missing} <= {"generator_lm_head"}
        return model.eval()

    head, small = find_head("replaced_tokens").make(CONFIG), generator_config(CONFIG, 0.5)
    own = {name: params[name] for name in ("bert", "replaced_token_head")}
    discriminator = torch_model("ElectraForPreTraining", CONFIG, own, head)
    generator = torch_model(
        "ElectraForMaskedLM", small, generator_params(params), find_head("masked_lm").make(small)
    )
    # Word, position and token-type tables and their LayerNorm are the same in both.
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    discriminator.electra.embeddings.word_embeddings.padding_idx = None
    optimizer = torch.optim.SGD({*discriminator.parameters(), *generator.parameters()}, lr=rate)
    ids, mask, positions, labels, weights = map(torch.from_numpy, BATCH.values())
    is_masked, is_token, rows = weights > 0, mask > 0, torch.arange(2)[:, None]
    chosen = rows.expand(2, 3)[is_masked], positions[is_masked]
    for expected in losses:
        logits = generator(input_ids=ids, attention_mask=mask).logits[rows, positions]
        drawn = (logits.detach() + torch.from_numpy(noise)).argmax(-1)
        corrupted, is_replaced = ids.clone(), torch.zeros(ids.shape)
        corrupted[chosen] = drawn[is_masked]
        is_replaced[chosen] = (drawn != labels)[is_masked].float()
        scores = discriminator(input_ids=corrupted, attention_mask=mask).logits
        words = torch.nn.functional.cross_entropy(logits[is_masked], labels[is_masked])
        total = words + 50 * torch.nn.functional.binary_cross_entropy_with_logits(
            scores[is_token], is_replaced[is_token]
        )
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        assert total.item() == pytest.approx(expected, abs=1e-4)
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_a_training_draws_other_words_in_each_call(params):
    module = dataclasses.replace(MODULE, temperature=100.0)

    @jax.jit
    def draw(key):
        rngs = {"dropout": key}
        output = module.apply({"params": params}, **ARRAYS, deterministic=False, rngs=rngs)
        return output.input_ids

    first, second = (np.asarray(draw(jax.random.key(seed))) for seed in (0, 1))
    assert (first != second).any()
