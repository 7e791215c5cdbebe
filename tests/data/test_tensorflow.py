"""The import of TensorFlow, by a real process."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from bert_jax.data.tensorflow import import_tensorflow
tensorflow = import_tensorflow()
print("keras" in sys.modules, "TF_USE_LEGACY_KERAS" in os.environ)
print(tensorflow.keras.layers.Dense.__module__.split(".")[0])
"""


@pytest.mark.slow
def test_keras_is_imported_only_for_those_who_use_it():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\nkeras\n"
