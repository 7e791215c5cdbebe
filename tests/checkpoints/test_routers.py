"""A Router of sentence-transformers: routes of modules, read in its place, and written."""

import dataclasses
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.sentence_transformers.entries import entries_of, module_folders, sides_of
from bert_jax.errors import UserError
from bert_jax.inference.loading import convert
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.vectors import Normalize

TYPE = "sentence_transformers.models."
TEXTS = ["the cat sat on the mat .", "a dog"]
ROUTER = {
    "types": {"t0": f"{TYPE}Transformer", "p": f"{TYPE}Pooling", "t1": f"{TYPE}Transformer"},
    "structure": {"query": ["t0", "p"], "document": ["t1", "p"]},
    "parameters": {"default_route": "document", "allow_empty_key": True},
}


@pytest.fixture
def write(tmp_path):
    """Writes a model with a Router in a folder, with some fields changed; a Normalize follows."""

    def written(folder="", kind="Router", name="router_config.json", **fields):
        modules = [(folder, kind), ("1_Normalize", "Normalize")]
        entries = [{"name": "0", "path": path, "type": TYPE + each} for path, each in modules]
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "modules.json").write_text(json.dumps(entries))
        (tmp_path / folder / name).write_text(json.dumps(ROUTER | fields))
        return tmp_path

    return written


def paths(directory, route=""):
    return [entry["path"] for entry in entries_of(directory, route)]


@pytest.mark.parametrize("kind", ["Router", "Asym"])
def test_the_modules_of_a_kind_of_texts(write, kind):
    name = "config.json" if kind == "Asym" else "router_config.json"
    directory = write("0_R", kind, name)
    assert paths(directory) == paths(directory, "document") == ["0_R/t1", "0_R/p", "1_Normalize"]
    assert paths(directory, "query") == ["0_R/t0", "0_R/p", "1_Normalize"]
    assert module_folders(directory) == ["0_R", "0_R/t0", "0_R/p", "0_R/t1", "1_Normalize"]
    assert sides_of(directory) == ("query",)


def parameters(default=None, allow=True, **mappings):
    tuples = {key.replace("__", "', '"): route for key, route in mappings.items()}
    named = {f"('{key}')".replace("'None'", "None"): route for key, route in tuples.items()}
    return {"default_route": default, "allow_empty_key": allow, "route_mappings": named}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (parameters(), "q q d"),  # the first is the default
        (parameters("document", allow=False), "d q d"),
        (parameters(query__text="document", document__None="query"), "q d q"),
        (parameters("document", None__text="query"), "q q q"),
        (parameters("document", query__image="document"), "d q d"),
    ],
)
def test_how_a_route_is_found(write, given, expected):
    """For texts of no kind, queries and documents, as sentence-transformers finds it."""
    routes = {"q": ["t0", "p"], "d": ["t1", "p"]}
    directory = write(parameters=given)
    found = [paths(directory, kind)[:2] for kind in ("", "query", "document")]
    assert found == [routes[each] for each in expected.split()]


THIRD = ROUTER["structure"] | {"image": ["p"]}
ANOTHER = {"query": ["t0", "p"], "doc": ["t1", "p"]}
REFUSED = {
    "no default": (
        {"parameters": parameters(allow=False)},
        "router_config.json has no default_route; take one of its routes, query, document, by",
    ),
    "a route that nothing takes": (
        {"structure": THIRD},
        "the route 'image', which neither queries nor documents take, is not supported",
    ),
    "another name": (
        {"structure": ANOTHER, "parameters": {}},
        "has no route of texts 'document'; take one of its routes, query, doc, by",
    ),
    "a field": ({"parameters": {"weight": 2}}, "router_config.json: parameters.weight is not"),
    "more": ({"version": 2}, "router_config.json: version is not supported"),
    "a folder elsewhere": ({"types": {"../t": f"{TYPE}Pooling"}}, r"\.\./t"),
    "a missing module": ({"structure": {"query": ["t9"]}}, r"damaged: KeyError\('t9'\)"),
    "no modules": ({"structure": {"query": []}}, "damaged: .*a route has no modules"),
    "no route": ({"parameters": parameters("gone")}, "there is no route 'gone'; copy it again"),
    "no such mapping": ({"parameters": {"route_mappings": {"(": "query"}}}, "is damaged"),
    "a type": ({"types": {"t0": 1}}, "is damaged: AttributeError"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(write, name):
    fields, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        sides_of(write(**fields))


@pytest.fixture(scope="module")
def pair(make_model):
    """An encoder of documents and one of queries."""

    def made(head, vectors, **fields):
        model = make_model(head, **fields)
        description = dataclasses.replace(model.description, stored_vectors=vectors)
        return dataclasses.replace(model, description=description)

    normal = TextVectors(poolings=("cls",), modules=(Normalize(),), max_length=8)
    return made("encoder", normal), made("encoder", TextVectors(), num_hidden_layers=1)


@pytest.fixture
def both(pair, tmp_path):
    """The directories of both alone, and together."""
    for name, model in zip(("documents", "queries"), pair, strict=True):
        model.save(tmp_path / name)
    convert(tmp_path / "documents", tmp_path / "both", query_model=tmp_path / "queries")
    return tmp_path / "both"


def test_two_models_in_one_directory(pair, both):
    documents, queries = pair
    model = bert_jax.load(both)
    expected = documents.embed(TEXTS)
    np.testing.assert_array_equal(model.embed(TEXTS), expected)
    np.testing.assert_array_equal(model.embed(TEXTS, side="document"), expected)
    np.testing.assert_array_equal(model.embed(TEXTS, side="query"), queries.embed(TEXTS))
    assert json.loads((both / "modules.json").read_text()) == [
        {"idx": 0, "name": "0", "path": "", "type": f"{TYPE}Router"}
    ]
    router = json.loads((both / "router_config.json").read_text())
    names = ["0_Transformer", "1_Pooling", "2_Normalize"]
    assert router == {
        "types": {
            f"{side}_{name}": TYPE + name[2:]
            for side, count in (("document", 3), ("query", 2))
            for name in names[:count]
        },
        "structure": {
            "document": [f"document_{name}" for name in names],
            "query": [f"query_{name}" for name in names[:2]],
        },
        "parameters": {"default_route": "document", "allow_empty_key": True},
    }


def test_an_index_has_the_vectors_of_each(pair, both, tmp_path):
    documents, queries = pair
    hits = bert_jax.load(both).index(TEXTS, path=tmp_path / "index").search(TEXTS, top_k=2)
    separate = documents.index(TEXTS, path=tmp_path / "separate", query_model=queries)
    assert hits == separate.search(TEXTS, top_k=2)
    index = bert_jax.Index.load(tmp_path / "index")
    index.add(["it was low ."])
    assert index.search(TEXTS, top_k=3)[0][1:] == hits[0]
    with pytest.raises(UserError, match="was made by another model"):
        bert_jax.Index.load(tmp_path / "index", documents)


def test_one_of_them_alone(pair, both, tmp_path, capsys):
    alone = bert_jax.load(both, route="query")
    convert(both, tmp_path / "query", route="query")
    files = {path.name for path in (tmp_path / "query").iterdir()}
    assert files == {path.name for path in (tmp_path / "queries").iterdir()}
    np.testing.assert_array_equal(alone.embed(TEXTS), pair[1].embed(TEXTS))
    with pytest.raises(UserError, match="route is 'query'; leave it out"):
        bert_jax.load(tmp_path / "queries", route="query")
    with pytest.raises(UserError, match="encoders of its own for query; change each alone"):
        (two_sided := bert_jax.load(both)).keep_layers(1)
    two_sided.save(tmp_path / "same")
    assert "without what keep_layers changes" not in capsys.readouterr().err
    with pytest.raises(UserError, match="side is 'queries'; known are query, document"):
        alone.embed(TEXTS, side="queries")


def test_a_head_takes_one_of_the_encoders(pair, both, capsys):
    model = bert_jax.load(both, task="classification")
    assert model.config == pair[0].config
    assert "has a Router: its encoder of texts of no kind gets the head" in capsys.readouterr().err


def test_versions_and_empty_prompts_are_no_difference(pair, both, tmp_path):
    """Files of different versions of sentence-transformers, newer ones with empty prompts."""
    name, prompts = "config_sentence_transformers.json", {"query": "", "document": "a tree : "}
    fields = {
        "documents": {"__version__": {"pytorch": "1.8.1"}, "prompts": {"document": "a tree : "}},
        "queries": {"__version__": {"pytorch": "2.13.0"}, "prompts": prompts, "note": None},
    }
    for directory, content in fields.items():
        (tmp_path / directory / name).write_text(json.dumps(content))
    convert(tmp_path / "documents", tmp_path / "new", query_model=tmp_path / "queries")
    written = json.loads((tmp_path / "new" / name).read_text())
    assert written == {**fields["documents"], "note": None}
    model, alone = bert_jax.load(tmp_path / "new"), bert_jax.load(tmp_path / "documents")
    expected = alone.embed(TEXTS, side="document")
    np.testing.assert_array_equal(model.embed(TEXTS, side="document"), expected)


def test_models_that_do_not_go_together(pair, both, tmp_path):
    documents, queries = pair
    vectors = dataclasses.replace(documents.description.stored_vectors, similarity="dot")
    description = dataclasses.replace(documents.description, stored_vectors=vectors)
    dataclasses.replace(documents, description=description).save(tmp_path / "dot")
    with pytest.raises(UserError, match=r"different similarity_fn_name: 'dot' \(document\), None"):
        convert(tmp_path / "dot", tmp_path / "new", query_model=tmp_path / "queries")
    with pytest.raises(UserError, match="task is 'classification'; leave it out: its model makes"):
        convert(
            tmp_path / "documents",
            tmp_path / "new",
            task="classification",
            query_model=tmp_path / "queries",
        )
    vectors = dataclasses.replace(queries.description.stored_vectors, poolings=("cls", "max"))
    description = dataclasses.replace(queries.description, stored_vectors=vectors)
    dataclasses.replace(queries, description=description).save(tmp_path / "wide")
    with pytest.raises(UserError, match="documents have the width 16, of queries 32; give two"):
        convert(tmp_path / "documents", tmp_path / "new", query_model=tmp_path / "wide")
    with pytest.raises(UserError, match="takes no third; leave it out"):
        convert(both, tmp_path / "new", query_model=tmp_path / "queries")
    with pytest.raises(UserError, match="Google's files have one encoder"):
        convert(both, tmp_path / "new", to="google")
    with pytest.raises(UserError, match="holds other files and no config.json"):
        queries.save(both)
    assert not (tmp_path / "new").exists()


def test_damage_is_found(both):
    weights = both / "query_0_Transformer" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UserError, match=r"query_0_Transformer/model.safetensors is damaged"):
        bert_jax.load(both)


@pytest.mark.slow
def test_in_a_bucket(both, bucket):
    model = bert_jax.load(both)
    model.save(f"{bucket}/model")
    again = bert_jax.load(f"{bucket}/model")
    for side in (None, "query"):
        np.testing.assert_array_equal(again.embed(TEXTS, side=side), model.embed(TEXTS, side=side))
