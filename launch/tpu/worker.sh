#!/usr/bin/env bash
# What launch/tpu.sh calls on every host of a TPU slice.
#
#   install           Python and bert_jax, beside this file
#   start ARGUMENTS   bert-jax in the background: it outlives the connection
#   follow            its log, until it ends
#   wait              until it ends: its exit code (130 if `stop` ended it)
#   stop              asks it to save and end, and waits
#   state             running, exited CODE, or none
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=launch/commands.sh
source launch/commands.sh

run=${BERT_JAX_RUN:-$HOME/bert_jax_run} # log, pid, exit_code; stopped after `stop`

is_running() {
    [ -f "$run/pid" ] && kill -0 "$(cat "$run/pid")" 2> /dev/null
}

install() {
    # shellcheck source=launch/environment.sh
    source launch/environment.sh
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        # The images of TPU VMs carry Python 3.10.
        [ -x "$HOME/.local/bin/uv" ] || python3 -m pip install --quiet --user uv
        "$HOME/.local/bin/uv" python install --quiet 3.12
        PYTHON=$("$HOME/.local/bin/uv" python find 3.12)
    fi
    make_environment "[tpu,gcs]"
}

start() {
    if is_running; then
        echo "$(hostname): running already" >&2
        return
    fi
    local bert_jax
    bert_jax=$(installed_bert_jax)
    mkdir -p "$run"
    rm -f "$run/exit_code" "$run/stopped" "$run/pid"
    # shellcheck disable=SC2016  # the variables are those of the inner shell
    RUN=$run nohup setsid bash -c '
        "$@" >> "$RUN/log" 2>&1 &
        echo $! > "$RUN/pid.new" && mv "$RUN/pid.new" "$RUN/pid"
        code=0; wait $! || code=$?
        echo $code > "$RUN/exit_code.new" && mv "$RUN/exit_code.new" "$RUN/exit_code"
    ' worker "$bert_jax" "$@" > /dev/null 2>&1 < /dev/null &
    until [ -f "$run/pid" ]; do sleep 0.1; done
}

follow() {
    [ -f "$run/pid" ] || { echo "nothing has been started here" >&2 && exit 2; }
    tail -n 20 -F --pid="$(cat "$run/pid")" "$run/log"
}

wait_for_end() {
    [ -f "$run/pid" ] || { echo "nothing has been started here" >&2 && exit 2; }
    while is_running; do sleep 1; done
    # A machine that was switched off in between has left no code: continue from the checkpoint.
    for _ in 1 2 3 4 5; do [ -f "$run/exit_code" ] || sleep 1; done
    [ ! -f "$run/stopped" ] || exit 130
    [ -f "$run/exit_code" ] || exit 75
    exit "$(cat "$run/exit_code")"
}

stop() {
    if is_running; then
        touch "$run/stopped"
        kill -TERM "$(cat "$run/pid")"
        while is_running; do sleep 1; done
    fi
}

state() {
    if is_running; then
        echo running
    elif [ -f "$run/exit_code" ]; then
        echo "exited $(cat "$run/exit_code")"
    else
        echo none
    fi
}

verb=${1-}
shift || true
case $verb in
    install | start | follow | stop | state) "$verb" "$@" ;;
    wait) wait_for_end ;;
    *) echo "worker.sh: unknown verb '$verb'" >&2 && exit 2 ;;
esac
