"""Recording what masked tokens turn into, and the texts that come of it."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForMaskedLM

from mtlib.diversity import two_trainings
from mtlib.diversity.categories import CATEGORIES
from mtlib.diversity.fillings import (
    draw_examples,
    filled_text,
    marked_text,
    perturbed_examples,
    read_rows,
    record_arms,
    record_fillings,
    rendered,
    unmarked,
    write_rows,
)
from mtlib.errors import UserError
from mtlib.marking import continues_word
from mtlib.masking import BernoulliMasking, ExactMasking
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer
from tests.conftest import SENTENCES, make_batch, make_plm, make_tokenizer, tiny_bert_config

PLAIN, TUNING = MaskedLM(ExactMasking(0.3)), MaskTuning(0.6, ExactMasking(0.3))
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "seed": 3}
ROW = {
    "epoch": 1, "uid": "a", "part": "text", "position": 2, "original_token": "film", "predicted_token": "plot",
    "unk": False, "p_predicted": 0.5, "p_original": 0.1, "rank_original": 4,
    "text": "The film is good", "start": 3, "end": 8, "predicted": " plot",
}  # fmt: skip


def make_examples(n: int = 10, pairs: bool = False) -> Dataset:
    columns = {"text": [SENTENCES[i % len(SENTENCES)] for i in range(n)]}
    if pairs:
        columns["text_pair"] = [SENTENCES[(i + 1) % len(SENTENCES)] for i in range(n)]
    return Dataset.from_dict({**columns, "label": [i % 2 for i in range(n)], "uid": [f"u{i}" for i in range(n)]})


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[dict]]:
    arms = {"plain_mlm": PLAIN, "mask_tuning": TUNING}
    return {arm: record_fillings(make_plm(), objective, make_examples(), **SETTINGS) for arm, objective in arms.items()}


def test_both_arms_are_asked_about_the_same_places(recorded):
    keys = ("epoch", "uid", "part", "position", "original_token", "text", "start", "end")
    places = [[tuple(row[key] for key in keys) for row in rows] for rows in recorded.values()]
    assert places[0] == places[1]
    assert [row["predicted_token"] for row in recorded["plain_mlm"]] != [
        row["predicted_token"] for row in recorded["mask_tuning"]
    ]


def test_every_example_is_recorded_once_an_epoch_with_masks_of_its_own(recorded):
    rows = recorded["mask_tuning"]
    examples = {(row["epoch"], row["uid"]) for row in rows}
    assert examples == {(epoch, f"u{i}") for epoch in (1, 2, 3) for i in range(10)}
    places = [{(row["uid"], row["position"]) for row in rows if row["epoch"] == epoch} for epoch in (1, 2, 3)]
    assert places[0] != places[1] != places[2]


def test_fields_of_a_row_fit_one_another(recorded):
    for row in recorded["plain_mlm"] + recorded["mask_tuning"]:
        assert set(row) == set(ROW)
        assert 0 <= row["p_original"] <= 1 and 0 < row["p_predicted"] <= 1 and row["rank_original"] >= 1
        assert row["text"][row["start"] : row["end"]].strip() == row["original_token"].removeprefix("##")
        if row["rank_original"] == 1:  # nothing likelier; a structural token may be, which is never filled in
            assert row["predicted_token"] == row["original_token"]
        if row["predicted_token"] == row["original_token"]:
            assert filled_text(row) == row["text"]
        assert row["unk"] == (row["predicted_token"] == "[UNK]")


def test_recorded_is_what_the_training_step_predicted():
    """Without dropout the first step's predictions are those of the untrained model for the recorded places."""
    plm, fresh = make_plm(), make_plm()
    for model in (plm, fresh):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    examples = make_examples(4)
    rows = record_fillings(plm, TUNING, examples, **SETTINGS | {"num_train_epochs": 1})
    batch = make_batch(fresh, list(examples["text"]))
    mask = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    for row in rows:
        mask[list(examples["uid"]).index(row["uid"]), row["position"]] = True
    logits, perturbed = fresh.eval().fill_masks(batch, mask)
    expected = fresh.tokenizer.convert_ids_to_tokens(perturbed[mask].tolist())
    rows = sorted(rows, key=lambda row: (row["uid"], row["position"]))
    assert [row["predicted_token"] for row in rows] == expected
    p = logits.softmax(dim=-1)
    original = batch["input_ids"][mask]
    assert [row["p_original"] for row in rows] == pytest.approx(p[range(len(rows)), original].tolist(), rel=1e-3)
    ranks = 1 + (p > p.gather(1, original[:, None])).sum(dim=-1)
    assert [row["rank_original"] for row in rows] == ranks.tolist()


def test_recording_changes_no_training_step(tmp_path):
    watched, plain = make_plm(), make_plm()
    examples = make_examples(8)
    record_fillings(watched, TUNING, examples, **SETTINGS)
    data = examples.map(lambda row: plain.tokenizer(row["text"]) | {"labels": row["label"]})
    arguments = ObjectiveArguments(str(tmp_path), save_strategy="no", use_cpu=True, disable_tqdm=True, **SETTINGS)
    data = data.remove_columns(["text", "label", "uid"])
    ObjectiveTrainer(plain, TUNING, arguments, data).train()
    for a, b in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


def test_pairs_tell_the_sentence_of_a_place():
    examples = make_examples(6, pairs=True)
    rows = record_fillings(make_plm(), TUNING, examples, **SETTINGS)
    by_uid = {example["uid"]: example for example in examples}
    assert {row["part"] for row in rows} == {"text", "text_pair"}
    assert all(row["text"] == by_uid[row["uid"]][row["part"]] for row in rows)
    perturbed = perturbed_examples(rows, examples)
    assert len(perturbed) == 18 and set(perturbed[0]) == {"epoch", "uid", "label", "text", "text_pair"}


def test_nothing_masked_gives_no_rows_and_no_error():
    assert record_fillings(make_plm(), MaskedLM(BernoulliMasking(0.0)), make_examples(4), **SETTINGS) == []
    assert perturbed_examples([], make_examples(4)) == []


def test_bad_input_is_told():
    plm, examples = make_plm(), make_examples(4)
    for objective, data, message in (
        (FineTuning(), examples, "FineTuning masks nothing"),
        (TUNING, examples.remove_columns("uid"), "lack uid"),
        (TUNING, examples.map(lambda row: {"uid": "same"}), "same uid"),
    ):
        with pytest.raises(UserError, match=message):
            record_fillings(plm, objective, data, **SETTINGS)
    with pytest.raises(UserError, match="4000 training examples"):
        draw_examples("sentiment", n=5000)


def test_rows_survive_the_file(recorded, tmp_path):
    write_rows(tmp_path / "new" / "rows.jsonl", recorded["plain_mlm"])
    assert read_rows(tmp_path / "new" / "rows.jsonl") == recorded["plain_mlm"]
    odd = [{"text": "a good\x85film\u2028"}, {"text": ""}]
    write_rows(tmp_path / "odd.jsonl", odd)
    assert read_rows(tmp_path / "odd.jsonl") == odd


def test_the_papers_study_in_small(tmp_path):
    AutoModelForMaskedLM.from_config(tiny_bert_config()).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    examples = draw_examples("sentiment", n=8, seed=1)
    assert draw_examples("sentiment", n=8, seed=1)["uid"] == examples["uid"]
    rows, models = record_arms("sentiment", examples, str(tmp_path), epochs=2, batch_size=4)
    arms = {arm: [row for row in rows if row["arm"] == arm] for arm in models}
    assert [row["position"] for row in arms["plain_mlm"]] == [row["position"] for row in arms["mask_tuning"]]
    assert {row["epoch"] for row in rows} == {1, 2}


def test_what_a_filling_reads_like():
    tokenizer = make_tokenizer()
    continues = continues_word(tokenizer)

    def shown(text: str, start: int, end: int, token: str, next_continues: bool = False) -> str:
        token_id = tokenizer.convert_tokens_to_ids(token)
        place, filler = rendered(tokenizer, continues, text, start, end, token_id, next_continues)
        return text[:place] + filler + text[end:]

    assert shown("the film is good", 4, 8, "plot") == "the plot is good"
    assert shown("The film", 0, 3, "a") == "A film"
    tokenizer.backend_tokenizer.normalizer = None  # it now tells case apart, so what it fills in stands as it is
    assert shown("The film", 0, 3, "a") == "a film"
    tokenizer = make_tokenizer()
    assert shown("a film", 2, 6, "##ly") == "aly"
    assert shown("slowly boring", 4, 6, "story") == "slow story boring"
    assert shown("slowly boring", 0, 4, "good", next_continues=True) == "goodly boring"
    assert shown("good.", 4, 5, "and") == "good and"
    assert shown("don't", 3, 4, "and") == "don and t"
    assert shown("the film is good", 4, 8, "[UNK]") == "the [UNK] is good"


def test_marks_come_off_again():
    marked = marked_text(ROW)
    assert marked == "The⟦ plot⟧ is good"
    assert unmarked(marked, " film") == {key: ROW[key] for key in ("text", "start", "end", "predicted")}
    with pytest.raises(UserError, match="no filling"):
        unmarked("The plot", " film")


def test_perturbed_text_has_every_place_filled():
    rows = [ROW, ROW | {"position": 4, "start": 11, "end": 16, "predicted": " bad"}]
    examples = Dataset.from_dict({"text": ["The film is good", "A plot"], "label": [1, 0], "uid": ["a", "b"]})
    texts = [row["text"] for row in perturbed_examples(rows, examples)]
    assert texts == ["The plot is bad", "A plot"]


def test_two_trainings_counted_and_kept(tmp_path):
    counted = []
    for _ in range(2):  # the second time from the kept rows
        counted.append(two_trainings.describe([two_trainings.TwoTrainings("sentiment", n=6, epochs=1)], tmp_path))
    assert counted[0] == counted[1]
    (file,) = (tmp_path / "fills").iterdir()
    rows = read_rows(file)
    for arm, counts in counted[0]["tasks"]["sentiment"]["arms"].items():
        of_arm = [row for row in rows if row["arm"] == arm]
        changed = sum(row["predicted_token"] != row["original_token"] for row in of_arm)
        assert counts["tokens"] == {1: {"n": len(of_arm), "changed": changed, "unk": 0}}
        assert sum(counts["examples"].values()) == sum(counts["examples_over_epochs"].values()) == 6
    frame = two_trainings.as_frame({"mini": counted[0]})
    assert frame.loc[("BERT (paper)", "all three", "mask_tuning"), "plausible_different"] == pytest.approx(60)
    assert frame.loc[("mini", "sentiment", "plain_mlm"), list(CATEGORIES)].sum() == pytest.approx(100)


def test_places_filled_differently():
    other = ROW | {"predicted_token": "end", "predicted": " end"}
    arms = {"plain_mlm": [ROW, ROW], "mask_tuning": [ROW, other]}
    (shown,) = two_trainings.filled_differently(arms, ROW["epoch"])
    assert shown["plain_mlm"] == marked_text(ROW) and shown["mask_tuning"] == "The⟦ end⟧ is good"
    assert two_trainings.filled_differently(arms, ROW["epoch"] + 1) == []
