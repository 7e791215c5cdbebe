"""What a kernel is called with in tests."""

import numpy as np

from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.packed_rows import Tokens

KEY = np.uint32([7, 11])


def tokens_of(query_ids, key_ids, **fields):
    """The tokens of rows, with fields of their mask."""
    tokens = Tokens.in_batch_order(np.asarray(query_ids, "i"), np.asarray(key_ids, "i"))
    if fields:
        fields["query_positions"] = tokens.mask.key_positions
    return tokens._replace(mask=tokens.mask.replace(**fields))


def inputs_of(query, key, value, tokens, rate=0.0, **fields):
    *_, heads, _, width = query.shape
    dropout = tokens.dropout(KEY, heads, rate) if rate else None
    mask = tokens.mask.for_heads()
    return AttentionInputs(query, key, value, mask, width**-0.5, dropout=dropout, **fields)
