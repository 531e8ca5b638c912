"""Two annotators without a browser, and the widget pressed by a program."""

import math
import random

import pytest
from sklearn.metrics import cohen_kappa_score

from mtlib.diversity.agreement import agreement
from mtlib.diversity.annotation import (
    AnnotationSession,
    answers,
    as_item,
    as_judge,
    compare,
    settled,
    view,
)
from mtlib.diversity.categories import categorise, open_questions
from mtlib.errors import UserError
from tests.diversity.test_fillings import ROW

WORDS = ("plot", "story", "dog", "of", "end", "script", "music", "cast")
ROWS = [
    ROW | {"predicted": f" {word}", "predicted_token": word, "arm": arm}
    for arm in ("plain_mlm", "mask_tuning")
    for word in WORDS
]


def order(session: AnnotationSession) -> list[str]:
    return [item.item for item in session.items]


def answer_all(session: AnnotationSession, implausible: set[str]) -> None:
    while item := session.current:
        session.answer("i" if item.text.partition("⟦")[2].partition("⟧")[0].strip() in implausible else "p")


def test_questions_are_blind_and_in_an_order_of_their_own(tmp_path):
    first, second = (AnnotationSession(ROWS, name, tmp_path) for name in ("first", "second"))
    assert len(first.items) == len(WORDS)  # what both arms filled in is asked once
    assert sorted(order(first)) == sorted(order(second)) and order(first) != order(second)
    assert order(AnnotationSession(ROWS[::-1], "first", tmp_path / "x")) == order(first)
    assert order(AnnotationSession(ROWS, "first", tmp_path / "y", seed=1)) != order(first)
    assert set(vars(first.current)) == {"item", "text", "original"}


def test_answers_are_on_disk_at_once_and_a_session_goes_on(tmp_path):
    session = AnnotationSession(ROWS, "first", tmp_path)
    asked = session.current
    session.answer("p")
    assert answers(session.path) == {asked.item: "plausible"}
    again = AnnotationSession(ROWS, "first", tmp_path)
    assert again.progress == (1, len(WORDS)) and again.current == session.current != asked
    answer_all(again, set())
    assert again.current is None and again.progress == (len(WORDS), len(WORDS))
    with pytest.raises(UserError, match="all 8 questions"):
        again.answer("p")


def test_back_takes_answers_back_one_by_one(tmp_path):
    session = AnnotationSession(ROWS, "first", tmp_path)
    assert session.back() is None
    items = session.items[:2]
    session.answer("p")
    session.answer("i")
    assert session.back() == items[1] == session.current
    assert answers(session.path) == {items[0].item: "plausible"}
    again = AnnotationSession(ROWS, "first", tmp_path)
    assert again.back() == items[0] and answers(again.path) == {}


def test_a_line_cut_off_is_asked_again(tmp_path):
    session = AnnotationSession(ROWS, "first", tmp_path)
    session.answer("p")
    session.answer("i")
    session.path.write_bytes(session.path.read_bytes()[:-6])
    again = AnnotationSession(ROWS, "first", tmp_path)
    assert again.progress == (1, len(WORDS)) and again.current == session.items[1]
    answer_all(again, set())
    assert len(answers(again.path)) == len(WORDS)


def test_texts_with_quotes_commas_and_line_ends_survive(tmp_path):
    row = ROW | {"text": 'The film, "new"\nand good', "predicted": " plot"}
    session = AnnotationSession([row], "first", tmp_path)
    session.answer("p")
    assert AnnotationSession([row], "first", tmp_path).current is None
    assert session.items[0].text == 'The⟦ plot⟧, "new" and good'


def test_bad_input_is_told(tmp_path):
    with pytest.raises(UserError, match="names a file"):
        AnnotationSession(ROWS, "../first", tmp_path)
    session = AnnotationSession(ROWS, "first", tmp_path)
    with pytest.raises(UserError, match=r"'x'; expected p \(plausible\)"):
        session.answer("x")
    session.answer("p")
    with pytest.raises(UserError, match="1 question"):
        AnnotationSession([ROW | {"predicted": " other"}], "first", tmp_path)
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no annotation file"):
        answers(tmp_path / "odd.csv")
    with pytest.raises(UserError, match="does not exist"):
        answers(tmp_path / "none.csv")


def test_files_that_were_edited(tmp_path):
    session = AnnotationSession(ROWS, "first", tmp_path)
    session.answer("p")
    session.answer("i")
    whole = session.path.read_text()
    header, first, second = whole.splitlines(keepends=True)
    edited = tmp_path / "edited.csv"
    edited.write_text("\ufeff" + whole)  # as a spreadsheet writes it
    assert answers(edited) == session.answers
    for content, message in {
        header + first + second + first: "row 4: .* is answered twice",
        header + first.replace("plausible", "Plausible"): "row 2: the answer is 'Plausible'; expected plausible or",
        "": "no annotation file; expected the columns",
        first + second: "no annotation file; expected the columns",
    }.items():
        edited.write_text(content)
        with pytest.raises(UserError, match=message):
            answers(edited)
    edited.write_bytes(whole.replace("good", "caf\xe9").encode("latin-1", "replace"))
    with pytest.raises(UserError, match="in UTF-8"):
        answers(edited)
    with pytest.raises(UserError, match="cannot read"):
        answers(tmp_path)


@pytest.mark.parametrize("content", ["", "item,tex"])
def test_a_file_cut_off_in_its_header_is_begun_again(tmp_path, content):
    (tmp_path / "first.csv").write_text(content)
    session = AnnotationSession(ROWS, "first", tmp_path)
    session.answer("p")
    assert answers(session.path) == session.answers and len(session.answers) == 1


def test_a_second_session_on_one_file(tmp_path):
    first, second = (AnnotationSession(ROWS, "first", tmp_path) for _ in range(2))
    first.answer("p")
    with pytest.raises(UserError, match="is another session of it open"):
        second.answer("p")
    third = AnnotationSession(ROWS, "first", tmp_path)
    first.answer("i")
    with pytest.raises(UserError, match="is another session of it open"):
        third.back()
    assert answers(first.path) == first.answers


def test_comparison_adjudication_and_categories(tmp_path):
    for name, implausible in (("first", {"of", "dog"}), ("second", {"of", "cast"})):
        answer_all(AnnotationSession(ROWS, name, tmp_path), implausible)
    a, b, third = (tmp_path / f"{name}.csv" for name in ("first", "second", "third"))
    comparison = compare(a, b)
    assert comparison.agreement.n == 8 and comparison.agreement.percent == 75
    assert comparison.agreement.kappa == pytest.approx((0.75 - 0.625) / (1 - 0.625))
    assert {row["predicted"] for row in comparison.to_adjudicate} == {" dog", " cast"}
    assert all(x != y for x, y in zip(comparison.a, comparison.b, strict=True))
    with pytest.raises(UserError, match="2 of 8 fillings"):
        as_judge(settled(a, b))(ROWS)
    answer_all(AnnotationSession(comparison.to_adjudicate, "third", tmp_path), {"dog"})
    categories = categorise(ROWS, as_judge(settled(a, b, third)))
    implausible = {row["predicted_token"] for row, name in zip(ROWS, categories, strict=True) if name == "implausible"}
    assert implausible == {"of", "dog"}


def test_nothing_in_common_is_an_error(tmp_path):
    for name in ("first", "second"):
        AnnotationSession(ROWS, name, tmp_path)
    with pytest.raises(UserError, match="in common"):
        compare(tmp_path / "first.csv", tmp_path / "second.csv")


def test_only_open_questions_are_asked():
    same = ROW | {"predicted_token": "film"}
    unknown = ROW | {"predicted_token": "[UNK]", "unk": True}
    assert open_questions([same, ROW, unknown]) == [ROW]
    assert as_item(ROW) == as_item(ROW | {"epoch": 3, "p_predicted": 0.1})


def test_buttons_and_letters_answer(tmp_path):
    pytest.importorskip("ipywidgets")
    session = AnnotationSession(ROWS, "first", tmp_path)
    bar, shown, controls = view(session).children
    *buttons, field = controls.children
    plausible, implausible, back = buttons
    assert "<mark>" in shown.value and "1 of 8" in shown.value and back.disabled
    plausible.click()
    field.value = "I"
    assert field.value == "" and list(session.answers.values()) == ["plausible", "implausible"]
    field.value = "x"  # any other letter does nothing
    assert session.progress == (2, 8) and bar.value == 2
    back.click()
    assert session.progress == (1, 8)
    for _ in range(7):
        implausible.click()
    assert "All 8 are answered" in shown.value and plausible.disabled and not back.disabled


def test_kappa_is_scikit_learns():
    draw = random.Random(0)
    for labels in ([0, 1], ["p", "i", "u"]):
        a = draw.choices(labels, k=60)
        b = [label if draw.random() < 0.6 else draw.choice(labels) for label in a]
        measured = agreement(a, b)
        assert measured.kappa == pytest.approx(cohen_kappa_score(a, b))
        assert measured.percent == pytest.approx(100 * sum(x == y for x, y in zip(a, b, strict=True)) / 60)
        assert measured.low < measured.kappa < measured.high and measured == agreement(a, b)
    assert agreement([0, 1], [0, 1]).kappa == 1 and agreement([0, 1], [1, 0]).kappa == -1
    constant = agreement([1, 1], [1, 1])
    assert constant.percent == 100 and math.isnan(constant.kappa) and math.isnan(constant.low)
    with pytest.raises(UserError, match="1 and 2 labels"):
        agreement([1], [1, 0])
