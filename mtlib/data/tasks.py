"""The three tasks and the sets that they are trained and tested on."""

from dataclasses import dataclass

from mtlib.data.registry import NLI, PARAPHRASE, SENTIMENT
from mtlib.data.source_kinds import is_testbed
from mtlib.errors import UserError
from mtlib.settings import check_choice


@dataclass(frozen=True)
class TaskSets:
    """Names of the sets of one task from one kind of source."""

    train: str
    id: tuple[str, ...]
    ood: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One of the paper's tasks. `alpha` and `batch_size` are the paper's (Section IV), the same for all its models."""

    name: str
    labels: tuple[str, ...]
    pair: bool
    alpha: float
    batch_size: int
    real: TaskSets
    testbed: TaskSets

    def train_set(self, source: str) -> str:
        return self._sets(source).train

    def id_sets(self, source: str) -> tuple[str, ...]:
        """In-distribution evaluation sets."""
        return self._sets(source).id

    def ood_sets(self, source: str) -> tuple[str, ...]:
        """Out-of-distribution evaluation sets: for reporting only, never for choosing anything."""
        return self._sets(source).ood

    def evaluation_sets(self, source: str) -> tuple[str, ...]:
        return (*self.id_sets(source), *self.ood_sets(source))

    def dev_set(self, source: str) -> str:
        """The one set that settings may be chosen on."""
        return self._sets(source).id[0]

    def _sets(self, source: str) -> TaskSets:
        return self.testbed if is_testbed(source) else self.real


TASKS: dict[str, Task] = {
    "sentiment": Task(
        "sentiment",
        SENTIMENT,
        pair=False,
        alpha=0.6,
        batch_size=16,
        real=TaskSets("sst2_train", ("sst2",), ("imdb_contrast", "imdb_cad")),
        testbed=TaskSets(
            "testbed_sentiment_train", ("testbed_sentiment",), ("testbed_contrast", "testbed_counterfactual")
        ),
    ),
    "nli": Task(
        "nli",
        NLI,
        pair=True,
        alpha=0.7,
        batch_size=32,
        real=TaskSets("mnli_train", ("mnli_m", "mnli_mm"), ("hans", "anli_r1", "anli_r2", "anli_r3")),
        testbed=TaskSets(
            "testbed_nli_train", ("testbed_nli_m", "testbed_nli_mm"), ("testbed_overlap", "testbed_adversarial")
        ),
    ),
    "paraphrase": Task(
        "paraphrase",
        PARAPHRASE,
        pair=True,
        alpha=0.8,
        batch_size=32,
        real=TaskSets("qqp_train", ("qqp",), ("paws_qqp", "paws_wiki")),
        testbed=TaskSets("testbed_paraphrase_train", ("testbed_paraphrase",), ("testbed_scramble",)),
    ),
}

_KINDS = {
    name: kind
    for task in TASKS.values()
    for sets in (task.real, task.testbed)
    for kind, names in (("train", (sets.train,)), ("id", sets.id), ("ood", sets.ood))
    for name in names
}


def get_task(name: str) -> Task:
    check_choice("task", name, TASKS)
    return TASKS[name]


def kind(set_name: str) -> str:
    """What a set is for: "train", "id" (in distribution) or "ood"."""
    if set_name not in _KINDS:
        raise UserError(f"set {set_name!r} belongs to no task; expected one of {', '.join(_KINDS)}")
    return _KINDS[set_name]
