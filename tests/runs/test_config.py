"""Which settings a run reads, and which of them differ from their defaults."""

import pytest
from pydantic import Field

from mtlib.errors import UserError
from mtlib.method import Method
from mtlib.methods import METHODS
from mtlib.paths import MINI_MODEL_DIR
from mtlib.runs.config import changed_settings, configure, effective_settings
from mtlib.runs.records import identity
from mtlib.settings import Settings


class OwnLength(Settings):
    max_length: int = Field(32, description="of a method's texts")


def made_up(settings: type[Settings]) -> Method:
    return Method("made_up", "made up", "mtlib.methods.table3:fine_tuning", settings)


def identities() -> list[str]:
    configs = [
        configure("sentiment", "fine_tuning", max_length=64),
        configure("sentiment", "mask_tuning", max_length=64, masking="whole_word"),
        configure("nli", "reweight", max_length=64),
    ]
    return [identity(config.resolved().public(), None, {"train": "0"}) for config in configs]


def test_a_method_with_a_setting_called_like_that_of_a_run_changes_no_other_identity(monkeypatch):
    before = identities()
    monkeypatch.setitem(METHODS, "made_up", made_up(OwnLength))
    assert identities() == before
    chosen = configure("sentiment", "made_up", max_length=16)
    assert chosen.settings.max_length == 16
    public = chosen.resolved().public()
    assert identity(public, None, {}) != identity(public | {"max_length": 32}, None, {})


def test_a_method_with_another_default_changes_no_other_identity(monkeypatch):
    class OtherDefault(Settings):
        masking: str = "whole_word"

    before = identities()
    monkeypatch.setitem(METHODS, "made_up", made_up(OtherDefault))
    for name in list(METHODS)[:-1]:  # behind the new one
        METHODS[name] = METHODS.pop(name)
    assert identities() == before


def test_a_split_of_a_set_that_is_not_scored_is_refused():
    with pytest.raises(UserError, match="splits has 'imdb_contrast', which is not scored"):
        configure(
            "sentiment",
            "fine_tuning",
            source="hub",
            sets=("sst2",),
            splits={"imdb_contrast": "test"},
        )


def test_a_set_that_is_named_twice_is_scored_once():
    twice = configure("sentiment", "fine_tuning", sets=("testbed_contrast",) * 2)
    assert twice.sets == ("testbed_contrast",)


def test_the_bundled_model_has_its_rates_by_its_path_too():
    by_path = configure("sentiment", "mask_tuning", model=str(MINI_MODEL_DIR))
    assert by_path.rates == configure("sentiment", "mask_tuning").rates


def test_none_stands_for_the_default():
    given = {"mask_rate": None, "epochs": None, "masking": None, "fill": None, "bias": None}
    assert configure("nli", "mask_tuning", **given) == configure("nli", "mask_tuning")
    with pytest.raises(UserError, match="treebank is missing"):
        configure("nli", "ipt", treebank=None)


@pytest.mark.parametrize(
    ("given", "effective"),
    [
        ({"method": "fine_tuning", "alpha": 0.1, "seed": 1}, {"seed"}),
        ({"method": "mask_tuning", "alpha": 0.1, "spacy_pipeline": "x"}, {"alpha"}),
        ({"method": "mask_tuning", "masking": "supervised", "mask_rate": 0.1}, {"masking"}),
        ({"method": "mask_tuning", "classification": None, "focus": 2.0}, {"classification"}),
        ({"method": "ipt", "parsing_epochs": None, "parsing_steps": 2}, None),
    ],
)
def test_effective_settings_are_those_that_method_and_other_settings_leave(given, effective):
    expected = (
        given if effective is None else {name: given[name] for name in ("method", *effective)}
    )
    assert effective_settings(given) == expected


def test_changed_settings_are_compared_with_the_defaults_of_the_run():
    config = configure("nli", "mask_tuning", masking="whole_word", seed=3, learning_rate=1e-3)
    assert changed_settings(config.public()) == {"masking": "whole_word"}
    assert changed_settings(config.public() | {"alpha": 0.25}) == {
        "masking": "whole_word",
        "alpha": 0.25,
    }
    assert changed_settings(configure("sentiment", "reweight").public()) == {}
    assert changed_settings(config.public() | {"method": "of another release"}) == {}
