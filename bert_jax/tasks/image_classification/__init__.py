"""Classes of images (ViT, Dosovitskiy et al., 2021; DeiT, Touvron et al., 2021)."""

from bert_jax.tasks.image_classification.predict import PREDICT
from bert_jax.tasks.image_classification.task import TRAIN
