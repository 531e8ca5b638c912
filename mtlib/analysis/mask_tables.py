"""Tables of what `python -m mtlib policies --json` has measured of masking policies."""

from collections.abc import Mapping

import pandas

from mtlib.analysis.policy_names import PolicyAtRate

_CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV")
_FEWEST_WORDS = 30  # of which a share is told


def kinds(description: Mapping, kind: str = "part_of_speech") -> dict[str, dict[str, float | None]]:
    """What each policy masks by kind, in shares that add up to 1, and beside it all tokens. None where none is masked.

    Args:
        description: what was measured.
        kind: "part_of_speech", or "frequency" (occurrences in the training set).
    """
    lines = {PolicyAtRate.parse(name).label: line[kind] for name, line in description["policies"].items()}
    lines["all tokens"] = description["all_tokens"][kind]
    if kind == "frequency":
        return lines
    shares = {name: {part: line[part] for part in _CONTENT} for name, line in lines.items()}
    return {name: parts | {"function words and other": None if None in parts.values() else 1 - sum(parts.values())}
            for name, parts in shares.items()}  # fmt: skip


def kinds_in_short(description: Mapping) -> pandas.DataFrame:
    """What each policy masks, in per cent of its masked tokens: content words by kind, function words, rare tokens.

    The last row is all tokens, masked or not.
    """
    rare = {name: line["below 10"] for name, line in kinds(description, "frequency").items()}
    return 100 * pandas.DataFrame({
        name: {
            "nouns": line["NOUN"] + line["PROPN"], "verbs": line["VERB"], "adjectives": line["ADJ"],
            "adverbs": line["ADV"], "function words and other": line["function words and other"],
            "found fewer than 10 times": rare[name],
        }
        for name, line in kinds(description).items()
    }).T  # fmt: skip


def most_alike(description: Mapping) -> dict[str, tuple[str, float]]:
    """For each policy the other one whose masks have most places in common with its own, and their Jaccard index."""
    nearest = {}
    for pair, share in description["overlap"].items():
        first, second = (PolicyAtRate.parse(name).label for name in pair.split())
        for name, other in ((first, second), (second, first)):
            nearest[name] = max(nearest.get(name, (other, share)), (other, share), key=lambda found: found[1])
    return nearest


def as_frame(description: Mapping) -> pandas.DataFrame:
    """A line for each policy and rate: the main numbers in per cent, and what it costs.

    To mask a batch is to draw its masks and fill them; the cost is relative to the first policy's. What a policy reads
    is computed once for the whole training set, in the seconds given.

    A column that is empty for this task, or for data whose shortcut is not known, is left out. How many of the masked
    tokens changed is told where nothing better is known. Of fewer than 30 new words no share is told.
    """
    first = next(iter(description["policies"].values()))
    lines = {}
    for name, line in description["policies"].items():
        label, put, touched = (line.get(name, {}) for name in ("label", "put_in", "touches_shortcut"))
        lines[name] = {
            "tokens masked": line["tokens_masked"],
            "masked tokens changed": None if touched else line["tokens_changed"],
            "shortcut touched": touched.get("any"),
            "shortcut gone": touched.get("all"),
            "deciding words touched": line.get("touches_cause", {}).get("any"),
            "label kept": label.get("kept"),
            "label turned": label.get("turned"),
            "label undecided": label.get("undecided"),
            "no word of it left": line.get("shortcut_after", {}).get("neither"),
            "shortcut came back": line.get("shortcut_came_back"),
            "new words agree": put.get("agree") if put.get("words", 0) >= _FEWEST_WORDS else None,
            "probe finds the side": line.get("shortcut_probe"),
            "masked share tells the side": line.get("masked_share_probe"),
        }
    frame = 100 * pandas.DataFrame.from_dict(lines, orient="index").astype(float).dropna(axis="columns", how="all")
    described = description["policies"].values()
    return frame.assign(**{
        "seconds to prepare": [line["seconds_to_prepare"] for line in described],
        "cost of masking a batch": [line["seconds_per_batch"] / first["seconds_per_batch"] for line in described],
    })  # fmt: skip
