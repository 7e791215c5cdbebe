"""What happens to every field that may be in a file of a model directory.

A field is computed, carried over (load and save keep it), or refused by its name. `test_fields.py`
shows each row with its value, and, where the peers are installed, that they write no other field.

Fields are those that transformers 5.24 and sentence-transformers 6.2 write for the families and
modules of bert_jax, and those that their earlier versions wrote.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

COMPUTED, CARRIED, REFUSED = "computed", "carried over", "refused"


@dataclasses.dataclass(frozen=True)
class Field:
    """What happens to one field.

    Attributes:
        outcome: COMPUTED, CARRIED or REFUSED; of a refused field one value is allowed.
        value: a value with which this shows.
        shows: where a computed one shows: the name of an observable, and its value.
        test: name of a test in another file that shows it, instead of value and observable.
    """

    outcome: str
    value: Any = None
    shows: tuple[str, Any] = ("", None)
    test: str = ""


def computed(value: Any, name: str, shown: Any = None) -> Field:
    """A field with which the observable `name` is `shown`, by default the value itself."""
    return Field(COMPUTED, value, (name, value if shown is None else shown))


def carried(value: Any) -> Field:
    """A field that load and save keep."""
    return Field(CARRIED, value)


def refused(value: Any) -> Field:
    """A field that is an error with this value."""
    return Field(REFUSED, value)


def tested(outcome: str, test: str) -> Field:
    """A field that another test shows."""
    return Field(outcome, test=test)


def fields_of(names: str, **values: Any) -> dict[str, Field]:
    """Fields that are computed and have the same name in `EncoderConfig`."""
    return {name: computed(values[name], name) for name in names.split()}


# config.json: observables are the fields of `EncoderConfig`.

MINIMAL_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "bert": (
        BERT := {
            "vocab_size": 40,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "hidden_act": "gelu",
            "max_position_embeddings": 34,
            "type_vocab_size": 2,
            "pad_token_id": 0,
        }
    ),
    "roberta": (ROBERTA := BERT | {"layer_norm_eps": 1e-5, "pad_token_id": 1}),
    "camembert": ROBERTA,
    "xlm-roberta": ROBERTA,
    "distilbert": {
        "vocab_size": 40,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "activation": "gelu",
        "max_position_embeddings": 34,
    },
    "electra": BERT | {"embedding_size": 8},
    "albert": BERT | {"embedding_size": 8, "num_hidden_groups": 1},
    "mobilebert": BERT
    | {
        "hidden_size": 32,
        "embedding_size": 16,
        "intra_bottleneck_size": 16,
        "num_feedforward_networks": 2,
        "classifier_activation": False,
    },
    "dpr": BERT,
}

_EVERY_CONFIG = {
    "model_type": tested(COMPUTED, "test_a_file_without_model_type_is_of_the_family_of_its_class"),
    "architectures": tested(COMPUTED, "test_the_head_is_that_of_a_known_class"),
    "id2label": tested(COMPUTED, "test_labels_stand_in_the_order_of_their_numbers"),
    "label2id": tested(COMPUTED, "test_labels_stand_in_the_order_of_their_numbers"),
    "problem_type": tested(COMPUTED, "test_labels_stand_in_the_order_of_their_numbers"),
    # Cross-encoders of sentence-transformers: since version 4, and before.
    "sentence_transformers": tested(
        COMPUTED, "test_a_single_output_is_a_score_with_its_activation"
    ),
    "sbert_ce_default_activation_function": tested(
        COMPUTED, "test_a_single_output_is_a_score_with_its_activation"
    ),
    # The tensors are read as they are, and so written.
    "dtype": tested(COMPUTED, "test_half_precision_comes_back_to_the_bit"),
    "torch_dtype": tested(COMPUTED, "test_half_precision_comes_back_to_the_bit"),
    **fields_of("vocab_size", vocab_size=41),
    **fields_of("max_position_embeddings", max_position_embeddings=44),
    **fields_of("initializer_range", initializer_range=0.3),
    **fields_of("pad_token_id", pad_token_id=3),
    **fields_of("tie_word_embeddings", tie_word_embeddings=False),
    **fields_of("num_labels", num_labels=3),
    # Another function.
    "position_embedding_type": refused("relative_key_query"),
    "is_decoder": refused(True),
    "add_cross_attention": refused(True),
    "pruned_heads": refused({"0": [1]}),
    "per_layer_config": refused({"0": {"intermediate_size": 64}}),
    "quantization_config": refused({"quant_method": "bitsandbytes", "load_in_8bit": True}),
    # Where a file comes from.
    "_name_or_path": carried("somebody/model"),
    "_commit_hash": carried("86b5e0934494bd15c9632b12f734a8a67f723594"),
    "transformers_version": carried("5.24.0"),
    "finetuning_task": carried("mrpc"),
    "auto_map": carried({"AutoModel": "modeling.MyModel"}),
    "custom_pipelines": carried({"tags": {"impl": "tags.TagPipeline"}}),
    # How transformers computes, and what it returns.
    "_attn_implementation": carried("sdpa"),
    "_attn_implementation_autoset": carried(True),
    "attn_implementation": carried("sdpa"),
    "_experts_implementation": carried("eager"),
    "chunk_size_feed_forward": carried(8),
    "gradient_checkpointing": carried(True),
    "output_attentions": carried(True),
    "output_hidden_states": carried(True),
    "output_past": carried(True),
    "output_scores": carried(True),
    "return_dict": carried(False),
    "return_dict_in_generate": carried(True),
    "tf_legacy_loss": carried(True),
    "tie_last_hidden_states": carried(False),
    "torchscript": carried(True),
    "use_bfloat16": carried(True),
    "use_cache": carried(False),
    "xla_device": carried(True),
    # Encoders with a decoder.
    "cross_attention_hidden_size": carried(16),
    "decoder_start_token_id": carried(2),
    "is_encoder_decoder": carried(True),
    "tie_encoder_decoder": carried(True),
    # Generation, up to version 4.
    "bad_words_ids": carried([[3]]),
    "begin_suppress_tokens": carried([3]),
    "diversity_penalty": carried(0.5),
    "do_sample": carried(True),
    "early_stopping": carried(True),
    "encoder_no_repeat_ngram_size": carried(2),
    "exponential_decay_length_penalty": carried([5, 1.1]),
    "forced_bos_token_id": carried(2),
    "forced_eos_token_id": carried(3),
    "length_penalty": carried(0.8),
    "max_length": carried(20),
    "min_length": carried(3),
    "no_repeat_ngram_size": carried(2),
    "num_beam_groups": carried(2),
    "num_beams": carried(4),
    "num_return_sequences": carried(2),
    "prefix": carried("summarize: "),
    "remove_invalid_values": carried(True),
    "repetition_penalty": carried(1.2),
    "suppress_tokens": carried([3]),
    "task_specific_params": carried({"summarization": {"num_beams": 4}}),
    "temperature": carried(0.7),
    "top_k": carried(5),
    "top_p": carried(0.9),
    "typical_p": carried(0.9),
    # Ids that the tokenizer says, too.
    "bos_token_id": carried(5),
    "cls_token_id": carried(6),
    "eos_token_id": carried(7),
    "sep_token_id": carried(8),
    # A key that no version of transformers has.
    "_my_note": carried({"anything": [None]}),
}

_BERT = {
    **_EVERY_CONFIG,
    **fields_of("hidden_size num_hidden_layers", hidden_size=24, num_hidden_layers=3),
    **fields_of(
        "num_attention_heads intermediate_size", num_attention_heads=4, intermediate_size=8
    ),
    **fields_of("hidden_act type_vocab_size", hidden_act="relu", type_vocab_size=3),
    **fields_of("hidden_dropout_prob", hidden_dropout_prob=0.3),
    **fields_of("attention_probs_dropout_prob", attention_probs_dropout_prob=0.3),
    **fields_of("layer_norm_eps classifier_dropout", layer_norm_eps=1e-7, classifier_dropout=0.3),
    "embedding_size": carried(64),  # transformers asks whether it is there, and no more
    # google-research/bert wrote these beside its multilingual and Chinese models.
    "directionality": carried("bidi"),
    "pooler_fc_size": carried(768),
    "pooler_num_attention_heads": carried(12),
    "pooler_num_fc_layers": carried(3),
    "pooler_size_per_head": carried(128),
    "pooler_type": carried("first_token_transform"),
}
_ALBERT = {
    **_BERT,
    **fields_of("embedding_size num_hidden_groups", embedding_size=12, num_hidden_groups=2),
    "classifier_dropout_prob": computed(0.3, "classifier_dropout"),
    "inner_group_num": refused(2),
    # google-research/albert wrote these, and none of its programs reads them.
    "down_scale_factor": carried(2),
    "gap_size": carried(1),
    "layers_to_keep": carried([0]),
    "net_structure_type": carried(1),
    "num_memory_blocks": carried(1),
}
del _ALBERT["classifier_dropout"]

CONFIGS: Mapping[str, Mapping[str, Field]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "camembert": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": {
        **_EVERY_CONFIG,
        "dim": computed(24, "hidden_size"),
        "hidden_size": computed(24, "hidden_size"),
        "n_layers": computed(3, "num_hidden_layers"),
        "num_hidden_layers": computed(3, "num_hidden_layers"),
        "n_heads": computed(4, "num_attention_heads"),
        "num_attention_heads": computed(4, "num_attention_heads"),
        "hidden_dim": computed(8, "intermediate_size"),
        "activation": computed("relu", "hidden_act"),
        "dropout": computed(0.3, "hidden_dropout_prob"),
        "attention_dropout": computed(0.3, "attention_probs_dropout_prob"),
        "seq_classif_dropout": computed(0.3, "classifier_dropout"),
        "qa_dropout": computed(0.3, "qa_dropout"),
        # The table of positions is in the file in either case.
        "sinusoidal_pos_embds": carried(True),
        "tie_weights_": carried(True),
    },
    "electra": {
        **_BERT,
        **fields_of("embedding_size", embedding_size=12),
        **fields_of("summary_last_dropout", summary_last_dropout=0.3),
        # By multiple choice alone; see `test_fields_that_one_head_reads_are_refused_for_this_head`.
        "summary_type": refused("mean"),
        "summary_use_proj": refused(False),
        "summary_proj_to_labels": refused(True),
        "summary_activation": refused(None),
        "summary_first_dropout": refused(0.1),
    },
    "albert": _ALBERT,
    "mobilebert": {
        **_BERT,
        **fields_of("embedding_size", embedding_size=12),
        **fields_of("intra_bottleneck_size", intra_bottleneck_size=8),
        **fields_of("num_feedforward_networks", num_feedforward_networks=3),
        **fields_of("classifier_activation", classifier_activation=True),
        "normalization_type": refused("layer_norm"),
        "trigram_input": refused(False),
        "use_bottleneck": refused(False),
        "use_bottleneck_attention": refused(True),
        "key_query_shared_bottleneck": refused(False),
        "true_hidden_size": carried(16),  # it is `intra_bottleneck_size`
    },
    "dpr": {**_BERT, "projection_dim": refused(128)},
}
