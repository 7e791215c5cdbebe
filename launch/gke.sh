#!/usr/bin/env bash
# A run on a TPU slice of a GKE cluster, as a JobSet; with kubectl, or through XPK.
#
#   bash launch/gke.sh VERB --name NAME [OPTIONS] [-- train --config FILE --workdir gs://RUN]
#
#   image     builds the image of this checkout and pushes it     (--image)
#   start     starts the run                                      (--image, --topology, -- train …)
#   follow    shows the log of host 0 until the run ends
#   status    of the JobSet and its pods
#   stop      the run saves and ends; `start` continues it
#
#   --topology SLICE        as `bert-jax plan` names it: v5e:16x16, v4:4x4x4, v5p:2x2x2, v6e:8x8
#   --image IMAGE           as us-docker.pkg.dev/PROJECT/REPOSITORY/bert-jax:1
#   --spot                  start: only on spot nodes
#   --service-account NAME  of Kubernetes, one that may use the bucket (default)
#   --xpk CLUSTER           start, stop: through XPK on its cluster, which brings queues (Kueue)
#   --dry-run               prints the commands and the manifest instead of running them
#
# The cluster is the one that kubectl is set to: gcloud container clusters get-credentials CLUSTER.
# It needs JobSet 0.10 or later, and a node pool of that slice (or Autopilot).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/commands.sh
source launch/commands.sh
# shellcheck source=launch/slices.sh
source launch/slices.sh

poll_seconds=${POLL_SECONDS:-10}

verb=${1-}
case $verb in
    image | start | follow | status | stop) shift ;;
    --help | -h | "") usage ;;
    *) fail "$verb: unknown verb; one of image, start, follow, status, stop" ;;
esac
name="" topology="" image="" spot=false service_account=default cluster=""
while [ $# -gt 0 ]; do
    case $1 in
        --name) need_value "$1" $# && name=$2 && shift 2 ;;
        --topology) need_value "$1" $# && topology=$2 && shift 2 ;;
        --image) need_value "$1" $# && image=$2 && shift 2 ;;
        --spot) spot=true && shift ;;
        --service-account) need_value "$1" $# && service_account=$2 && shift 2 ;;
        --xpk) need_value "$1" $# && cluster=$2 && shift 2 ;;
        --dry-run) dry_run=true && shift ;;
        --help | -h) usage ;;
        --) shift && break ;;
        *) fail "$1: unknown option; see --help" ;;
    esac
done
if [ "$verb" != image ]; then
    [ -n "$name" ] || fail "--name is missing: of the run in the cluster, as --name bert-base"
    [[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || fail "--name $name: only a-z, 0-9 and -, first a letter"
fi
case $verb in
    image | start) [ -n "$image" ] || fail "--image is missing, as --image us-docker.pkg.dev/PROJECT/REPOSITORY/bert-jax:1" ;;
esac
if [ "$verb" = start ]; then
    [ -n "$topology" ] || fail "--topology is missing, as --topology v5e:16x16"
    find_slice "$topology"
    check_verb "$@"
    check_remote_workdir "$@"
else
    [ $# = 0 ] || fail "$verb takes nothing after --"
fi
if [ -n "$cluster" ]; then
    require xpk "run: pip install xpk"
elif [ "$verb" = image ]; then
    require docker "see https://docs.docker.com/engine/install"
else
    require kubectl "run: gcloud components install kubectl"
fi

json_list() { # WORDS...: a list that YAML reads
    local word list=""
    for word in "$@"; do
        case $word in *[[:cntrl:]]*) fail "an argument holds a line break or another control character" ;; esac
        word=${word//\\/\\\\}
        list="$list, \"${word//\"/\\\"}\""
    done
    printf '[%s]' "${list#, }"
}

# shellcheck disable=SC2016  # ${NAME} and the like are the signs of the template
manifest() { # ARGUMENTS of bert-jax...: launch/gke/jobset.yaml filled in
    local text arguments
    # Kubernetes reads $(NAME) in arguments as a variable; $$ is a $.
    arguments=$(json_list "$@")
    arguments=${arguments//\$/\$\$}
    text=$(cat launch/gke/jobset.yaml)
    local spot_label=""
    "$spot" && spot_label='cloud.google.com/gke-spot: "true"'
    text=${text//'${NAME}'/"$name"}
    text=${text//'${HOSTS}'/"$hosts"}
    text=${text//'${GKE_ACCELERATOR}'/"$gke_accelerator"}
    text=${text//'${TOPOLOGY}'/"$shape"}
    text=${text//'${SPOT}'/"$spot_label"}
    text=${text//'${SERVICE_ACCOUNT}'/"$service_account"}
    text=${text//'${IMAGE}'/"$image"}
    text=${text//'${CHIPS_PER_HOST}'/"$chips_per_host"}
    printf '%s\n' "${text//'${ARGUMENTS}'/"$arguments"}"
}

image() {
    act docker build --platform linux/amd64 --file launch/gke/Dockerfile --tag "$image" .
    act docker push "$image"
}

start() {
    if [ -n "$cluster" ]; then
        local command=(xpk workload create "--cluster=$cluster" "--workload=$name"
            "--tpu-type=$accelerator" "--docker-image=$image" "--command=bert-jax $(quoted "$@")"
            --max-restarts=100 --restart-on-exit-codes=75 --termination-grace-period-seconds=120)
        act "${command[@]}"
        return
    fi
    manifest "$@" > /dev/null # a mistake ends here, before anything is sent
    if "$dry_run"; then
        echo "kubectl apply --filename=- <<'MANIFEST'"
        manifest "$@"
        echo MANIFEST
    else
        # What has ended would only be called unchanged.
        [ -z "$(how_it_ended)" ] || kubectl delete jobset "$name" --wait
        manifest "$@" | kubectl apply --filename=-
    fi
}

how_it_ended() { # prints Completed or Failed; nothing of a run that continues, or is not there
    kubectl get jobset "$name" --ignore-not-found "--output=jsonpath={.status.terminalState}"
}

follow() {
    # The pod is another one after a restart; its labels are the same.
    local labels="jobset.sigs.k8s.io/jobset-name=$name,batch.kubernetes.io/job-completion-index=0"
    local wait=(kubectl wait --for=condition=Ready pod "--selector=$labels" --timeout=30s)
    local logs=(kubectl logs --follow "--selector=$labels" --tail=-1)
    local ended="" shown=false since=()
    if "$dry_run"; then
        act "${wait[@]}"
        act "${logs[@]}"
        return
    fi
    kubectl get jobset "$name" > /dev/null || fail "$name: there is no such run in this cluster"
    while [ -z "$ended" ]; do
        ended=$(how_it_ended) || true # the network may fail for a while
        # Of a run that has ended long ago the log is there still; no pod will be ready again.
        if "${wait[@]}" > /dev/null 2>&1 || { [ -n "$ended" ] && ! "$shown"; }; then
            "${logs[@]}" ${since[@]+"${since[@]}"} && shown=true &&
                since=("--since-time=$(date -u +%Y-%m-%dT%H:%M:%SZ)") && continue
        fi
        [ -n "$ended" ] || sleep "$poll_seconds"
    done
    say "$name: $ended"
    [ "$ended" = Completed ]
}

status() {
    act kubectl get jobset "$name" --output=wide
    act kubectl get pods "--selector=jobset.sigs.k8s.io/jobset-name=$name" --output=wide
}

stop() {
    if [ -n "$cluster" ]; then
        act xpk workload delete "--cluster=$cluster" "--workload=$name"
    else
        act kubectl delete jobset "$name" --wait
    fi
}

"$verb" "$@"
