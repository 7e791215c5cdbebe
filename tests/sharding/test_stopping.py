"""Real processes on the loopback that work together, and end together."""

import json
import os
import signal
import sys
import threading

import pytest

from bert_jax.sharding.stopping import Interrupted, StopSignals
from tests.runs import printed_lines

# A verb that makes the requested fault between the calls that all verbs make.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from bert_jax.cli.common import Parser, add_hosts, on_all_hosts

def verb(options):
    import jax
    import numpy as np
    from bert_jax.errors import UserError
    from bert_jax.sharding import hosts
    from bert_jax.sharding.mesh import MeshShape, make_mesh
    from bert_jax.sharding.stopping import StopSignals

    me = jax.process_index()
    print("only the main host is heard", file=sys.stderr)
    actual = {"processes": jax.process_count(), "devices": jax.device_count()}
    all_rows = np.arange(16, dtype=np.float32).reshape(8, 2)
    for tensor in (jax.device_count(), 2, 1):
        mesh = make_mesh(MeshShape(tensor=tensor))
        share = hosts.batch_share(mesh)
        rows = np.split(all_rows, share.count)[share.index]
        batch = hosts.to_global(mesh, {"rows": rows})["rows"]
        assert batch.shape == (8, 2), batch.shape
        hosts.check_batch_size(8, mesh)
        assert len(rows) == 8 // share.count
        actual[f"rows of tensor={tensor}"] = hosts.fetch(batch).tolist()
        actual[f"shares of tensor={tensor}"] = share.count
    with hosts.main_host_first():
        file = Path(options.directory) / "written"
        if me == 0:
            time.sleep(0.5)
            file.write_text("by the main host")
        assert file.read_text() == "by the main host"

    add = jax.jit(lambda x: x.sum(), out_shardings=None)
    with StopSignals() as stop:
        for step in range(int(options.steps)):
            assert float(add(batch)) == 120
            if me == 0:
                print(f"step {step}", file=sys.stderr, flush=True)
            if options.fault == "input" and step == 3 and me == 1:
                raise UserError("row 7 of my file is damaged")
            if options.fault == "flaw" and step == 3 and me == 1:
                raise LookupError("nobody thought of this")
            if options.fault == "everywhere" and step == 3:
                raise UserError("all see the same")
            if stop.stop_after(step):
                actual["stopped after"] = step
                Path(options.directory, f"stopped-{me}").write_text(str(step))
                print(json.dumps(actual))
                return 75
            time.sleep(0.01)
    print(json.dumps(actual))
    return 0

parser = Parser()
parser.add_argument("directory")
parser.add_argument("--steps", default="20")
parser.add_argument("--fault")
add_hosts(parser)
parser.set_defaults(parser=parser)
sys.exit(on_all_hosts(verb)(parser.parse_args()))
"""
LOST = "another process of this run ended without a message: killed, out of memory, or its machine"


@pytest.fixture
def command(tmp_path):
    return [sys.executable, "-c", PROGRAM, str(tmp_path)]


def ended(processes):
    """Exit code, output and errors of each process."""
    texts = [process.communicate() for process in processes]
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def wait_for(process, line):
    """Reads the errors of a process up to a line."""
    for text in process.stderr:
        if text.startswith(line):
            return
    raise AssertionError(f"it ended before {line}")


def check_results(actual, processes, devices):
    assert (actual["processes"], actual["devices"]) == (processes, devices)
    for tensor in (1, 2, devices):
        # In the order of the examples, on every host.
        expected = [[2.0 * row, 2.0 * row + 1] for row in range(8)]
        assert actual[f"rows of tensor={tensor}"] == expected
    assert actual["shares of tensor=1"] == processes
    assert actual["shares of tensor=2"] == (processes if devices == 8 else 1)
    assert actual[f"shares of tensor={devices}"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_remembered_and_the_handlers_are_restored(number, capfd):
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    with StopSignals("it stops") as stop:
        assert not stop.requested
        assert not stop.stop_after(1)
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.stop_after(2)
        assert signal.getsignal(number) == before[number]
    assert {n: signal.getsignal(n) for n in before} == before
    assert capfd.readouterr().err == "\nit stops\n"


def test_another_thread_than_the_main_one_has_no_signals():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with StopSignals() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def test_the_message_names_the_step():
    assert str(Interrupted(7)) == "stopped by a signal after saving step 7"
    assert Interrupted(7).step == 7


@pytest.mark.slow
def test_processes_work_together_and_one_prints(start_hosts, command):
    (code, output, errors), *others = ended(start_hosts(command, 4, devices=2))
    assert code == 0, errors
    (line,) = printed_lines(output)
    check_results(json.loads(line), processes=4, devices=8)
    assert errors.splitlines()[0] == "only the main host is heard"
    for other in others:
        assert (other[0], printed_lines(other[1]), other[2]) == (0, [], "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "number"), [([0], signal.SIGTERM), ([1], signal.SIGINT), ([0, 1], signal.SIGTERM)]
)
def test_a_signal_to_some_stops_all_after_one_step(start_hosts, command, tmp_path, number, whom):
    processes = start_hosts([*command, "--steps", "100000"], 2)
    wait_for(processes[0], "step 5")
    for host in whom:
        processes[host].send_signal(number)
    codes = [code for code, _, _ in ended(processes)]
    assert codes == [75, 75]
    steps = [int((tmp_path / f"stopped-{host}").read_text()) for host in range(2)]
    assert len(set(steps)) == 1
    assert steps[0] >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "main_line", "other_lines"),
    [
        (
            "input",
            2,
            "bert-jax: process 1 ended the run: row 7 of my file is damaged",
            "bert-jax (process 1 of 2): row 7 of my file is damaged\n",
        ),
        (
            "everywhere",
            2,
            "bert-jax: all see the same",
            "bert-jax (process 1 of 2): all see the same\n",
        ),
        (
            "flaw",
            1,
            "bert-jax: process 1 ended the run: LookupError: nobody thought of this",
            "Traceback (most recent call last):\n",
        ),
    ],
)
def test_an_error_ends_all(start_hosts, command, fault, code, main_line, other_lines):
    main_host, other = ended(start_hosts([*command, "--fault", fault], 2))
    assert (main_host[0], other[0]) == (code, code)
    assert main_host[2].splitlines()[-1] == main_line
    assert other[2].startswith(other_lines)
    assert code == 1 or other[2] == other_lines


@pytest.mark.slow
@pytest.mark.parametrize("whom", [0, 1])
def test_a_killed_process_ends_the_run(start_hosts, command, whom):
    processes = start_hosts([*command, "--steps", "100000"], 2)
    wait_for(processes[0], "step 5")
    processes[whom].kill()
    for number, (code, output, errors) in enumerate(ended(processes)):
        if number == whom:
            continue
        assert code == 75, errors
        assert printed_lines(output) == []
        name = "" if number == 0 else f" (process {number} of 2)"
        # The libraries' threads may have the last word.
        assert f"\nbert-jax{name}: {LOST}" in f"\n{errors}"
        assert "Check failure stack trace" not in errors


@pytest.mark.slow
def test_a_hanging_process_ends_the_run(start_hosts, command):
    sooner = "from bert_jax.sharding import distributed\ndistributed.HEARTBEAT_SECONDS = 15\n"
    command = [*command[:2], sooner + PROGRAM, *command[3:], "--steps", "100000"]
    processes = start_hosts(command, 2)
    wait_for(processes[0], "step 5")
    processes[1].send_signal(signal.SIGSTOP)
    _, errors = processes[0].communicate()
    assert processes[0].returncode not in (0, 2)
    assert "The following tasks are unhealthy (stopped sending heartbeats)" in errors


@pytest.mark.slow
def test_devices_of_a_process_that_have_no_part_of_the_batch(start_hosts, command):
    """Three devices each, in pairs: the pair in the middle is of both processes."""
    program = PROGRAM.replace("(jax.device_count(), 2, 1)", "(2,)")
    actual = ended(start_hosts([command[0], "-c", program, command[3]], 2, devices=3))
    assert [code for code, _, _ in actual] == [2, 2]
    assert actual[0][2].splitlines()[-1] == (
        "bert-jax: a mesh data=3, fsdp=1, tensor=2 does not fit 2 processes of 3 devices each; "
        "choose a mesh.tensor that divides the devices of a process, or is a multiple of them"
    )
