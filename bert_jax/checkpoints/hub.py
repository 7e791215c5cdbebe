"""A model directory by its path, or by its id on the Hugging Face Hub through the hub's cache."""

import os
import re
from pathlib import Path

from bert_jax.checkpoints.sentence_transformers import POOLING_FILES
from bert_jax.errors import UserError, first_line
from bert_jax.files import as_path, fetch, is_remote

DESCRIPTION_PATTERNS = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "*.model", *POOLING_FILES),
)
SAFETENSORS_PATTERNS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
PYTORCH_PATTERNS = (
    *("pytorch_model.bin", "pytorch_model-*.bin"),
    "pytorch_model.bin.index.json",
)

_HUB_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)


def resolve(path_or_hub_id: str | Path, revision: str | None = None) -> Path:
    """The directory with the files of a model, downloaded if it is not there yet.

    A directory that exists is itself; one in a bucket is copied to this machine. Everything else of
    the form `name` or `organisation/name` is an id on the hub: of its files those that `bert_jax`
    reads are fetched into the hub's cache, `pytorch_model.bin` only where there is no
    `model.safetensors`. The variables of `huggingface_hub` hold: HF_HOME and HF_HUB_CACHE (where
    the cache is), HF_HUB_OFFLINE (only the cache), HF_TOKEN (private models), HF_ENDPOINT (a
    mirror).

    Args:
        path_or_hub_id: "runs/quick/model", "gs://bucket/model", "google-bert/bert-base-uncased".
        revision: a branch, tag or commit on the hub; None for its main branch.

    Raises:
        UserError: there is no such directory and no such model, or the hub cannot be reached.
    """
    name = str(path_or_hub_id)
    if is_remote(name):
        if revision is not None:
            raise UserError(f"{name} has no revision {revision!r}; leave the revision out")
        weights = (*SAFETENSORS_PATTERNS, *PYTORCH_PATTERNS)
        return fetch(as_path(name), [*DESCRIPTION_PATTERNS, *weights])
    directory = os.path.expanduser(name)
    if name and os.path.isdir(directory):
        if revision is not None:
            raise UserError(
                f"{name} is a directory here, and a directory has no revision {revision!r}; leave "
                "the revision out"
            )
        return Path(directory)
    if os.path.isfile(directory):
        raise UserError(f"{name} is a file; give the model directory that it is in")
    if not _HUB_ID.fullmatch(name):
        raise UserError(
            f"{name or 'the empty path'} does not exist; give a model directory or a hub id"
        )
    return _fetch(name, revision)


def _fetch(hub_id: str, revision: str | None) -> Path:
    refusal = _refusal(hub_id, revision)
    for weights in (SAFETENSORS_PATTERNS, PYTORCH_PATTERNS):
        directory = _snapshot(hub_id, revision, [*DESCRIPTION_PATTERNS, *weights], refusal)
        if not (directory / "config.json").is_file():
            raise UserError(
                f"{hub_id}: {directory} has no config.json; the model is of another kind, or only "
                "partly in the cache: then connect to the network and run again"
            )
        if any(file for pattern in weights for file in directory.glob(pattern)):
            return directory
    raise UserError(
        f"{hub_id}: {directory} has neither model.safetensors nor pytorch_model.bin; the model is "
        "of another kind, or only partly in the cache: then connect to the network and run again"
    )


def _refusal(hub_id: str, revision: str | None) -> Exception | None:
    """Why the hub does not give a model; None if it does.

    `snapshot_download` asks the same, but waits for ever for a server that never answers.
    """
    from huggingface_hub import HfApi, constants

    try:
        HfApi().model_info(hub_id, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:
        return error
    return None


def _snapshot(
    hub_id: str, revision: str | None, patterns: list[str], refusal: Exception | None
) -> Path:
    """The directory of a commit in the cache: downloaded, or after a refusal what is there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        directory = snapshot_download(
            hub_id,
            revision=revision,
            allow_patterns=patterns,
            ignore_patterns="*/*.model",  # those of other programs, as below "onnx/"
            local_files_only=refusal is not None,
        )
    except LocalEntryNotFoundError as error:
        # Newer versions refuse what another program fetched for itself; it may suffice us.
        directory = getattr(error, "snapshot_path", "")
        if not directory:
            raise UserError(f"{hub_id} {_explanation(refusal or error, revision)}") from error
    except Exception as error:  # network errors have another base in each version of the library
        raise UserError(f"{hub_id} {_explanation(error, revision)}") from error
    return Path(directory)


def _explanation(error: Exception, revision: str | None) -> str:
    """What happened and how to fix it, to follow the hub id."""
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
