"""What one change to a training does: two arms that differ in it alone, in points of accuracy, paired by seed.

The results page prints these tables. Their intervals are not corrected for the number of rows.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas

from mtlib.analysis.comparison import FINE_TUNING, Arms, difference, group_by_arm, seed_pairs
from mtlib.analysis.frame import by_row, common_sets
from mtlib.analysis.policies import in_training_by
from mtlib.runs.records import read_records
from mtlib.study import base_sized, reviews
from mtlib.study.ablations import as_printed, told_the_words, with_settings, without_refilling
from mtlib.study.peers import PEERS


class Change(NamedTuple):
    """An arm with the change and one without it; `what` says in words what changes."""

    what: str
    arm: str
    base: str


OF_PARTS = (
    Change("add the masked-LM loss to fine-tuning", "mask_tuning (no refilling, balanced)", FINE_TUNING),
    Change("then refill the text", "mask_tuning (balanced)", "mask_tuning (no refilling, balanced)"),
    Change("leave the loss out of equation 1", "no_integrated_loss", "mask_tuning"),
    Change("balance the two losses of equation 1", "mask_tuning (balanced)", "mask_tuning"),
    Change("fine-tuning: refill once (perturb_first)", "perturb_first", FINE_TUNING),
    Change("fine-tuning: add refilled copies (augmented)", "augmented", FINE_TUNING),
    Change("fine-tuning: masked LM, then copies (sequential)", "sequential", FINE_TUNING),
)
_PRINTED, _ORIGINAL = "equation 1, random, 5 %", "random, 30 %, no refilling"
OF_RANDOM_MASKS = (
    Change("fine-tuning → equation 1 as printed, 5 % at random", _PRINTED, FINE_TUNING),
    Change("fine-tuning → loss on 30 % at random, no refilling", _ORIGINAL, FINE_TUNING),
)
_BEFORE, _BEFORE_AT_RANDOM = "shortcut's words before", "random, 30 %, before"
OF_ORDER = (
    Change("fine-tuning → first predict the shortcut's words", _BEFORE, FINE_TUNING),
    Change("fine-tuning → first predict 30 % at random", _BEFORE_AT_RANDOM, FINE_TUNING),
    Change("shortcut's words: predict before → along", "mask_tuning (no refilling, balanced)", _BEFORE),
)
OF_COMBINATIONS = (
    Change("Reweight: put inside Mask-tuning", "mask_tuning + reweight", "reweight"),
    Change("Reweight: add the masked-LM loss alone", "mask_tuning + reweight, no refilling", "reweight"),
    Change("Reweight: refill the text alone", "mask_tuning + reweight, alpha 0", "reweight"),
    Change(
        "Reweight inside Mask-tuning: leave out the loss", "mask_tuning + reweight, alpha 0", "mask_tuning + reweight"
    ),
    Change(
        "Reweight inside Mask-tuning: leave out refilling",
        "mask_tuning + reweight, no refilling",
        "mask_tuning + reweight",
    ),
    Change("Bias Product: put inside Mask-tuning", "mask_tuning + bias_product", "bias_product"),
    Change("Bias Product: add the masked-LM loss alone", "mask_tuning + bias_product, no refilling", "bias_product"),
    Change("Bias Product: refill the text alone", "mask_tuning + bias_product, alpha 0", "bias_product"),
    Change(
        "Bias Product, inside: leave out the loss",
        "mask_tuning + bias_product, alpha 0",
        "mask_tuning + bias_product",
    ),
    Change(
        "Bias Product, inside: leave out refilling",
        "mask_tuning + bias_product, no refilling",
        "mask_tuning + bias_product",
    ),
    Change("product of experts: put inside Mask-tuning", "mask_tuning + product_of_experts", "product_of_experts"),
    Change(
        "product of experts, inside: leave out the loss",
        "mask_tuning + product_of_experts, alpha 0",
        "mask_tuning + product_of_experts",
    ),
    Change(
        "confidence regularization: put inside Mask-tuning",
        "mask_tuning + confidence_regularization",
        "confidence_regularization",
    ),
    Change("Span Cutoff: put inside Mask-tuning", "mask_tuning + span_cutoff", "span_cutoff"),
)
_RANDOM = "exact:0.05"
OF_AMOUNTS = (  # in either comparison
    Change("fine-tuning → shortcut's words, 5 %", "known_shortcut:0.05", FINE_TUNING),
    Change("fine-tuning → shortcut's words, 10 %", "known_shortcut:0.1", FINE_TUNING),
    Change("fine-tuning → shortcut's words, 15 %", "known_shortcut:0.15", FINE_TUNING),
    Change("shortcut's words, 5 % → 15 %", "known_shortcut:0.15", "known_shortcut:0.05"),
    Change("shortcut's words, 15 % → all of them", "known_shortcut:1", "known_shortcut:0.15"),
)
_UNFILLED = "random, no refilling"
OF_MASKS_AT_HALF = (
    Change("random → shortcut's words, all of them", "known_shortcut:1", _RANDOM),
    Change("random → deciding words", "known_cause:0.05", _RANDOM),
    Change("random → pointed span", "supervised", _RANDOM),
    Change("random → one of 5 pointed spans", "supervised_top5", _RANDOM),
    Change("random → most attributed", "attribution_most:0.05", _RANDOM),
    Change("random → least attributed", "attribution_least:0.05", _RANDOM),
    Change("random → rare", "frequency_rare:0.05", _RANDOM),
    Change("random → frequent", "frequency_frequent:0.05", _RANDOM),
    Change("random → content words", "part_of_speech_content:0.05", _RANDOM),
    Change("random → function words", "part_of_speech_function:0.05", _RANDOM),
    Change("random → meta-learned (reconstruction)", "meta_learned:0.05", _RANDOM),
    Change("random, 5 % → 15 %", "exact:0.15", _RANDOM),
    Change("random, 5 % → 30 %", "exact:0.3", _RANDOM),
    Change("random → random words", "whole_word:0.05", _RANDOM),
    Change("random → random (coin)", "bernoulli:0.05", _RANDOM),
    Change("random → random, all predicted", "original:0.05", _RANDOM),
    Change("random → random, no refilling", _UNFILLED, _RANDOM),
)
OF_MASKS_ON_REVIEWS = (
    Change("random, 5 % → pointed span", "supervised", _RANDOM),
    Change("random, 30 % → pointed span (as many tokens)", "supervised", "exact:0.3"),
    Change("random → most attributed", "attribution_most:0.05", _RANDOM),
    Change("random → least attributed", "attribution_least:0.05", _RANDOM),
    Change("random → meta-learned (reconstruction)", "meta_learned:0.05", _RANDOM),
)
OF_MASKS_OF_A_LARGER_MODEL = (
    *(change for change in OF_MASKS_ON_REVIEWS if change.base == _RANDOM),
    Change("random, 5 % → 30 %", "exact:0.3", _RANDOM),
    Change("random, 30 % → pointed span (fewer tokens)", "supervised", "exact:0.3"),
)
OF_PRETRAINING = (
    Change("random → random, all predicted", "original:0.15", "exact:0.15"),
    Change("random → pointed span", "supervised", "exact:0.15"),
    Change("random → meta-learned (reconstruction)", "meta_learned:0.15", "exact:0.15"),
)
OF_A_LARGER_MODEL = (
    Change("leave the loss out of equation 1", "no_integrated_loss", "mask_tuning"),
    Change("balance the two losses of equation 1", "mask_tuning (balanced)", "mask_tuning"),
)
OF_MORE_EPOCHS = (
    Change("fine-tuning: 3 → 6 epochs", base_sized.longer(FINE_TUNING), FINE_TUNING),
    Change("equation 1 as printed (joint): 3 → 6 epochs", base_sized.longer("mask_tuning"), "mask_tuning"),
    Change("balanced: 3 → 6 epochs", base_sized.longer("mask_tuning (balanced)"), "mask_tuning (balanced)"),
    Change("6 epochs: fine-tuning → joint", base_sized.longer("mask_tuning"), base_sized.longer(FINE_TUNING)),
    Change(
        "6 epochs: fine-tuning → balanced",
        base_sized.longer("mask_tuning (balanced)"),
        base_sized.longer(FINE_TUNING),
    ),
)
OF_MASKS_ON_PAIRS = (
    Change("random, 30 % → shortcut's words first, 30 %", "known_shortcut_first:0.3", "exact:0.3"),
    Change("nothing → random, 5 %", _RANDOM, FINE_TUNING),
    Change("nothing → random, 30 %", "exact:0.3", FINE_TUNING),
    Change("nothing → shortcut's words first, 30 %", "known_shortcut_first:0.3", FINE_TUNING),
)


def tables(results: Path) -> dict[str, pandas.DataFrame]:
    """The tables from the records in `results`, by their places on the page (those of pairs: `on_pairs`)."""

    def records(name: str) -> list[dict]:
        return read_records([results / f"{name}.jsonl"])

    parts = by_row(told_the_words(results))
    random = {FINE_TUNING: parts[FINE_TUNING], _PRINTED: as_printed(results), _ORIGINAL: without_refilling(results)}
    before = {"known_shortcut": _BEFORE, "exact": _BEFORE_AT_RANDOM}
    order = parts | group_by_arm(records("pretraining_testbed"), lambda config: before[config["masking"]])
    return {
        "random masks, changed": table(random, OF_RANDOM_MASKS),
        "parts of Mask-tuning, changed": table(parts, OF_PARTS),
        "order of the losses, changed": table(order, OF_ORDER),
        "other methods, changed": table(PEERS.by_arm(records("peers")), OF_COMBINATIONS),
        "amounts, changed": table(in_training_by("no_integrated_loss").by_arm(records("policies")), OF_AMOUNTS),
        "amounts with the loss, changed": table(in_training_by("mask_tuning").by_arm(records("policies")), OF_AMOUNTS),
        "policies at half the strength, changed": table(at_half_the_strength(results), OF_MASKS_AT_HALF),
        "policies on reviews, changed": table(reviews.REFILLING.by_arm(records("policies_sst2")), OF_MASKS_ON_REVIEWS),
        "intermediate pre-training, changed": table(
            reviews.PRETRAINING.by_arm(records("intermediate")), OF_PRETRAINING
        ),
        "base-sized, changed": table(by_row(records("base")), OF_A_LARGER_MODEL),
        "base-sized, longer": table(base_sized.by_length(results), OF_MORE_EPOCHS),
        "base-sized policies, changed": table(
            reviews.REFILLING.by_arm(base_sized.with_policies(results)),
            OF_MASKS_OF_A_LARGER_MODEL,
        ),
    }


def at_half_the_strength(results: Path) -> Arms:
    """The policies with a shortcut of strength 0.5, and beside them random masks whose text is not refilled."""
    file = results / "policies_weaker.jsonl"
    arms = in_training_by("mask_tuning").by_arm(read_records([file]))
    return arms | {_UNFILLED: with_settings(file, classifier_reads="original")}


def on_pairs(results: Path) -> dict[str, pandas.DataFrame]:
    """The table of masks on the tasks of pairs, by task."""
    records, arms = read_records([results / "policies_pairs.jsonl"]), in_training_by("no_integrated_loss").by_arm
    return {
        task: table(arms(record for record in records if record["config"]["task"] == task), OF_MASKS_ON_PAIRS)
        for task in ("nli", "paraphrase")
    }


def table(arms: Arms, changes: Iterable[Change]) -> pandas.DataFrame:
    """A row for each change: how many seeds both arms have, and the difference on each set with its 95 % interval.

    An arm without records has no row.
    """
    rows = []
    for what, arm, base in changes:
        if pairs := seed_pairs(arms.get(arm, ()), arms.get(base, ())):
            sets = common_sets([run for pair in pairs for run in pair])
            shifts = {name: difference(arms[arm], arms[base], name).text() for name in sets}
            rows.append({"change": what, "seeds": len(pairs), **shifts})
    return pandas.DataFrame(rows, columns=None if rows else ["change", "seeds"]).set_index("change")
