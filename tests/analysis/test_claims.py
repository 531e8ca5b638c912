"""How the paper's claims are judged."""

import pandas

from mtlib.analysis import claims


def test_a_base_may_stand_in_a_comparison_of_its_own(monkeypatch):
    accuracies = {"ours": [70.0, 71.0, 72.0], "theirs": [60.0, 61.0, 62.0]}

    def frame(name):
        columns = {"arm": name, "set": "hans", "seed": range(3), "majority": 50.0}
        return pandas.DataFrame(columns | {"accuracy": accuracies[name]})

    monkeypatch.setattr(claims, "_frame", frame)
    row = claims._judged("hans", "PoE", "PoE", ["hans"], [*accuracies], "ours", "theirs")
    assert (row["mean"], row["n"], row["verdict"]) == (10, 3, "significantly better")


def test_two_points_above_the_commonest_label_are_not_learned():
    for accuracy, is_floor in ((52, True), (52.5, False)):
        runs = pandas.DataFrame({"accuracy": [accuracy - 1, accuracy + 1], "majority": 50})
        assert claims._at_floor(runs) == is_floor
