"""Sweep files: which runs they mean."""

import json
from collections import Counter
from pathlib import Path

import pytest

from mtlib.data.registry import SETS
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, SETTINGS_FILE
from mtlib.runs.records import identity, read_records
from mtlib.sweeps.sweep_file import expand

SWEEPS = Path(__file__).resolve().parents[2] / "data" / "sweeps"


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def test_product(tmp_path):
    text = "tasks: [sentiment, nli]\nmethods: mask_tuning\nseeds: [0, 3]\nepochs: 1"
    configs = expand(write(tmp_path, text))
    runs = [(config.task, config.seed) for config in configs]
    assert runs == [("sentiment", 0), ("nli", 0), ("sentiment", 3), ("nli", 3)]
    assert {config.epochs for config in configs} == {1}


def test_what_a_method_does_not_read_is_no_run_of_its_own(tmp_path):
    text = """
        tasks: sentiment
        methods: [fine_tuning, mask_tuning, no_integrated_loss]
        alpha: [null, 0.6, 0.3]
        update: [joint, alternating]
        mask_rate: [0.05, 0.1]
    """
    counts = Counter(config.method for config in expand(write(tmp_path, text)))
    # null is the paper's 0.6
    assert counts == {"fine_tuning": 1, "mask_tuning": 2 * 2 * 2, "no_integrated_loss": 2}


def test_values_that_are_lists_or_look_like_text(tmp_path):
    text = """
        tasks: sentiment
        methods: fine_tuning
        source: hub
        sets: [sst2, imdb_cad]
        learning_rate: [5e-5, 1.0e-4]
        splits: {imdb_cad: test}
        seeds: 2
    """
    configs = expand(write(tmp_path, text))
    assert {config.learning_rate for config in configs} == {5e-5, 1e-4}
    assert {config.seed for config in configs} == {0, 1}
    assert {config.sets for config in configs} == {("sst2", "imdb_cad")}
    text = "tasks: sentiment\nmethods: fine_tuning\nsource: hub\nsets: [[sst2], [imdb_cad]]"
    several = expand(write(tmp_path, text))
    assert [config.sets for config in several] == [("sst2",), ("imdb_cad",)]


def test_words_are_one_value_and_lists_of_words_are_several(tmp_path):
    text = "tasks: sentiment\nmethods: [fine_tuning, masks_left]\nwords: "
    configs = expand(write(tmp_path, text + "[plot, film]"))
    assert [getattr(config.settings, "words", None) for config in configs] == [
        None,
        ("film", "plot"),
    ]
    configs = expand(write(tmp_path, text + "[[plot], [film, plot]]"))
    assert [config.settings.words for config in configs[1:]] == [("plot",), ("film", "plot")]


def test_names_mean_the_same_beside_folders_of_that_name(tmp_path, monkeypatch):
    for name in ("mini", "testbed"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    text = "tasks: sentiment\nmethods: fine_tuning\nmodels: mini\nsource: testbed"
    (config,) = expand(write(tmp_path, text))
    assert (config.model, config.source) == ("mini", "testbed")


def test_files_of_this_repository():
    assert len(expand(SWEEPS / "testbed.yaml")) == 3 * 2 * 3
    # 10 values of alpha for Mask-tuning, of which the paper's is one; one of every other method
    configs = expand(SWEEPS / "paper.yaml")
    assert len(configs) == 3 * 3 * 5 * (10 + 4)
    remote = {name for name, data_set in SETS.items() if data_set.remote is not None}
    assert all(set(config.sets) <= remote for config in configs if config.source == "hub")


# the records that each sweep of the repository has made, and would find there
MADE = {
    "base": "base base_long base_grid base_policies base_pairs peers_base peers_sst2_base "
    "peers_mnli_base peers_pairs_base",
    "peers": "peers peers_pairs peers_long peers_trial",
    "peers_data": "peers_sst2 peers_sst2_rates peers_qqp peers_mnli",
    "peers_testbeds": "peers_rows peers_reference",
    "policies": "policies policies_grid policies_pairs ablations pretraining_testbed",
    "policies_data": "policies_sst2 intermediate intermediate_grid",
    "policies_weaker": "policies_weaker policies_weaker_rates",
    "sst2": "sst2 sst2_grid sizes sizes_grid readings",
    "study": "study",
    "testbed_probe": "testbed",
}


@pytest.mark.parametrize("name", MADE)
def test_the_sweeps_of_the_comparisons_have_every_run_that_was_made(name, tmp_path, monkeypatch):
    """By all settings of a run; its data and the model's files are not bundled."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mpnet_base").mkdir()
    for strength in ("0.5", "0", "16000"):
        folder = tmp_path / "runs" / f"testbed_{strength}"
        folder.mkdir(parents=True)
        (folder / SETTINGS_FILE).write_text(json.dumps({"strength": 0, "seed": 0}))
    configs = [config for config in expand(SWEEPS / f"{name}.yaml") if config.method != "ipt"]
    planned = {identity(config.resolved().public(), None, {}) for config in configs}
    files = MADE[name].split()
    records = read_records([DATA_DIR / "results" / f"{file}.jsonl.gz" for file in files])
    made = [record["config"] for record in records if is_planned(record["config"])]
    missing = [config for config in made if identity(config, None, {}) not in planned]
    assert made and not missing, missing[0]


def is_planned(config: dict) -> bool:
    """IPT needs a treebank, entities have a sweep of their own, four runs had another precision."""
    if config["method"] == "ipt" or config.get("masking") == "salient_spans":
        return False
    return config["precision"] == "bf16"


def test_grids_have_what_stands_beside_them(tmp_path):
    text = """
        tasks: sentiment
        epochs: 8
        mask_rate: 0.05
        seeds: 2
        grids:
        - {methods: fine_tuning}
        - {methods: mask_tuning, masking: [exact, frequency_rare]}
        - {methods: mask_tuning, mask_rate: [0.05, 0.15], epochs: 3}
        - {methods: fine_tuning, seeds: [1, 2]}
    """
    runs = []
    for config in expand(write(tmp_path, text)):
        values = config.values()
        method = (values.get("masking"), values.get("mask_rate"))
        runs.append((config.method, config.seed, config.epochs, *method))
    # the runs of a seed stand together, so that a sweep that is cut short has whole seeds
    assert runs == [
        ("fine_tuning", 0, 8, None, None),
        ("mask_tuning", 0, 8, "exact", 0.05),
        ("mask_tuning", 0, 8, "frequency_rare", 0.05),
        ("mask_tuning", 0, 3, "exact", 0.05),
        ("mask_tuning", 0, 3, "exact", 0.15),
        ("fine_tuning", 1, 8, None, None),
        ("mask_tuning", 1, 8, "exact", 0.05),
        ("mask_tuning", 1, 8, "frequency_rare", 0.05),
        ("mask_tuning", 1, 3, "exact", 0.05),
        ("mask_tuning", 1, 3, "exact", 0.15),
        ("fine_tuning", 2, 8, None, None),  # of the last grid, whose seed 1 is there already
    ]


def test_source_and_model_in_place_of_the_files(tmp_path):
    text = """
        tasks: nli
        models: some_model
        source: releases
        grids:
        - {methods: fine_tuning}
        - {methods: fine_tuning, source: testbed, models: mini}
    """
    configs = expand(write(tmp_path, text), source="hub", models="bert-base-uncased")
    found = [(config.source, config.model) for config in configs]
    # what a grid says itself stays
    assert found == [("hub", "bert-base-uncased"), ("testbed", "mini")]
    alone = "tasks: sentiment\ngrids:\n- {methods: fine_tuning, source: hub}"
    with pytest.raises(UserError, match="each of its grids has source itself"):
        expand(write(tmp_path, alone), source="hub")


def test_paths_become_absolute(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    (config,) = expand(write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nsource: data"))
    assert config.source == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "task: nli",
            r": unknown key 'task'; expected one of grids, tasks, .*; did you mean 'tasks'\?$",
        ),
        ("tasks: nli", ": method is None; expected one of fine_tuning"),
        (
            "tasks: nli\nmethods: [[mask_tuning]]",
            r"method is \['mask_tuning'\]; expected one of fine_tuning",
        ),
        ("tasks: nli\nmethods: fine_tuning\nseeds: 0", "seeds is 0; expected at least one value"),
        (
            "tasks: nli\ngrids: [{methods: fine_tuning}, {methods: mask_tuning, alpha: 2}]",
            ", grid 2: alpha is 2",
        ),
        ("- nli", " is no sweep file"),
        ("tasks: [", " is no sweep file"),
        (None, " is no sweep file.*No such file"),
    ],
)
def test_bad_input(tmp_path, text, message):
    file = tmp_path / "sweep.yaml" if text is None else write(tmp_path, text)
    with pytest.raises(UserError, match=rf"^{tmp_path}/sweep\.yaml.*{message}"):
        expand(file)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("methods: fine_tuning\nalpha: 0.3", "alpha"),
        ("methods: mask_tuning\nspacy_pipeline: torch", "spacy_pipeline"),
        ("alpha: 0.3\ngrids: [{methods: fine_tuning}, {methods: augmented}]", "alpha"),
        ("grids: [{methods: mask_tuning}, {methods: fine_tuning, alpha: 0.3}]", "alpha"),
    ],
)
def test_a_setting_that_no_run_reads_is_an_error(tmp_path, text, unread):
    (tmp_path / "sweep.yaml").write_text(f"tasks: sentiment\n{text}\n")
    with pytest.raises(UserError, match=f"none of its runs reads {unread}"):
        expand(tmp_path / "sweep.yaml")


@pytest.mark.parametrize("seeds", ['"3"', "3.0", "true", '[0, "1"]', "[1.0]", "1e1"])
def test_seeds_that_are_no_whole_numbers_are_refused(tmp_path, seeds):
    with pytest.raises(UserError, match=r"seeds is .*expected a whole number without quotes"):
        expand(write(tmp_path, f"tasks: sentiment\nmethods: mask_tuning\nseeds: {seeds}\n"))


@pytest.mark.parametrize("entry", ["alpha: true", "alpha: [0.1, yes]", "epochs: on"])
def test_true_and_false_are_no_numbers(tmp_path, entry):
    name = entry.partition(":")[0]
    text = f"tasks: sentiment\nmethods: mask_tuning\n{entry}\n"
    with pytest.raises(UserError, match=rf"{name} is (True|False); expected a value other than"):
        expand(write(tmp_path, text))
