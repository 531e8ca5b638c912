"""What type checkers and editors know of the package."""

import ast
from pathlib import Path

import mtlib

SOURCE = Path(mtlib.__file__)


def test_checkers_know_the_names_that_are_loaded_lazily():
    tree = ast.parse(SOURCE.read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    for_checkers = [node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING"]
    known = {}
    for block in for_checkers:
        for node in block.body:
            known[node.module] = {name.name for name in node.names}
            assert all(name.asname is None for name in node.names)
    assert known == {module: {*names} for module, names in mtlib._NAMES.items()}
    assert sorted(mtlib.__all__) == sorted(mtlib._MODULES)


def test_the_package_says_that_it_has_types():
    assert (SOURCE.parent / "py.typed").is_file()
