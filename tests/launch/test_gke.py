"""launch/gke.sh: the manifest, read as Kubernetes reads it, and the commands."""

import json
import shlex

import pytest
import yaml

RUN = ("--config", "configs/pretrain.py:size=base,corpus=gs://b/c d", "--workdir", "gs://b/run")
START = ("start", "--name", "bert", "--image", "example.org/bert:1")


def manifest_of(done):
    """The manifest of a dry run, and the command around it."""
    assert done.returncode == 0, done.stderr
    command, rest = done.stdout.split("\n", 1)
    assert command == "kubectl apply --filename=- <<'MANIFEST'"
    return yaml.safe_load(rest.removesuffix("MANIFEST\n"))


def pod_of(manifest):
    (job,) = manifest["spec"]["replicatedJobs"]
    return job["template"]["spec"], job["template"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("topology", "accelerator", "shape", "hosts", "chips"),
    [
        ("v5e:16x16", "tpu-v5-lite-podslice", "16x16", 64, 4),
        ("v5e:2x4", "tpu-v5-lite-podslice", "2x4", 1, 8),
        ("v5e:1x1", "tpu-v5-lite-podslice", "1x1", 1, 1),
        ("v6e:4x4", "tpu-v6e-slice", "4x4", 4, 4),
        ("v4:4x4x4", "tpu-v4-podslice", "4x4x4", 16, 4),
        ("v5p:2x2x1", "tpu-v5p-slice", "2x2x1", 1, 4),
    ],
)
def test_the_manifest_of_a_slice(run_script, topology, accelerator, shape, hosts, chips):
    done = run_script("gke.sh", *START, "--topology", topology, "--dry-run", "--", "train", *RUN)
    manifest = manifest_of(done)
    assert manifest["kind"] == "JobSet"
    assert manifest["metadata"]["name"] == "bert"
    job, pod = pod_of(manifest)
    assert (job["parallelism"], job["completions"]) == (hosts, hosts)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": shape,
    }
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"google.com/tpu": chips}
    assert container["args"] == ["train", *RUN]


def test_exit_codes_decide_who_starts_again(run_script):
    done = run_script("gke.sh", *START, "--topology", "v5e:4x4", "--dry-run", "--", "train", *RUN)
    manifest = manifest_of(done)
    job, pod = pod_of(manifest)
    by_code, by_eviction = job["podFailurePolicy"]["rules"]
    assert by_code["onExitCodes"]["values"] == [2, 75]
    assert by_code["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert by_eviction["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    bad_input, go_on = manifest["spec"]["failurePolicy"]["rules"]
    assert (bad_input["action"], go_on["action"]) == (
        "FailJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
    )
    assert pod["restartPolicy"] == "Never"  # or Kubernetes refuses the podFailurePolicy


def test_arguments_survive_yaml(run_script):
    strange = ["a b", "it's", 'say "x"', "back\\slash", "a,b:c", "- x", "#", "ü→", "{}[]&*!|>%@`"]
    arguments = ["train", "--workdir", "gs://b/r", *strange]
    done = run_script("gke.sh", *START, "--topology", "v5e:4x4", "--dry-run", "--", *arguments)
    assert pod_of(manifest_of(done))[1]["containers"][0]["args"] == arguments


def test_a_dollar_is_not_a_variable_of_kubernetes(run_script):
    done = run_script(
        *("gke.sh", *START, "--topology", "v5e:4x4", "--dry-run", "--"),
        *("train", "--config", "$(HOME)", "--workdir", "gs://b/r"),
    )
    assert pod_of(manifest_of(done))[1]["containers"][0]["args"][2] == "$$(HOME)"


def test_spot_and_service_account(run_script):
    done = run_script(
        *("gke.sh", *START, "--topology", "v5e:4x4", "--spot", "--service-account", "writer"),
        *("--dry-run", "--", "train", *RUN),
    )
    pod = pod_of(manifest_of(done))[1]
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["serviceAccountName"] == "writer"


def test_what_is_sent_is_what_the_dry_run_shows(run_script, add_program, tmp_path):
    sent = tmp_path / "sent.yaml"
    add_program(
        "kubectl", f'[ "$1" = get ] || {{ [ "$*" = "apply --filename=-" ] && cat > {sent}; }}'
    )
    arguments = (*START, "--topology", "v5e:4x4")
    done = run_script("gke.sh", *arguments, "--", "train", *RUN)
    assert done.returncode == 0, done.stderr
    shown = run_script("gke.sh", *arguments, "--dry-run", "--", "train", *RUN)
    assert yaml.safe_load(sent.read_text()) == manifest_of(shown)


# Answers `get` with the words of $ANSWERS in turn, keeps all it was asked, shows a log.
KUBECTL = """
echo "$*" >> "$ASKED"
case $1 in
    get)
        case $* in *jsonpath*) ;; *) exit ;; esac
        read -r answer rest < "$ANSWERS"
        echo "$rest" > "$ANSWERS"
        [ "$answer" = none ] || echo "$answer" ;;
    wait) [ "$READY" = yes ] ;;
    logs) echo "the log" ;;
    apply) cat > /dev/null ;;
esac
"""


@pytest.fixture
def kubectl(add_program, environment, tmp_path):
    """Makes a stand-in, and gives what it was asked."""

    def make(answers, ready="yes"):
        add_program("kubectl", KUBECTL)
        (tmp_path / "answers").write_text(f"{answers}\n")
        environment.update(
            ANSWERS=str(tmp_path / "answers"), ASKED=str(tmp_path / "asked"), READY=ready
        )

        def asked():
            return [line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()]

        return asked

    return make


def test_a_run_is_followed_to_its_end(run_script, kubectl):
    kubectl("none none Completed")
    done = run_script("gke.sh", "follow", "--name", "bert")
    assert (done.returncode, done.stderr) == (0, "gke.sh: bert: Completed\n")
    assert done.stdout == 3 * "the log\n"  # a pod after another


def test_a_run_that_has_ended_shows_its_log(run_script, kubectl):
    kubectl("Failed", ready="no")
    done = run_script("gke.sh", "follow", "--name", "bert")
    assert (done.returncode, done.stdout, done.stderr) == (
        *(1, "the log\n"),
        "gke.sh: bert: Failed\n",
    )


@pytest.mark.parametrize(("state", "removed"), [("Failed", True), ("none", False)])
def test_what_has_ended_makes_way(run_script, kubectl, state, removed):
    asked = kubectl(state)
    done = run_script("gke.sh", *START, "--topology", "v5e:4x4", "--", "train", *RUN)
    assert done.returncode == 0, done.stderr
    assert asked() == ["get", *(["delete"] if removed else []), "apply"]


def test_xpk_gets_one_command(run_script, add_program, tmp_path):
    words = tmp_path / "words.json"
    add_program(
        "xpk", f"import json, sys; open({str(words)!r}, 'w').write(json.dumps(sys.argv[1:]))"
    )
    done = run_script(
        "gke.sh", *START, "--topology", "v5p:4x4x4", "--xpk", "cluster", "--", "train", *RUN
    )
    assert done.returncode == 0, done.stderr
    given = json.loads(words.read_text())
    assert given[:4] == ["workload", "create", "--cluster=cluster", "--workload=bert"]
    assert "--tpu-type=v5p-128" in given
    assert "--restart-on-exit-codes=75" in given
    (command,) = (word for word in given if word.startswith("--command="))
    assert shlex.split(command.removeprefix("--command=")) == ["bert-jax", "train", *RUN]


def test_the_other_verbs(run_script):
    def lines(*arguments):
        done = run_script("gke.sh", *arguments, "--dry-run")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert lines("image", "--image", "r/bert:1") == [
        "docker build --platform linux/amd64 --file launch/gke/Dockerfile --tag r/bert:1 .",
        "docker push r/bert:1",
    ]
    assert lines("stop", "--name", "bert") == ["kubectl delete jobset bert --wait"]
    assert lines("stop", "--name", "bert", "--xpk", "c") == [
        "xpk workload delete --cluster=c --workload=bert"
    ]
    assert "jobset.sigs.k8s.io/jobset-name=bert" in lines("follow", "--name", "bert")[1]
    assert lines("status", "--name", "bert")[0] == "kubectl get jobset bert --output=wide"


def test_mistakes_are_one_line(refused):
    assert "kubectl is not installed" in refused("gke.sh", "status", "--name", "bert")
    assert "--name is missing" in refused("gke.sh", "status")
    assert "only a-z" in refused("gke.sh", "status", "--name", "Bert_1")
    assert "--image is missing" in refused("gke.sh", "start", "--name", "bert")
    assert "unknown verb" in refused("gke.sh", "strat")
    assert "--topology is missing" in refused("gke.sh", *START)
    assert "no such slice of v5e" in refused("gke.sh", *START, "--topology", "v5e:3x3")
    slice_ = (*START, "--topology", "v5e:4x4", "--dry-run")
    assert "what is to run?" in refused("gke.sh", *slice_)
    assert "needs --workdir" in refused("gke.sh", *slice_, "--", "train")
    assert "would be lost" in refused("gke.sh", *slice_, "--", "train", "--workdir", "runs/a")
    assert "line break" in refused(
        "gke.sh", *slice_, "--", "train", "--workdir", "gs://b/r", "--config", "a\nb"
    )
