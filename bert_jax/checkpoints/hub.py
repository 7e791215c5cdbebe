"""The files of a model: a directory, a run's directory, or an id on the hub through its cache."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_jax.checkpoints.sentence_transformers import VECTOR_FILES
from bert_jax.checkpoints.sentence_transformers.entries import encoder_directory, module_folders
from bert_jax.checkpoints.tensors import ADAPTER
from bert_jax.errors import UserError, first_line
from bert_jax.files import as_path, fetch, is_remote, reachable
from bert_jax.files.manifest import MANIFEST
from bert_jax.files.paths import (
    DESCRIPTION,
    MODEL,
    MODEL_CONFIG,
    OLD_DESCRIPTION,
    RESULT,
    SEVERAL_RUNS,
)
from bert_jax.tokenization.image_processor import IMAGE_PROCESSOR_FILE

# What `Family.load_tokenizer` reads.
TOKENIZER_PATTERNS = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "*.model"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    IMAGE_PROCESSOR_FILE,
)
_DESCRIPTIONS = (DESCRIPTION, OLD_DESCRIPTION)
DESCRIPTION_PATTERNS = (*(MANIFEST, *_DESCRIPTIONS, *TOKENIZER_PATTERNS, *VECTOR_FILES, ADAPTER),)
SAFETENSORS_PATTERNS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
PYTORCH_PATTERNS = ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json")
MODEL_PATTERNS = (*DESCRIPTION_PATTERNS, *SAFETENSORS_PATTERNS, *PYTORCH_PATTERNS)

_PART = r"[A-Za-z0-9_][\w.-]*"
_HUB_ID = re.compile(rf"(?:{_PART}/)?{_PART}", re.ASCII)
# An address of a model on the hub, with a revision; or an id with a revision, or a folder in it.
_ADDRESS = re.compile(
    rf"(?P<site>(?:hf://|(?:https?://)?(?:huggingface\.co|hf\.co)/)(?:models/)?)?(?P<id>{_PART}/{_PART})"
    r"(?:/(?:tree|blob|resolve)/|@)?(?P<rest>.*)",
    re.ASCII,
)


def resolve(path_or_hub_id: str | Path, revision: str | None = None) -> Path:
    """The directory with the files of a model, downloaded if necessary.

    For the work directory of a finished run it is the directory of its model, for several runs of
    the best one. Any other directory is returned itself; one in a bucket is copied to the local
    machine.
    A string of the form `name` or `organisation/name` that is not a directory is an id on the hub:
    the files that `bert_jax` reads are fetched into the hub's cache, `pytorch_model.bin` only if
    there is no `model.safetensors`. The environment variables of `huggingface_hub` apply:
    HF_HOME and HF_HUB_CACHE (location of the cache), HF_HUB_OFFLINE (cache only), HF_TOKEN (private
    models), HF_ENDPOINT (a mirror).

    Args:
        path_or_hub_id: "runs/quick", "gs://bucket/model", "google-bert/bert-base-uncased".
        revision: a branch, tag or commit on the hub; None for its main branch.

    Raises:
        UserError: neither the directory nor the model exists, the run is not finished, or the hub
            cannot be reached.
    """
    name = str(path_or_hub_id)
    _refuse_address(name)
    if is_remote(name):
        if revision is not None:
            raise UserError(f"{name} has no revision {revision!r}; leave the revision out")
        remote = _model_of_run(as_path(name))
        return _with_modules(lambda patterns: fetch(remote, patterns), MODEL_PATTERNS)
    directory = os.path.expanduser(name)
    if name and os.path.isdir(directory):
        if revision is not None:
            raise UserError(
                f"{name}: local files have no revision {revision!r}; leave the revision out"
            )
        return _model_of_run(Path(directory))
    if os.path.isfile(directory):
        raise UserError(f"{name} is a file; give the model directory that it is in")
    if not _HUB_ID.fullmatch(name):
        rule = "give a model directory or a hub id"
        if (parts := _ADDRESS.fullmatch(name)) and not os.path.exists(name.partition("/")[0]):
            rule += (
                f", as {parts['id']}; of a folder or a revision of it, a directory with the files "
                f"(hf download {parts['id']} --local-dir DIR, with --include or --revision)"
            )
        raise UserError(f"{name or 'the empty path'} does not exist; {rule}")
    return _fetch(name, revision)


def _refuse_address(name: str) -> None:
    """Raises UserError for an address of a model on the hub."""
    parts = _ADDRESS.fullmatch(name)
    if parts and parts["site"]:
        revision = re.match(r"[^/]+", parts["rest"])
        other = f", with the revision {revision[0]}" if revision and revision[0] != "main" else ""
        raise UserError(f"{name} is an address; give the model's id, {parts['id']}{other}")


def check_not_of_run(directory: Path) -> None:
    """Checks that a directory for output is not the model of a run.

    Raises:
        UserError: it is.
    """
    run = directory.parent
    with reachable(directory):
        is_of_run = directory.name == MODEL and _is_run(run)
    if is_of_run:
        raise UserError(f"{directory} is the model of the run {run}; give another directory")


def _is_run(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (MODEL_CONFIG, SEVERAL_RUNS))


def model_files(directory: Path) -> list[Path]:
    """The files of a local directory that a model may be read from, Google's included."""
    google = ("checkpoint", "*.ckpt*")
    patterns = (*MODEL_PATTERNS, *google)
    folders = [directory, *(directory / name for name in module_folders(directory))]
    return sorted(
        {file for folder in folders for pattern in patterns for file in folder.glob(pattern)}
    )


def _model_of_run(directory: Path) -> Path:
    """The model in the directory of a finished run; any other directory itself.

    Raises:
        UserError: the run is not finished, or has no model.
    """
    with reachable(directory):
        if not _is_run(directory):
            return directory
        if (directory / RESULT).is_file() and (directory / MODEL / DESCRIPTION).is_file():
            return directory / MODEL
        if (directory / SEVERAL_RUNS).is_file():
            raise UserError(
                f"{directory} holds several runs and no model of the best; continue them, or give "
                "one of the runs in it"
            )
    raise UserError(
        f"{directory} is a run that is not finished; continue it, or give the directory that "
        f"bert-jax export --workdir {directory} --output DIR writes"
    )


def _fetch(hub_id: str, revision: str | None) -> Path:
    refusal = _refusal(hub_id, revision)
    for weights in (SAFETENSORS_PATTERNS, PYTORCH_PATTERNS):
        directory = _with_modules(
            lambda patterns: _snapshot(hub_id, revision, patterns, refusal),
            (*DESCRIPTION_PATTERNS, *weights),
        )
        encoder = encoder_directory(directory)
        if not any((encoder / name).is_file() for name in _DESCRIPTIONS):
            raise UserError(
                f"{hub_id}: {encoder} has no config.json; the model is of another kind, or only "
                "partly in the cache: then connect to the network and run again"
            )
        if any(file for pattern in weights for file in encoder.glob(pattern)):
            return directory
    raise UserError(
        f"{hub_id}: {encoder} has neither model.safetensors nor pytorch_model.bin; the model is "
        "of another kind, or only partly in the cache: then connect to the network and run again"
    )


def _with_modules(get: Callable[[Sequence[str]], Path], patterns: Sequence[str]) -> Path:
    """The directory with the files of these patterns, also in the folders of its modules."""
    directory = get(patterns)
    known: list[str] = []
    # The folder of a Router has a file that names more folders.
    while (folders := module_folders(directory)) != known:
        # A module may have its weights in another format than the encoder.
        get([f"{name}/{pattern}" for name in folders for pattern in MODEL_PATTERNS])
        known = folders
    return directory


def _refusal(hub_id: str, revision: str | None) -> Exception | None:
    """The hub's error for a request of a model; None if it is available.

    `snapshot_download` sends the same request, but waits for ever for a server that never answers.
    """
    from huggingface_hub import HfApi, constants

    try:
        HfApi().model_info(hub_id, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:
        return error
    return None


def _snapshot(
    hub_id: str, revision: str | None, patterns: Sequence[str], refusal: Exception | None
) -> Path:
    """The directory of a commit in the cache, downloaded unless the hub has refused."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        directory = snapshot_download(
            hub_id,
            revision=revision,
            allow_patterns=list(patterns),
            # Files of other programs, such as in "onnx/": a folder is only read by its name.
            ignore_patterns=None if "/" in patterns[0] else "*/*",
            local_files_only=refusal is not None,
        )
    except LocalEntryNotFoundError as error:
        # Newer versions refuse an incomplete snapshot of another program; it may have all we need.
        directory = getattr(error, "snapshot_path", "")
        if not directory:
            raise UserError(f"{hub_id} {_explanation(refusal or error, revision)}") from error
    except Exception as error:  # network errors have another base in each version of the library
        raise UserError(f"{hub_id} {_explanation(error, revision)}") from error
    return Path(directory)


def _explanation(error: Exception, revision: str | None) -> str:
    """The cause and the remedy, to follow the hub id in a message."""
    from huggingface_hub import errors

    match error:
        case errors.HFValidationError():
            return "does not exist and cannot be a hub id; give a model directory or a hub id"
        case errors.GatedRepoError():  # a kind of RepositoryNotFoundError
            return (
                "is restricted by its authors; request access on its page, then set HF_TOKEN to "
                "your token"
            )
        case errors.RepositoryNotFoundError():
            return (
                "is neither a directory here nor a model on the hub that you may read; check the "
                "spelling, or set HF_TOKEN if it is private"
            )
        case errors.RevisionNotFoundError():
            return (
                f"has no revision {revision or 'main'} on the hub; give a branch, tag or commit "
                "that it has"
            )
        case errors.OfflineModeIsEnabled():
            return (
                "is neither a directory here nor in the hub's cache, and HF_HUB_OFFLINE is set; "
                "unset it, or give the path of a model directory"
            )
        case _:
            return (
                "is neither a directory here nor whole in the hub's cache, and cannot be "
                f"downloaded ({type(error).__name__}: {first_line(error)}); check the network, "
                "HF_ENDPOINT and the space for the cache, or give the path of a model directory"
            )
