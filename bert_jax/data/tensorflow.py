"""The one door to TensorFlow: for tf.data, TensorFlow Datasets, and Google's checkpoints."""

import os
from typing import Any


def import_tensorflow() -> Any:
    """TensorFlow, blind to every accelerator (those belong to JAX) and quiet about it.

    It takes seconds, so it is called where TensorFlow is used, not where a module is imported.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # it would announce itself
    import tensorflow

    for kind in ("GPU", "TPU"):
        tensorflow.config.set_visible_devices([], kind)
    return tensorflow
