"""MPNet: Song et al., 2020 (https://arxiv.org/abs/2004.09297), `model_type` "mpnet".

RoBERTa with T5's bias of the attention scores, with WordPiece and without token types. Source:
Hugging Face transformers, models/mpnet/modeling_mpnet.py, in which the number of buckets and the
row of padding in the position table are constants.
"""

from bert_jax.families import bert, roberta
from bert_jax.families.family import Family, Rule
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.tokenization.interface import MPNET

FAMILY = Family(
    model_type="mpnet",
    class_names=roberta.class_names("MPNet"),
    huggingface=bert.names(
        *bert.embedding_rules("mpnet."),
        Rule(
            f"{ENCODER_SCOPE}/encoder/relative_positions/table/embedding",
            "mpnet.encoder.relative_attention_bias.weight",
        ),
        *bert.layer_rules(
            "mpnet.encoder.layer.{layer}.",
            *(f"attention.attn.{name}" for name in "qkvo"),
            *("attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
        ),
        *bert.dense(f"{ENCODER_SCOPE}/pooler/dense", "mpnet.pooler.dense"),
        *roberta.HEAD_RULES,
        prefix="mpnet.",
        aliases=roberta.DECODER_BIAS,
    ),
    sizes=bert.SIZES,
    # As published; the defaults of transformers are BERT's.
    defaults={"max_position_embeddings": 514, "layer_norm_eps": 1e-5},
    constants={
        **roberta.FAMILY.constants,
        "type_vocab_size": 0,
        "pad_token_id": 1,
        "relative_bias": True,
        "classifier_dropout": None,  # it is `hidden_dropout_prob`
    },
    required_fields=(*bert.REQUIRED_IN_RELATIVES, "layer_norm_eps"),
    fixed_fields={"pad_token_id": 1, "relative_attention_num_buckets": 32},
    tokenizer_kind=MPNET,
    token_types=False,
)
