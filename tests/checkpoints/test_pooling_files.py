"""What sentence-transformers has beside a model: read, written, and gone with the model."""

import json

import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import read_pooling, write_pooling
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.config import Head


@pytest.fixture
def save(tmp_path, model_config, model_params, tokenizer):
    """Saves the encoder as one that was trained to make vectors of texts."""

    def of_fields(**other) -> None:
        description = ModelDescription(model_config, Head.ENCODER, other=other)
        model_directory.save(tmp_path / "model", description, model_params["bert"], tokenizer)

    return of_fields


OLD = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("fields", "pooling"),
    [
        (OLD, "cls"),
        ({"pooling_mode": "max"}, "max"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({"pooling_mode": ["mean", "max"]}, None),
        ({"pooling_mode": "lasttoken"}, None),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, None),
        (OLD | {"pooling_mode_mean_tokens": True}, None),
    ],
)
def test_what_others_wrote(tmp_path, fields, pooling):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(fields))
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]')
    assert read_pooling(tmp_path) == ({"sentence_pooling": pooling} if pooling else {})


def test_a_part_that_we_do_not_have(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(OLD))
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert read_pooling(tmp_path) == {}


@pytest.mark.parametrize("normalize", [{}, {"sentence_normalize": True}])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_what_is_written_is_read(tmp_path, model_config, pooling, normalize):
    other = {"sentence_pooling": pooling} | normalize
    write_pooling(tmp_path, ModelDescription(model_config, Head.ENCODER, other=other))
    assert read_pooling(tmp_path) == other


def test_a_model_takes_them_along(save, tmp_path):
    save(sentence_pooling="cls")
    directory = tmp_path / "model"
    (directory / MANIFEST).unlink()
    fields = json.loads((directory / "config.json").read_text())
    del fields["sentence_pooling"]
    (directory / "config.json").write_text(json.dumps(fields))
    # As one of somebody else, who has no such key.
    assert model_directory.load_description(directory).other["sentence_pooling"] == "cls"


def test_they_go_with_their_model(save, tmp_path, description, model_params, tokenizer):
    save(sentence_pooling="cls")
    directory = tmp_path / "model"
    model_directory.save(directory, description, model_params, tokenizer)
    files = {path.name for path in directory.rglob("*") if path.is_file()}
    assert "modules.json" not in files
    assert read_pooling(directory) == {}
    assert model_directory.load_description(directory) == description


def test_damage_is_named(save, tmp_path):
    save(sentence_pooling="cls")
    (tmp_path / "model" / MANIFEST).unlink()
    (tmp_path / "model" / "modules.json").write_text('[{"path": ""}]')
    with pytest.raises(UserError, match=r"modules\.json is damaged: KeyError"):
        model_directory.load_description(tmp_path / "model")
