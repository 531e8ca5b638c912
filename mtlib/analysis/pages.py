"""The tables of our Markdown pages, each made anew from the records.

In a page a table stands between two comments; the first says, in YAML, what it shows:

    <!-- table
    comparison: base
    arms: {fine-tuning: fine-tuning, Mask-tuning: equation 1}
    columns: {sst2: SST-2, "better on imdb_contrast?": IMDB contrast}
    -->
    ...
    <!-- end -->

`arms` and `columns` choose rows and columns of `Comparison.table` and rename them. With `claims` in their place, a list
of `{claim, comparison, arm, base, set, setting}`, a row is a claim of the paper's and what came of it.
"""

import re

import pandas
import yaml

from mtlib.analysis import comparisons
from mtlib.analysis.intervals import Difference

_BLOCK = re.compile(r"(<!-- table\n)(.*?)(-->\n)(?:.*?)(<!-- end -->)", flags=re.S)


def filled(page: str) -> str:
    """The page with each of its tables made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}{found[3]}\n{_markdown(found[2])}\n\n{found[4]}", page)


def _markdown(spec: str) -> str:
    content = yaml.safe_load(spec)
    table = _of_claims(content["claims"]) if "claims" in content else _chosen(**content)
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _chosen(comparison: str, arms: dict, columns: dict, task: str | None = None) -> pandas.DataFrame:
    table = comparisons.load(comparison).table(task).set_index("arm").loc[list(arms), list(columns)]
    return table.rename(index=arms, columns=columns).reset_index().fillna("")


def _of_claims(claims: list[dict]) -> pandas.DataFrame:
    rows = []
    for claim in claims:
        shifts = comparisons.load(claim["comparison"]).differences()
        wanted = [shifts[name] == claim[name] for name in ("arm", "base", "set")]
        line = next(shifts[wanted[0] & wanted[1] & wanted[2]].itertuples())
        rows.append(
            {
                "claim": claim["claim"],
                "paper": "" if pandas.isna(line.paper) else f"{line.paper:+.1f}",
                "here": Difference(line.mean, line.low, line.high, line.n).text(),
                "better?": _ANSWERS.get(line.verdict, line.verdict),
                "the paper's gain?": line.claim,
                "setting": f"{claim['setting']}, {line.n} seeds",
            }
        )
    return pandas.DataFrame(rows)


_ANSWERS = {"significantly better": "yes", "significantly worse": "no", "not significantly different": "open"}
