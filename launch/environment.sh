# shellcheck shell=bash
# Sourced by launch/local.sh, tests/run.sh and their like: makes .venv and installs the package into it.
# The second time nothing is installed: a stamp holds the checksum of setup.py and the constraints.

# make_environment compiles no Python: where the bytecode of imported modules is not kept, each
# process compiles them again, TensorFlow alone for 15 s.
unset PYTHONDONTWRITEBYTECODE

make_environment() { # EXTRAS, as "" or "[test]"; [CONSTRAINTS], a file of exact versions
    local extras=$1 constraints=${2:-} python=${PYTHON:-python3} stamp checksum
    if [ ! -x .venv/bin/python ]; then
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
            echo "bert_jax needs Python 3.11 or later; $python is $("$python" -V). Set PYTHON." >&2
            return 2
        }
        "$python" -m venv .venv
    fi
    stamp=".venv/installed$extras"
    checksum=$(cat setup.py ${constraints:+"$constraints"} | cksum)
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$checksum" ]; then
        # Debian makes one without pip where its package python3-venv is missing, and says so.
        .venv/bin/python -m pip --version > /dev/null 2>&1 || .venv/bin/python -m ensurepip
        echo "installing bert_jax$extras into .venv (about a minute)" >&2
        # Python compiles what it imports; all of TensorFlow would take pip as long as all the rest.
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
            ${constraints:+--constraint "$constraints"} -e ".$extras"
        echo "$checksum" > "$stamp"
    fi
}
