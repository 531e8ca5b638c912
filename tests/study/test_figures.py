"""The study's figures, and that the repository's files show what is drawn now."""

import re

import pytest
from matplotlib.figure import Figure

from mtlib.analysis import tables
from mtlib.analysis.figures import gap
from mtlib.analysis.statistics import Difference
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, FIGURE_DIR
from mtlib.runs.records import read_records
from mtlib.study import figures
from mtlib.study.arms import by_arm
from mtlib.study.claims import Cell
from mtlib.study.plan import ARMS
from tests.analysis.test_figures import description, texts


class TestClaims:
    def cell(self, name, mean, half, task="sentiment", obstacle=""):
        """Its decisive interval is twice as wide as the one of 95 %."""
        narrow, wide = (Difference(mean, mean - width, mean + width, 5) for width in (half / 2, half))
        return Cell(task, name, narrow, "", obstacle, wide)

    def test_a_panel_per_claim_and_a_row_per_set_that_was_run(self):
        by_panel = {
            ("Q1", "a", "b"): [self.cell("imdb_cad", 2.0, 1.0), self.cell("sst2", -3.0, 1.0)],
            ("Q2", "c", "d"): [self.cell("sst2", 0.5, 1.0), Cell("nli", "hans", None, "not run")],
        }
        figure, alt = figures.claims(by_panel)
        assert [label for label in texts(figure) if "(" in label][:2] == ["sst2 (id)", "imdb_cad (ood)"]
        assert not any("hans" in text for text in texts(figure))
        assert "Q1: a - b: in distribution 0 above and 1 below of 1, out of it 1 above and 0 below of 1;" in alt
        assert alt.endswith("Q2: c - d: in distribution 0 above and 0 below of 1.")

    def test_hollow_where_a_set_says_nothing(self):
        figure, alt = figures.claims({("Q1", "a", "b"): [self.cell("sst2", 30.0, 1.0, obstacle="both only guess")]})
        assert alt.endswith("Q1: a - b: 1 hollow.")
        (line,) = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
        assert line.get_markerfacecolor() == "white"

    def test_the_legend_tells_what_colours_and_hollow_markers_mean(self):
        cells = [self.cell("sst2", 2.0, 1.0), self.cell("hans", 1.0, 1.0, task="nli")]
        figure, _ = figures.claims({("Q1", "mask_tuning", "fine_tuning"): cells})
        assert texts(figure)[-4:] == ["sentiment", "nli", "hollow: untrained, or both guess", "the paper's side"]
        assert "Q1: Mask-tuning\nminus fine-tuning" in texts(figure)

    def test_nothing_run_is_an_error(self):
        with pytest.raises(UserError, match="no difference to show"):
            figures.claims({("Q1", "a", "b"): [Cell("nli", "hans", None, "not run")]})


def test_gap_of_the_studys_seven_arms_has_room():
    """On real records: in each panel every marker on its own line, no two looks alike, all of it inside the figure."""
    arms = by_arm(read_records([DATA_DIR / "results" / "study.jsonl"]))
    figure, _ = gap([run for arm in ARMS for run in arms["sentiment", arm.name]])
    figure.draw_without_rendering()
    assert len(figure.axes) == 3
    for axis in figure.axes:
        markers = [container.lines[0] for container in axis.containers]
        assert [float(place) for marker in markers for place in marker.get_ydata()] == list(range(7))
        assert len({marker.get_marker() for marker in markers}) == 7
    names = figure.axes[0].get_yticklabels()
    for box in (shown.get_window_extent() for shown in (*figure.legends, *names)):
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width


@pytest.fixture(scope="module")
def standard():
    return figures.standard(DATA_DIR / "results")


class TestTheRepositorysFigures:
    def test_sentences_hold_the_tables_numbers(self, standard):
        (table,) = tables.make_tables(read_records([DATA_DIR / "results" / "sst2.jsonl"]))
        fine, mask = (next(row for row in table.rows if row.method == name) for name in ("fine_tuning", "mask_tuning"))
        assert f"fine_tuning: sst2 {fine.scores['sst2'].mean():.1f} %" in standard["sst2_gap"][1]
        assert f"mask_tuning: sst2 {mask.scores['sst2'].mean():.1f} %" in standard["sst2_gap"][1]
        assert f"sst2 {table.difference(mask, 'sst2').mean:+.1f}" in standard["sst2_differences"][1]
        for figure, alt in standard.values():
            assert isinstance(figure, Figure) and re.search(r"\d", alt)

    def test_committed_files_are_what_is_drawn_now(self, standard):
        """Names and sentences: every number of a plot is in them, and no byte of the renderer is."""
        files = {path.name for path in FIGURE_DIR.glob("*")}
        expected = {f"{name}{ending}" for name in standard for ending in (".png", ".svg")}
        assert files == expected, "run `python -m mtlib figures` and commit figures/"
        for name, (_, alt) in standard.items():
            assert description(FIGURE_DIR / f"{name}.svg") == alt, "run `python -m mtlib figures`"
            assert alt.encode() in (FIGURE_DIR / f"{name}.png").read_bytes()
