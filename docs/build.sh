#!/usr/bin/env bash
# Builds the documentation into docs/_build, warnings as errors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
make_environment "[docs]" tests/constraints.txt
.venv/bin/python -m sphinx -W --keep-going -q docs docs/_build
