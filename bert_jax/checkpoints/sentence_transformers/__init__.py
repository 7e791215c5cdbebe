"""The files that sentence-transformers has beside a model: how it makes vectors of texts.

    modules.json                       list of modules, each with its type and its folder
    FOLDER/config.json                 of a pooling, a dense map, …; their weights beside it
    sentence_bert_config.json          beside the encoder: the longest text, lower-casing
    config_sentence_transformers.json  prompts, similarity function, number of values of a vector

They are read in all forms since version 0: each field is computed, written back, or refused by its
name. Source: version 6.2, base/model.py, base/modules/ and sentence_transformer/modules/.
"""

from bert_jax.checkpoints.sentence_transformers.layout import (
    OBSOLETE,
    VECTOR_FILES,
    encoder_directory,
    module_folders,
)
from bert_jax.checkpoints.sentence_transformers.reading import read_vectors
from bert_jax.checkpoints.sentence_transformers.weights import (
    module_shapes,
    module_tensors,
    read_modules,
)
from bert_jax.checkpoints.sentence_transformers.writing import vector_files, write_vectors

__all__ = [
    "OBSOLETE",
    "VECTOR_FILES",
    "encoder_directory",
    "module_folders",
    "module_shapes",
    "module_tensors",
    "read_modules",
    "read_vectors",
    "vector_files",
    "write_vectors",
]
