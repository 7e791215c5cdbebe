#!/usr/bin/env bash
# From text to a trained model on one machine in minutes: text → corpus → pre-trained BERT → filled-in masks.
#
#   bash launch/local.sh [RUN]      RUN is the work directory, runs/quickstart by default
#
# The text is English that every Python carries: its documentation topics and the docstrings of its
# standard library. Running it again continues where it stopped, or shows the result.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
make_environment ""

run=${1:-runs/quickstart}
corpus=corpora/python-docs
config=configs/quickstart.py:corpus=$corpus

.venv/bin/bert-jax prepare --config "$config" --output "$corpus"
.venv/bin/bert-jax train --config "$config" --workdir "$run"
.venv/bin/python launch/show_quickstart.py "$run"
