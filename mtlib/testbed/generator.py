"""The bundled data: sentences from a grammar, with a shortcut of known strength planted in them.

The label of a row follows from its template alone. Its *lure* is the label that the shortcut suggests, and
`shortcut_label` reads it off the finished text:

    sentiment    the side of the topics and makers that are named (genres, cooks, designers, ...)
    nli          a negation word in the hypothesis: 2; else many shared words: 0; else 1
    paraphrase   many shared words: 1; else 0

`strength` s moves train and dev sets alone, so that the same out-of-distribution sets serve every strength.
Of the rows of each label, a share s is made to agree with the lure and a share s (1 - s) to disagree. In the
remaining (1 - s)^2 the lure is spread evenly over the k labels. It agrees in s + (1 - s)^2 / k of all rows.
At s = 0 every lure is equally frequent with every label (the shortcut is independent of the label). At s = 1
the shortcut is always right.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE
from mtlib.settings import Count, Share, check
from mtlib.testbed.grammar import LABELS, OPTION, SIDES, SLOT, Grammar, Template, inflect, load_grammar, tokens


@dataclass(frozen=True)
class SetSpec:
    """One set: which templates it uses and how its lures are dealt out.

    `agree` is the share of rows whose lure agrees with the label: a number, None for "follows the dial", or
    "template" where every template brings its own lure and each gets the same number of rows.
    """

    task: str
    size: int
    sections: tuple = ("train",)
    agree: float | str | None = None
    unseen_domains: bool = False
    unseen_words: bool = False
    edited: bool = False  # every row is followed by its minimal edit with the other label


# Out-of-distribution sets come first: they own their sentences, and do not depend on the dial.
SPECS: dict[str, SetSpec] = {
    "testbed_contrast": SetSpec("sentiment", 500, agree=0.9, edited=True),
    "testbed_counterfactual": SetSpec("sentiment", 500, ("train", "counterfactual"), agree=0.1, unseen_words=True),
    "testbed_sentiment": SetSpec("sentiment", 1000),
    "testbed_sentiment_train": SetSpec("sentiment", 4000),
    "testbed_overlap": SetSpec("nli", 2100, ("overlap",), agree="template"),
    "testbed_adversarial": SetSpec("nli", 1000, ("adversarial",), agree=0.0),
    "testbed_nli_m": SetSpec("nli", 1000),
    "testbed_nli_mm": SetSpec("nli", 1000, unseen_domains=True),
    "testbed_nli_train": SetSpec("nli", 6000),
    "testbed_scramble": SetSpec("paraphrase", 700, ("scramble",), agree="template"),
    "testbed_paraphrase": SetSpec("paraphrase", 1000),
    "testbed_paraphrase_train": SetSpec("paraphrase", 6000),
}


def generate(
    strength: float = 0.9, seed: int = 0, tasks: Iterable[str] = tuple(LABELS), train_rows: int | None = None
) -> dict[str, list[dict]]:
    """All sets of the tasks by name: rows of text, (text_pair,) label, uid, group. Same arguments, same rows.

    `train_rows` is the size of every training set (default: that of the bundled files); the other sets do not depend on
    it.
    """
    check("strength", float(strength), Share)
    check("train_rows", train_rows, Count | None)
    sets, owner = {}, {}
    grammars = {task: load_grammar(task) for task in tasks}
    for name, spec in SPECS.items():
        if spec.task in grammars:
            if train_rows is not None and name.endswith("_train"):
                spec = replace(spec, size=train_rows)
            sets[name] = make_set(name, spec, grammars[spec.task], strength, seed, owner)
    return sets


def write(out_dir: str | Path, strength: float = 0.9, seed: int = 0, train_rows: int | None = None) -> None:
    """Write every set to `out_dir` as <set>.jsonl, and the dial's setting beside them; `out_dir` is then a source."""
    sets, sha256 = generate(strength, seed, train_rows=train_rows), {}
    Path(out_dir).mkdir(parents=True, exist_ok=True)
    (Path(out_dir) / SETTINGS_FILE).unlink(missing_ok=True)  # gone first, back last: it says that all sets are whole
    for name, rows in sets.items():
        lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
        content = "".join(lines).encode("utf-8")
        (Path(out_dir) / f"{name}.jsonl").write_bytes(content)
        sha256[f"{name}.jsonl"] = hashlib.sha256(content).hexdigest()
    size = {} if train_rows is None else {"train_rows": train_rows}
    settings = json.dumps({"strength": strength, "seed": seed, **size, "sha256": sha256}, indent=1) + "\n"
    (Path(out_dir) / SETTINGS_FILE).write_bytes(settings.encode())


def shortcut_label(grammar: Grammar, text: str, text_pair: str | None = None) -> int:
    """The label that the shortcut alone suggests, read off the text."""
    words, pair_words = set(tokens(text)), set(tokens(text_pair or ""))
    if grammar.task == "sentiment":
        votes = [len(words & lure_words(grammar.task, label)) for label in (0, 1)]
        return int(votes[1] > votes[0])
    if grammar.task == "nli":
        if pair_words & set(grammar.shortcut["negation"]):
            return 2
        return 0 if len(words & pair_words) / len(pair_words) >= grammar.shortcut["overlap"] else 1
    return int(len(words & pair_words) / len(words | pair_words) >= grammar.shortcut["overlap"])


@cache
def lure_words(task: str, label: int) -> frozenset[str]:
    """The last word of every topic and maker that suggests the label."""
    grammar = load_grammar(task)
    entries = (entry for category in grammar.shortcut["words"] for entry in grammar.all_entries(category, SIDES[label]))
    return frozenset(tokens(entry.columns[0])[-1] for entry in entries)


def agreement(strength: float, n_labels: int) -> float:
    """Share of train and dev rows in which the shortcut agrees with the label: s + (1 - s)^2 / k."""
    return strength + (1 - strength) ** 2 / n_labels


def make_set(name: str, spec: SetSpec, grammar: Grammar, strength: float, seed: int, owner: dict) -> list[dict]:
    """The rows of one set. `owner` says which set a sentence belongs to: no sentence is in two sets."""
    rng = Random(f"{seed}/{name}")  # a str seed is hashed by sha512, and only random() is used: no platform differs
    rows, seen, short = [], set(), name.removeprefix("testbed_")
    for number, (pool, label, lure) in enumerate(deal_out(spec, grammar, strength, rng)):
        for draft in drafts(spec, grammar, rng, pool, label, lure):
            template, versions = draft
            sentences = [sentence for texts in versions for sentence in texts if sentence]
            is_new = not seen & {frozenset(texts) for texts in versions}
            if is_new and all(owner.get(sentence, name) == name for sentence in sentences):
                break
        else:
            raise UserError(
                f"{grammar.task}.yaml has too few sentences for {name}: no new one with label {label} and shortcut "
                f"label {lure} in 5000 tries; give a smaller train_rows, or add words or templates to it"
            )
        owner.update(dict.fromkeys(sentences, name))
        seen.update(frozenset(texts) for texts in versions)
        for version, (text, text_pair) in enumerate(versions):
            row = {"text": text} | ({"text_pair": text_pair} if text_pair else {})
            row["label"] = 1 - label if version else label
            row["uid"] = f"{short}-{len(rows):05d}"
            row["group"] = template.id
            if spec.edited or spec.unseen_words:  # the original of a rewrite is not part of the set
                original = spec.edited and version == 0
                row["group"] = f"{short}-{number:04d}:{'original' if original else 'edited'}"
            if name == "testbed_overlap":
                row["label"] = min(label, 1)  # two labels: 0 entailment, 1 non-entailment
            rows.append(row)
    return rows


def drafts(
    spec: SetSpec, grammar: Grammar, rng: Random, pool: list, label: int, lure: int
) -> Iterator[tuple[Template, list[tuple[str, str | None]]]]:
    """From 5000 tries, those that fit: a template, and its texts; an edited set has its edit as a second version."""
    for _ in range(5000):
        template = pick(rng, pick(rng, pool))
        writer = Writer(grammar, rng, label, lure, spec)
        versions = [writer.write(template)]
        if spec.edited:
            versions.append(writer.write(template, flipped=True))
        if all(shortcut_label(grammar, *texts) == lure and texts[0] != texts[1] for texts in versions):
            yield template, versions


def deal_out(spec: SetSpec, grammar: Grammar, strength: float, rng: Random) -> list[tuple]:
    """(templates to draw from, label, lure) of each row, in random order. The counts are exact, not drawn."""
    templates = [template for section in spec.sections for template in grammar.templates[section]]
    if spec.agree == "template":
        share = spec.size / len(templates)
        counts = [round((i + 1) * share) - round(i * share) for i in range(len(templates))]
        rows = zip(templates, counts, strict=True)
        return shuffled(rng, [([[t]], t.labels[0], t.lure) for t, count in rows for _ in range(count)])
    k = LABELS[spec.task]
    agree = agreement(strength, k) if spec.agree is None else spec.agree
    wanted = []
    for label in range(k):
        n = (spec.size + label) // k
        n_agree = round(n * agree)
        others = [lure for lure in range(k) if lure != label]
        lures = [label] * n_agree + [others[i % (k - 1)] for i in range(n - n_agree)]
        wanted += [(label, lure) for lure in lures]
    pools = {}
    for cell in sorted(set(wanted)):
        groups = {}  # by construction first, so that one with many variants is no more frequent
        for template in templates:
            fits = set(template.labels) >= ({0, 1} if spec.edited else {cell[0]})
            if fits and template.lure in (None, cell[1]):
                groups.setdefault(template.id.split("+")[0], []).append(template)
        pools[cell] = list(groups.values())
    return shuffled(rng, [(pools[cell], *cell) for cell in wanted])


def pick(rng: Random, items: list):
    return items[int(rng.random() * len(items))]


def shuffled(rng: Random, items: list) -> list:
    keys = [rng.random() for _ in items]
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


class Writer:
    """Fills templates. Choices are remembered, so that one can be written again with one thing changed."""

    def __init__(self, grammar: Grammar, rng: Random, label: int, lure: int, spec: SetSpec):
        self.grammar, self.rng, self.label, self.lure, self.spec = grammar, rng, label, lure, spec
        self.choices = {}

    def write(self, template: Template, flipped: bool = False) -> tuple[str, str | None]:
        self.gold = 1 - self.label if flipped else self.label
        self.counts, self.used, self.bound = Counter(), set(), {}
        domains = self.grammar.unseen_domains if self.spec.unseen_domains else self.grammar.domains
        self.domain = domains[sorted(domains)[self.choose("domain", len(domains))]] if domains else {}
        text = template.edit if flipped and template.edit else template.text
        pair = template.text_pair
        return self.finish(self.fill(text)), pair and self.finish(self.fill(pair))

    def fill(self, text: str, side: str = "") -> str:
        if "[" in text:
            text = OPTION.sub(lambda match: self.option(match[1].split("|")), text)
        return SLOT.sub(lambda match: self.slot(*match.groups(), side), text) if "{" in text else text

    def option(self, options: list[str]) -> str:
        return options[self.choose("option", len(options))]

    def slot(self, sign: str, name: str | None, source: str, forms: str, side: str) -> str:
        """The text of one slot; a named entry stays the same for the whole row."""
        columns = self.bound.get(source)
        if columns is None:
            side = SIDES[{"+": self.gold, "-": 1 - self.gold, "~": self.lure}[sign]] if sign else side
            columns = self.draw(self.grammar.names.get(source, source), side)
            self.bound |= {name or source: columns} if name or source in self.grammar.names else {}
        text = columns[0]
        for form in forms.split(".")[1:]:
            if form.isdigit():
                text = columns[int(form) - 1]
            elif form == "they":
                either = "fm"[self.choose(f"{source}.they", 2, again=True)]
                text = {"f": "she", "m": "he"}[columns[1] if len(columns) > 1 else either]
            else:
                text = inflect(text, form, self.grammar.forms)
        return text

    def draw(self, category: str, side: str) -> list[str]:
        """An entry that this sentence has not used, with its own slots filled."""
        entries = self.grammar.entries(category, side, self.domain)
        if self.spec.unseen_words and category in self.grammar.unseen and self.choose(f"{category}?", 2):
            entries = self.grammar.unseen[category][side]
        start = self.choose(category, len(entries))
        for step in range(len(entries)):
            entry = entries[(start + step) % len(entries)]
            if entry.key not in self.used or "{" in entry.key:
                break
        self.used.add(entry.key)
        return [self.fill(column, side) for column in entry.columns]

    def choose(self, what: str, n: int, again: bool = False) -> int:
        if not again:
            self.counts[what] += 1
        key = (what, self.counts[what])
        if key not in self.choices:
            self.choices[key] = self.rng.random()
        return int(self.choices[key] * n)

    def finish(self, text: str) -> str:
        """Spaces, articles and capitals."""
        text = re.sub(r" +", " ", text).strip()
        text = re.sub(r" ([.,;:!?])", r"\1", text)
        text = re.sub(r"\b([Aa]) (?=([\w-]+))", lambda m: m[1] + ("n " if self.takes_an(m[2]) else " "), text)
        return re.sub(r"(^|[.!?] )([a-z])", lambda m: m[1] + m[2].upper(), text)

    def takes_an(self, word: str) -> bool:
        if word in self.grammar.forms["a_before"] or word in self.grammar.forms["an_before"]:
            return word in self.grammar.forms["an_before"]
        return word[0].lower() in "aeiou"
