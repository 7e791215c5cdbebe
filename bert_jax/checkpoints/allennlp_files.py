"""AllenNLP's files of an ELMo: `options.json` and `weights.hdf5`, as published.

Their names may have a prefix, such as `elmo_2x4096_512_2048cnn_2xhighway_options.json`, and the
weights may be named `lm_weights.hdf5`. They are read; a model is saved as a model directory.
"""

from pathlib import Path
from typing import Any, NamedTuple, Unpack

import flax.linen as nn

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport, ReadOptions, read_parameters
from bert_jax.checkpoints.tensors.hdf5_file import HDF5File
from bert_jax.errors import OptionError, UserError, listed
from bert_jax.families import elmo
from bert_jax.files import check_undamaged, is_there, read_json_object
from bert_jax.files.paths import DESCRIPTION
from bert_jax.models.head import BARE_ENCODER

_OPTIONS, _WEIGHTS = "options.json", "weights.hdf5"


class AllenNLPFiles(NamedTuple):
    """The location of a model.

    Attributes:
        directory: directory of the files.
        prefix: the weights.
        options: the file with the architecture.
    """

    directory: Path
    prefix: Path
    options: Path


def find(path: Path) -> AllenNLPFiles | None:
    """AllenNLP's files at a path; None if there are none.

    Args:
        path: a directory with the two files, or one of them. A directory with a `config.json` is
            Hugging Face's, even if it also has such files.

    Raises:
        UserError: one of the two is missing, or there are several.
    """
    if path.is_dir():
        if is_there(path / DESCRIPTION):
            return None
        pairs = [path.glob(f"*{_OPTIONS}"), path.glob(f"*{_WEIGHTS}")]
    else:
        ending = next((name for name in (_OPTIONS, _WEIGHTS) if path.name.endswith(name)), None)
        if ending is None or not is_there(path):
            return None
        start = path.name.removesuffix(ending)
        names = {start + _OPTIONS, _OPTIONS}, {start + _WEIGHTS}
        pairs = [(path.with_name(name) for name in each) for each in names]
    options, weights = (sorted(filter(is_there, each)) for each in pairs)
    if not options and not weights:
        return None
    directory = path if path.is_dir() else path.parent
    for files, name in ((options, _OPTIONS), (weights, _WEIGHTS)):
        if len(files) != 1:
            found = listed([file.name for file in files]) or "none"
            raise UserError(
                f"{path}: of the two files of AllenNLP, …{_OPTIONS} and …{_WEIGHTS}, {name} must "
                f"be there once, but there is {found}; give a directory with both"
            )
    return AllenNLPFiles(directory, weights[0], options[0])


def load_description(files: AllenNLPFiles, head: str | None = None) -> ModelDescription:
    """The description of the files; no weights are read, and the files have no head.

    What the options say about the training is kept, in the key `training` of `config.json`.

    Raises:
        UserError: the options are missing or damaged, or not supported.
    """
    check_undamaged(files.directory, [files.options.name])
    options = read_json_object(files.options, remedy="give AllenNLP's files of a model")
    try:
        fields, training = elmo.config_fields(options)
        config = elmo.FAMILY.config({**elmo.FAMILY.defaults, **fields})
    except OptionError as error:
        raise error.at(files.options) from error
    other = {"training": training} if training else {}
    return ModelDescription(config, head or BARE_ENCODER, other=other, family=elmo.FAMILY)


def load_params(
    files: AllenNLPFiles,
    description: ModelDescription,
    module: nn.Module,
    **options: Unpack[ReadOptions],
) -> tuple[Any, LoadReport]:
    """The parameters of a model, float32, on a mesh (default: one device).

    See `parameters.read_parameters`.

    Raises:
        UserError: the encoder is incomplete, or a data set has another shape.
    """
    check_undamaged(files.directory, [files.prefix.name])
    with HDF5File(files.prefix) as file:
        return read_parameters(file, elmo.ALLENNLP, module, **options)
