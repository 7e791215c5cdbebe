"""BERT: Devlin et al., 2018; google-research/bert; Hugging Face's `model_type` "bert"."""

from bert_jax.families.family import Family
from bert_jax.models.config import Head

FAMILY = Family(
    model_type="bert",
    class_names={
        Head.ENCODER: "BertModel",
        Head.PRETRAINING: "BertForPreTraining",
        Head.MASKED_LM: "BertForMaskedLM",
        Head.NEXT_SENTENCE: "BertForNextSentencePrediction",
        Head.CLASSIFICATION: "BertForSequenceClassification",
        Head.TAGGING: "BertForTokenClassification",
        Head.QUESTION_ANSWERING: "BertForQuestionAnswering",
        Head.MULTIPLE_CHOICE: "BertForMultipleChoice",
    },
)
