"""Sweep files: which runs they mean, and what these may cost."""

import json
from pathlib import Path

import pytest

from mtlib.data.registry import SETS
from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.runs import run as runs
from mtlib.runs.config import command_line, configure
from mtlib.runs.inputs import record_path
from mtlib.sweeps.grid import GridRun, columns, expand, expected_seconds, identify
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_cli import call

SWEEPS = Path(__file__).resolve().parents[2] / "data" / "sweeps"


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


class TestExpand:
    def test_product(self, tmp_path):
        configs = expand(write(tmp_path, "tasks: [sentiment, nli]\nmethods: mask_tuning\nseeds: [0, 3]\nepochs: 1"))
        assert [(config.task, config.seed) for config in configs] == [
            ("sentiment", 0),
            ("sentiment", 3),
            ("nli", 0),
            ("nli", 3),
        ]
        assert {config.epochs for config in configs} == {1}

    def test_what_a_method_does_not_read_is_no_run_of_its_own(self, tmp_path):
        text = "tasks: sentiment\nmethods: [fine_tuning, mask_tuning, no_integrated_loss]\nalpha: [null, 0.6, 0.3]\n"
        configs = expand(write(tmp_path, text + "update: [joint, alternating]\nmask_rate: [0.05, 0.1]"))
        count = {method: sum(config.method == method for config in configs) for method in METHODS}
        # null is the paper's 0.6
        assert (count["fine_tuning"], count["mask_tuning"], count["no_integrated_loss"]) == (1, 2 * 2 * 2, 2)

    @pytest.mark.parametrize(
        ("text", "n"),
        [
            ("tasks: sentiment\nmethods: [mask_tuning, product_of_experts]\nbias: shortcut", 2),
            ("tasks: sentiment\nmethods: mask_tuning\nclassification: [fine_tuning, reweight_is_none]", None),
            ("tasks: sentiment\nmethods: mask_tuning\nclassification: [fine_tuning, product_of_experts]\n"
             "bias: shortcut\nbias_learning_rate: [1e-2, 2e-2]", 3),
            ("tasks: [sentiment, nli]\nmethods: mask_tuning\nside: [both, second]", 3),
            ("tasks: nli\nmethods: mask_tuning\nclassifier_reads: [refilled, original]\nfill: [argmax, sample]", 3),
            ("tasks: nli\nmethods: [fine_tuning, mask_tuning]\ngradient_diagnostics_steps: [0, 5]", 3),
        ],
    )  # fmt: skip
    def test_what_a_combination_does_not_read_is_no_run_of_its_own(self, tmp_path, text, n):
        if n is None:
            with pytest.raises(UserError, match="classification is 'reweight_is_none'"):
                expand(write(tmp_path, text))
        else:
            assert len(expand(write(tmp_path, text))) == n

    def test_values_that_are_lists_or_look_like_text(self, tmp_path):
        text = (
            "tasks: sentiment\nmethods: fine_tuning\nsource: hub\nsets: [sst2, imdb_cad]\nlearning_rate: [5e-5, 1.0e-4]"
        )
        configs = expand(write(tmp_path, text + "\nsplits: {imdb_cad: test}\nseeds: 2"))
        assert {config.learning_rate for config in configs} == {5e-5, 1e-4} and {config.seed for config in configs} == {
            0,
            1,
        }
        assert {config.sets for config in configs} == {("sst2", "imdb_cad")}
        several = expand(
            write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nsource: hub\nsets: [[sst2], [imdb_cad]]")
        )
        assert [config.sets for config in several] == [("sst2",), ("imdb_cad",)]

    def test_profile(self, tmp_path):
        configs = expand(write(tmp_path, "profile: smoke\ntasks: nli\nmethods: [mask_tuning, fine_tuning]\nseeds: 2"))
        assert {config.train_size for config in configs} == {32} and {config.seed for config in configs} == {0, 1}
        assert {config.settings.alpha for config in configs if config.method == "mask_tuning"} == {None, 0.0}

    def test_learning_rates_of_a_profile(self, tmp_path):
        text = "profile: cpu\ntasks: sentiment\nmethods: [fine_tuning, sequential, mask_tuning]\nseeds: 1\nalpha: 0.1\n"
        configs = expand(write(tmp_path, text + "update: [joint, alternating]"))
        rates = {(config.method, config.values().get("update")): config.learning_rate for config in configs}
        assert rates == {
            ("fine_tuning", None): 2e-4, ("sequential", None): 5e-4,
            ("mask_tuning", "joint"): 5e-4, ("mask_tuning", "alternating"): 2e-4,
        }  # fmt: skip
        assert {config.learning_rate for config in expand(write(tmp_path, text + "learning_rate: 1e-3"))} == {1e-3}
        # they were chosen for the profile's model
        assert {config.learning_rate for config in expand(write(tmp_path, text + "models: other"))} == {None}

    def test_top_k_is_given_to_the_ways_of_filling_that_read_it(self, tmp_path):
        text = "tasks: nli\nmethods: mask_tuning\ntop_k: [5, 20]\n"
        configs = expand(write(tmp_path, text + "fill: [argmax, top_k]"))
        assert [(config.settings.fill, config.settings.top_k) for config in configs] == [
            ("argmax", 10), ("top_k", 5), ("top_k", 20),
        ]  # fmt: skip
        with pytest.raises(UserError, match="top_k is 5, but fill is 'argmax'"):
            expand(write(tmp_path, text))

    def test_names_mean_the_same_beside_folders_of_that_name(self, tmp_path, monkeypatch):
        for name in ("mini", "testbed"):
            (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path)
        (config,) = expand(write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nmodels: mini\nsource: testbed"))
        assert (config.model, config.source) == ("mini", "testbed")

    def test_files_of_this_repository(self):
        assert len(expand(SWEEPS / "testbed.yaml")) == 3 * 2 * 3
        # 10 values of alpha for Mask-tuning, of which the paper's is one; one of every other method
        configs = expand(SWEEPS / "paper.yaml")
        assert len(configs) == 3 * 3 * 5 * (10 + 4)
        remote = {name for name, data_set in SETS.items() if data_set.remote is not None}
        assert all(set(config.evaluation_sets) <= remote for config in configs if config.source == "hub")

    def test_paths_become_absolute(self, tmp_path, monkeypatch):
        (tmp_path / "data").mkdir()
        monkeypatch.chdir(tmp_path)
        (config,) = expand(write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nsource: data"))
        assert config.source == str(tmp_path / "data")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("task: nli", r"unknown key 'task'; did you mean 'tasks'\? Known are profile, tasks, "),
            ("zzz: 1", "unknown key 'zzz'; expected profile, tasks, "),
            ("tasks: nli", "methods is missing; expected a list, for example `methods: "),
            ("tasks: nli\nmethods: fine_tuning\nmodels: [/no/such]", "model is '/no/such', which does not exist"),
            ("tasks: nli\nmethods: masktuning", "method is 'masktuning'; expected one of fine_tuning"),
            ("tasks: nli\nmethods: [[mask_tuning]]", r"method is \['mask_tuning'\]; expected one of fine_tuning"),
            ("tasks: {nli: 1}\nmethods: mask_tuning", "task is {'nli': 1}; expected a name"),
            ("tasks: [nli, nil]\nmethods: fine_tuning", "unknown task 'nil'; expected one of sentiment"),
            ("tasks: nli\nmethods: mask_tuning\nalpha: [0.1, 2]", "alpha is 2; expected a number from 0 to 1"),
            ("tasks: nli\nmethods: fine_tuning\nepochs: three", "epochs is 'three'; expected a number"),
            ("tasks: nli\nmethods: fine_tuning\nepochs: .inf", "epochs is inf; expected a number"),
            ("tasks: nli\nmethods: fine_tuning\nepochs: 0", "epochs is 0; expected a number above 0"),
            ("tasks: nli\nmethods: fine_tuning\nbatch_size: 1.5", "batch_size is 1.5; expected a whole number"),
            ("tasks: nli\nmethods: mask_tuning\nmask_rate: null", "mask_rate is None; expected a number"),
            ("tasks: nli\nmethods: mask_tuning\nshared: 1", "shared is 1; expected true or false"),
            ("tasks: nli\nmethods: fine_tuning\nsets: sst2", "sets is 'sst2'; expected a list of names"),
            ("tasks: nli\nmethods: fine_tuning\nsets: [sst2]", "'sst2' is no evaluation set of nli from 'testbed'"),
            ("tasks: nli\nmethods: fine_tuning\nsplits: hans", "splits is 'hans'; expected NAME: VALUE pairs"),
            ("tasks: nli\nmethods: fine_tuning\nseeds: 0", "seeds is 0; expected a number of seeds"),
            ("tasks: nli\nmethods: fine_tuning\nseeds: [-1]", "seed is -1; expected 0 or more"),
            ("tasks: []\nmethods: fine_tuning", "tasks is an empty list"),
            ("tasks: nli\ntasks: sentiment\nmethods: fine_tuning", "'tasks' is there twice"),
            ("profile: big\ntasks: nli\nmethods: fine_tuning", "profile: unknown profile 'big'; expected one of smoke"),
            ("- nli", "expected `key: value` lines, not a list"),
            ("tasks: [", "is not YAML"),
        ],
    )
    def test_bad_input(self, tmp_path, text, message):
        with pytest.raises(UserError, match=rf"^{tmp_path}/sweep\.yaml.*{message}"):
            expand(write(tmp_path, text))

    def test_no_such_file(self, tmp_path):
        with pytest.raises(UserError, match=r"none\.yaml: No such file or directory; expected a sweep file"):
            expand(tmp_path / "none.yaml")


def test_a_resolved_configuration_resolves_to_itself():
    for method in METHODS:
        treebank = {"treebank": "folder"} if method == "ipt" else {}
        resolved = configure(task="nli", method=method, **treebank).resolved()
        assert resolved.resolved() == resolved


def test_options_and_plain_values_give_the_configuration_back(monkeypatch):
    seen = []
    monkeypatch.setattr(runs, "run", lambda config, *_, **__: seen.append(config) or 1 / 0)
    for settings in (
        {"task": "sentiment", "method": "fine_tuning"},
        {"task": "nli", "method": "mask_tuning", "model": "x/y", "seed": 3, "alpha": 0.0, "fill": "top_k",
         "shared": False, "fixed_masks": True, "epochs": 2.5},
        {"task": "sentiment", "method": "mask_tuning", "source": "hub", "sets": ("sst2", "imdb_cad"),
         "splits": {"imdb_cad": "test"}, "update": "alternating", "learning_rate": 5e-5, "precision": "float32",
         "gradient_diagnostics_steps": 2},
    ):  # fmt: skip
        written = configure(**settings)
        assert configure(**json.loads(json.dumps(written.values()))) == written
        with pytest.raises(ZeroDivisionError):
            call("run", *command_line(written))
        assert seen[-1] == written


def test_a_runs_file_is_its_record(testbed, model, tmp_path):  # noqa: F811
    """For a run with a subset of the data, so that the description of the subset counts in both."""
    subset = config(model, epochs=1, train_size=32)
    ((run,), trouble) = identify([subset])
    assert trouble is None and (run.examples, run.tests) == (32, 20 + 16 + 16)
    path, _ = runs.run(subset, tmp_path / "out")
    assert path.name == run.file and record_path(subset, tmp_path / "out") == path


def test_costs_come_from_records_of_the_same_task_method_and_model():
    def record(task="nli", method="fine_tuning", name="mini", train_seconds=60.0):
        return {"config": {"task": task, "method": method, "model": name, "epochs": 2},
                "data": {"train": {"rows": 500, "used_rows": 100}, "a": {"rows": 10}, "b": {"rows": 30}},
                "cost": {"train_seconds": train_seconds, "evaluation_seconds": 4.0}}  # fmt: skip

    config = configure(task="nli", method="fine_tuning", epochs=3)
    run = GridRun(config, "x.json", examples=50, tests=20)
    diverged = record(train_seconds=1.0) | {"diverged": True, "metrics": {}, "cost": {"train_seconds": 1.0}}
    assert expected_seconds(run, [record(), diverged]) == pytest.approx(60 / 200 * 50 * 3 + 4 / 40 * 20)
    records = [record(), record(train_seconds=6e3), record(train_seconds=120.0)]
    assert expected_seconds(run, records) == pytest.approx(92)
    others = [record("sentiment"), record(method="mask_tuning"), record(name="bert")]
    assert expected_seconds(run, others) is expected_seconds(run, [diverged]) is expected_seconds(run, []) is None


def test_columns_of_a_list_of_runs():
    configs = [
        configure(task="nli", method="mask_tuning"),
        configure(task="sentiment", method="mask_tuning", alpha=0.2),
    ]
    assert columns(configs) == {"task": ["nli", "sentiment"], "method": ["mask_tuning"] * 2, "model": ["mini"] * 2,
                                "seed": [0, 0], "alpha": [0.7, 0.2]}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("methods: fine_tuning\nalpha: 0.3", "alpha"),
        ("methods: mask_tuning\nmasking: exact\nattribution_every: 4", "attribution_every"),
        ("methods: mask_tuning\nmasking: supervised\nmask_rate: 0.3", "mask_rate"),
    ],
)
def test_a_setting_that_no_run_reads_is_an_error(tmp_path, text, unread):
    (tmp_path / "sweep.yaml").write_text(f"tasks: sentiment\n{text}\n")
    with pytest.raises(UserError, match=f"none of its runs reads {unread}"):
        expand(tmp_path / "sweep.yaml")
