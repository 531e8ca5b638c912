"""Tables of what was measured of masking policies, by hand."""

import pytest

from mtlib.analysis import figures
from mtlib.analysis.mask_tables import as_frame, kinds, kinds_in_short, most_alike

PARTS = {"punctuation": 0.1, "NOUN": 0.4, "PROPN": 0.0, "VERB": 0.2, "ADJ": 0.1, "ADV": 0.0, "DET": 0.2}


def line(seconds: float, **more) -> dict:
    return {
        "tokens_masked": 0.25, "touches_shortcut": {"any": 0.5, "all": 0.125}, "touches_cause": {"any": None},
        "shortcut_came_back": None, "seconds_to_prepare": 3.0, "seconds_per_batch": seconds,
        "part_of_speech": PARTS, "frequency": {"below 10": 0.75, "10 to 99": 0.25}, **more,
    }  # fmt: skip


def description(*lines: dict) -> dict:
    names = ("exact:0.05", "known_shortcut:1", "meta_learned:0.05")[: len(lines)]
    return {
        "policies": dict(zip(names, lines, strict=True)),
        "all_tokens": line(1),
        "overlap": {"exact:0.05 known_shortcut:1": 0.125, "exact:0.05 meta_learned:0.05": 0.0,
                    "known_shortcut:1 meta_learned:0.05": 0.5},
    }  # fmt: skip


def test_what_does_not_exist_for_a_task_has_no_column():
    pairs = as_frame(description(line(2), line(3, masked_share_probe=0.9)))
    assert list(pairs) == [
        "tokens masked", "shortcut touched", "shortcut gone", "masked share tells the side", "seconds to prepare",
        "cost of masking a batch",
    ]  # fmt: skip
    assert pairs.loc["known_shortcut:1"].tolist() == [25, 50, 12.5, 90, 3, 1.5]
    single = as_frame(description(line(2, label={"kept": 0.5, "turned": 0.25, "undecided": 0.25})))
    assert single.loc["exact:0.05", "label undecided"] == 25 and "masked share tells the side" not in single


def test_kinds_add_up_to_one():
    shares = kinds(description(line(1), line(1)))
    assert list(shares) == ["random, 5 %", "shortcut's words, all of them", "all tokens"]
    assert shares["random, 5 %"]["function words and other"] == pytest.approx(0.3)
    assert all(sum(parts.values()) == pytest.approx(1) for parts in shares.values())
    assert kinds(description(line(1)), "frequency")["all tokens"] == {"below 10": 0.75, "10 to 99": 0.25}


def test_kinds_in_short():
    described = description(line(1))
    (_, shown), (_, everything) = kinds_in_short(described).iterrows()
    of_line, of_all = described["policies"]["exact:0.05"], described["all_tokens"]
    for row, counted in ((shown, of_line), (everything, of_all)):
        of_speech = counted["part_of_speech"]
        assert row["nouns"] == pytest.approx(100 * (of_speech["NOUN"] + of_speech["PROPN"]))
        assert row["adjectives"] == pytest.approx(100 * of_speech["ADJ"])
        assert row["found fewer than 10 times"] == pytest.approx(100 * counted["frequency"]["below 10"])
        assert row.drop("found fewer than 10 times").sum() == pytest.approx(100)


def test_most_alike_looks_at_both_ends_of_a_pair():
    assert most_alike(description(line(1), line(1), line(1))) == {
        "random, 5 %": ("shortcut's words, all of them", 0.125),
        "shortcut's words, all of them": ("meta-learned (reconstruction), 5 %", 0.5),
        "meta-learned (reconstruction), 5 %": ("shortcut's words, all of them", 0.5),
    }


def test_no_share_is_told_of_a_few_new_words():
    few, many = ({"put_in": {"words": words, "agree": 0.25}} for words in (29, 30))
    frame = as_frame(description(line(1, **few), line(1, **many)))
    assert frame["new words agree"].isna().tolist() == [True, False] and frame["new words agree"].iloc[1] == 25


def test_figure_of_overlaps():
    figure, alt = figures.masks_overlap(description(line(1), line(1), line(1)), "Alike")
    (axis,) = figure.axes
    assert sorted(text.get_text() for text in axis.texts) == ["0", "12", "50"]
    assert "meta-learned (reconstruction), 5 %: most like shortcut's words, all of them (50 %)" in alt
