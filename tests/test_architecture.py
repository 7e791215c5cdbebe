"""The layers of docs/architecture.md: which folder may import which; what no file may contain."""

import ast
import re
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "bert_jax"

# An import goes to a lower layer or stays inside its folder.
LAYERS = {
    1: ("errors", "files", "options", "process", "training_options"),
    2: ("sharding", "tokenization", "metrics", "models"),
    3: ("families", "data", "search", "generation"),
    4: ("checkpoints", "pictures"),
    5: ("tasks",),
    6: ("training", "inference"),
    7: ("distillation", "planning", "parity", "config", "experiment"),
    8: ("reports", "training_call", "cli", "serving", "__init__", "__main__"),
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
# All modules of these layers may import each other; of other layers, these the ones beside them.
OPEN_LAYERS = (1, 8)
BESIDE = {
    "models": ("sharding", "metrics"),
    "config": ("distillation",),
    "experiment": ("config", "distillation", "planning"),
}
# The only files that may import these.
FOREIGN = {
    "torch": {"parity/reference.py"},
    "transformers": {"parity/reference.py"},
    "pickle": {"checkpoints/tensors/pytorch_file.py"},
    "dill": set(),
    "cloudpickle": set(),
    "tests": set(),
}
TENSORFLOW = {"tensorflow", "tensorflow_datasets", "tensorflow_text"}
# TensorFlow reads Google's checkpoints through the module that hides all accelerators from it.
EXCEPTIONS = {("checkpoints/tensors/tensorflow_checkpoint.py", "data")}

TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports_of(tree: ast.AST) -> set[str]:
    """Every module that is imported anywhere; `from a import b` counts as a and as a.b."""
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            imports |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return imports


def wrong_imports(name: str, tree: ast.AST) -> list[str]:
    """Imports of a file that lead to a higher layer, or to another folder of the same layer."""
    folder = name.removesuffix(".py").split("/")[0]
    wrong = []
    for module in imports_of(tree):
        parts = module.split(".")
        other = parts[1] if parts[0] == "bert_jax" and len(parts) > 1 else ""
        if other not in LAYER_OF or other == folder or (name, other) in EXCEPTIONS:
            continue
        is_open = LAYER_OF[folder] in OPEN_LAYERS and LAYER_OF[other] == LAYER_OF[folder]
        is_open = is_open or other in BESIDE.get(folder, ())
        if LAYER_OF[other] >= LAYER_OF[folder] and not is_open:
            wrong.append(f"{name} (layer {LAYER_OF[folder]}) imports {module}")
    return sorted(wrong)


def test_every_file_has_a_layer_and_imports_lower_ones():
    assert {name.removesuffix(".py").split("/")[0] for name in TREES} <= set(LAYER_OF)
    assert [line for name, tree in TREES.items() for line in wrong_imports(name, tree)] == []


def test_the_check_sees_a_wrong_import():
    tree = ast.parse("def f():\n    from bert_jax.training.loop import train\n    import torch\n")
    assert wrong_imports("models/layers.py", tree) == [
        "models/layers.py (layer 2) imports bert_jax.training.loop",
        "models/layers.py (layer 2) imports bert_jax.training.loop.train",
    ]
    assert "torch" in imports_of(tree)


def test_tensorflow_is_imported_under_data_and_pytorch_in_one_file():
    for name, tree in TREES.items():
        roots = {module.split(".")[0] for module in imports_of(tree)}
        assert name.startswith("data/") or not roots & TENSORFLOW, name
        assert {root for root in roots & set(FOREIGN) if name not in FOREIGN[root]} == set(), name


def test_text_for_people_is_printed_in_one_way():
    """Names from files cannot control a terminal, see `process.say`."""
    for name, tree in TREES.items():
        for node in ast.walk(tree) if name != "process.py" else ():
            if isinstance(node, ast.Call):
                call = ast.unparse(node)
                assert not call.startswith("print(") or call.startswith("print(json.dumps("), name
                assert not call.startswith(("sys.stderr.write(", "sys.stdout.write(")), name


def test_no_module_is_in_an_import_cycle():
    modules = {}
    for name, tree in TREES.items():
        parts = ("bert_jax", *name.removesuffix(".py").split("/"))
        package = ".".join(parts[:-1])  # what a module imports from its own one is a module of it
        module = package if parts[-1] == "__init__" else ".".join(parts)
        modules[module] = imports_of(tree) - {package, module}
    del modules["bert_jax"]  # imports what it names only when asked
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " → ".join((*trail, module))
        if module not in done:
            for other in sorted(modules[module] & set(modules)):
                visit(other, (*trail, module))
            done.add(module)

    for module in modules:
        visit(module, ())


def test_files_are_short_and_finished():
    for name in TREES:
        text = (PACKAGE / name).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 420, name
        assert not [word for word in ("/work/", "/root/", "TODO", "FIXME") if word in text], name


def spelled(tree: ast.AST) -> list[str]:
    """The strings of a file that are no docstrings."""
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    }
    words = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [word for word in words if isinstance(word, str) and word not in docstrings]


def test_plug_ins_are_named_by_no_other_file():
    """A family, a task and a head of Hugging Face are spelled in their own module only."""
    special = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK)\]|<(pad|unk|cls|sep|mask)>")
    families = {Path(name).stem for name in TREES if name.startswith("families/")}
    # ColBERT is also the model of Stanford's and PyLate's files, with an encoder of any family; and
    # "new" is a word. "lstm" and "gru" are kinds of layers, too.
    others = families - {"__init__", "family", "bert", "colbert", "new", "lstm", "gru"}
    relatives = re.compile("|".join(others), re.IGNORECASE)
    for name, tree in TREES.items():
        if name.startswith("families/"):
            continue
        words = spelled(tree)
        assert not [w for w in words if "BertFor" in w or w.startswith(("bert.", "cls."))], name
        if name.startswith("tokenization/"):
            continue
        assert not [word for word in words if special.search(word)], name
        # A preset is named by its implementation.
        is_preset = name == "config/presets.py"
        assert is_preset or not [word for word in words if relatives.search(word)], name
        # How many token types a pair needs is known to the tokenizer's template.
        compared = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)]
        assert not [text for text in compared if "type_vocab_size" in text], name


def test_heads_and_tasks_are_named_by_no_other_file():
    """What another file needs to know of one is in its record: `Head`, `PredictSpec`."""
    # A preset and the form of a client are for some tasks.
    own = ("models/heads/", "families/", "config/presets.py", "serving/routes/")
    heads = {Path(name).stem for name in TREES if name.startswith("models/heads/")}
    tasks = {Path(name.split("/")[1]).stem for name in TREES if name.startswith("tasks/")}
    # Some are also words for other things: a folder, an axis, an option, a field of outputs.
    also = {"__init__", "base", "encoder", "embed", "text_vectors"}
    also |= {"attentions", "reader", "similarity"}
    for name, tree in TREES.items():
        is_of_task = name.startswith("tasks/") and not name.startswith("tasks/base/")
        if is_of_task or name.startswith(own):
            continue
        assert not [word for word in spelled(tree) if word in (heads | tasks) - also], name
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and re.search(r"\b(head|task)\b", ast.unparse(node)):
                assert not (heads | tasks) & set(spelled(node)), f"{name}: {ast.unparse(node)}"
        # A method of a model or a verb is the form of a task; what lies below knows none.
        if not name.startswith(("inference/", "cli/", "serving/", "tasks/base/")):
            of_tasks = {module.split(".")[2] for module in imports_of(tree) if ".tasks." in module}
            assert not of_tasks & (tasks - {"base"}), name


def test_the_arrays_of_a_model_are_listed_in_its_record_only():
    """A model takes `EncoderInputs`, or their arrays by position or name; it spells none again."""
    arrays = {"token_type_ids", "attention_mask", "segment_ids", "packed_rows", "row_indices"}
    for name, tree in TREES.items():
        for node in ast.walk(tree) if name.startswith("models/") else ():
            if isinstance(node, ast.FunctionDef):
                own = {arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)}
                assert len(own & arrays) <= 1, f"{name}: {node.name}"


def test_the_documentation_shows_every_part():
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [name for name in LAYER_OF if name not in page] == []


def test_every_letter_of_a_shape_is_in_the_table_of_the_concepts():
    table = (PACKAGE.parent / "docs" / "concepts.md").read_text(encoding="utf-8")
    cells = re.findall(r"\| ((?:\w, )*\w) (?=\|)", table)
    known = {letter for cell in cells for letter in cell.split(", ")}
    shape = re.compile(r"\[([^\[\]\n'_]*)\]")
    for name in TREES:
        with (PACKAGE / name).open("rb") as file:
            tokens = [
                token.string
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.COMMENT or token.string.endswith('"""')
            ]
        for text in tokens:
            for axes in shape.findall(text):
                assert set(re.findall(r"\b[A-Za-z]\b", axes)) <= known, f"{name}: [{axes}]"
