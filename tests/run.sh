#!/usr/bin/env bash
# Lint, types and the fast tests, in the same environment as launch/local.sh.
#
#   bash tests/run.sh [PYTEST ARGUMENTS]      as `bash tests/run.sh -m slow` for the slower tier
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
make_environment "[test]"

.venv/bin/ruff check .
.venv/bin/ruff format --check .
# On a new clone it takes half a minute of one core: the tests begin meanwhile.
.venv/bin/mypy &
types=$!
trap 'kill "$types" 2> /dev/null || true' EXIT
# The tests of a file share compiled functions: one worker runs them all.
.venv/bin/python -m pytest --numprocesses 2 --dist loadfile "$@"
wait "$types"
