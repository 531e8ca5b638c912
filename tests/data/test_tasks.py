"""The tasks and their sets."""

import pytest

from mtlib.data.registry import SETS
from mtlib.data.tasks import TASKS, get_task, split_type
from mtlib.errors import UserError


def test_paper_settings():
    settings = {name: (task.alpha, task.batch_size) for name, task in TASKS.items()}
    assert settings == {"sentiment": (0.6, 16), "nli": (0.7, 32), "paraphrase": (0.8, 32)}


@pytest.mark.parametrize("source", ["testbed", "hub", "some/folder"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_sets_fit_task_and_source(task, source):
    train, evaluation = task.train_set(source), task.evaluation_sets(source)
    assert task.dev_set(source) == evaluation[0] and split_type(evaluation[0]) == "id"
    assert {*map(split_type, evaluation)} == {"id", "ood"}
    for name in (train, *evaluation):
        assert SETS[name].bundled == (source == "testbed")
        assert bool(SETS[name].columns.text_pair) == (task.name != "sentiment")
        assert SETS[name].label_names == task.labels or SETS[name].folded
        may_be_subset = [file.may_be_subset for file in SETS[name].files]
        assert may_be_subset == [name == train and task.train_set("hub") == train] * len(
            may_be_subset
        )


def test_every_registered_set_belongs_to_one_task():
    """But for CAD's training pairs, from which the supervised masking policy learns."""
    of_tasks = [
        name
        for task in TASKS.values()
        for source in ("testbed", "hub")
        for name in (task.train_set(source), *task.evaluation_sets(source))
    ]
    assert sorted([*of_tasks, "imdb_cad_train"]) == sorted(SETS)


def test_unknown_names():
    with pytest.raises(UserError, match="task is 'qa'; expected one of sentiment, nli, paraphrase"):
        get_task("qa")
