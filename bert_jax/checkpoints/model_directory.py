"""A model directory: `config.json`, `model.safetensors`, tokenizer files; Hugging Face's layout."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import flax.linen as nn
import ml_dtypes
import numpy as np

from bert_jax.checkpoints.config_file import (
    DTYPES,
    ModelDescription,
    read_config,
    write_config,
)
from bert_jax.checkpoints.generation_config import FILE as GENERATION
from bert_jax.checkpoints.generation_config import (
    GenerationDefaults,
    generation_config_bytes,
    read_generation_config,
)
from bert_jax.checkpoints.hub import TOKENIZER_PATTERNS
from bert_jax.checkpoints.parameters import (
    POOLER,
    WORD_EMBEDDINGS,
    LoadReport,
    ReadOptions,
    check_sizes,
    decoder_tensor,
    heads_in,
    locate,
    number_of_labels,
    parameters_in,
    read_parameters,
    to_tensors,
)
from bert_jax.checkpoints.sentence_transformers import (
    MODULES,
    OBSOLETE,
    OBSOLETE_ROUTES,
    ROUTER,
    VECTOR_FILES,
)
from bert_jax.checkpoints.sentence_transformers.colbert import projection_in
from bert_jax.checkpoints.sentence_transformers.cross_encoder import with_activation
from bert_jax.checkpoints.sentence_transformers.entries import encoder_directory
from bert_jax.checkpoints.sentence_transformers.reading import read_modules, read_vectors
from bert_jax.checkpoints.sentence_transformers.writing import (
    join_routes,
    module_tensors,
    write_vectors,
)
from bert_jax.checkpoints.tensors import SAFETENSORS, TensorFile, open_tensors
from bert_jax.files import atomic_directory, check_undamaged, is_there, read_json_object
from bert_jax.files.paths import DESCRIPTION, OLD_DESCRIPTION
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import BARE_ENCODER, find_head
from bert_jax.models.heads.token_vectors import TokenVectors
from bert_jax.models.vectors import SIDES, TEXT_VECTORS
from bert_jax.sharding.hosts import is_main_host, wait_for_all_hosts
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tokenization.interface import Tokenizer

# Files of an older model in the directory that would be read: weights in any format, tokenizers of
# any kind.
_OBSOLETE = (
    *("model-*-of-*.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json"),
    *TOKENIZER_PATTERNS,
    GENERATION,
    *OBSOLETE,
)
# How `atomic_directory` replaces a model, and one with several encoders.
_ONE_MODEL: dict[str, Any] = {"marker": DESCRIPTION, "last": SAFETENSORS, "obsolete": _OBSOLETE}
_WITH_ROUTES: dict[str, Any] = {"marker": ROUTER, "last": MODULES, "obsolete": OBSOLETE_ROUTES}

SavedModel = tuple[ModelDescription, Any, Tokenizer]
"""Description, parameters and tokenizer."""


def save(
    directory: Path,
    description: ModelDescription,
    params: Any,
    tokenizer: Tokenizer,
    sides: Mapping[str, SavedModel] | None = None,
) -> None:
    """Writes a model directory that `transformers` loads; if it has weights, it is complete.

    With `sides` it has several encoders, and sentence-transformers loads it, with a Router. With
    several hosts all must call it, and the main host writes.

    Args:
        directory: directory, created if missing; an older model of the same kind is replaced.
        description: description of the model; tensors are written in its dtype.
        params: parameters of the model; each must be in the name table.
        tokenizer: tokenizer of the model.
        sides: the same of the models of queries or of documents, by side, if they have their own.

    Raises:
        UserError: the directory contains something else, or cannot be written; or the models differ
            in what the files have once.
    """
    contents = {"": _Content.gather(description, params, tokenizer)}
    contents |= {side: _Content.gather(*model) for side, model in (sides or {}).items()}
    if is_main_host():
        how = _WITH_ROUTES if sides else _ONE_MODEL
        with atomic_directory(directory, **how) as partial:
            if sides:
                own = next((side for side in SIDES if side not in sides), "other")
                contents[own] = contents.pop("")
                for side, content in contents.items():
                    (partial / side).mkdir()
                    content.write(partial / side)
                join_routes(partial, own)
            else:
                contents[""].write(partial)
    wait_for_all_hosts(f"a model in {directory}")


@dataclasses.dataclass(frozen=True)
class _Content:
    """What a model directory gets, on the host."""

    description: ModelDescription
    tensors: dict[str, np.ndarray]
    modules: dict[str, np.ndarray]
    tokenizer: Tokenizer

    @classmethod
    def gather(cls, description: ModelDescription, params: Any, tokenizer: Tokenizer) -> "_Content":
        modules = module_tensors(params)
        own = {scope: tree for scope, tree in params.items() if scope != TEXT_VECTORS}
        return cls(description, _tensors(description, own), modules, tokenizer)

    def write(self, directory: Path) -> None:
        """Writes the files into a local directory."""
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        description = self.description
        self.tokenizer.save(directory, max_length=description.config.max_length)
        write_config(directory / DESCRIPTION, description)
        defaults = description.generation
        if defaults and defaults.path.name == GENERATION:
            (directory / GENERATION).write_bytes(generation_config_bytes(defaults))
        vectors, width = description.stored_vectors, description.config.hidden_size
        if vectors and description.head in vectors.heads:
            write_vectors(directory, vectors, width, self.modules)
        try:
            save_file(self.tensors, directory / SAFETENSORS, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        # safetensors makes the file private; the config has the permissions of the umask.
        shutil.copymode(directory / DESCRIPTION, directory / SAFETENSORS)


def load_description(directory: Path, head: str | None = None, route: str = "") -> ModelDescription:
    """The description of a model directory; of its weights only a tied decoder is read.

    Args:
        directory: the model directory.
        head: head of the requested model; None: the config names it, else the tensors show it.
        route: the kind of the texts, where the files have modules of their own for each.

    Raises:
        UserError: config or weights are missing, damaged or of an unsupported model.
    """
    check_undamaged(directory, [DESCRIPTION, *VECTOR_FILES, f"*/{DESCRIPTION}"])
    encoder = encoder_directory(directory, route)
    described = read_config(_description_file(encoder))
    names = described.family.huggingface
    with open_tensors(encoder) as file:
        config = described.config
        located = locate(file, names, config)
        parameters = parameters_in(located, names)
        by_name = {name: str(file.tensors[source].dtype) for name, source in located.items()}
        # float64 is rounded on reading, and integers are not parameters.
        by_name = {name: dtype for name, dtype in by_name.items() if dtype in DTYPES}
        dtypes = set(by_name.values())
        check_sizes(file, located, names.rules, config)
        tables = [
            located[name]
            for name in (decoder_tensor(names), names.tensor_of(WORD_EMBEDDINGS))
            if name in located
        ]
        if len(tables) == 2 and config.tie_word_embeddings:
            # As in transformers 5: two different tables are not tied, regardless of the config.
            config = dataclasses.replace(config, tie_word_embeddings=_are_equal(file, *tables))
        head = head or described.head
        if head is None:
            is_score = number_of_labels(file, located, names) == 1 != config.num_labels
            head = heads_in(parameters, is_score=is_score)[-1]
    # One without an activation has no parameters.
    has_pooler = config.has_pooler and (not config.classifier_activation or POOLER in parameters)
    return dataclasses.replace(
        described,
        config=config,
        head=head,
        other=with_activation(directory, described.other),
        stored_vectors=read_vectors(directory, route),
        generation=_generation(encoder, head),
        mixed_dtypes=by_name if len(dtypes) > 1 else {},
        dtype=dtypes.pop() if len(dtypes) == 1 else "float32",
        add_pooling_layer=head != BARE_ENCODER or has_pooler,
    )


def _description_file(directory: Path) -> Path:
    """`config.json`, or Google's name for it, which the first PyTorch files of BERT have beside."""
    names = (DESCRIPTION, OLD_DESCRIPTION)
    return next(
        (directory / name for name in names if is_there(directory / name)), directory / DESCRIPTION
    )


def _generation(directory: Path, head: str) -> GenerationDefaults | None:
    """How a model with a head that generates does so, from its files."""
    if not find_head(head).generates:
        return None
    return read_generation_config(directory, read_json_object(_description_file(directory)))


def load_tokenizer(directory: Path, description: ModelDescription) -> Tokenizer:
    """The tokenizer beside the encoder; see `Family.load_tokenizer`."""
    folder, vectors = encoder_directory(directory, description.route), description.stored_vectors
    tokenizer = description.family.load_tokenizer(folder, config=description.config)
    markers = vectors.markers if isinstance(vectors, TokenVectors) else ()
    return tokenizer.with_special_tokens(markers) if markers else tokenizer


def load_params(
    directory: Path,
    description: ModelDescription,
    module: nn.Module,
    **options: Unpack[ReadOptions],
) -> tuple[Any, LoadReport]:
    """Parameters of a model directory for a model, float32, on a mesh (default: one device).

    See `parameters.read_parameters`.

    Raises:
        UserError: the encoder is incomplete, or a tensor has another shape.
    """
    check_undamaged(directory, ["*.safetensors"])
    names = description.family.huggingface
    with open_tensors(encoder_directory(directory, description.route)) as file:
        params, report = read_parameters(file, names, module, **options)
    if TEXT_VECTORS in abstract_params(module):
        mesh = options.get("mesh") or one_device_mesh()
        params |= read_modules(directory, description, mesh)
    if projection := projection_in(directory):
        # A module after the encoder, which is read with the others.
        others = [key for key in report.unexpected_keys if not key.startswith(f"{projection}.")]
        report = dataclasses.replace(report, unexpected_keys=tuple(others))
    return params, report


def _tensors(description: ModelDescription, params: Any) -> dict[str, np.ndarray]:
    """The tensors that `transformers` saves for this model, in the dtype on disk."""
    names = description.family.huggingface
    tensors = to_tensors(params, names, description.make_module(Execution()))
    if decoder_tensor(names) in tensors:
        tensors |= {alias: tensors[name] for alias, name in names.aliases.items()}
    prefix = names.prefix if description.is_bare else ""

    def dtype_of(name: str) -> np.dtype:
        dtype = description.mixed_dtypes.get(name, description.dtype)
        return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    return {
        name.removeprefix(prefix): tensor.astype(dtype_of(name), copy=False)
        for name, tensor in tensors.items()
    }


def _are_equal(file: TensorFile, one: str, other: str) -> bool:
    """Whether two tensors are bitwise equal."""
    if file.tensors[one] != file.tensors[other]:
        return False
    pairs = zip(file.read(one), file.read(other), strict=True)  # row by row: no copy of a table
    return all(row.tobytes() == same.tobytes() for row, same in pairs)
