"""What masked tokens turn into while a model trains, recorded."""

import pandas
import pytest
import torch
from datasets import Dataset

from mtlib.diversity.fillings import COLUMNS, record_fillings
from mtlib.masking import BernoulliMasking, ExactMasking, GivenWords
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer
from tests.conftest import SENTENCES, make_batch, make_plm

PLAIN, TUNING = MaskedLM(ExactMasking(0.3)), MaskTuning(0.6, ExactMasking(0.3))
SETTINGS = {
    "num_train_epochs": 3,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "seed": 3,
}


def make_examples(n: int = 10, pairs: bool = False) -> Dataset:
    columns = {"text": [SENTENCES[i % len(SENTENCES)] for i in range(n)]}
    if pairs:
        columns["text_pair"] = [SENTENCES[(i + 1) % len(SENTENCES)] for i in range(n)]
    return Dataset.from_dict(
        {**columns, "label": [i % 2 for i in range(n)], "uid": [f"u{i}" for i in range(n)]}
    )


@pytest.fixture(scope="module")
def recorded() -> dict[str, pandas.DataFrame]:
    arms = {"plain_mlm": PLAIN, "mask_tuning": TUNING}
    return {
        arm: record_fillings(make_plm(), objective, make_examples(), **SETTINGS)
        for arm, objective in arms.items()
    }


def test_both_arms_are_asked_about_the_same_places(recorded):
    plain, tuned = (
        rows.drop(columns=["predicted", "predicted_token", "unk"]) for rows in recorded.values()
    )
    pandas.testing.assert_frame_equal(plain, tuned)
    assert (
        recorded["plain_mlm"]["predicted_token"] != recorded["mask_tuning"]["predicted_token"]
    ).any()


def test_every_example_is_recorded_once_an_epoch_with_masks_of_its_own(recorded):
    rows = recorded["mask_tuning"]
    assert {*zip(rows["epoch"], rows["uid"], strict=True)} == {
        (e, f"u{i}") for e in (1, 2, 3) for i in range(10)
    }
    places = [{*zip(one["uid"], one["position"], strict=True)} for _, one in rows.groupby("epoch")]
    assert places[0] != places[1] != places[2]


def test_fields_of_a_row_fit_one_another(recorded):
    pairs = make_examples(6, pairs=True)
    texts = {example["uid"]: example for example in pairs}
    of_pairs = record_fillings(make_plm(), TUNING, pairs, **SETTINGS)
    assert {*of_pairs["part"]} == {"text", "text_pair"}
    assert all(row.text == texts[row.uid][row.part] for row in of_pairs.itertuples())
    for row in pandas.concat([*recorded.values(), of_pairs]).itertuples():
        assert row.text[row.start : row.end] == row.original_token.removeprefix("##")
        assert row.predicted == row.predicted_token.removeprefix("##")
        assert row.unk == (row.predicted_token == "[UNK]")


def test_recorded_is_what_the_training_step_predicted():
    """Without dropout the first step's predictions are the untrained model's."""
    plm, fresh = make_plm(), make_plm()
    for module in plm.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    examples = make_examples(4)
    rows = record_fillings(plm, TUNING, examples, **SETTINGS | {"num_train_epochs": 1})
    batch = make_batch(fresh, list(examples["text"]))
    mask = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    mask[[list(examples["uid"]).index(uid) for uid in rows["uid"]], rows["position"].tolist()] = (
        True
    )
    _, perturbed = fresh.eval().fill_masks(batch, mask)
    expected = fresh.tokenizer.convert_ids_to_tokens(perturbed[mask].tolist())
    assert list(rows.sort_values(["uid", "position"])["predicted_token"]) == expected


def test_recording_changes_no_training_step(tmp_path):
    watched, plain = make_plm(), make_plm()
    examples = make_examples(8)
    record_fillings(watched, TUNING, examples, **SETTINGS)
    data = examples.map(lambda row: plain.tokenizer(row["text"]) | {"labels": row["label"]})
    arguments = ObjectiveArguments(
        str(tmp_path), save_strategy="no", use_cpu=True, disable_tqdm=True, **SETTINGS
    )
    data = data.remove_columns(["text", "label", "uid"])
    ObjectiveTrainer(plain, TUNING, arguments, data).train()
    for a, b in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_policy_that_reads_the_text_and_an_objective_that_stays_as_it_is():
    classification = FineTuning("balanced")
    objective = MaskTuning(0.6, GivenWords(["film"]), classification=classification)
    rows = record_fillings(make_plm(), objective, make_examples(), **SETTINGS)
    assert {*rows["original_token"]} == {"film"} and classification.weights is None


def test_nothing_masked_makes_no_rows():
    nothing = record_fillings(
        make_plm(), MaskedLM(BernoulliMasking(0.0)), make_examples(4), **SETTINGS
    )
    assert nothing.empty and list(nothing) == list(COLUMNS)


def test_a_forward_of_a_users_own_is_what_is_recorded():
    class NothingFilled(MaskTuning):
        def forward(self, plm, batch):
            output = super().forward(plm, batch)
            output.perturbed_ids = batch["input_ids"]
            return output

    rows = record_fillings(make_plm(), NothingFilled(0.6), make_examples(4), **SETTINGS)
    assert (rows["predicted_token"] == rows["original_token"]).all()
