"""Plans for TPUs: the real compiler, without a TPU. Skipped where libtpu is not installed."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libtpu")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized")]

CONFIG = str(Path(__file__).parents[2] / "configs" / "pretrain.py")

# Small, and without dropout: each compilation takes most of a minute all the same.
SMALL = {
    "model.size": "mini",
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "precision": "bfloat16",
    "train.global_batch_size": 512,
}

# The compiler optimises less and takes a quarter of the time, enough where plans are compared:
# parameters, activations and operations are the same, the peak is a tenth higher.
QUICKLY = {"JAX_EXEC_TIME_OPTIMIZATION_EFFORT": "-1.0", "JAX_MEMORY_FITTING_EFFORT": "-1.0"}


@pytest.fixture(scope="module")
def plan(tmp_path_factory, testrun_uid):
    """Runs the command in a process of its own; a plan is made once, for all workers."""
    shared = tmp_path_factory.getbasetemp().parent / testrun_uid
    shared.mkdir(exist_ok=True)

    def make(*arguments: str, quickly: bool = True, **keys: object) -> dict:
        overrides = SMALL | {key.replace("__", "."): value for key, value in keys.items()}
        command = [sys.executable, "-m", "bert_jax", "plan", "--config", CONFIG, "--json"]
        command += [*arguments, *(f"--config.{key}={value}" for key, value in overrides.items())]
        name = hashlib.sha256(repr((quickly, command)).encode()).hexdigest()
        with (shared / name).open("a+") as stored:
            fcntl.flock(stored, fcntl.LOCK_EX)
            stored.seek(0)
            if text := stored.read():
                return json.loads(text)
            environment = os.environ | (QUICKLY if quickly else {})
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            result = json.loads(done.stdout) | {"stderr": done.stderr}
            stored.write(json.dumps(result))
        return result

    return make


def on_eight(plan, *arguments: str, **keys: object) -> dict:
    return plan("--topology", "v5e:2x4", "--no-search", *arguments, **keys)


def test_it_fits_and_says_what_it_takes(plan):
    result = on_eight(plan, quickly=False)
    assert result["fits"]
    assert result["compiled"]
    assert result["devices"] == 8
    assert result["peak_bytes_per_device"] == sum(result["memory_per_device"].values())
    assert result["memory_per_device"]["optimizer"] == pytest.approx(
        2 * result["memory_per_device"]["parameters"], rel=1e-4
    )
    assert result["compile_s"] > 1
    # Only what the command says itself.
    assumed, *lines = result["stderr"].splitlines()
    assert assumed.startswith("without a tokenizer, a vocabulary of 30,522 is assumed")
    assert [line.split(":")[0] for line in lines] == ["v5e", "v5e"]


def test_replicas_reduce_their_gradients_and_nothing_else(plan):
    result = on_eight(plan, quickly=False)
    assert set(result["collectives"]) == {"all-reduce"}
    # In bfloat16, as they are computed; the word embeddings come twice, from both their uses.
    gradients = 2 * result["parameters"]
    assert gradients <= result["collectives"]["all-reduce"]["bytes"] < 2 * gradients


def test_fsdp_splits_the_state_and_gathers_it(plan):
    whole, split = (on_eight(plan, *mesh) for mesh in ((), ("--mesh", "fsdp=8")))
    ours, reference = split["memory_per_device"], whole["memory_per_device"]
    assert ours["parameters"] < reference["parameters"] / 7
    assert ours["optimizer"] < reference["optimizer"] / 7
    assert split["peak_bytes_per_device"] < whole["peak_bytes_per_device"]
    least = split["least_sent_bytes_per_device"]
    assert 0.9 * least < split["sent_bytes_per_device"] < 2.2 * least
    assert set(split["collectives"]) > {"all-reduce"}


def test_remat_and_microbatches_take_less(plan):
    plain = on_eight(plan, quickly=False)
    full = on_eight(plan, quickly=False, model__remat="full")
    parts = on_eight(plan, train__microbatches=4)
    assert full["peak_bytes_per_device"] < 0.6 * plain["peak_bytes_per_device"]
    assert 1.2 < full["program_flops_per_step"] / plain["program_flops_per_step"] < 1.34
    assert full["flops_per_step"] == plain["flops_per_step"]
    assert parts["peak_bytes_per_device"] < 0.6 * plain["peak_bytes_per_device"]
    assert parts["microbatch_per_device"] == plain["microbatch_per_device"] // 4


def test_a_batch_that_is_too_large_for_another_slice(plan):
    result = plan("--topology", "v6e:1x1", "--no-search", train__global_batch_size=32768)
    assert not result["fits"]
    assert result["devices"] == 1
    assert result["memory_per_device"] is None
    assert result["peak_bytes_per_device"] > result["available_bytes_per_device"]
    assert result["available_bytes_per_device"] == pytest.approx(31.25 * 2**30, rel=0.01)


def test_the_estimate_is_near(plan):
    """`mesh=auto` stands on it."""
    for keys in ({}, {"model__remat": "full"}):
        compiled = on_eight(plan, quickly=False, **keys)
        estimated = plan("--topology", "h100:8", "--no-search", **keys)
        ratio = estimated["peak_bytes_per_device"] / compiled["peak_bytes_per_device"]
        assert 0.7 < ratio < 1.4, keys


def test_the_attention_kernel_is_compiled_for_rows_and_heads_of_each_device(plan):
    long = {
        "data__length": 1024,
        "model__max_position_embeddings": 1024,
        "train__global_batch_size": 128,
    }
    mesh = ("--mesh", "data=4,tensor=2")
    fused = on_eight(plan, *mesh, **long)
    products = on_eight(plan, *mesh, **long, model__attention="xla")
    # A device has 32 rows of 1,024 tokens and 2 of the 4 heads of 64. For the backward pass of the
    # 4 layers the products store the weights of all pairs in bfloat16; the kernel stores its
    # outputs in bfloat16, and the maximum and the sum of each softmax in float32.
    weights = 4 * 32 * 2 * 1024**2 * 2
    outputs, sums = 4 * 32 * 2 * 1024 * 64 * 2, 4 * 32 * 2 * 1024 * 2 * 4
    stored = [each["memory_per_device"]["activations"] for each in (products, fused)]
    assert stored[0] - stored[1] == pytest.approx(weights - outputs - sums, rel=1e-3)
    assert fused["peak_bytes_per_device"] < products["peak_bytes_per_device"]
    assert set(fused["collectives"]) == set(products["collectives"])


def test_a_slice_that_does_not_exist(capsys):
    from bert_jax import cli

    assert cli.main(["plan", "--config", CONFIG, "--topology", "v5e:3x3"]) == 2
    assert "v5e:3x3: there is no such slice" in capsys.readouterr().err


@pytest.mark.parametrize(
    "start", ["from bert_jax import cli; cli.quiet_libtpu()", "from bert_jax import load"]
)
def test_commands_and_programs_stay_quiet_beside_libtpu(start):
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("TPU_")}
    environment.pop("JAX_PLATFORMS", None)
    done = subprocess.run(
        [sys.executable, "-c", f"{start}; import jax; print(jax.devices()[0])"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "libtpu" not in done.stderr
    assert "TPU" not in done.stderr
