"""Our model on the inputs of a comparison, at the highest precision that the device has."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.inference.model import LoadedModel
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder, abstract_params
from bert_jax.parity.heads import losses, named_logits, settled_problem_type
from bert_jax.parity.inputs import FEATURES, ParityInput
from bert_jax.parity.quantities import Computed


def run(model: LoadedModel, given: ParityInput) -> Computed:
    """Everything that is compared, for one input."""
    head = model.description.head
    assert head is not None
    problem_type = settled_problem_type(model.description.problem_type, model.config.num_labels)
    features = [jnp.asarray(given.features[name]) for name in FEATURES]
    labels = {name: jnp.asarray(value) for name, value in given.labels.items()}

    def loss(params: Any) -> tuple[jax.Array, tuple[dict[str, jax.Array], dict[str, jax.Array]]]:
        output: Any = model.module.apply({"params": params}, *features)
        parts = losses(head, problem_type, output, labels)
        return list(parts.values())[-1], (named_logits(head, output), parts)

    # TPUs and GPUs would otherwise round the factors of a product to fewer bits.
    with jax.default_matmul_precision("highest"):
        gradients, (logits, parts) = jax.jit(jax.grad(loss, has_aux=True))(model.params)
    return Computed(
        hidden_states=hidden_states(model.config, model.params, given),
        logits={name: np.asarray(value) for name, value in logits.items()},
        losses={name: float(value) for name, value in parts.items()},
        gradients=to_tensors(gradients, model.description.family.huggingface, model.module),
    )


def hidden_states(config: EncoderConfig, params: Any, given: ParityInput) -> np.ndarray:
    """Embeddings and outputs of the layers, [L + 1, R, T, D], of any of our models' parameters.

    The config may differ from that of the parameters in all that leaves their number as it is; the
    heads of the attention are only a way to cut a kernel.
    """
    module = Encoder(config, add_pooling_layer=False)
    rows = [given.rows(name) for name in FEATURES]
    encoder = {name: params.get("bert", params)[name] for name in ("embeddings", "encoder")}
    encoder = jax.tree.map(
        lambda value, wanted: value.reshape(wanted.shape), encoder, abstract_params(module)
    )

    def states(encoder: Any) -> jax.Array:
        output: Any = module.apply({"params": encoder}, *rows, output_hidden_states=True)
        return output.hidden_states

    with jax.default_matmul_precision("highest"):
        return np.asarray(jax.jit(states)(encoder))
