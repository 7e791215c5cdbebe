#!/usr/bin/env bash
# Measures what only an accelerator can show, in at most ten minutes: parity of the attention kernels,
# bfloat16, speed and MFU, memory, checkpoints, embedding.
#
#   bash launch/measure/accelerator.sh --output DIR [--budget SECONDS] [--parts PART …] [--rehearse]
#
# Needs JAX for the device, Flax, optax, Orbax, ml-collections, tokenizers, safetensors, zstandard and what
# these bring, but not TensorFlow and not an installed bert_jax; PyTorch and transformers, if
# they are there, are measured beside it. PYTHON names another interpreter. Reads nothing from the network.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
exec "${PYTHON:-python3}" "$root/launch/measure/accelerator.py" "$@"
