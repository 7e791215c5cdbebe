"""How fast each layer learns, by literal numbers; what is frozen stays as it is, to the bit."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.errors import OptionError, UserError
from bert_jax.families import bert
from bert_jax.models.encoder import Encoder, abstract_params
from bert_jax.models.head import find_head
from bert_jax.models.parameter_sharding import state_shardings
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.training.layer_rates import apply_updates, rate_factors, stop_frozen_gradients
from bert_jax.training.optimizer import decay_mask

CONFIG = bert.FAMILY.new_config("tiny", num_hidden_layers=3, num_labels=4, use_crf=True)


def factors_of(head: str, **options) -> dict[str, list[float] | float]:
    """The factor of each parameter, for stacked layers a list."""
    params = abstract_params(find_head(head).make(CONFIG))
    actual = flatten_dict(rate_factors(params, **options), sep="/")
    for name, leaf in flatten_dict(params, sep="/").items():
        assert np.broadcast_shapes(actual[name].shape, leaf.shape) == leaf.shape, name
        assert actual[name].dtype == np.float32
    rounded = {name: np.round(factor.squeeze().astype(float), 6) for name, factor in actual.items()}
    return {name: factor.tolist() for name, factor in rounded.items()}


def test_layers_decay_from_the_top():
    actual = factors_of("classification", layer_decay=0.5)
    assert actual["classifier/kernel"] == actual["classifier/bias"] == 1.0
    assert actual["bert/pooler/dense/kernel"] == 1.0
    # Layers 1, 2, 3: the top one gets the decay once.
    assert actual["bert/encoder/layers/intermediate/kernel"] == [0.125, 0.25, 0.5]
    assert actual["bert/encoder/layers/attention/query/bias"] == [0.125, 0.25, 0.5]
    assert actual["bert/encoder/layers/output_norm/scale"] == [0.125, 0.25, 0.5]
    for table in ("word", "position", "token_type"):
        assert actual[f"bert/embeddings/{table}_embeddings/embedding"] == 0.0625
    assert actual["bert/embeddings/layer_norm/bias"] == 0.0625


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("classification", {"classifier/kernel", "classifier/bias"}),
        ("multiple_choice", {"classifier/kernel", "classifier/bias"}),
        ("question_answering", {"qa_outputs/kernel", "qa_outputs/bias"}),
        (
            "tagging",
            {"classifier/kernel", "classifier/bias", "crf_transitions", "crf_start", "crf_end"},
        ),
        ("next_sentence", {"nsp_head/kernel", "nsp_head/bias"}),
        (
            "masked_lm",
            {"mlm_head/dense/kernel", "mlm_head/dense/bias", "mlm_head/bias",
             "mlm_head/layer_norm/scale", "mlm_head/layer_norm/bias"},
        ),
        ("encoder", set()),
    ],
)  # fmt: skip
def test_the_head_factor_applies_to_the_head_alone(head, names):
    actual = factors_of(head, head_factor=10.0)
    assert {name for name, factor in actual.items() if factor == 10.0} == names
    assert all(factor in (1.0, [1.0, 1.0, 1.0]) for n, factor in actual.items() if n not in names)


def test_a_bare_encoder_has_the_same_factors_without_the_prefix():
    options = {"layer_decay": 0.9, "frozen_layers": 1}
    bare, within = (
        factors_of("encoder", **options),
        factors_of("multiple_choice", **options),
    )
    assert bare == {
        name.removeprefix("bert/"): factor
        for name, factor in within.items()
        if name.startswith("bert/")
    }
    assert bare["encoder/layers/intermediate/bias"] == [0.0, 0.81, 0.9]


def test_frozen_layers_take_the_embeddings_along():
    actual = factors_of("question_answering", frozen_layers=2)
    assert actual["bert/embeddings/word_embeddings/embedding"] == 0.0
    assert actual["bert/embeddings/layer_norm/scale"] == 0.0
    assert actual["bert/encoder/layers/attention/output/kernel"] == [0.0, 0.0, 1.0]
    assert actual["qa_outputs/kernel"] == 1.0
    assert 0.0 not in factors_of("question_answering", frozen_layers=0).values()


@pytest.mark.parametrize("options", [{"freeze_encoder": True}, {"frozen_layers": 3}])
def test_of_a_frozen_encoder_pooler_and_head_are_left(options):
    actual = factors_of("classification", **options)
    assert {name for name, factor in actual.items() if factor == 1.0} == {
        "bert/pooler/dense/kernel", "bert/pooler/dense/bias", "classifier/kernel",
        "classifier/bias",
    }  # fmt: skip
    assert {name for name, factor in actual.items() if not np.any(factor)} == {
        name for name in actual if "/embeddings/" in name or "/layers/" in name
    }


def test_every_encoder_of_a_model_has_the_rates_of_an_encoder():
    """A second encoder, of two layers, and a norm after the layers."""
    encoder = abstract_params(Encoder(bert.FAMILY.new_config("tiny", num_hidden_layers=2)))
    encoder["encoder"]["final_norm"] = {"scale": np.zeros(128)}
    params = {"bert": abstract_params(Encoder(CONFIG)), "passages": encoder}
    actual = flatten_dict(rate_factors(params, layer_decay=0.5, frozen_layers=1), sep="/")
    for encoder, factors in (("bert", [0, 0.25, 0.5]), ("passages", [0, 0.5])):
        assert actual[f"{encoder}/encoder/layers/output/bias"].squeeze().tolist() == factors
        assert actual[f"{encoder}/embeddings/layer_norm/bias"] == 0.0
        assert actual[f"{encoder}/pooler/dense/kernel"] == 1.0
    assert actual["passages/encoder/final_norm/scale"] == 1.0
    frozen = flatten_dict(rate_factors(params, freeze_encoder=True), sep="/")
    assert {name for name, factor in frozen.items() if np.any(factor)} == {
        f"{encoder}/pooler/dense/{part}"
        for encoder in ("bert", "passages")
        for part in ("kernel", "bias")
    }


def test_invalid_freezing_is_refused():
    with pytest.raises(
        OptionError, match=r"^optimizer.freeze_layers is 4; this model has 3 layers$"
    ):
        factors_of("classification", frozen_layers=4)
    nothing = abstract_params(Encoder(CONFIG, add_pooling_layer=False))
    with pytest.raises(
        OptionError, match="nothing else is left to train; change optimizer.freeze_encoder or"
    ):
        rate_factors(nothing, freeze_encoder=True)


PARAMS = {
    "bert": {
        "embeddings": {"layer_norm": {"bias": np.float32([1, -0.0])}},
        "encoder": {"layers": {"output_norm": {"bias": np.float32([[-0.0, 2], [3, 4]])}}},
    },
    "classifier": {"bias": np.float32([5, 6])},
}


def test_a_move_by_hand():
    factors = rate_factors(PARAMS, layer_decay=0.5, head_factor=10.0)
    ones = jax.tree.map(np.ones_like, PARAMS)
    actual = flatten_dict(
        jax.device_get(apply_updates(PARAMS, ones, np.float32(0.125), factors)), sep="/"
    )
    # Two layers: 0.125 · 0.5³, 0.125 · (0.5², 0.5), 0.125 · 10.
    assert actual["bert/embeddings/layer_norm/bias"].tolist() == [0.984375, -0.015625]
    assert actual["bert/encoder/layers/output_norm/bias"].tolist() == [
        [-0.03125, 1.96875],
        [2.9375, 3.9375],
    ]
    assert actual["classifier/bias"].tolist() == [3.75, 4.75]


def test_frozen_parameters_keep_every_bit_and_have_no_gradient():
    factors = rate_factors(PARAMS, frozen_layers=1)

    def loss(params):
        return sum((leaf**2).sum() + leaf.sum() for leaf in jax.tree.leaves(params))

    gradient = jax.grad(lambda params: loss(stop_frozen_gradients(params, factors)))(PARAMS)
    actual = flatten_dict(jax.device_get(gradient), sep="/")
    assert actual["bert/embeddings/layer_norm/bias"].tolist() == [0, 0]
    assert actual["bert/encoder/layers/output_norm/bias"].tolist() == [[0, 0], [7, 9]]
    assert actual["classifier/bias"].tolist() == [11, 13]
    # Even a direction that is not a number moves nothing there; -0.0 does not become 0.0.
    wild = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), PARAMS)
    after = flatten_dict(
        jax.device_get(apply_updates(PARAMS, wild, np.float32(1), factors)), sep="/"
    )
    before = flatten_dict(PARAMS, sep="/")
    name = "bert/embeddings/layer_norm/bias"
    assert after[name].tobytes() == before[name].tobytes()
    name = "bert/encoder/layers/output_norm/bias"
    assert after[name][0].tobytes() == before[name][0].tobytes()
    assert np.isnan(after[name][1]).all()


def test_a_parameter_that_no_rule_names_is_an_error_in_every_table():
    params = {"adapter": {"slope": np.zeros((2, 2))}}
    for table in (
        rate_factors,
        lambda params: rate_factors(params, freeze_encoder=True),
        decay_mask,
        lambda params: state_shardings(one_device_mesh(), params),
    ):
        with pytest.raises(UserError, match="no rule matches the parameter adapter/slope"):
            table(params)
