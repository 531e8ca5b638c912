"""Old names of public methods still work, for callers and for subclasses, with a warning."""

import importlib

import pytest

from mtlib import preparing, spans
from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.methods.settings import MaskingSettings
from mtlib.objectives import FineTuning, MaskTuning
from tests.conftest import make_batch


def test_old_names_can_be_called(plm):
    batch = make_batch(plm)
    objective = MaskTuning()
    with pytest.deprecated_call(match="prepare is now called sample"):
        batch = objective.prepare(plm, batch)
    with pytest.deprecated_call(match="sizes is now called denominators"):
        sizes = objective.sizes(batch)
    assert sizes.keys() == objective.denominators(batch).keys() == {"mlm_loss"}


def test_a_subclass_with_old_names_is_used_by_them():
    with pytest.deprecated_call(match="Doubled.prepare is now called sample"):

        class Doubled(FineTuning):
            def prepare(self, plm, batch, rng=None):
                batch = super().prepare(plm, batch, rng)
                return batch | {"doubled": True}

    with pytest.deprecated_call(match="prepare is now called sample"):
        assert Doubled().sample(None, {}) == {"doubled": True}


def test_old_names_of_policies_models_and_transforms(plm):
    with pytest.deprecated_call(match="Old.preparers is now called transforms"):

        class Old(ExactMasking):
            def preparers(self):
                return ("made by an old name",)

    assert Old().transforms() == ("made by an old name",)
    with pytest.deprecated_call(match="preparers is now called transforms"):
        assert ExactMasking().preparers() == ()
    with pytest.deprecated_call(match="Preparer is now called Transform"):
        assert preparing.Preparer is preparing.Transform
    with pytest.deprecated_call(match="MarkWords is now called WordSpans"):
        assert spans.MarkWords is spans.WordSpans
    with pytest.deprecated_call(match="never_fill is now called block"):
        plm.never_fill([7])
    assert plm._blocked[7]


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("mtlib.runs.debias", "debias", "mtlib.own_data.debiasing.debias"),
        ("mtlib.suspect_words", "pointed_labels", "mtlib.own_data.conflicts.pointed_labels"),
        ("mtlib.suspect_words", "words_of", "mtlib.rows.folding.words_of"),
        ("mtlib.followed_words", "leans", "mtlib.own_data.leans.leans"),
        ("mtlib.draws", "Draws", "mtlib.rng.KeyedRNG"),
        ("mtlib.sweeps.engines", "LocalEngine", "mtlib.sweeps.executors.LocalExecutor"),
    ],
)
def test_modules_are_found_by_their_old_names(old, name, new):
    earlier = importlib.import_module(old)
    with pytest.deprecated_call(match=f"{old}.{name} is now {new}"):
        found = getattr(earlier, name)
    module, _, new_name = new.rpartition(".")
    assert found is getattr(importlib.import_module(module), new_name)
    with pytest.raises(AttributeError, match=f"'{old}' has no attribute 'nothing'"):
        earlier.nothing  # noqa: B018


def test_the_old_name_of_ignored_settings():
    with pytest.deprecated_call(match="Old.unread is now called ignored"):

        class Old(MaskingSettings):
            rate: float = 0.5

            def unread(self):
                return {"rate": "nobody reads it"}

    with pytest.raises(UserError, match=r"rate is 1\.0, but nobody reads it"):
        Old(rate=1.0)
    with pytest.deprecated_call(match="unread is now called ignored"):
        assert "spacy_pipeline" in MaskingSettings().unread()
