"""Dependencies: documented with their licences."""

import ast
import importlib.metadata
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
# What the metadata of a package calls a licence.
NAMES = {
    "Apache-2.0": "Apache",
    "BSD-2-Clause": "BSD",
    "BSD-3-Clause": "BSD",
    "MIT": "MIT",
    "MIT-CMU": "MIT-CMU",
    "MPL-2.0": "MPL|Mozilla",
    "PSF": "Python Software Foundation",
}


def required():
    """Pairs of an extra ("" for none) and a package of `setup.py`."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    arguments = {
        keyword.arg: ast.literal_eval(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in ("install_requires", "extras_require")
    }
    groups = {"": arguments["install_requires"], **arguments["extras_require"]}
    return {
        (extra, re.match(r"[\w-]+", line)[0]) for extra, lines in groups.items() for line in lines
    }


def documented():
    """The licence of each pair."""
    rows = re.findall(r"^\| (`.*?) \| (\w*) ?\| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    return {
        (extra, package): licence
        for packages, extra, licence in rows
        for package in re.findall(r"`([\w-]+)`", packages)
    }


def test_every_dependency_is_documented_and_no_other():
    assert set(documented()) == required()
    assert len(required()) > 30


def test_the_licences_match_the_installed_packages():
    checked = 0
    for (_, package), licence in documented().items():
        try:
            metadata = importlib.metadata.metadata(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another extra or system
        fields = ("License-Expression", "License", "Classifier")
        said = " ".join(value for field in fields for value in metadata.get_all(field) or ())
        for name in licence.split(" and "):
            assert re.search(NAMES[name], said), (package, licence, said[:200])
        checked += 1
    assert checked > 20
