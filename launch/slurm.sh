#!/usr/bin/env bash
# A run on the GPUs of a Slurm cluster, one process for each GPU.
#
#   bash launch/slurm.sh --nodes N --gpus G [OPTIONS] -- train --config FILE --workdir RUN
#
#   --nodes N          nodes
#   --gpus G           GPUs of a node
#   --cpus C           CPU cores for each process (8)
#   --time T           limit, as 24:00:00; before it ends the run saves, and is queued again
#   --name NAME        of the job (bert-jax)
#   --sbatch=OPTION    any option of sbatch, as --sbatch=--partition=a100; may be repeated
#   --dry-run          prints the command instead of submitting it
#
# The repository, its environment (with .venv/bin/pip install -e ".[cuda]") and RUN must lie on a file
# system that all nodes share. Follow with `tail -f slurm-JOB.out`; `scancel JOB` stops for good, and
# the same command continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/commands.sh
source launch/commands.sh

nodes="" gpus="" cpus=8 name=bert-jax more=()
while [ $# -gt 0 ]; do
    case $1 in
        --nodes) need_value "$1" $# && nodes=$2 && shift 2 ;;
        --gpus) need_value "$1" $# && gpus=$2 && shift 2 ;;
        --cpus) need_value "$1" $# && cpus=$2 && shift 2 ;;
        --time) need_value "$1" $# && more+=("--time=$2") && shift 2 ;;
        --name) need_value "$1" $# && name=$2 && shift 2 ;;
        --sbatch=*) more+=("${1#--sbatch=}") && shift ;;
        --dry-run) dry_run=true && shift ;;
        --help | -h) usage ;;
        --) shift && break ;;
        *) fail "$1: unknown option; see --help" ;;
    esac
done
[ -n "$nodes" ] || fail "--nodes is missing; see --help"
[ -n "$gpus" ] || fail "--gpus is missing; see --help"
need_number --nodes "$nodes"
need_number --gpus "$gpus"
need_number --cpus "$cpus"
check_verb "$@"
require sbatch "run this on a login node of the cluster"

command=(sbatch "--job-name=$name" "--nodes=$nodes" "--ntasks-per-node=$gpus"
    "--gpus-per-node=$gpus" "--cpus-per-task=$cpus" --output=slurm-%j.out --open-mode=append
    # The signal goes to launch/slurm/job.sh two minutes before the time is up.
    --requeue --signal=B:USR1@120)
act "${command[@]}" ${more[@]+"${more[@]}"} launch/slurm/job.sh "$@"
