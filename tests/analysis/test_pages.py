"""Every table of our pages is what the records say, and so is every number in their prose."""

import re
from pathlib import Path

import pandas
import pytest
from scipy.stats import ttest_ind

from mtlib.analysis import comparisons, pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "data/README.md", "data/results/REPORT.md"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_records(page):
    text = (ROOT / page).read_text()
    assert pages.filled(text) == text


def rows(spec: str) -> list[str]:
    return pages.filled(f"<!-- table\n{spec}\n-->\n<!-- end -->").split("-->")[1].strip("\n<!- end").split("\n")[2:]


def test_a_claim_has_welchs_interval_and_the_effects_of_three_models():
    def of(arm: str) -> pandas.Series:
        return scores[scores["arm"] == arm]["accuracy"]

    scores = comparisons.load("decisive").frame().query("set == 'imdb_contrast'")
    low, high = ttest_ind(of("Mask-tuning"), of("fine-tuning"), equal_var=False).confidence_interval()
    here = f"{of('Mask-tuning').mean() - of('fine-tuning').mean():+.1f} [{low:+.1f}, {high:+.1f}]"
    assert (
        rows("claims: report")[1]
        == f"|  | IMDB-Cont | +3.7, +4.0, +0.5 | {here} | no | excluded, excluded, open | 5 |  |"
    )


def test_measures_are_rows_with_the_kept_bootstrap():
    places = "{imdb_contrast accuracy: edited, imdb_contrast auroc: AUROC}"
    spec = f"comparison: decisive\narms: {{fine-tuning: ft, Mask-tuning: mt}}\nmeasures: {places}"
    edited, area = rows(spec)
    assert re.fullmatch(r"\| edited \| 85.5 \| 84.5 \| -1.1 \[-2.6, \+0.5\] \| \[-3.\d, \+1.\d\] \|", edited)
    assert area == "| AUROC | 94.7 | 91.9 | -2.8 [-3.7, -2.0] |  |"


def test_decimals_in_the_report_stand_in_its_tables():
    text = re.sub(r"<!--.*?-->", "", (ROOT / "data/results/REPORT.md").read_text(), flags=re.S)
    tables = "\n".join(line for line in text.split("\n") if line.startswith("|"))
    prose = "\n".join(line for line in text.split("\n") if not line.startswith("|"))
    prose = re.sub(r"arXiv [\d.]+|alpha [\d.]+", "", prose)
    known = {*re.findall(r"\d+\.\d+", tables)}
    assert {*re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", prose)} <= known
