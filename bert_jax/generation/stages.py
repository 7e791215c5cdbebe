"""The loop of a search: the cache has room for few tokens first, then for more.

A step costs more the more tokens there is room for, and most sequences end long before the largest
number of tokens.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import jax

from bert_jax.generation.decoder import DecoderFunctions

FIRST, FACTOR = 16, 2  # tokens; a loop is compiled for each size


class SearchState(Protocol):
    """State of a search after a number of tokens; a pytree.

    Attributes:
        length: int32 [], that number.
    """

    @property
    def length(self) -> jax.Array: ...


State = TypeVar("State", bound=SearchState)


def advance_in_stages(
    decoder: DecoderFunctions,
    advance: Callable[[tuple[State, Any]], tuple[State, Any]],
    goes_on: Callable[[State], jax.Array],
    state: State,
    cache: Any,
    max_new_tokens: int,
) -> State:
    """The state at the end.

    Args:
        decoder: functions of the decoder.
        advance: (state, cache) → these with one more token.
        goes_on: whether a sequence can become longer, bool [].
        state: state after the first token.
        cache: cache of the decoder after the prompts.
        max_new_tokens: number of tokens after which the search ends.
    """
    count = 0
    while count < max_new_tokens:
        count = min(max(FIRST, FACTOR * count), max_new_tokens)

        def is_within(carry: tuple[State, Any], count: int = count) -> jax.Array:
            return (carry[0].length < count) & goes_on(carry[0])

        state, cache = jax.lax.while_loop(is_within, advance, (state, decoder.grow(cache, count)))
    return state
