"""What the outputs of a model depend on, except its input: by it, a later call continues."""

import hashlib
from typing import Any

import jax

from bert_jax.checkpoints.checksums import checksums
from bert_jax.tasks.base.predictor import Model


def model_fingerprint(model: Model) -> dict[str, Any]:
    """Digest of the model, precision, devices and version of JAX, as values of JSON."""
    description = {**vars(model.description), "family": model.description.family.model_type}
    module: Any = model.module
    parts = [description, checksums(model.params), model.tokenizer.rules_of_rows]
    devices = model.mesh.devices.ravel()
    return {
        "model": hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest(),
        "precision": repr(module.execution),
        "devices": f"{len(devices)} × {devices[0].device_kind}",
        "jax": jax.__version__,
    }
