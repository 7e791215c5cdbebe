"""A kernel in one file: JAX's own attention, for calls without dropout.

Saved as `bert_jax/models/kernels/toy_kernel.py`, with `toy_kernel.KERNEL` first in the table, it
computes attention where `model.attention` is "toy", and on CPUs where that is "auto".
"""

import jax

from bert_jax.models.attention_inputs import Kernel


def attention(inputs):
    """[B, N, T, H], as `definition.attention`."""
    query, key, value = (
        array.swapaxes(1, 2) for array in (inputs.query, inputs.key, inputs.value)
    )  # BTNH, BSNH
    output = jax.nn.dot_product_attention(
        query, key, value, mask=inputs.mask.visible, scale=inputs.scale
    )
    return output.swapaxes(1, 2)  # BNTH


KERNEL = Kernel(
    name="toy",
    function=attention,
    platforms=("cpu",),
    min_length=4,
    accepts=lambda inputs: inputs.dropout is None and inputs.bias is None,
)
