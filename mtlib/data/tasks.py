"""The three tasks and the sets that they are trained and tested on, read from tasks.yaml."""

from typing import Self

from pydantic import model_validator

from mtlib.data.registry import SETS, Entry, read_entries
from mtlib.data.sources import is_testbed
from mtlib.settings import check_choice


class TaskSets(Entry):
    """Names of the sets of one task from one kind of source: in and out of its training
    distribution.

    `on_request` has sets out of the distribution that are evaluated only where a run names them.
    """

    train: str
    id: tuple[str, ...]
    ood: tuple[str, ...]
    on_request: tuple[str, ...] = ()


class Task(Entry):
    """One of the paper's tasks. `alpha` and `batch_size` are the paper's."""

    name: str
    alpha: float
    batch_size: int
    real: TaskSets
    testbed: TaskSets

    @model_validator(mode="after")
    def _names_known_sets(self) -> Self:
        for sets in (self.real, self.testbed):
            for name in (sets.train, *sets.id, *sets.ood, *sets.on_request):
                check_choice("the name of a set", name, SETS)
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        return SETS[self.real.train].label_names

    def train_set(self, source: str) -> str:
        return self._sets(source).train

    def evaluation_sets(self, source: str) -> tuple[str, ...]:
        """In distribution, then out of it."""
        return (*self._sets(source).id, *self._sets(source).ood)

    def possible_sets(self, source: str) -> tuple[str, ...]:
        """The evaluation sets, and those that a run may name besides."""
        return (*self.evaluation_sets(source), *self._sets(source).on_request)

    def dev_set(self, source: str) -> str:
        """The one set that settings may be chosen on."""
        return self._sets(source).id[0]

    def _sets(self, source: str) -> TaskSets:
        return self.testbed if is_testbed(source) else self.real


TASKS = read_entries("tasks.yaml", Task)
_IN_DISTRIBUTION = {name for task in TASKS.values() for name in (*task.real.id, *task.testbed.id)}


def get_task(name: str) -> Task:
    check_choice("task", name, TASKS)
    return TASKS[name]


def split_type(set_name: str) -> str:
    """What an evaluation set is: "id", in distribution, or "ood"."""
    return "id" if set_name in _IN_DISTRIBUTION else "ood"
