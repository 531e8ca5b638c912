"""The figure beside the paper has the paper's numbers, the records' and those that are given."""

import pandas
import pytest

from mtlib.tutorial import drawing


@pytest.fixture
def shown(monkeypatch) -> list:
    shown = []
    monkeypatch.setattr(drawing.figures, "show", lambda *arguments: shown.append(arguments))
    return shown


@pytest.mark.parametrize(("name", "n_panels"), [("sst2", 3), ("testbed_sentiment", 4)])
def test_a_run_stands_beside_the_paper_and_the_records(shown, name, n_panels):
    rows = [["fine-tuning", name, 60.0], ["Mask-tuning", name, 70.0], ["Mask-tuning", name, 72.0]]
    drawing.show_beside_the_paper(pandas.DataFrame(rows, columns=["training", "set", "accuracy"]))
    ((figure, alt),) = shown
    assert len(figure.axes) == n_panels
    assert len({axis.get_xlim() for axis in figure.axes[-3:]}) == 1, "the real sets' panels"
    assert f"here: {name} 60.0 and 71.0 %" in alt
    assert "BART-base (paper): imdb_cad 86.0 and 87.8 %" in alt
    first = figure.axes[0].get_lines()
    here = len(drawing._MODELS) - 1
    assert [line.get_xydata()[-1].tolist() for line in first] == [[60.0, here], [71.0, here]]
