"""Figures: what is drawn stands where the numbers say, and the sentence tells it."""

import re

import matplotlib
import numpy as np
import pandas
import pytest
from PIL import Image

from figures import make
from mtlib.analysis import figures
from mtlib.analysis.figures import style
from tests.analysis.test_comparisons import ARMS, make_record, of_two_arms


def markers(axis, marker: str) -> list[tuple[float, float]]:
    lines = [
        line for line in axis.get_lines() if line.get_marker() == marker and len(line.get_xdata())
    ]
    return [tuple(map(float, line.get_xydata()[0])) for line in lines]


@pytest.fixture
def two_arms(compare):
    return compare(of_two_arms(2, 3, 4), ARMS, base="plain")


def test_every_arm_has_a_mark_for_its_mean_on_every_set(two_arms):
    figure, text = figures.accuracy(two_arms.frame(), "title")
    assert [axis.get_title("left") for axis in figure.axes] == [
        "testbed_sentiment (id)", "testbed_contrast (ood)", "testbed_counterfactual (ood)"
    ]  # fmt: skip
    on_contrast = figure.axes[1]
    assert (51.0, 0.0) in markers(on_contrast, "o") and markers(on_contrast, "s") == [(54.0, 1.0)]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "plain (n = 3)",
        "masked (n = 3)",
    ]
    assert "masked: testbed_sentiment 90.0 %, testbed_contrast 54.0 %" in text


def test_arms_of_a_family_have_its_colour_and_marker_and_stand_once_in_the_legend(compare):
    hidden = "shortcut's words hidden"
    frame = compare(of_two_arms(2, 3, 4), ARMS, base="plain").frame()
    figure, _ = figures.accuracy(frame, families={"plain": hidden, "masked": hidden})
    marker = style.family(hidden)["marker"]
    assert [row for _, row in markers(figure.axes[1], marker)] == [0.0, 1.0]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()].count(hidden) == 1


def test_intervals_never_leave_0_to_100(compare):
    records = [make_record("fine_tuning", seed, 50, 99 + seed / 2, 50) for seed in range(3)]
    figure, _ = figures.accuracy(compare(records, ARMS).frame())
    low, high = figure.axes[1].containers[0].lines[2][0].get_segments()[0][:, 0]
    assert high == 100 > low


def test_colours_can_be_told_apart_and_never_stand_alone():
    looks = [tuple(style.series(place).values()) for place in range(24)]
    assert len({look[:2] for look in looks}) == 24  # colour and marker
    luminance = [
        np.dot(matplotlib.colors.to_rgb(colour), (0.2126, 0.7152, 0.0722))
        for colour in style.PALETTE
    ]
    assert max(luminance) < 0.7  # on white


def test_the_projects_figures_are_drawn_and_one_is_saved_with_its_text(tmp_path):
    drawn = make.standard()
    for figure, text in drawn.values():
        figure.draw_without_rendering()
        assert re.search(r"\d", text), "the sentence says the numbers"
    figure, text = drawn["front"]
    make.save(figure, tmp_path / "front.png", text)
    assert Image.open(tmp_path / "front.png").text["Description"] == text


def test_the_readers_own_settings_stay(two_arms):
    before = dict(matplotlib.rcParams)
    figures.accuracy(two_arms.frame())
    assert dict(matplotlib.rcParams) == before and isinstance(two_arms.frame(), pandas.DataFrame)
