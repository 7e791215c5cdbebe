"""Rules for the next token, by hand."""

import jax
import numpy as np
import pytest

from bert_jax.errors import OptionError
from bert_jax.generation.decoder import NO_TOKEN
from bert_jax.generation.next_token import TokenRules, apply_rules

INF = np.inf
SCORES = [2.0, -2.0, 1.0, -1.0, 0.5]


def scores_after(rules, prompt, tokens, *, length=6):
    """Scores of one row with so many new tokens."""
    padded = [*tokens, *[0] * (length - len(tokens))]
    scores = jax.jit(apply_rules, static_argnums=0)(
        rules,
        np.array([[SCORES]], np.float32),
        np.array([prompt]),
        np.array([[padded]]),
        len(tokens),
    )
    return scores[0, 0].tolist()


@pytest.mark.parametrize(
    ("rules", "prompt", "tokens", "expected"),
    [
        ({}, [0], [], SCORES),
        ({"vocab_size": 3}, [0], [], [2, -2, 1, -INF, -INF]),
        # A positive score is divided, a negative one multiplied; the prompt counts.
        ({"repetition_penalty": 2.0}, [3], [2, 2], [2, -2, 0.5, -2, 0.5]),
        ({"repetition_penalty": 2.0}, [NO_TOKEN, 3], [], [2, -2, 1, -2, 0.5]),
        # 2 3 was there, and 2 is the last token.
        ({"no_repeat_ngram_size": 2}, [2, 3], [2], [2, -2, 1, -INF, 0.5]),
        ({"no_repeat_ngram_size": 2}, [2], [], SCORES),
        ({"no_repeat_ngram_size": 1}, [0], [3], [-INF, -2, 1, -INF, 0.5]),
        ({"no_repeat_ngram_size": 3}, [0, 1, 2, 4], [0, 1], [2, -2, -INF, -1, 0.5]),
        ({"no_repeat_ngram_size": 3}, [NO_TOKEN, NO_TOKEN, 2], [4], SCORES),
        ({"no_repeat_ngram_size": 9}, [0], [0, 0], SCORES),
        # The end token is no bad one.
        ({"bad_token_ids": (1, 2), "eos_token_ids": (1,)}, [0], [], [2, -2, -INF, -1, 0.5]),
        ({"min_length": 3, "eos_token_ids": (1, 4)}, [0], [2], [2, -INF, 1, -1, -INF]),
        ({"min_length": 3, "eos_token_ids": (1, 4)}, [0], [2, 2], SCORES),
        ({"min_length": 3, "eos_token_ids": (1,)}, [NO_TOKEN, 0], [2], [2, -INF, 1, -1, 0.5]),
        ({"min_new_tokens": 2, "eos_token_ids": (1,)}, [0, 0], [2], [2, -INF, 1, -1, 0.5]),
        ({"min_new_tokens": 0, "min_length": 9, "eos_token_ids": (1,)}, [0], [], SCORES),
        ({"forced_bos_token_id": 3}, [0], [], [-INF, -INF, -INF, 0, -INF]),
        ({"forced_bos_token_id": 3}, [0], [3], SCORES),
        ({"forced_bos_token_id": 3}, [0, 0], [], SCORES),
        ({"forced_eos_token_ids": (1, 2)}, [0], [3] * 5, [-INF, 0, 0, -INF, -INF]),
        ({"forced_eos_token_ids": (1, 2)}, [0], [3] * 4, SCORES),
        ({"suppress_tokens": (0, 4)}, [0], [2], [-INF, -2, 1, -1, -INF]),
        ({"begin_suppress_tokens": (0,)}, [0], [], [-INF, -2, 1, -1, 0.5]),
        ({"begin_suppress_tokens": (0,)}, [0], [2], SCORES),
        # After a forced token, the one behind it is the first.
        ({"begin_suppress_tokens": (0,), "forced_bos_token_id": 3}, [0], [3], [-INF, *SCORES[1:]]),
        ({"begin_suppress_tokens": (0,), "forced_bos_token_id": 3}, [2, 0], [3], SCORES),
        # Suppressed tokens are not even forced; bad ones are.
        ({"bad_token_ids": (3,), "forced_bos_token_id": 3}, [0], [], [-INF, -INF, -INF, 0, -INF]),
        ({"suppress_tokens": (3,), "forced_bos_token_id": 3}, [0], [], [-INF] * 5),
    ],
)
def test_rules_by_hand(rules, prompt, tokens, expected):
    assert scores_after(TokenRules(**rules), prompt, tokens) == expected


def test_scores_become_log_probabilities():
    scores = scores_after(TokenRules(renormalize_logits=True, suppress_tokens=(0, 2, 4)), [0], [])
    expected = np.array([-2.0, -1.0]) - np.log(np.exp([-2.0, -1.0]).sum())
    np.testing.assert_allclose(scores, [-INF, expected[0], -INF, expected[1], -INF], rtol=1e-6)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"eos_token_ids": (-1,)}, "eos_token_ids is -1; it must be at least 0"),
        ({"pad_token_id": -1}, "pad_token_id is -1; it must be at least 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be above 0"),
        ({"no_repeat_ngram_size": 2.0}, "no_repeat_ngram_size is 2.0; it must be a whole number"),
        ({"renormalize_logits": 1}, "renormalize_logits is 1; it must be true or false"),
        ({"vocab_size": 0}, "vocab_size is 0; it must be at least 1"),
    ],
)
def test_wrong_rules(rules, message):
    with pytest.raises(OptionError, match=f"^{message}"):
        TokenRules(**rules)


def test_tokens_that_the_model_lacks():
    TokenRules((4,), vocab_size=5, forced_eos_token_ids=(4,), min_new_tokens=9).check_vocabulary(5)
    with pytest.raises(OptionError, match="^eos_token_ids is 5; it must be at most 4$"):
        TokenRules((1, 5)).check_vocabulary(5)
    with pytest.raises(OptionError, match="^forced_bos_token_id is 7; it must be at most 4$"):
        TokenRules(forced_bos_token_id=7).check_vocabulary(5)
    with pytest.raises(OptionError, match="^vocab_size is 6; the model has 5 tokens$"):
        TokenRules(vocab_size=6).check_vocabulary(5)
