"""Every table of our pages is what the records say, and so is every number in their prose."""

import json
import re
from pathlib import Path

import pandas
import pytest
from scipy.stats import ttest_ind

from data import make_tables
from mtlib.analysis import comparisons

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", make_tables.PAGES)
def test_tables_are_those_of_the_records(page):
    text = (ROOT / page).read_text()
    assert make_tables.filled(text) == text


def rows(spec: str) -> list[str]:
    page = make_tables.filled(f"<!-- table\n{spec}\n-->\n<!-- end -->")
    return page.split("-->")[1].strip("\n<!- end").split("\n")[2:]


def test_a_claim_has_welchs_interval_and_the_effects_of_three_models():
    def of(arm: str) -> pandas.Series:
        return scores[scores["arm"] == arm]["accuracy"]

    scores = comparisons.load("decisive").frame().query("set == 'imdb_contrast'")
    low, high = ttest_ind(
        of("Mask-tuning"), of("fine-tuning"), equal_var=False
    ).confidence_interval()
    here = f"{of('Mask-tuning').mean() - of('fine-tuning').mean():+.1f} [{low:+.1f}, {high:+.1f}]"
    assert (
        rows("claims: report")[1] == "|  | IMDB contrast | +3.7, +4.0, +0.5 | "
        f"{here} | no | excluded, excluded, open | 5 |  |"
    )


def test_measures_are_rows_with_the_kept_bootstrap():
    places = "{imdb_contrast accuracy: edited, imdb_contrast auroc: AUROC}"
    spec = f"comparison: decisive\narms: {{fine-tuning: ft, Mask-tuning: mt}}\nmeasures: {places}"
    edited, area = rows(spec)
    assert re.fullmatch(
        r"\| edited \| 85.5 \| 84.5 \| -1.1 \[-2.6, \+0.5\] \| \[-3.\d, \+1.\d\] \|", edited
    )
    assert area == "| AUROC | 94.7 | 91.9 | -2.8 [-3.7, -2.0] |  |"


@pytest.mark.parametrize("data", ["example", "testbed"])
def test_a_remedy_stands_at_the_setting_that_is_best_on_further_rows(data):
    scores = pandas.read_csv(ROOT / "data/results/remedies.csv", keep_default_na=False)
    scores = scores[scores["data"] == data]
    of = scores.groupby(["arm", "setting", "set"])["accuracy"].agg(list)
    jtt = of["JTT"]
    tuned = max(jtt.index.unique("setting"), key=lambda setting: sum(jtt[setting, "tuning"]))
    accuracy, base = jtt[tuned, "conflicting"], of["masks left in", "", "conflicting"]
    low, high = ttest_ind(accuracy, base, equal_var=False).confidence_interval()
    spec = f"data: {data}\nbase: masks left in\nremedies: {{masks left in: masks, JTT: jtt}}\n"
    row = rows(spec + "columns: {conflicting: misled}")[1]
    shift = sum(accuracy) / 5 - sum(base) / 5
    assert row == f"| jtt | {sum(accuracy) / 5:.1f} | {shift:+.1f} [{low:+.1f}, {high:+.1f}] |"


def test_the_base_sized_model_has_its_mean_range_and_welchs_interval():
    lines = (ROOT / "data/results/brands_base.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    plain = [record["accuracy"] for record in records if record["arm"] == "fine-tuning"]
    base = [100 * accuracy["conflicting"] for accuracy in plain]
    masked = [100 * accuracy["conflicting, words masked"] for accuracy in plain]
    low, high = ttest_ind(masked, base, equal_var=False).confidence_interval()
    arms = "{'fine-tuning, 3 epochs': ft, 'fine-tuning, words masked, 3 epochs': masked}"
    spec = f"base_sized: {{'fine-tuning, 3 epochs': {arms}}}\ndiffer_on: conflicting\n"
    first, second = rows(spec + "columns: {conflicting: misled}")
    mean = sum(masked) / len(masked)
    shift = f"{mean - sum(base) / len(base):+.1f} [{low:+.1f}, {high:+.1f}]"
    assert second == f"| masked | {mean:.1f} ({min(masked):.1f} to {max(masked):.1f}) | {shift} |"
    assert first.startswith("| ft | ") and first.endswith(" |  |")


def outside_the_tables() -> set[str]:
    """Decimals that the report's sentences have from records alone."""
    results = ROOT / "data/results"
    ablations = comparisons.load("ablations").frame().query("set == 'testbed_sentiment'")
    refilled_once = ablations.query("arm == 'refilled once'")["accuracy"].sort_values()
    own_data = pandas.read_csv(results / "own_data.csv")
    deleted = own_data.query("data == 'nli' and recipe == 'deleted' and set == 'dev_matched.tsv'")
    by_part = deleted.pivot(index="seed", columns="rows", values="accuracy")
    not_collapsed = by_part[by_part["all"] > 40]
    on_dev = own_data.query("data == 'reviews' and set == 'dev' and rows == 'all'")
    of_arms = on_dev.groupby("recipe")["accuracy"].mean()[["fine_tuning", "mask_tuning alpha=0.1"]]
    step = json.loads((results / "bench_cpu.json").read_text())["measured"][0]
    mtlib_page = (ROOT / "mtlib/README.md").read_text()
    with_graphs = re.search(r"([\d,]+); ([\d,]+) sequences a second", mtlib_page).groups()
    without = re.search(r"without CUDA graphs \| (\d+); (\d+)", mtlib_page).groups()
    ratios = [
        int(fine_tuning.replace(",", "")) / int(mask_tuning.replace(",", ""))
        for fine_tuning, mask_tuning in (with_graphs, without)
    ]
    crossed = comparisons.load("crossed").frame().query("kind == 'ood'")
    means = crossed.groupby(["arm", "learning_rate", "set"])[["accuracy", "auroc"]].mean()
    numbers = [step["ratio"], *ratios, *not_collapsed.mean(), *refilled_once, *of_arms]
    numbers += [*means["accuracy"], *means["auroc"]]
    return {f"{number:.1f}" for number in numbers}


def test_decimals_in_the_report_stand_in_its_tables():
    text = re.sub(r"<!--.*?-->", "", (ROOT / "data/results/REPORT.md").read_text(), flags=re.S)
    tables = "\n".join(line for line in text.split("\n") if line.startswith("|"))
    prose = "\n".join(line for line in text.split("\n") if not line.startswith("|"))
    prose = re.sub(r"arXiv [\d.]+|alpha [\d.]+", "", prose)
    known = {*re.findall(r"\d+\.\d+", tables), *outside_the_tables()}
    assert {*re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", prose)} <= known


def test_the_pages_say_of_the_base_sized_model_what_the_records_say():
    scores = make_tables._base_sized_scores().query("set == 'conflicting'")
    seeds = scores.groupby("arm")["accuracy"]
    mean = seeds.mean()
    fine_tuning = mean["fine-tuning, 3 epochs"]
    longer = mean["fine-tuning, as long, 6 epochs"]
    as_long = mean["fine-tuning, as long, 12 epochs"]
    at_random = mean["Mask-tuning, alpha 0.6, 5 % at random, 12 epochs"]
    page = (ROOT / "README.md").read_text()
    assert f"{at_random:.0f} % right after twelve epochs, fine-tuned {as_long:.0f} |" in page
    later = f"(in six {longer:.0f}, in twelve {as_long:.0f})"
    assert f"100 % right in three epochs, fine-tuned {fine_tuning:.0f} {later};" in page
    report = (ROOT / "data/results/REPORT.md").read_text()
    low, high = (bound["fine-tuning, 3 epochs"] for bound in (seeds.min(), seeds.max()))
    after_three = f"(after three {fine_tuning:.0f}, by seed {low:.0f} to {high:.0f})"
    assert (
        f"{at_random:.0f} % after twelve epochs, fine-tuning in {as_long:.0f} {after_three}"
        in report
    )
    assert mean["Mask-tuning, alpha 0.1, the words, 6 epochs"] == 100
    assert "left in, at least 99.5 % after three; refilled at alpha 0.1, 100 after six" in report
    assert seeds.min()["masks left in, 3 epochs"] == 99.5
    hidden = [
        arm for arm in mean.index if "left in" in arm or "deleted" in arm or "the words" in arm
    ]
    assert len(hidden) == 4 and mean[hidden].min() > 99.5
