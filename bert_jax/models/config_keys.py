"""Which fields of an `EncoderConfig`, and options of heads, are keys of a `config.json`.

Those that are not listed here are keys of the families that name them in `optional_fields`.
"""

# Keys of all families.
COMMON_FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("max_position_embeddings", "type_vocab_size", "initializer_range", "layer_norm_eps"),
    *("pad_token_id", "tie_word_embeddings", "classifier_dropout", "num_labels"),
    *("layer_mix", "qa_head", "use_crf"),
)

# Fields of `EncoderConfig` that the family sets; they are not keys of a file or config.
SWITCHES = (
    "normalization_type",
    "positions_after_padding",
    "trigram_input",
    "project_embeddings",
    "layer_kind",
    "attention_output_dropout",
    "feed_forward_dropout",
    "has_pooler",
    "heads",
    "norm_first",
    "embedding_norm",
    "has_biases",
    "has_inner_biases",
    "has_norm_biases",
    "has_first_norm",
    "gated_feed_forward",
    "position_kind",
    "relative_bias",
    "extra_position_rows",
    "scale_attention",
    "final_dropout",
    "is_causal",
    "has_cross_attention",
    "initial_values",
    "project_before_norm",
    "masks_padding",
)
