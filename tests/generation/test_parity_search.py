"""Searches and rules give the sequences of transformers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.generation.decoder import DecoderFunctions
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.sampling import keep_top_k, keep_top_p
from bert_jax.generation.search import search

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

ROWS = VOCABULARY = 12  # the first token of a prompt is its row
LENGTH = 8
PAD = 9  # its beam search takes a pad token 0 for none


class Table(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Logits by the first token of all, the position, and the last two tokens."""

    config_class = transformers.PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, table):
        super().__init__(transformers.PretrainedConfig(vocab_size=VOCABULARY, bos_token_id=0))
        self.table = torch.nn.Parameter(torch.tensor(table))
        self.post_init()

    def forward(self, input_ids, attention_mask=None, use_cache=False, return_dict=True):
        rows, last, previous = input_ids[:, 0], input_ids[:, -1], input_ids[:, -2:][:, 0]
        logits = self.table[rows, input_ids.shape[1] - 1, previous, last]
        return transformers.modeling_outputs.CausalLMOutput(logits=logits[:, None])


def of_transformers(table, prompts, **options):
    """For each prompt its sequences as (new tokens, score)."""
    model = Table(table)
    with torch.no_grad():
        output = model.generate(
            torch.tensor(prompts),
            attention_mask=torch.ones(prompts.shape, dtype=torch.long),
            max_new_tokens=LENGTH,
            do_sample=False,
            use_cache=False,
            pad_token_id=PAD,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    return output.sequences[:, prompts.shape[1] :].numpy(), output.get("sequences_scores")


@functools.partial(jax.jit, static_argnums=(2, 3))
def of_bert_jax(table, prompts, rules, options):
    def step(cache, tokens):
        rows, length, previous = cache
        return table[rows, length, previous, tokens], (rows, length + 1, tokens)

    def reorder(cache, rows):
        return jax.tree.map(lambda array: array[rows], cache)

    length = jnp.full(len(prompts), prompts.shape[1])
    cache = (prompts[:, 0], length, prompts[:, -1])
    logits = table[prompts[:, 0], length - 1, prompts[:, -2:][:, 0], prompts[:, -1]]
    return search(DecoderFunctions(step, reorder), logits, cache, prompts, rules, options)


def random_rules(generator):
    """Rules, and the same as arguments of transformers: each is there in a third of the cases."""
    eos = ((1,), (1, 7))[generator.integers(2)]
    names = {
        "repetition_penalty": 1.4,
        "no_repeat_ngram_size": int(generator.integers(1, 4)),
        "min_length": 6,
        "min_new_tokens": 3,
        "forced_bos_token_id": 4,
        "suppress_tokens": (3, 5),
        "begin_suppress_tokens": (1, 2),
        "renormalize_logits": True,
        "bad_token_ids": (1, 6),
        "forced_eos_token_ids": (1,),
    }
    rules = {name: value for name, value in names.items() if generator.random() < 1 / 3}
    arguments = {
        name: list(value) if isinstance(value, tuple) else value for name, value in rules.items()
    }
    if "bad_token_ids" in rules:
        arguments["bad_words_ids"] = [[token] for token in arguments.pop("bad_token_ids")]
    if "forced_eos_token_ids" in rules:
        arguments["forced_eos_token_id"] = arguments.pop("forced_eos_token_ids")
    return TokenRules(eos, PAD, **rules), arguments | {"eos_token_id": list(eos)}


def random_case(seed):
    """A table with prompts, one for each row."""
    generator = np.random.default_rng(seed)
    shape = (ROWS, LENGTH + 4, VOCABULARY, VOCABULARY, VOCABULARY)
    table = 1.5 * generator.standard_normal(shape).astype(np.float32)
    length = int(generator.integers(1, 5))
    prompts = generator.integers(0, VOCABULARY, (ROWS, length))
    prompts[:, 0] = np.arange(ROWS)
    return generator, table, prompts


@pytest.mark.parametrize("seed", range(30))
def test_beams(seed):
    generator, table, prompts = random_case(seed)
    rules, arguments = random_rules(generator)
    beams = int(generator.integers(2, 5))
    options = {
        "num_beams": beams,
        "num_return_sequences": beams,
        "length_penalty": float(generator.choice([-0.5, 0.0, 1.0, 2.0])),
        "early_stopping": (False, True, "never")[generator.integers(3)],
    }
    found = of_bert_jax(table, prompts, rules, SearchOptions(LENGTH, **options))
    expected, scores = of_transformers(table, prompts, **arguments, **options)
    ids, found_scores = (np.asarray(array) for array in (found.token_ids, found.scores))
    # transformers fills places of sequences that do not exist.
    exist = found_scores.reshape(-1) > -np.inf
    assert (scores.numpy()[~exist] < -1e7).all()
    width = expected.shape[1]
    assert exist.mean() > 0.5
    np.testing.assert_array_equal(ids.reshape(-1, LENGTH)[exist, :width], expected[exist])
    np.testing.assert_allclose(found_scores.reshape(-1)[exist], scores[exist], rtol=1e-4)


@pytest.mark.parametrize("seed", range(100, 115))
def test_greedy(seed):
    generator, table, prompts = random_case(seed)
    rules, arguments = random_rules(generator)
    found = of_bert_jax(table, prompts, rules, SearchOptions(LENGTH))
    expected, _ = of_transformers(table, prompts, num_beams=1, **arguments)
    np.testing.assert_array_equal(found.token_ids[:, 0, : expected.shape[1]], expected)
    assert (np.asarray(found.token_ids)[:, 0, expected.shape[1] :] == PAD).all()


@pytest.mark.parametrize("seed", range(5))
def test_top_k_and_top_p(seed):
    logits = np.random.default_rng(seed).standard_normal((50, 200)).astype(np.float32) * 3
    for top_k in (1, 7, 300):
        expected = transformers.TopKLogitsWarper(top_k)(None, torch.tensor(logits))
        np.testing.assert_array_equal(keep_top_k(jnp.array(logits), top_k), expected)
    for top_p in (0.05, 0.5, 0.95):
        expected = transformers.TopPLogitsWarper(top_p)(None, torch.tensor(logits))
        np.testing.assert_array_equal(keep_top_p(jnp.array(logits), top_p), expected)
