"""Collectives of compiled programs, from text as the compilers write it."""

import pytest

from bert_jax.planning.collectives import (
    Collective,
    collectives_of,
    traffic,
)

# As the TPU compiler writes it, shortened: a loop over six layers that gathers each kernel and
# scatters its gradient; the second gather runs beside a product, so it stands there three times. An
# array of another size has the same channel as the scattered one, and is not the same for that.
TPU = """\
HloModule jit_step, is_scheduled=true, num_partitions=8

%add.clone (x.3: bf16[], y.1: bf16[]) -> bf16[] {
  %x.3 = bf16[]{:T(256)} parameter(0)
  %y.1 = bf16[]{:T(256)} parameter(1)
  ROOT %add.9 = bf16[]{:T(256)} add(%x.3, %y.1)
}

%start.22 (param_0.73: bf16[1,128,512]) -> (bf16[1,128,512], bf16[1,512,512]) {
  %param_0.73 = bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)} parameter(0)
  %all-gather.19 = bf16[1,512,512]{2,1,0:T(8,128)(2,1)} all-gather(%param_0.73), channel_id=9, replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}, dimensions={1}, metadata={op_name="jit(step)/dot_general" stack_frame_id=8}
  ROOT %custom-call.5 = (bf16[1,128,512]{2,1,0}, bf16[1,512,512]{2,1,0}, /*index=2*/u32[]{:S(2)}) custom-call(%all-gather.19), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.28 (param_0.78: bf16[1,128,512]) -> bf16[1,512,512] {
  %param_0.78 = bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)} parameter(0)
  ROOT %all-gather.21 = bf16[1,512,512]{2,1,0:T(8,128)(2,1)S(1)} all-gather(%param_0.78), channel_id=9, replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}, dimensions={1}
}

%all-reduce-scatter.clone.1 (input.2: bf16[512,512]) -> bf16[128,512] {
  %input.2 = bf16[512,512]{1,0:T(8,128)(2,1)} parameter(0)
  %all-reduce.6 = bf16[512,512]{1,0:T(8,128)(2,1)} all-reduce(%input.2), channel_id=5, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, to_apply=%add.clone
  ROOT %slice.1 = bf16[128,512]{1,0} dynamic-slice(%all-reduce.6), dynamic_slice_sizes={128,512}
}

%body.1 (arg.1: (s32[], bf16[1,128,512])) -> (s32[], bf16[1,128,512]) {
  %arg.1 = (s32[]{:T(128)}, bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)}) parameter(0)
  %kernel.1 = bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)} get-tuple-element(%arg.1), index=1
  %fusion.1 = (bf16[1,128,512]{2,1,0}, bf16[1,512,512]{2,1,0}) fusion(%kernel.1), kind=kCustom, calls=%start.22
  %fusion.2 = bf16[1,512,512]{2,1,0} fusion(%kernel.1), kind=kOutput, calls=%async_collective_fusion.28
  %fusion.3 = bf16[128,512]{1,0} fusion(%fusion.2), kind=kCustom, calls=%all-reduce-scatter.clone.1
  %counter.2 = s32[]{:T(128)} get-tuple-element(%arg.1), index=0
  %one.1 = s32[]{:T(128)} constant(1)
  %next.1 = s32[]{:T(128)} add(%counter.2, %one.1)
  ROOT %tuple.2 = (s32[]{:T(128)}, bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)}) tuple(%next.1, %kernel.1)
}

%condition.1 (arg.2: (s32[], bf16[1,128,512])) -> pred[] {
  %constant.58 = s32[]{:T(128)} constant(6)
  %arg.2 = (s32[]{:T(128)}, bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)}) parameter(0)
  %counter.1 = s32[]{:T(128)} get-tuple-element(%arg.2), index=0
  ROOT %lt.10 = pred[]{:T(512)} compare(%counter.1, %constant.58), direction=LT
}

ENTRY %main.6 (param.4: bf16[1,128,512]) -> f32[] {
  %constant.63 = s32[]{:T(128)} constant(0)
  %copy.36 = s32[]{:T(128)} copy(%constant.63)
  %param.4 = bf16[1,128,512]{2,1,0:T(8,128)(2,1)} parameter(0)
  %tuple.63 = (s32[]{:T(128)}, bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)}) tuple(%copy.36, %param.4)
  %while.33 = (s32[]{:T(128)}, bf16[1,128,512]{2,1,0:T(8,128)(2,1)S(1)}) while(%tuple.63), condition=%condition.1, body=%body.1
  %bias.1 = bf16[512]{0} parameter(2)
  %all-reduce.7 = bf16[512]{0} all-reduce(%bias.1), channel_id=5, replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add.clone
  %loss.1 = f32[]{:T(128)} parameter(1)
  ROOT %all-reduce.2 = f32[]{:T(128)} all-reduce(%loss.1), channel_id=7, replica_groups=mesh['axis_0'=8,'axis_1'=1] {'axis_0','axis_1'}, to_apply=%add.clone, metadata={op_name="jit(step)/reduce_sum"}
}
"""  # noqa: E501

# As XLA writes it for other devices: starts and ends, counted groups, a noted number of rounds.
OTHER = """\
HloModule jit_step, num_partitions=4

body (p: (s32[], f32[6])) -> (s32[], f32[6]) {
  %p = (s32[], f32[6]{0}) parameter(0)
  %x = f32[6]{0} get-tuple-element(%p), index=1
  %gather-start = (f32[6]{0}, f32[24]{0}) all-gather-start(%x), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}
  %gather-done = f32[24]{0} all-gather-done(%gather-start)
  %scatter = f32[6]{0} reduce-scatter(%gather-done), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}, to_apply=%sum
  %permuted = f32[6]{0} collective-permute(%scatter), channel_id=3, source_target_pairs={{0,1},{1,0}}
  ROOT %t = (s32[], f32[6]{0}) tuple(%p, %permuted)
}

condition (p.2: (s32[], f32[6])) -> pred[] {
  %p.2 = (s32[], f32[6]{0}) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY main (x.2: f32[6]) -> (f32[6], bf16[10]) {
  %x.2 = f32[6]{0} parameter(0)
  %y.2 = bf16[10]{0} parameter(1)
  %zero = s32[] constant(0)
  %t.2 = (s32[], f32[6]{0}) tuple(%zero, %x.2)
  %loop = (s32[], f32[6]{0}) while(%t.2), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"12"}}
  %alone = f32[6]{0} all-reduce(%x.2), channel_id=4, replica_groups={{0},{1},{2},{3}}, to_apply=%sum
  ROOT %both = (f32[6]{0}, bf16[10]{0}) all-reduce(%x.2, %y.2), channel_id=5, replica_groups={}, to_apply=%sum
}
"""  # noqa: E501


def test_a_program_for_tpus():
    kernel = 512 * 512 * 2
    assert collectives_of(TPU) == [
        Collective("all-gather", 6, kernel, 4),
        Collective("reduce-scatter", 6, kernel, 4),
        Collective("all-reduce", 1, 1024, 8),
        Collective("all-reduce", 1, 4, 8),
    ]


def test_a_program_for_other_devices():
    assert collectives_of(OTHER) == [
        Collective("all-gather", 12, 96, 4),
        Collective("reduce-scatter", 12, 48, 2),
        Collective("collective-permute", 12, 24, 4),
        # The one among single devices sends nothing.
        Collective("all-reduce", 1, 44, 4),
    ]


def test_traffic_by_kind():
    keys = ("count", "bytes", "sent_bytes")
    assert {
        kind: tuple(total[key] for key in keys)
        for kind, total in traffic(collectives_of(OTHER)).items()
    } == {
        "all-reduce": (1, 44, 44 * 2 * 3 / 4),
        "all-gather": (12, 12 * 96, 12 * 96 * 3 / 4),
        "reduce-scatter": (12, 12 * 48, 12 * 48 / 2),
        "collective-permute": (12, 12 * 24, 12 * 24),
    }


def test_part_of_a_mesh_axis_is_a_group():
    whole, part = "{'axis_0','axis_1'}", "{'axis_0':(2)4,'axis_1'}"
    assert TPU.count(whole) == 1
    text = TPU.replace("['axis_0'=8,'axis_1'=1] " + whole, "['axis_0'=8,'axis_1'=2] " + part)
    assert collectives_of(text)[-1].group == 8


@pytest.mark.parametrize(
    ("change", "rounds"),
    [
        (("constant(0)", "constant(0)"), 6),
        (("constant(0)", "constant(2)"), 4),  # the first two rounds were taken out of the loop
        (("constant(1)", "constant(2)"), 3),  # the compiler has put two rounds in one
        (("constant(1)", "constant(4)"), 2),
        (("direction=LT", "direction=NE"), 1),  # not a loop that we know
    ],
)
def test_rounds_of_a_loop(change, rounds):
    assert {collective.count for collective in collectives_of(TPU.replace(*change))} == {rounds, 1}


def test_a_collective_that_outlasts_a_loop_counts_once():
    # The start stands before the loop, the middle in it.
    start = "  %fusion.1 = (bf16[1,128,512]{2,1,0}, bf16[1,512,512]{2,1,0}) fusion(%kernel.1), kind=kCustom, calls=%start.22\n"  # noqa: E501
    assert start in TPU
    moved = TPU.replace(start, "").replace(
        "  %tuple.63 =", start.replace("kernel.1", "param.4") + "  %tuple.63 ="
    )
    gather = collectives_of(moved)[0]
    assert (gather.kind, gather.count) == ("all-gather", 1)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("bf16[2,3]{1,0:T(8,128)(2,1)S(1)}", 12),
        ("f32[]{:T(128)}", 4),
        ("(f32[2]{0}, /*index=1*/(s8[3], pred[5]))", 16),
    ],
)
def test_sizes_of_shapes(shape, size):
    text = (
        f"ENTRY main (x: f32[]) -> f32[] {{\n  ROOT %y = {shape} all-reduce(%x), channel_id=1\n}}"
    )
    assert collectives_of(f"HloModule m, num_partitions=2\n{text}") == [
        Collective("all-reduce", 1, size, 2)
    ]
