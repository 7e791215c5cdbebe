"""A kernel in one file: JAX's own attention, for calls without dropout.

Saved as `bert_jax/models/kernels/toy_kernel.py`, with `toy_kernel.KERNEL` first in the table, it
computes attention where `model.attention` is "toy", and on CPUs where that is "auto".
"""

import jax

from bert_jax.models.kernels import Kernel


def attention(query, key, value, context, rate, dropout_key):
    """As `models.attention.attention`, where `rate` is 0."""
    query, key, value = (array.swapaxes(1, 2) for array in (query, key, value))  # BTNH, BSNH
    output = jax.nn.dot_product_attention(query, key, value, mask=context.visible)
    return output.swapaxes(1, 2)  # BNTH


KERNEL = Kernel(
    name="toy",
    function=attention,
    platforms=("cpu",),
    min_length=4,
    accepts=lambda call: call.dropout_rate == 0,
)
