"""The one entry to every search."""

from typing import Any

import jax

from bert_jax.generation.beam_search import beam_search
from bert_jax.generation.decoder import DecoderFunctions, Generated
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.sampling import sample


def search(
    decoder: DecoderFunctions,
    first_logits: jax.Array,
    cache: Any,
    prompt_ids: jax.Array,
    rules: TokenRules,
    options: SearchOptions,
    keys: jax.Array | None = None,
) -> Generated:
    """Generates sequences after B prompts: greedy, sampled or by beams.

    It is traced: call it in a function under `jax.jit`. The decoder runs in one loop, which ends
    when all sequences have ended. What is generated for a prompt does not depend on its batch.

    Args:
        decoder: functions of the decoder.
        first_logits: float32 [B, V], logits of the first new token.
        cache: cache of the B rows after the prompts.
        prompt_ids: int32 [B, P], tokens of the decoder before the new ones; `NO_TOKEN` in front of
            shorter ones. For an encoder-decoder, its start token.
        rules: which tokens may come next.
        options: how to search.
        keys: keys [B] for samples, each with a state of its own or uint32 [B, 2]; the samples of a
            prompt are a function of its key. Required with a temperature above 0.

    Raises:
        OptionError: a token of the rules is none of the V.
    """
    rules.check_vocabulary(first_logits.shape[-1])
    if options.num_beams > 1:
        return beam_search(decoder, first_logits, cache, prompt_ids, rules, options)
    return sample(decoder, first_logits, cache, prompt_ids, rules, options, keys)
