"""Searches on one device and on all: whether the results are equal, and what devices exchange."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.generation.decoder import DecoderFunctions
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.rows import rows_of_prompts
from bert_jax.generation.search import search
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.rules import batch_sharding, on_mesh

PROMPTS, LENGTH, WIDTH, VOCABULARY = 16, 10, 8, 50
RULES = TokenRules((1, 2, 3, 4, 5), no_repeat_ngram_size=2, repetition_penalty=1.2)
SEARCHES = {
    "beams": SearchOptions(LENGTH, num_beams=4, num_return_sequences=2),
    "samples": SearchOptions(LENGTH, temperature=1.0, top_k=9, top_p=0.9, num_return_sequences=2),
}
EXCHANGES = re.compile(r" (all-gather|all-to-all|collective-permute|all-reduce)\(")


def generate(table, prompts, keys, options):
    """Attention without parameters over the vectors of a table."""

    def step(cache, tokens):
        hidden, length = cache
        query = table[tokens]
        hidden = hidden.at[:, length].set(query)
        scores = jnp.einsum("RD,RSD->RS", query, hidden)
        weights = jax.nn.softmax(jnp.where(jnp.arange(LENGTH) <= length, scores, -1e9))
        return jnp.einsum("RS,RSD->RD", weights, hidden) @ table.T, (hidden, length + 1)

    def reorder(cache, rows):
        hidden, length = cache
        return rows_of_prompts(hidden, rows, PROMPTS), length

    hidden = jnp.zeros((PROMPTS, LENGTH, WIDTH)).at[:, 0].set(prompts)
    cache = (hidden, jnp.int32(1))
    prompt_ids = jnp.zeros((PROMPTS, 1), jnp.int32)
    decoder = DecoderFunctions(step, reorder)
    return search(decoder, prompts @ table.T, cache, prompt_ids, RULES, options, keys)


def main():
    generator = np.random.default_rng(0)
    table = generator.standard_normal((VOCABULARY, WIDTH), np.float32)
    prompts = generator.standard_normal((PROMPTS, WIDTH), np.float32)
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), PROMPTS)))
    mesh = make_mesh(MeshShape())
    results = {}
    for name, options in SEARCHES.items():
        expected = jax.jit(generate, static_argnums=3)(table, prompts, keys, options)
        with on_mesh(mesh):
            rows = [jax.device_put(array, batch_sharding(mesh)) for array in (prompts, keys)]
            program = jax.jit(generate, static_argnums=3).lower(table, *rows, options).compile()
            found = program(table, *rows)
        results[name] = {
            "devices": mesh.size,
            "exchanges": EXCHANGES.findall(program.as_text()),
            "same": np.array_equal(found.token_ids, expected.token_ids),
            "close": bool(np.allclose(found.scores, expected.scores, rtol=1e-5)),
            "lengths": sorted({*np.asarray(found.lengths).reshape(-1).tolist()}),
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
