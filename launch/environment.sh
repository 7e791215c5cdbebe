# shellcheck shell=bash
# Sourced by launch/local.sh and tests/run.sh: makes .venv and installs the package into it.
# The second time nothing is installed: a stamp holds what was installed from which setup.py.

# make_environment compiles no Python: where the bytecode of imported modules is not kept, each
# process compiles them again, TensorFlow alone for 15 s.
unset PYTHONDONTWRITEBYTECODE

make_environment() { # EXTRAS, as "" or "[test]"
    local extras=$1 python=${PYTHON:-python3} stamp checksum
    if [ ! -x .venv/bin/python ]; then
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
            echo "bert_jax needs Python 3.11 or later; $python is $("$python" -V). Set PYTHON." >&2
            return 2
        }
        "$python" -m venv .venv
    fi
    stamp=".venv/installed$extras"
    checksum=$(cksum < setup.py)
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$checksum" ]; then
        # Debian makes one without pip where its package python3-venv is missing, and says so.
        .venv/bin/python -m pip --version > /dev/null 2>&1 || .venv/bin/python -m ensurepip
        echo "installing bert_jax$extras into .venv (about a minute)" >&2
        # Python compiles what it imports; all of TensorFlow would take pip as long as all the rest.
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".$extras"
        echo "$checksum" > "$stamp"
    fi
}
