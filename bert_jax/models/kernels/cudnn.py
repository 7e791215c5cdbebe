"""NVIDIA's fused attention, for rows of one text with the padding at the end."""

import jax
import jax.numpy as jnp

from bert_jax.models.kernels import AttentionCall, Kernel
from bert_jax.models.packed_rows import AttentionContext


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> jax.Array:
    """Computes `models.attention.attention` without dropout."""
    # Lengths, not a mask: cuDNN would compute a gradient for a mask.
    lengths = (context.key_segment_ids[:, 0] != 0).sum(axis=1, dtype=jnp.int32)
    output = jax.nn.dot_product_attention(
        query.swapaxes(1, 2),  # BTNH
        key.swapaxes(1, 2),
        value.swapaxes(1, 2),
        query_seq_lengths=jnp.full_like(lengths, query.shape[2]),
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return output.swapaxes(1, 2)  # BNTH


def _accepts(call: AttentionCall) -> bool:
    has_plain_weights = call.dropout_rate == 0 and not call.output_attentions
    return has_plain_weights and not call.packed and call.dtype == "bfloat16"


KERNEL = Kernel(
    name="cudnn",
    function=attention,
    platforms=("gpu",),
    automatic=False,  # not benchmarked on a GPU yet
    min_length=512,
    accepts=_accepts,
)
