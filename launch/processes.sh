#!/usr/bin/env bash
# Several processes of one run on this machine's CPU: what the hosts of a pod do, rehearsed.
#
#   bash launch/processes.sh N [--devices D] [--logs DIR] [--dry-run] -- train --config FILE --workdir RUN
#
# N processes with D devices each (1) find one another on a free port. Process 0 writes to this
# terminal, process I to DIR/process-I.log (runs/processes). When one fails the others are stopped,
# and its code is the exit code. Ctrl-C, SIGTERM and a terminal that is closed reach all of them: they
# save, and the code is 75; the same command continues. A second one ends them without saving.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/commands.sh
source launch/commands.sh

processes="" devices=1 logs=runs/processes
while [ $# -gt 0 ]; do
    case $1 in
        --devices) need_value "$1" $# && devices=$2 && shift 2 ;;
        --logs) need_value "$1" $# && logs=$2 && shift 2 ;;
        --dry-run) dry_run=true && shift ;;
        --help | -h) usage ;;
        --) shift && break ;;
        -*) fail "$1: unknown option; see --help" ;;
        *) [ -z "$processes" ] || fail "$1: unexpected; what is to run stands after --"
           processes=$1 && shift ;;
    esac
done
[ -n "$processes" ] || fail "how many processes? as: launch/processes.sh 2 -- train …"
need_number "the number of processes" "$processes"
need_number --devices "$devices"
check_verb "$@"
bert_jax=$(installed_bert_jax)
"$dry_run" || [ -x "$bert_jax" ] || fail "bert_jax is not installed; run launch/local.sh, or pip install -e ."

free_port() {
    "${PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
port=PORT
"$dry_run" || port=$(free_port)
command=(env JAX_PLATFORMS=cpu "XLA_FLAGS=${XLA_FLAGS:+$XLA_FLAGS }--xla_force_host_platform_device_count=$devices")
command+=("$bert_jax" "$@" --coordinator "127.0.0.1:$port" --processes "$processes")
if "$dry_run"; then
    for ((id = 0; id < processes; id++)); do
        act "${command[@]}" --process-id "$id"
    done
    exit
fi

mkdir -p "$logs"
pids=()
# In groups of their own: Ctrl-C would reach them besides what is passed on, and count as a second.
set -m
for ((id = 1; id < processes; id++)); do
    "${command[@]}" --process-id "$id" > "$logs/process-$id.log" 2>&1 &
    pids[id]=$!
done
"${command[@]}" --process-id 0 &
pids[0]=$!
set +m

deadline="" # when processes that were sent a signal are killed, in seconds of this shell
stop_all() {
    deadline=${deadline:-$((SECONDS + 120))}
    kill -TERM "${pids[@]}" 2> /dev/null || true
}
trap stop_all INT TERM HUP

# The first process that fails decides; without its others one would wait for ever.
code=0 running=$processes ended=" "
while [ "$running" -gt 0 ]; do
    sleep 0.2 || true # Ctrl-C ends it
    if [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ]; then
        kill -KILL "${pids[@]}" 2> /dev/null || true
    fi
    for id in "${!pids[@]}"; do
        case $ended in *" $id "*) continue ;; esac
        if ! kill -0 "${pids[id]}" 2> /dev/null; then
            own=0
            wait "${pids[id]}" || own=$?
            ended="$ended$id " running=$((running - 1))
            if [ "$own" != 0 ] && [ "$code" = 0 ]; then
                code=$own
                [ "$own" = 75 ] && continue # it has saved
                say "process $id ended with code $own; stopping the others"
                [ "$id" = 0 ] || tail -n 3 "$logs/process-$id.log" >&2
                stop_all
            fi
        fi
    done
done
exit "$code"
