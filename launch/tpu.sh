#!/usr/bin/env bash
# A run on a slice of a TPU pod, through gcloud: from no machine to a trained model.
#
#   bash launch/tpu.sh VERB --name NAME --zone ZONE [OPTIONS] [-- train --config FILE --workdir gs://RUN]
#
#   run       all of it: create, install, start, follow; after a preemption all of it again; delete
#   create    asks for the slice and waits for it         (--topology)
#   install   copies this checkout to every host and installs it
#   start     starts bert-jax on every host               (-- train …)
#   follow    shows the log of host 0 until the run ends
#   status    of the slice, and of bert-jax on every host
#   stop      the run saves and ends; the slice stays, and costs
#   delete    the slice
#
#   --topology SLICE   as `bert-jax plan` names it: v5e:16x16, v4:4x4x4, v5p:2x2x2, v6e:8x8
#   --project P        default: that of gcloud
#   --spot             cheaper, and may be taken away at any time
#   --keep             run: do not delete the slice at the end
#   --create=OPTION    any option of `gcloud compute tpus queued-resources create`; may be repeated
#   --dry-run          prints the commands instead of running them
#
# The run lies in a bucket, so it survives the machines. `run` may be broken off and called again:
# it continues with what it finds. Several hosts need your key in the agent:
# ssh-add ~/.ssh/google_compute_engine
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/commands.sh
source launch/commands.sh
# shellcheck source=launch/slices.sh
source launch/slices.sh

poll_seconds=${POLL_SECONDS:-30}
most_restarts=100
most_failures=3      # of installing and starting, one after the other, on a slice that stands
most_unanswered=120  # questions to gcloud, one after the other
worker="bash bert_jax/launch/tpu/worker.sh"

# ---- arguments ----

verb=${1-}
case $verb in
    run | create | install | start | follow | status | stop | delete) shift ;;
    --help | -h | "") usage ;;
    *) fail "$verb: unknown verb; one of run, create, install, start, follow, status, stop, delete" ;;
esac
name="" zone="" project="" topology="" spot=false keep=false more=()
while [ $# -gt 0 ]; do
    case $1 in
        --name) need_value "$1" $# && name=$2 && shift 2 ;;
        --zone) need_value "$1" $# && zone=$2 && shift 2 ;;
        --project) need_value "$1" $# && project=$2 && shift 2 ;;
        --topology) need_value "$1" $# && topology=$2 && shift 2 ;;
        --spot) spot=true && shift ;;
        --keep) keep=true && shift ;;
        --create=*) more+=("${1#--create=}") && shift ;;
        --dry-run) dry_run=true && shift ;;
        --help | -h) usage ;;
        --) shift && break ;;
        *) fail "$1: unknown option; see --help" ;;
    esac
done
[ -n "$name" ] || fail "--name is missing: of the slice, as --name bert-base"
[ -n "$zone" ] || fail "--zone is missing, as --zone us-west4-a"
case $verb in
    run | create)
        [ -n "$topology" ] || fail "--topology is missing, as --topology v5e:16x16"
        find_slice "$topology"
        ;;
esac
case $verb in
    run | start)
        check_verb "$@"
        check_remote_workdir "$@"
        ;;
    *) [ $# = 0 ] || fail "$verb takes nothing after --" ;;
esac
require gcloud "see https://cloud.google.com/sdk/docs/install, then run: gcloud init"
if [ -z "$project" ]; then
    project=$(gcloud config get-value project 2> /dev/null) || true
    case $project in
        "" | "(unset)") fail "no project: give --project P, or run: gcloud config set project P" ;;
    esac
fi

# ---- gcloud ----

tpus() { # WORDS...: a command of gcloud for this slice
    act gcloud compute tpus "$@" "--zone=$zone" "--project=$project" --quiet
}

on_hosts() { # WHICH COMMAND: WHICH is all or a number
    tpus tpu-vm ssh "$name" "--worker=$1" "--command=$2"
}

again() { # VERB: how it is called for this slice
    echo "bash launch/tpu.sh $1 --name $name --zone $zone --project $project"
}

state="" unanswered=0
# Sets `state` to that of the queued resource: ACTIVE, WAITING_FOR_RESOURCES, SUSPENDED, …; none if
# there is none. After a first answer a network may fail for a while, and the state is unknown: what
# was requested will come, and cost, also if nobody waits.
ask_state() {
    local answer
    if answer=$(gcloud compute tpus queued-resources describe "$name" "--zone=$zone" \
        "--project=$project" "--format=value(state.state)" --quiet 2>&1); then
        state=${answer##*$'\n'} unanswered=0 # warnings stand before it
        return
    elif [[ $answer == *NOT_FOUND* ]]; then
        state=none unanswered=0
        return
    fi
    answer="gcloud cannot describe $name: ${answer##*$'\n'}"
    [ -n "$state" ] || fail "$answer"
    state=unknown unanswered=$((unanswered + 1))
    [ "$unanswered" -lt "$most_unanswered" ] ||
        fail "$answer; given up, but the requested slice may exist and cost: $(again delete)"
    say "$answer"
}

# ---- the verbs ----

create() {
    local command=(queued-resources create "$name" "--node-id=$name" "--accelerator-type=$accelerator"
        "--runtime-version=$runtime_version")
    "$spot" && command+=(--spot)
    # The default account may read and write the project's buckets within this scope.
    command+=(--scopes=https://www.googleapis.com/auth/cloud-platform)
    if ! tpus "${command[@]}" ${more[@]+"${more[@]}"}; then
        # The answer may have been lost, and not the request.
        state=${state:-none}
        ask_state
        case $state in
            none) fail "gcloud did not create $name, see above" ;;
            unknown) fail "$name may have been requested, and then it costs: $(again delete)" ;;
        esac
    fi
    state="requested"
    if "$dry_run"; then
        echo "# every $poll_seconds s until it says ACTIVE:"
        tpus queued-resources describe "$name" "--format=value(state.state)"
    else
        wait_until_active
    fi
}

wait_until_active() {
    local last=""
    while :; do
        ask_state
        [ "$state" = "$last" ] || say "$name: $state"
        last=$state
        case $state in
            ACTIVE) return ;;
            FAILED | SUSPENDING | SUSPENDED | DELETING | none)
                fail "$name was not created: $state; see: gcloud compute tpus queued-resources describe $name --zone=$zone --project=$project"
                ;;
        esac
        sleep "$poll_seconds"
    done
}

# A slice that can be used: what a preemption has left is removed first.
ensure_slice() {
    if "$dry_run"; then state=none; else ask_state; fi
    while [ "$state" = SUSPENDING ] || [ "$state" = DELETING ] || [ "$state" = unknown ]; do
        sleep "$poll_seconds"
        ask_state
    done
    case $state in
        ACTIVE) ;;
        none) create ;;
        FAILED | SUSPENDED)
            say "$name is $state: creating it again"
            delete_for_sure
            create
            ;;
        *) wait_until_active ;;
    esac
}

archive=bert_jax.tar.gz
pack() { # the files of this checkout that git does not ignore
    local list=(git ls-files -z --cached --others --exclude-standard) folder
    if "$dry_run"; then
        echo "$(quoted "${list[@]}") | $(quoted tar --null -T - -czf "$archive")"
        return
    fi
    folder=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder is known now
    trap "rm -rf '$folder'" EXIT
    archive=$folder/bert_jax.tar.gz
    "${list[@]}" | tar --null -T - -czf "$archive" ||
        fail "this checkout cannot be packed; is a file gone that git still has? commit that"
}

send() { # the packed checkout, to every host, where it is installed
    # A run takes weeks, and temporary files may be cleared away.
    "$dry_run" || [ -f "$archive" ] || pack
    tpus tpu-vm scp "$archive" "$name:bert_jax.tar.gz" --worker=all &&
        on_hosts all "mkdir -p bert_jax && tar -xzf bert_jax.tar.gz -C bert_jax && $worker install"
}

install() {
    pack
    send
}

start() {
    on_hosts all "$worker start $(quoted "$@")"
}

follow() {
    on_hosts 0 "$worker follow"
}

status() {
    tpus queued-resources describe "$name" "--format=value(state.state)"
    on_hosts all "$worker state"
}

stop() {
    on_hosts all "$worker stop"
}

have_ended_with() { # CODE: whether some host says so
    local hosts
    hosts=$(on_hosts all "$worker state" 2> /dev/null) || true
    [[ $hosts$'\n' == *"exited $1"$'\n'* ]]
}

delete() {
    tpus queued-resources delete "$name" --force
}

delete_for_sure() { # what is not deleted goes on costing
    local tries
    for ((tries = 0; tries < most_unanswered; tries++)); do
        if delete; then
            return
        fi
        ask_state
        [ "$state" != none ] || return 0
        say "$name is not deleted yet, but $state"
        sleep "$poll_seconds"
    done
    fail "$name cannot be deleted (see above); it still stands and costs: $(again delete)"
}

run() {
    local code restarts failures=0
    pack # what fails here fails before anything costs
    for ((restarts = 0; restarts <= most_restarts; restarts++)); do
        ensure_slice
        # A slice may be lost at any moment: what fails then is tried again on the next one.
        if send && start "$@"; then
            failures=0
            follow || true
            code=0
            on_hosts all "$worker wait" || code=$?
        else
            failures=$((failures + 1))
            code=255
        fi
        "$dry_run" && echo "# 75, or the slice is gone: all of it again; 0:"
        case $code in
            0)
                "$keep" || delete_for_sure
                return
                ;;
            75) say "$name: saved, starting again" ;;
            130) say "$name: stopped; run the same command to continue, or: $(again delete)" && exit 75 ;;
            *)
                ask_state
                case $state in
                    ACTIVE | unknown) ;;
                    none | DELETING) # a preemption leaves it SUSPENDED
                        say "$name was deleted; the same command creates it again and resumes"
                        exit 75
                        ;;
                    *) failures=0 ;;
                esac
                if [ "$state" = ACTIVE ] && [ "$failures" -ge "$most_failures" ]; then
                    fail "bert_jax cannot be installed or started on $name (see above), which still stands and costs; fix it and run the same command, or remove it with: $(again delete)"
                fi
                # gcloud's own code, of a connection that failed, is none that the hosts know.
                if [ "$state" = ACTIVE ] && [ "$code" != 255 ] && have_ended_with "$code"; then
                    say "bert-jax ended with code $code on $name, which still stands and costs; look with: $(again follow), remove with: $(again delete)"
                    exit "$code"
                fi
                say "$name: connection or slice lost"
                sleep "$poll_seconds"
                ;;
        esac
    done
    fail "$name: given up after $most_restarts restarts; the slice still exists and costs"
}

"$verb" "$@"
