#!/usr/bin/env bash
# Lint, types and the fast tests, in the same environment as launch/local.sh.
#
#   bash tests/run.sh [PYTEST ARGUMENTS]               as `bash tests/run.sh tests/data`
#   bash tests/run.sh --tests-only [PYTEST ARGUMENTS]  without lint and types
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
make_environment "[test]" tests/constraints.txt

if [ "${1:-}" = --tests-only ]; then
    shift
else
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    # On a new clone it takes half a minute of one core: the tests begin meanwhile.
    .venv/bin/mypy &
    types=$!
    trap 'kill "$types" 2> /dev/null || true' EXIT
fi
# The tests of a file share compiled functions: one worker runs them all.
.venv/bin/python -m pytest --numprocesses 2 --dist loadfile "$@"
[ -z "${types:-}" ] || wait "$types"
