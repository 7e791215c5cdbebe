#!/usr/bin/env bash
# What sbatch runs on the first node of a job; launch/slurm.sh submits it.
#
# bert-jax finds the other processes by the variables that srun sets, and takes the GPU of its
# local number, so every task must see all GPUs of its node (no --gpus-per-task).
#
#   SIGUSR1   the time is nearly up: save, then queue the job again
#   SIGTERM   scancel, or a preemption (where Slurm itself queues again): save and end
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
# shellcheck source=launch/commands.sh
source launch/commands.sh

srun "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}" "$(installed_bert_jax)" "$@" &
step=$!
again=false signalled=false
# shellcheck disable=SC2329  # the traps call it
forward() {
    signalled=true
    kill -TERM "$step" 2> /dev/null || true # srun hands it to every task
}
trap 'again=true; forward' USR1
trap 'again=false; forward' TERM

code=0
while :; do
    signalled=false code=0
    wait "$step" || code=$?
    "$signalled" || break
done
if [ "$code" = 75 ] && "$again"; then
    say "saved; queueing job $SLURM_JOB_ID again"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
