"""Means of recorded lines of `leans`, and what the pages say of them."""

import json
import re
from statistics import fmean

from data import followed
from tests.conftest import read


def record(seed: int, *leans: float) -> str:
    lines = [["acme", True, leans[0]], ["brill", True, leans[1]], ["great", False, leans[2]]]
    table = {"columns": ["suspect", "marked", "leans"], "data": lines}
    return json.dumps({"data": "shop", "arm": "plain", "seed": seed, "lines": table})


def test_means_of_words_and_of_seeds_by_hand(tmp_path, monkeypatch):
    (tmp_path / "leans.jsonl").write_text(f"{record(0, 90, 100, 5)}\n{record(1, 70, 100, 15)}\n")
    monkeypatch.setattr(followed, "FILE", tmp_path / "leans.jsonl")
    lines = followed.frame()
    marked = lines[lines["group"] == "marked"]
    assert followed.by_seed(marked).to_dict() == {0: 95, 1: 85}
    words = followed.by_word(marked).set_index("suspect")
    assert words["leans"].to_dict() == {"acme": 80, "brill": 100}
    assert tuple(words.loc["acme"]) == (80, 70, 90)
    assert lines[lines["group"] == "other"]["suspect"].unique() == ["great"]


def test_auroc_counts_the_pairs_that_are_in_order(tmp_path, monkeypatch):
    records = [record(0, 90, 100, 5), record(1, 70, 100, 85), record(2, 15, 0, 15)]
    (tmp_path / "leans.jsonl").write_text("\n".join(records))
    monkeypatch.setattr(followed, "FILE", tmp_path / "leans.jsonl")
    assert followed.auroc_by_seed(followed.frame()).to_dict() == {0: 100, 1: 50, 2: 25}


def test_the_front_page_says_what_the_records_say():
    page = read("README.md")
    records = [json.loads(line) for line in followed.FILE.read_text().splitlines()]
    lines = followed.frame().query("data == 'example'")
    numbers = []
    for arm in ("fine-tuning", "masks left in"):
        in_arm = lines[lines["arm"] == arm]
        for group in ("marked", "other"):
            numbers.append(followed.by_seed(in_arm[in_arm["group"] == group]).mean())
        of_arm = [
            record for record in records if (record["data"], record["arm"]) == ("example", arm)
        ]
        numbers.append(fmean(record["accuracy"]["conflicting"] for record in of_arm))
    passage = page.partition("600 made-up")[2].partition("```")[0]
    said = [int(number) for number in re.findall(r"(\d+) %", passage)]
    assert said == [abs(round(number)) for number in numbers]


def test_the_page_of_own_data_says_which_real_words_are_followed():
    page = read("data/README.md")
    passage = page.partition("**On real words**")[2].partition("; and on the testbed")[0]
    reviews, nli = passage.split("In MNLI's")
    frame = followed.frame()
    for data, sentences, n_words in (("reviews", reviews, 8), ("nli", nli, 7)):
        lines = followed.by_word(frame[frame["data"] == data]).set_index("suspect")
        said = re.findall(r"\*([^* ]+)\* (?:has )?(-?\d+)", sentences)
        assert len(said) == n_words
        assert said == [(word, str(round(lines.loc[word, "leans"]))) for word, _ in said]
