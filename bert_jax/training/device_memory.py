"""What is said when a device has too little memory for a step."""

import contextlib
from collections.abc import Iterator

import jax
from jax.sharding import Mesh

from bert_jax.errors import UserError, first_line
from bert_jax.training.options import TrainOptions


@contextlib.contextmanager
def enough_memory(options: TrainOptions, mesh: Mesh) -> Iterator[None]:
    """Within it, a device that runs out of memory is one line with what takes less.

    Raises:
        UserError: instead of what XLA says on pages.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        rows = options.global_batch_size // options.microbatches
        parts = mesh.shape["data"] * mesh.shape["fsdp"]
        raise UserError(
            f"the memory of a device does not suffice for {rows // parts} rows at a time "
            f"(train.global_batch_size={options.global_batch_size}, "
            f"train.microbatches={options.microbatches}, {parts} parts of the batch): "
            f"{first_line(error)}; set model.remat=full, split the state by mesh.fsdp, or begin a "
            "new run with more train.microbatches; `bert-jax plan` says what fits"
        ) from error
