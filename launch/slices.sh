# Sourced by tpu.sh and gke.sh: the TPU slices, named as `bert-jax plan --topology` names them.
# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is read by those who source it

# Sets, for a slice like v5e:16x16 or v4:4x4x4:
#   shape            16x16
#   chips            256
#   accelerator      v5litepod-256, the name of Cloud TPU and XPK (v4 and v5p count cores)
#   runtime_version  of a TPU VM: https://cloud.google.com/tpu/docs/runtimes
#   gke_accelerator  the node label of GKE: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
#   chips_per_host, hosts   of a node pool of GKE
find_slice() { # SLICE
    local family=${1%%:*} known="v4, v5e, v5p, v6e" counted=1 side
    shape=${1#*:}
    case $family in
        v4) accelerator=v4 runtime_version=tpu-ubuntu2204-base gke_accelerator=tpu-v4-podslice counted=2 ;;
        v5e) accelerator=v5litepod runtime_version=v2-alpha-tpuv5-lite gke_accelerator=tpu-v5-lite-podslice ;;
        v5p) accelerator=v5p runtime_version=v2-alpha-tpuv5 gke_accelerator=tpu-v5p-slice counted=2 ;;
        v6e) accelerator=v6e runtime_version=v2-alpha-tpuv6e gke_accelerator=tpu-v6e-slice ;;
        *) fail "--topology $1: unknown accelerator $family; known are $known, as v5e:16x16" ;;
    esac
    # One shape for each number of chips: the name that Cloud TPU takes says only the number.
    local flat="1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
    local cubes="2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16"
    local shapes=$flat
    [ "$counted" = 1 ] || shapes=$cubes
    case " $shapes " in
        *" $shape "*) ;;
        *) fail "--topology $1: no such slice of $family; there are $shapes" ;;
    esac
    chips=1
    for side in ${shape//x/ }; do
        chips=$((chips * side))
    done
    accelerator=$accelerator-$((chips * counted))
    chips_per_host=4
    if [ "$counted" = 1 ] && { [ "$chips" -lt 4 ] || [ "$chips" = 8 ]; }; then
        chips_per_host=$chips
    fi
    hosts=$((chips / chips_per_host))
}
