"""Records a small ColBERT as PyLate saves it, and the scores that PyLate gives it.

    python tests/checkpoints/record_pylate.py

writes `tests/checkpoints/recorded_pylate.json`; it needs pylate 1.6.0 with transformers 5.3. The
tensors are not stored: both sides draw them by their names, see `record_reference.py`.
"""

import json
import runpy
import tempfile
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded_pylate.json")
SMALL = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
}
# Within the limits and above them, and of punctuation, which does not count in documents.
QUERIES = ["where was the cat ?", "sea", "the sea was low and warm . a dog ran on and on"]
DOCUMENTS = ["the cat sat on the mat .", "a dog ran , low", ". ! , .", "the sea was low . " * 5]


def record() -> None:
    import torch
    import transformers
    from pylate import models
    from pylate.scores import colbert_scores

    reference = runpy.run_path(str(Path(__file__).with_name("record_reference.py")))
    with tempfile.TemporaryDirectory() as directory:
        encoder, saved = Path(directory, "encoder"), Path(directory, "saved")
        encoder.mkdir()
        words = sorted({word for text in QUERIES + DOCUMENTS for word in text.split()})
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        transformers.BertTokenizerFast(vocabulary).save_pretrained(encoder)
        config = transformers.BertConfig(vocab_size=len(pieces), **SMALL)
        transformers.BertModel(config, add_pooling_layer=False).save_pretrained(encoder)
        model = models.ColBERT(
            str(encoder),
            embedding_size=8,
            query_prefix="[Q] ",
            document_prefix="[D] ",
            query_length=10,
            document_length=14,
            device="cpu",
        )
        for module in (model[0].auto_model, model[1]):
            drawn = {
                name: torch.from_numpy(reference["random_tensor"](name, tensor.shape))
                for name, tensor in module.state_dict().items()
            }
            module.load_state_dict(drawn)
        model.save_pretrained(str(saved))
        files = {
            path.relative_to(saved).as_posix(): json.loads(path.read_text())
            for path in sorted(saved.rglob("*.json"))
        }
    queries = model.encode(QUERIES, is_query=True, convert_to_tensor=True)
    documents = model.encode(DOCUMENTS, is_query=False, convert_to_tensor=True)
    # One by one: PyLate fills up documents with zeros, which are greater than a negative product.
    scores = [
        [colbert_scores(query[None], document[None]).item() for document in documents]
        for query in queries
    ]
    shapes = {
        file: {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
        for file, module in (
            ("model.safetensors", model[0].auto_model),
            ("1_Dense/model.safetensors", model[1]),
        )
    }
    recorded = {"files": files, "tensors": shapes, "scores": scores}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    record()
