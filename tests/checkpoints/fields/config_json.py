"""The fields of `config.json` in each family; observables are the fields of `EncoderConfig`."""

from collections.abc import Mapping
from typing import Any

from tests.checkpoints.fields import (
    COMPUTED,
    Field,
    all_carried,
    all_tested,
    carried,
    computed,
    refused,
)


def same_name(**values: Any) -> dict[str, Field]:
    """Fields that are computed and have the same name in `EncoderConfig`."""
    return {name: computed(value, name) for name, value in values.items()}


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
    "mpnet": ROBERTA,
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
    "nomic_bert": BERT | {"hidden_act": "silu", "layer_norm_eps": 1e-12, "rope_theta": 1000.0},
    "deberta-v2": BERT
    | {
        "layer_norm_eps": 1e-6,
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": "p2c|c2p",
        "share_att_key": True,
        "position_buckets": 8,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 0,
        "conv_act": "gelu",
    },
    "gte": (GTE := BERT | {"layer_norm_eps": 1e-12, "rope_theta": 1000.0}),
    "longformer": ROBERTA | {"attention_window": [4, 6], "sep_token_id": 2},
    "new": GTE | {"position_embedding_type": "rope", "rope_scaling": None},
    "modernbert": {
        "vocab_size": 40,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "hidden_activation": "gelu",
        "max_position_embeddings": 34,
        "norm_eps": 1e-5,
        "local_attention": 8,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "classifier_activation": "gelu",
        "classifier_pooling": "mean",
    },
    "vit": (
        VIT := {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "hidden_act": "gelu",
            "image_size": 12,
            "patch_size": 3,
        }
    ),
    "deit": VIT,
}

_EVERY_CONFIG = {
    **all_tested("model_type", COMPUTED, "test_the_family_of_a_file_without_model_type"),
    **all_tested("architectures", COMPUTED, "test_the_head_of_a_known_class"),
    **all_tested("id2label label2id problem_type", COMPUTED, "test_labels_have_numbers"),
    # Cross-encoders of sentence-transformers: since version 4, and before.
    **all_tested(
        "sentence_transformers sbert_ce_default_activation_function",
        COMPUTED,
        "test_a_single_output_is_a_score_with_its_activation",
    ),
    # The tensors are read as they are, and so written.
    **all_tested("dtype torch_dtype", COMPUTED, "test_half_precision_comes_back_to_the_bit"),
    **same_name(vocab_size=41, max_position_embeddings=44, initializer_range=0.3),
    **same_name(pad_token_id=3, tie_word_embeddings=False, num_labels=3),
    # Another function.
    "position_embedding_type": refused("relative_key_query"),
    "is_decoder": refused(True),
    "add_cross_attention": refused(True),
    "pruned_heads": refused({"0": [1]}),
    "per_layer_config": refused({"0": {"intermediate_size": 64}}),
    "quantization_config": refused({"quant_method": "bitsandbytes", "load_in_8bit": True}),
    # Where a file comes from, how transformers computes, what it returns; decoders; generation;
    # ids that the tokenizer says, too; and a key that no version of transformers has.
    **all_carried(
        "_name_or_path _commit_hash transformers_version finetuning_task auto_map "
        "custom_pipelines _attn_implementation _attn_implementation_autoset attn_implementation "
        "_experts_implementation chunk_size_feed_forward gradient_checkpointing output_attentions "
        "output_hidden_states output_past output_scores return_dict return_dict_in_generate "
        "tf_legacy_loss tie_last_hidden_states torchscript use_bfloat16 use_cache xla_device "
        "cross_attention_hidden_size decoder_start_token_id is_encoder_decoder "
        "tie_encoder_decoder bad_words_ids begin_suppress_tokens diversity_penalty do_sample "
        "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty "
        "forced_bos_token_id forced_eos_token_id length_penalty max_length min_length "
        "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences prefix "
        "remove_invalid_values repetition_penalty suppress_tokens task_specific_params "
        "temperature top_k top_p typical_p bos_token_id cls_token_id eos_token_id sep_token_id "
        "_my_note"
    ),
}

_BERT = {
    **_EVERY_CONFIG,
    **same_name(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=8),
    **same_name(hidden_act="relu", type_vocab_size=3, layer_norm_eps=1e-7),
    **same_name(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3, classifier_dropout=0.3),
    "embedding_size": carried(64),  # transformers asks whether it is there, and no more
    # google-research/bert wrote these beside its multilingual and Chinese models.
    **all_carried(
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type"
    ),
}
_ALBERT = {
    **_BERT,
    **same_name(embedding_size=12, num_hidden_groups=2),
    "classifier_dropout_prob": computed(0.3, "classifier_dropout"),
    "inner_group_num": refused(2),
    # google-research/albert wrote these, and none of its programs reads them.
    **all_carried("down_scale_factor gap_size layers_to_keep net_structure_type num_memory_blocks"),
}
del _ALBERT["classifier_dropout"]
# Positions count from 2, and there are 32 buckets of distances, whatever a file says.
_MPNET = {
    **_BERT,
    "pad_token_id": refused(3),
    "relative_attention_num_buckets": refused(64),
    **all_carried("type_vocab_size classifier_dropout"),
}

_VIT = {
    **_EVERY_CONFIG,
    **same_name(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=8),
    **same_name(hidden_act="relu", layer_norm_eps=1e-7),
    **same_name(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3, qkv_bias=False),
    **same_name(patch_size=4, num_channels=1, pooler_output_size=8, pooler_act="relu"),
    "image_size": computed([9, 12], "image_size", (9, 12)),
    "head_dim": refused(4),
    # Of a decoder of masked patches, and of text.
    **all_carried("encoder_stride vocab_size max_position_embeddings pad_token_id"),
    "tie_word_embeddings": carried(False),
}

_GTE = {
    **_BERT,
    "rope_theta": computed(500.0, "global_rope_theta"),
    "rope_scaling": computed({"type": "ntk", "factor": 8.0}, "rope_factor", 8.0),
    "rope_parameters": refused({"rope_type": "yarn", "rope_theta": 1000.0}),
    "position_embedding_type": refused("absolute"),
    "head_dim": refused(4),
    "layer_norm_type": refused("rms_norm"),
    "logn_attention_scale": refused(True),
    "pack_qkv": refused(False),
    # How its program computes; and a limit of the scale that is refused.
    **all_carried("unpad_inputs use_memory_efficient_attention logn_attention_clip1", True),
}

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
    "mpnet": _MPNET,
    "electra": {
        **_BERT,
        **same_name(embedding_size=12, summary_last_dropout=0.3),
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
        **same_name(embedding_size=12, intra_bottleneck_size=8),
        **same_name(num_feedforward_networks=3, classifier_activation=True),
        "normalization_type": refused("layer_norm"),
        "trigram_input": refused(False),
        "use_bottleneck": refused(False),
        "use_bottleneck_attention": refused(True),
        "key_query_shared_bottleneck": refused(False),
        "true_hidden_size": carried(16),  # it is `intra_bottleneck_size`
    },
    "dpr": {**_BERT, "projection_dim": refused(128)},
    "gte": _GTE,
    "new": _GTE,
    "longformer": {
        **_BERT,
        "num_hidden_layers": refused(3),  # there are two windows
        "attention_window": computed(8, "attention_window", (8, 8)),
        "sep_token_id": computed(3, "sep_token_id"),
        "position_embedding_type": carried("relative_key"),
        "attention_dilation": refused([2, 2]),
        "autoregressive": refused(True),
        **all_carried("attention_mode classifier_dropout ignore_attention_mask onnx_export"),
    },
    "nomic_bert": {
        **_BERT,
        "rope_theta": computed(500.0, "global_rope_theta"),
        "head_dim": computed(4, "attention_head_size"),
        "resid_pdrop": computed(0.3, "hidden_dropout_prob"),
        "attn_pdrop": computed(0.3, "attention_probs_dropout_prob"),
        # Other names of fields: here they contradict these.
        **{name: refused(3) for name in ("n_embd", "n_layer", "n_head", "n_inner")},
        "max_trained_positions": refused(44),
        "layer_norm_epsilon": refused(1e-7),
        "rotary_emb_base": refused(500.0),
        "rope_parameters": refused({"rope_type": "yarn", "rope_theta": 1000.0}),
        "activation_function": refused("gelu"),
        **{name: refused(True) for name in ("causal", "parallel_block", "prenorm")},
        **{name: refused(True) for name in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")},
        **{name: refused(True) for name in ("rotary_emb_interleaved", "use_rms_norm")},
        "num_experts": refused(8),
        "rotary_emb_fraction": refused(0.5),
        "rotary_emb_scale_base": refused(512.0),
        "rotary_scaling_factor": refused(2.0),
        "rope_scaling": refused({"rope_type": "yarn", "factor": 2.0}),
        # Of the table of positions that there is not, and of GPT-2's programs.
        **all_carried("n_positions embd_pdrop dense_seq_output fused_bias_fc use_flash_attn"),
        **all_carried("fused_dropout_add_ln pad_vocab_size_multiple parallel_block_tied_norm"),
        **all_carried("reorder_and_upcast_attn scale_attn_by_inverse_layer_idx use_xentropy"),
    },
    "deberta-v2": {
        **_BERT,
        **same_name(embedding_size=12, attention_head_size=4, position_biased_input=True),
        **same_name(relative_attention=False, share_att_key=False, position_buckets=-1),
        **same_name(max_relative_positions=20, norm_rel_ebd="none"),
        **same_name(conv_kernel_size=3, conv_act="tanh"),
        "pos_att_type": computed(["c2p"], "pos_att_type", "c2p"),
        "cls_dropout": computed(0.3, "classifier_dropout"),
        "classifier_dropout": carried(0.3),
        "conv_groups": refused(2),
        "pooler_hidden_size": refused(8),
        # By classification and multiple choice alone.
        "pooler_hidden_act": refused("tanh"),
        "pooler_dropout": refused(0.1),
        "legacy": carried(False),  # it chooses the names of tensors
    },
    "modernbert": {
        **_EVERY_CONFIG,
        **same_name(hidden_size=24, num_hidden_layers=3, num_attention_heads=4),
        **same_name(intermediate_size=8, local_attention=6, global_attn_every_n_layers=1),
        **same_name(global_rope_theta=500.0, local_rope_theta=500.0),
        **same_name(embedding_dropout=0.3, classifier_dropout=0.3, classifier_pooling="cls"),
        "hidden_activation": computed("relu", "hidden_act"),
        "norm_eps": computed(1e-7, "layer_norm_eps"),
        "attention_dropout": computed(0.3, "attention_probs_dropout_prob"),
        "mlp_dropout": computed(0.3, "activation_dropout"),
        "classifier_activation": computed("silu", "head_act"),
        "attention_bias": refused(True),
        "mlp_bias": refused(True),
        "norm_bias": refused(True),
        "classifier_bias": refused(True),
        "decoder_bias": refused(False),
        "rope_scaling": refused({"rope_type": "yarn", "factor": 2.0}),
        # Other forms of the pattern of layers and of the bases: here they contradict these.
        "layer_types": refused(["full_attention", "full_attention"]),
        "rope_parameters": refused({"full_attention": {"rope_theta": 10000.0}}),
        # Its classes have no table of positions: mmBERT's files have "sans_pos".
        "position_embedding_type": carried("sans_pos"),
        **all_carried("deterministic_flash_attn reference_compile repad_logits_with_grad", True),
        **all_carried("sparse_prediction sparse_pred_ignore_index", True),
        **all_carried("initializer_cutoff_factor layer_norm_eps", 3),
        "head_dim": refused(4),
        "sliding_window": refused(2),
    },
    "vit": _VIT,
    "deit": _VIT,
}
