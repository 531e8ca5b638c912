"""A key that stands twice is refused wherever YAML is read; aliases and `<<` keep their sense."""

import pytest
import yaml

from mtlib.analysis import comparisons
from mtlib.data import registry
from mtlib.data.tasks import Task
from mtlib.data.yaml_files import load_yaml
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR

COMPARISON = "mine:\n  about: x\n  about: y\n  records: [runs]\n  arms: {}\n"


@pytest.mark.parametrize(
    ("text", "line", "again"),
    [
        ("a: 1\nb: 2\na: 1", 1, 3),
        ("a:\n  b: 1\n  'b': 2", 2, 3),
        ("- {}\n- c:\n  - {b: 1,\n     b: 1}", 3, 4),
        ("x: &x {a: 1}\ny:\n  <<: *x\n  b: 1\n  b: 2", 4, 5),
        ("x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x", 3, 4),
    ],
)
def test_a_key_that_stands_twice_is_refused(text, line, again):
    with pytest.raises(yaml.YAMLError, match=rf"twice, in line {line} and again in line {again}"):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1\n'1': 2\n1: 3", {"a": 1, "1": 2, 1: 3}),
        ("x: &x {a: 1, b: 2}\ny: &y {<<: *x, a: 3}\nz: {<<: *y, b: 4}",
         {"x": {"a": 1, "b": 2}, "y": {"a": 3, "b": 2}, "z": {"a": 3, "b": 4}}),
        ("x: &x [{a: 1}]\ny: *x\nz: *x", {name: [{"a": 1}] for name in "xyz"}),
    ],
)  # fmt: skip
def test_what_may_repeat(text, value):
    assert load_yaml(text) == value


def test_entries_of_data_sets_and_tasks(tmp_path, monkeypatch):
    (tmp_path / "tasks.yaml").write_text("nli:\n  alpha: 0.1\n  batch_size: 32\n  alpha: 0.5\n")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    with pytest.raises(UserError, match=r"^tasks\.yaml .*'alpha' stands twice, .* line 4\."):
        registry.read_entries("tasks.yaml", Task)


@pytest.fixture
def written_comparisons(tmp_path, monkeypatch):
    """Comparisons read from files of a test, not from those of the project."""
    folder = tmp_path / "comparisons"
    folder.mkdir()
    monkeypatch.setattr(comparisons, "DATA_DIR", tmp_path)
    comparisons._declared.cache_clear()
    yield folder
    comparisons._declared.cache_clear()


def test_a_comparison(written_comparisons):
    (written_comparisons / "mine.yaml").write_text(COMPARISON)
    with pytest.raises(UserError, match=r"comparisons.mine\.yaml .*'about' stands twice"):
        comparisons.names()


def test_two_files_with_one_name(written_comparisons):
    for name in ("a.yaml", "b.yaml"):
        text = (DATA_DIR / "comparisons" / "study.yaml").read_text()
        (written_comparisons / name).write_text(text)
    with pytest.raises(UserError, match=r"stands twice, in a\.yaml and again in b\.yaml"):
        comparisons.names()
