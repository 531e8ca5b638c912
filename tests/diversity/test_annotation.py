"""Two annotators with a sheet each."""

import math

import pytest

from mtlib.diversity.annotation import agreement, as_judge, both, sheet
from mtlib.diversity.categories import categorise
from mtlib.errors import UserError
from tests.diversity.test_categories import make_rows

WORDS = ("plot", "story", "dog", "of", "end", "script", "music", "cast")
ROWS = make_rows(*({"predicted": f" {word}", "predicted_token": word} for word in WORDS * 2))  # as two arms have them


def filled_in(path, annotator: str, implausible: set[str], encoding: str = "utf-8"):
    asked = sheet(ROWS, annotator)
    filler = asked["text"].str.extract("⟦ (.*)⟧")[0]
    answer = filler.isin(implausible).map({True: "implausible", False: "plausible"})
    asked.assign(answer=answer).to_csv(path / f"{annotator}.csv", index=False, encoding=encoding)
    return path / f"{annotator}.csv"


def test_questions_are_blind_and_in_an_order_of_their_own():
    first, second = (list(sheet(ROWS, name)["item"]) for name in ("first", "second"))
    assert len(first) == len(WORDS), "what both arms filled in is asked once"
    assert sorted(first) == sorted(second) and first != second
    assert list(sheet(ROWS[::-1].assign(epoch=3), "first")["item"]) == first
    assert list(sheet(ROWS, "first", seed=1)["item"]) != first
    assert list(sheet(ROWS, "first")) == ["item", "text", "original", "answer"]


def test_agreement_adjudication_and_categories(tmp_path):
    a = filled_in(tmp_path, "first", {"of", "dog"}, "utf-8-sig")  # as a spreadsheet writes it
    b = filled_in(tmp_path, "second", {"of", "cast"})
    answered = both(a, b)
    measured = agreement(answered["first"], answered["second"])
    assert (measured.n, measured.percent) == (8, 75)
    assert measured.kappa == pytest.approx((0.75 - 0.625) / (1 - 0.625))
    differing = answered[answered["first"] != answered["second"]]
    assert sorted(differing["text"]) == ["The⟦ cast⟧ is good", "The⟦ dog⟧ is good"]
    with pytest.raises(UserError, match="2 of 8 fillings"):
        as_judge(a, b)(ROWS)
    third = {item: "implausible" if "dog" in text else "plausible" for item, text in differing["text"].items()}
    categories = categorise(ROWS, as_judge(a, b, third))
    assert {*ROWS["predicted_token"][categories == "implausible"]} == {"of", "dog"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(",plausible", ",Plausible", 1), "is 'Plausible'; expected one answer"),
        (lambda text: text + text.splitlines()[1] + "\n", "expected one answer to each question"),
    ],
)
def test_sheets_that_were_filled_in_wrongly(tmp_path, change, message):
    a, b = (filled_in(tmp_path, name, {"of"}) for name in ("first", "second"))
    a.write_text(change(a.read_text()))
    with pytest.raises(UserError, match=message):
        both(a, b)


def test_kappa_has_its_limits_in_an_interval():
    a, b = ["p", "p", "i", "u"] * 15, ["p", "i", "i", "p"] * 15  # half agree; by chance 1/2 * 1/2 + 1/4 * 1/2
    measured = agreement(a, b, resamples=40)
    assert measured.percent == 50 and measured.kappa == pytest.approx((0.5 - 0.375) / (1 - 0.375))
    assert measured.low < measured.kappa < measured.high and measured == agreement(a, b, resamples=40)
    assert agreement([0, 1], [0, 1]).kappa == 1 and agreement([0, 1], [1, 0]).kappa == -1
    constant = agreement([1, 1], [1, 1])
    assert constant.percent == 100 and math.isnan(constant.kappa) and math.isnan(constant.low)
