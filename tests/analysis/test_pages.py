"""Every table of our pages is what the records say, and so is every number in their prose."""

import re
from pathlib import Path

import pytest

from mtlib.analysis import pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "data/results/REPORT.md"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_records(page):
    text = (ROOT / page).read_text()
    assert pages.filled(text) == text


def test_a_table_of_claims_by_hand():
    spec = "claims: [{claim: c, comparison: base, arm: Mask-tuning, base: fine-tuning, set: imdb_contrast, setting: s}]"
    row = pages.filled(f"<!-- table\n{spec}\n-->\n<!-- end -->").split("\n")[6]
    assert row == "| c | +3.7 | -2.3 [-6.3, +1.6] | open | excluded | s, 5 seeds |"


def test_decimals_in_the_report_stand_in_its_tables():
    text = re.sub(r"<!--.*?-->", "", (ROOT / "data/results/REPORT.md").read_text(), flags=re.S)
    tables = "\n".join(line for line in text.split("\n") if line.startswith("|"))
    prose = "\n".join(line for line in text.split("\n") if not line.startswith("|"))
    prose = re.sub(r"arXiv [\d.]+|alpha [\d.]+", "", prose)
    known = {*re.findall(r"\d+\.\d+", tables)}
    assert {*re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", prose)} <= known
