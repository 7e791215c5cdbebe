"""What a server says about itself and its models."""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.inference.index_models import precision_of
from bert_jax.serving.models import ServedModel
from bert_jax.serving.service import Service
from bert_jax.tasks import task_names
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.classification.predict import PREDICT


def info(service: Service) -> dict[str, Any]:
    """The fields of text-embeddings-inference's `/info` of the first model, and all models."""
    first, limits = service.models.served[0], service.limits
    return {
        "model_id": first.name,
        "model_sha": None,
        "model_dtype": precision_of(first.model),
        "model_type": _model_type(first),
        "max_concurrent_requests": limits.max_waiting,
        "max_input_length": service.models.limit(first),
        "max_batch_tokens": limits.max_tokens,
        "max_batch_requests": limits.batch_size,
        "max_client_batch_size": limits.max_texts,
        "auto_truncate": True,
        "index": service.models.index is not None,
        "models": [
            {
                "name": served.name,
                "class": served.model.description.class_name,
                "task": served.task or None,
                "tasks": [
                    name for name in task_names("PREDICT") if service.models.can(served, name)
                ],
                "mask_token": _mask_token(served),
                "dtype": precision_of(served.model),
                "max_length": service.models.limit(served),
                "width": served.model.config.hidden_size,
            }
            for served in service.models.served
        ],
    }


def models(service: Service) -> dict[str, Any]:
    """OpenAI's list of models."""
    return {"object": "list", "data": list(map(model, service.models.served))}


def model(served: ServedModel) -> dict[str, Any]:
    """A model in OpenAI's form."""
    return {"id": served.name, "object": "model", "created": 0, "owned_by": "bert_jax"}


def _mask_token(served: ServedModel) -> str | None:
    tokenizer = served.model.tokenizer
    mask = tokenizer.special_ids.mask
    return None if mask is None else tokenizer.id_to_token(mask)


def _model_type(served: ServedModel) -> dict[str, Any]:
    description = served.model.description
    if description.head in PREDICT.heads:
        kind = "reranker" if description.config.num_labels == 1 else "classifier"
        try:
            names = label_names(description)
        except UserError:
            names = ()
        by_number = {str(number): name for number, name in enumerate(names)}
        numbers = {name: number for number, name in enumerate(names)}
        return {kind: {"id2label": by_number, "label2id": numbers}}
    poolings = getattr(description.vectors, "poolings", ())
    return {"embedding": {"pooling": ",".join(poolings)}}
