"""The parameters of one encoder or of two, read from model directories and exported to them."""

import dataclasses
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.errors import OptionError
from bert_jax.families.family import find_family
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.dual_encoder import DOCUMENT_TOWER
from bert_jax.models.encoder import abstract_params, init_params
from bert_jax.models.parameter_sharding import state_shardings
from bert_jax.models.vectors import QUERY, TEXT_VECTORS
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.train_spec import TrainedPart
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class DocumentEncoderOptions:
    """The section `document_encoder` of a config.

    Attributes:
        separate: whether documents have an encoder of their own, with the architecture of the
            encoder of queries.
        init_from: model directory or hub id that it starts from; "": it starts as a copy of the
            encoder of queries. A finished model of two encoders is evaluated with it.
    """

    separate: bool = False
    init_from: str = ""

    def __post_init__(self) -> None:
        if self.init_from and not self.separate:
            rule = "set {document_encoder.separate=true}, or leave it out"
            raise OptionError("document_encoder.init_from", self.init_from, rule)

    @property
    def towers(self) -> int:
        """The number of encoders."""
        return 1 + self.separate

    def directory(self, tokenizer: Tokenizer) -> Path | None:
        """The directory of `init_from`; None without one.

        Raises:
            OptionError: its model has another tokenizer.
        """
        if not self.init_from:
            return None
        directory = resolve(self.init_from)
        description = model_directory.load_description(directory)
        document_tokenizer = model_directory.load_tokenizer(directory, description)
        if document_tokenizer.fingerprint() != tokenizer.fingerprint():
            rule = "its model has another tokenizer than {init_from}: give one with the same"
            raise OptionError("document_encoder.init_from", self.init_from, rule)
        return directory


def load_encoder(
    directory: Path,
    description: ModelDescription,
    target: ModelDescription,
    module: nn.Module,
    *,
    mesh: Mesh | None = None,
    seed: int = 0,
    reinitialize: tuple[str, ...] = (),
) -> tuple[Any, LoadReport]:
    """The parameters of one encoder, and of the modules after it.

    Modules that the source does not have are initialised from the seed.

    Args:
        directory: model directory.
        description: its description.
        target: the model that is trained.
        module: the module of `target`.
        mesh: devices that hold the parameters; None: one device.
        seed: of the parameters that the source does not have.
        reinitialize: prefixes of parameters that are initialised even if the source has them.
    """
    source, trained = description.stored_vectors, target.stored_vectors
    if source is None or trained is None or source.modules != trained.modules:
        source = source and dataclasses.replace(source, modules=())
        description = dataclasses.replace(description, stored_vectors=source)
    mesh = mesh or one_device_mesh()
    params, report = model_directory.load_params(
        directory, description, module, mesh=mesh, seed=seed, reinitialize=reinitialize
    )
    shapes = abstract_params(module)
    if TEXT_VECTORS not in shapes or TEXT_VECTORS in params:
        return params, report
    new = {TEXT_VECTORS: shapes[TEXT_VECTORS]}
    make = jax.jit(
        lambda key: {TEXT_VECTORS: init_params(module, key)[TEXT_VECTORS]},
        out_shardings=state_shardings(mesh, new),
    )
    report = dataclasses.replace(report, new=(*report.new, TEXT_VECTORS))
    return params | make(jax.random.key(seed)), report


def with_documents(
    queries: tuple[Any, LoadReport], documents: tuple[Any, LoadReport]
) -> tuple[Any, LoadReport]:
    """The parameters of two encoders, each with its report."""
    (params, one), (document_params, other) = queries, documents
    unexpected = dict.fromkeys(one.unexpected_keys + other.unexpected_keys)
    report = LoadReport(
        one.taken + other.taken,
        one.new + tuple(f"{DOCUMENT_TOWER}/{name}" for name in other.new),
        tuple(unexpected),
    )
    return {**params, DOCUMENT_TOWER: document_params}, report


def document_part(description: ModelDescription, module: nn.Module) -> TrainedPart:
    """The encoder of documents in a run, from the exported encoder of queries."""
    # In DPR, the two encoders have different classes.
    family = find_family(description.family.model_type)
    described = dataclasses.replace(description, family=family)
    return TrainedPart(described, module, lambda trained: _exported(trained[DOCUMENT_TOWER]))


def both_parts(description: ModelDescription, module: nn.Module) -> TrainedPart:
    """Both encoders in a run: a model of documents, whose queries the other one encodes."""
    queries = TrainedPart(description, module, _exported)
    return dataclasses.replace(document_part(description, module), sides={QUERY: queries})


def _exported(tower: Any) -> Any:
    """The parameters of an exported encoder, from those of `models.dual_encoder.Towers`."""
    return tower[ENCODER_SCOPE] | {key: tower[key] for key in (TEXT_VECTORS,) if key in tower}
