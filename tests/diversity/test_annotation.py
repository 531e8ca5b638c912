"""Two annotators without a browser, and the widget pressed by a program."""

import math
import random

import pandas
import pytest
from sklearn.metrics import cohen_kappa_score

from mtlib.diversity.annotation import (
    AnnotationSession,
    agreement,
    answers,
    as_judge,
    compare,
    questions,
    settled,
    view,
)
from mtlib.diversity.categories import categorise
from mtlib.errors import UserError
from tests.diversity.test_categories import make_rows

WORDS = ("plot", "story", "dog", "of", "end", "script", "music", "cast")
ROWS = make_rows(*({"predicted": f" {word}", "predicted_token": word} for word in WORDS * 2))  # as two arms have them


def answer_all(session: AnnotationSession, implausible: set[str]) -> None:
    while text := session.current:
        session.answer("i" if text.partition("⟦")[2].partition("⟧")[0].strip() in implausible else "p")


def test_questions_are_blind_and_in_an_order_of_their_own(tmp_path):
    first, second = (AnnotationSession(ROWS, name, tmp_path) for name in ("first", "second"))
    assert len(first.order) == len(WORDS), "what both arms filled in is asked once"
    assert sorted(first.order) == sorted(second.order) and first.order != second.order
    assert AnnotationSession(ROWS[::-1], "first", tmp_path).order == first.order
    assert AnnotationSession(ROWS, "first", tmp_path, seed=1).order != first.order
    assert list(first.questions) == ["text", "original"]
    other_epoch = ROWS.assign(epoch=3)
    assert list(questions(other_epoch)["item"]) == list(questions(ROWS)["item"])


def test_answers_are_on_disk_at_once_and_a_session_goes_on(tmp_path):
    session = AnnotationSession(ROWS, "first", tmp_path)
    asked = session.current
    session.answer("p")
    again = AnnotationSession(ROWS, "first", tmp_path)
    assert [*answers(session.path).values()] == ["plausible"] and again.current == session.current != asked
    session.answer("i")  # two sessions of one file do not lose one another's answers
    again.answer("p")
    assert [*session.answers.values()] == ["plausible", "implausible", "plausible"]
    session.back()
    session.back()
    assert [*again.answers.values()] == ["plausible"] and again.current == session.current
    answer_all(again, set())
    again.answer("p")  # nothing left to answer
    assert session.current is None and len(answers(again.path)) == len(WORDS)
    for _ in range(9):
        again.back()
    assert again.current == asked


def test_texts_with_quotes_commas_and_line_ends_survive(tmp_path):
    rows = make_rows({"text": 'The film, "new"\nand NA', "start": 3, "end": 8})
    session = AnnotationSession(rows, "first", tmp_path)
    session.answer("p")
    assert AnnotationSession(rows, "first", tmp_path).current is None
    assert session.questions["text"].item() == 'The⟦ plot⟧, "new"\nand NA'


def test_bad_input_is_told(tmp_path):
    with pytest.raises(UserError, match="names a file"):
        AnnotationSession(ROWS, "../first", tmp_path)
    session = AnnotationSession(ROWS, "first", tmp_path)
    with pytest.raises(UserError, match=r"'x'; expected p \(plausible\)"):
        session.answer("x")
    session.answer("p")
    with pytest.raises(UserError, match="1 question"):
        AnnotationSession(make_rows({"predicted": " other"}), "first", tmp_path)
    with pytest.raises(UserError, match="cannot read"):
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
        header + first + second + first: "row 4: .*expected one answer to each question",
        header + first.replace("plausible", "Plausible"): "row 2: .* is 'Plausible'; expected one answer",
        first + second: "no annotation file; expected the columns",
    }.items():
        edited.write_text(content)
        with pytest.raises(UserError, match=message):
            answers(edited)
    edited.write_bytes(whole.replace("good", "caf\xe9").encode("latin-1", "replace"))
    with pytest.raises(UserError, match="cannot read"):
        answers(edited)


def test_comparison_adjudication_and_categories(tmp_path):
    for name, implausible in (("first", {"of", "dog"}), ("second", {"of", "cast"})):
        answer_all(AnnotationSession(ROWS, name, tmp_path), implausible)
    a, b = (tmp_path / f"{name}.csv" for name in ("first", "second"))
    measured, differing = compare(a, b)
    assert (measured.n, measured.percent) == (8, 75)
    assert measured.kappa == pytest.approx((0.75 - 0.625) / (1 - 0.625))
    assert sorted(differing["text"]) == ["The⟦ cast⟧ is good", "The⟦ dog⟧ is good"]
    assert (differing["a"] != differing["b"]).all()
    with pytest.raises(UserError, match="2 of 8 fillings"):
        as_judge(settled(a, b))(ROWS)
    third = {item: "implausible" if "dog" in text else "plausible" for item, text in differing["text"].items()}
    categories = categorise(ROWS, as_judge(settled(a, b, third)))
    assert {*ROWS["predicted_token"][categories == "implausible"]} == {"of", "dog"}
    AnnotationSession(ROWS, "fourth", tmp_path).answer("p")
    AnnotationSession(ROWS, "fourth", tmp_path).back()
    with pytest.raises(UserError, match="in common"):
        compare(a, tmp_path / "fourth.csv")


def test_kappa():
    draw = random.Random(0)
    for labels in ([0, 1], ["p", "i", "u"]):
        a = draw.choices(labels, k=60)
        b = [label if draw.random() < 0.6 else draw.choice(labels) for label in a]
        measured = agreement(a, b, resamples=40)
        assert measured.kappa == pytest.approx(cohen_kappa_score(a, b))
        assert measured.percent == pytest.approx(100 * sum(x == y for x, y in zip(a, b, strict=True)) / 60)
        assert measured.low < measured.kappa < measured.high and measured == agreement(a, b, resamples=40)
    assert agreement([0, 1], [0, 1]).kappa == 1 and agreement([0, 1], [1, 0]).kappa == -1
    constant = agreement([1, 1], [1, 1])
    assert constant.percent == 100 and math.isnan(constant.kappa) and math.isnan(constant.low)


def test_buttons_and_letters_answer(tmp_path):
    session = AnnotationSession(ROWS, "first", tmp_path)
    bar, shown, controls = view(session).children
    plausible, implausible, back, field = controls.children
    assert "<mark>" in shown.value and "1 of 8" in shown.value
    back.click()  # there is nothing to take back
    plausible.click()
    field.value = "I"
    assert field.value == "" and [*session.answers.values()] == ["plausible", "implausible"]
    field.value = "x"  # any other letter does nothing
    assert bar.value == len(session.answers) == 2
    back.click()
    assert bar.value == 1
    for _ in range(7):
        implausible.click()
    assert "All 8 are answered" in shown.value and isinstance(session.questions, pandas.DataFrame)
