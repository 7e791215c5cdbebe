"""The fields of the files of sentence-transformers; observables are those of `TextVectors`.

The key of a field is its path in the file: "1.type" is `type` of the second entry. Of a
cross-encoder, `test_the_activation_beside_config_json_comes_first_and_is_kept` shows the same.
"""

from collections.abc import Mapping
from typing import Any

from tests.checkpoints.fields import (
    CARRIED,
    COMPUTED,
    Field,
    all_tested,
    carried,
    computed,
    refused,
)

MODULES, ENCODER = "modules.json", "sentence_bert_config.json"
MODEL = "config_sentence_transformers.json"
POOLING, DENSE, LAYER_NORM, DROPOUT, NORMALIZE = (
    f"{folder}/config.json"
    for folder in ("1_Pooling", "2_Dense", "3_LayerNorm", "4_Dropout", "5_Normalize")
)
_OUTPUT = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}

# As version 6.2 writes them.
FILES: Mapping[str, Any] = {
    MODULES: [
        {
            "idx": 0,
            "name": "0",
            "path": "",
            "type": "sentence_transformers.base.modules.Transformer",
        },
        *(
            {
                "idx": number,
                "name": str(number),
                "path": f"{number}_{kind}",
                "type": f"sentence_transformers.sentence_transformer.modules.{kind}",
            }
            for number, kind in enumerate(
                ("Pooling", "Dense", "LayerNorm", "Dropout", "Normalize"), start=1
            )
        ),
    ],
    ENCODER: {
        "transformer_task": "feature-extraction",
        "modality_config": _TEXT,
        "module_output_name": "token_embeddings",
    },
    MODEL: {
        "model_type": "SentenceTransformer",
        "__version__": {"sentence_transformers": "6.2.0"},
        "prompts": {"query": "query: ", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    },
    POOLING: {"embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": True},
    DENSE: {
        "in_features": 16,
        "out_features": 8,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
        **_OUTPUT,
    },
    LAYER_NORM: {"dimension": 8},
    DROPOUT: {"dropout": 0.1},
    NORMALIZE: _OUTPUT,
}

_READ_AGAIN = "test_what_is_written_is_read"
_MODULE = {
    "module_input_name": refused("token_embeddings"),
    "module_output_name": refused("token_embeddings"),
    "my_note": refused(1),
}

VECTORS: Mapping[str, Mapping[str, Field]] = {
    MODULES: {
        **all_tested("0.idx 0.path 0.type", COMPUTED, "test_layouts_of_all_versions"),
        "0.name": carried("transformer"),
        "1.type": refused("sentence_transformers.sentence_transformer.modules.CNN"),
        "2.type": refused("my_code.Module"),
        "0.kwargs": carried(["task"]),
        "0.my_note": carried("anything"),
    },
    ENCODER: {
        "max_seq_length": computed(8, "max_length"),
        "do_lower_case": computed(True, "lower_case"),
        "transformer_task": refused("fill-mask"),
        "modality_config": refused({"text": {"method": "get_text_features"}}),
        "module_output_name": refused("sentence_embedding"),
        "processing_kwargs": computed({"text": {"max_length": 5}}, "max_length", 5),
        "processing_kwargs.text.add_special_tokens": refused(False),
        "processing_kwargs.common": carried({"return_tensors": "pt"}),
        "tokenizer_args": computed({"model_max_length": 6}, "max_length", 6),
        "processor_kwargs": computed({"model_max_length": 6}, "max_length", 6),
        "tokenizer_args.do_lower_case": refused(True),
        "model_args.attn_implementation": carried("eager"),
        "model_args.torch_dtype": carried("float16"),
        "model_args.my_argument": refused(1),
        "model_kwargs": carried({"dtype": "float16"}),
        "config_args": carried({"use_cache": False}),
        "config_args.hidden_act": refused("relu"),
        "config_kwargs": refused({"hidden_act": "relu"}),
        "tokenizer_name_or_path": refused("somebody/tokenizer"),
        # These change no vector: lengths are for queries and documents of other classes.
        "unpad_inputs": carried(False),
        "query_length": carried(5),
        "document_length": carried(5),
        "query_expansion": carried({"strategy": "fixed", "token": "[MASK]", "length": 8}),
        "my_note": refused(1),
    },
    MODEL: {
        **all_tested("model_type", COMPUTED, "test_the_file_of_the_model"),
        "__version__": carried({"sentence_transformers": "5.1.0", "pytorch": "2.8.0"}),
        "prompts": computed({"query": "Q "}, "prompts"),
        "default_prompt_name": computed("query", "default_prompt_name"),
        "similarity_fn_name": computed("dot", "similarity"),
        "truncate_dim": computed(4, "truncate_dim"),
        "requirements": carried(["einops"]),
        # Of a CrossEncoder and a SparseEncoder; this is neither.
        "activation_fn": carried("torch.nn.modules.activation.Sigmoid"),
        "keep_in_fp32_modules": carried(["classifier"]),
        "max_active_dims": carried(3),
        "my_note": carried("anything"),
    },
    POOLING: {
        **all_tested(
            "embedding_dimension pooling_mode_cls_token pooling_mode_mean_tokens "
            "pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens "
            "pooling_mode_weightedmean_tokens pooling_mode_lasttoken",
            COMPUTED,
            "test_both_forms_of_a_pooling",
        ),
        "word_embedding_dimension": carried(16),
        "pooling_mode": computed(["max", "cls"], "poolings", ("max", "cls")),
        "include_prompt": computed(False, "include_prompt"),
        "my_note": refused(1),
    },
    DENSE: {
        **all_tested("in_features out_features bias use_residual", COMPUTED, _READ_AGAIN),
        "activation_function": refused("my_code.Activation"),
        **_MODULE,
    },
    LAYER_NORM: {**all_tested("dimension", COMPUTED, _READ_AGAIN), "my_note": refused(1)},
    DROPOUT: {**all_tested("dropout", CARRIED, _READ_AGAIN), "my_note": refused(1)},
    NORMALIZE: _MODULE,
}

COMPUTED_MODULES = frozenset(
    {"Transformer", "Pooling", "Dense", "LayerNorm", "Dropout", "Normalize"}
)
EXPANDED_MODULES = frozenset({"Asym", "Router"})  # see `checkpoints/test_routers.py`
REFUSED_MODULES = frozenset(
    {
        *("Module", "InputModule"),
        *("BoW", "CLIPModel", "CNN", "LSTM", "StaticEmbedding", "WeightedLayerPooling"),
        *("WordEmbeddings", "WordWeights"),
        "LogitScore",  # of cross-encoders
        *("MLMTransformer", "SparseAutoEncoder", "SparseStaticEmbedding", "SpladePooling"),
        *("BaseTokenPooling", "HierarchicalTokenPooling", "LambdaTokenPooling", "MultiVectorMask"),
    }
)
