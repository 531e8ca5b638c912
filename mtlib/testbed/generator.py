"""The bundled data: sentences from a grammar, with a shortcut of known strength planted in them.

The label of a row follows from its template. Its *spurious label* is the label that the shortcut
suggests; `shortcut_label` reads it off the finished text:

    sentiment    the side of the topics and makers that are named (genres, cooks, designers, ...)
    nli          a negation word in the hypothesis: 2; else many shared words: 0; else 1
    paraphrase   many shared words: 1; else 0

The `strength` s of the shortcut changes only the training and dev sets. The out-of-distribution
sets are the same at every strength. Of the rows of each label, the spurious label agrees with the
label in a share s and disagrees in a share s (1 - s). In the remaining (1 - s)^2 it is spread
evenly over the k labels, so that it agrees in s + (1 - s)^2 / k of all rows. At s = 0 the shortcut
is independent of the label: every spurious label is equally frequent with every label. At s = 1 it
is always right.
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
from mtlib.testbed.grammar import (
    N_LABELS,
    OPTION,
    SIDES,
    SLOT,
    Entry,
    Grammar,
    Template,
    inflect,
    load_grammar,
    tokens,
)

TRIES = 5000  # attempts to write a new row that fits, before the grammar counts as exhausted


@dataclass(frozen=True)
class SetSpec:
    """One set: which templates it uses, and how often the spurious label agrees with the label.

    `agree` is the share of rows whose spurious label agrees with the label. None means that it
    follows from the strength; "template" means that every template has its own spurious label and
    gets as many rows as any other.
    """

    task: str
    size: int
    sections: tuple = ("train",)
    agree: float | str | None = None
    unseen_domains: bool = False
    unseen_words: bool = False
    edited: bool = False  # each row is followed by its minimal edit, which has the other label


# The out-of-distribution sets come first and take their sentences first, whatever the strength.
SPECS: dict[str, SetSpec] = {
    "testbed_contrast": SetSpec("sentiment", 500, agree=0.9, edited=True),
    "testbed_counterfactual": SetSpec(
        "sentiment",
        500,
        ("train", "counterfactual"),
        agree=0.1,
        unseen_words=True,
    ),
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
    strength: float = 0.9,
    seed: int = 0,
    tasks: Iterable[str] = tuple(N_LABELS),
    train_rows: int | None = None,
) -> dict[str, list[dict]]:
    """All sets of the tasks by name: rows of text, (text_pair,) label, uid and group.

    The same arguments give the same rows on every platform.

    Args:
        strength: of the shortcut, from 0 (independent of the label) to 1 (always right).
        seed: of the random choices.
        tasks: names of the tasks whose sets are wanted.
        train_rows: size of every training set; by default that of the bundled files. The other
            sets do not depend on it.
    """
    check("strength", float(strength), Share)
    check("train_rows", train_rows, Count | None)
    grammars = {task: load_grammar(task) for task in tasks}
    sets = {}
    owner = {}
    for name, spec in SPECS.items():
        if spec.task not in grammars:
            continue
        if train_rows is not None and name.endswith("_train"):
            spec = replace(spec, size=train_rows)
        sets[name] = make_set(name, spec, grammars[spec.task], strength, seed, owner)
    return sets


def write(
    out_dir: str | Path,
    strength: float = 0.9,
    seed: int = 0,
    train_rows: int | None = None,
) -> None:
    """Write every set to `out_dir` as <set>.jsonl, with the settings beside them.

    The folder can then be given as the source of a run.
    """
    sets = generate(strength, seed, train_rows=train_rows)
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    settings_file = out_dir / SETTINGS_FILE
    settings = {"strength": strength, "seed": seed}
    if train_rows is not None:
        settings["train_rows"] = train_rows
    settings["sha256"] = {}
    for name, rows in sets.items():
        content = json_lines(rows).encode("utf-8")
        (out_dir / f"{name}.jsonl").write_bytes(content)
        settings["sha256"][f"{name}.jsonl"] = hashlib.sha256(content).hexdigest()
    # written last, so that a folder with settings has all its sets complete
    settings_file.write_bytes((json.dumps(settings, indent=1) + "\n").encode())


def json_lines(rows: list[dict]) -> str:
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def shortcut_label(grammar: Grammar, text: str, text_pair: str | None = None) -> int:
    """The label that the shortcut suggests, read off the text."""
    words = set(tokens(text))
    pair_words = set(tokens(text_pair or ""))
    if grammar.task == "sentiment":
        negative, positive = (len(words & lure_words(grammar.task, label)) for label in (0, 1))
        return int(positive > negative)
    shared = len(words & pair_words)
    if grammar.task == "paraphrase":
        return int(shared / len(words | pair_words) >= grammar.shortcut["overlap"])
    if pair_words & set(grammar.shortcut["negation"]):
        return 2
    return 0 if shared / len(pair_words) >= grammar.shortcut["overlap"] else 1


@cache
def lure_words(task: str, label: int) -> frozenset[str]:
    """The last word of every topic and maker that suggests the label."""
    grammar = load_grammar(task)
    words = set()
    for category in grammar.shortcut["words"]:
        for entry in grammar.all_entries(category, SIDES[label]):
            words.add(tokens(entry.columns[0])[-1])
    return frozenset(words)


def agreement(strength: float, n_labels: int) -> float:
    """Share of train and dev rows whose spurious label agrees with the label: s + (1 - s)^2 / k."""
    return strength + (1 - strength) ** 2 / n_labels


@dataclass(frozen=True)
class PlannedRow:
    """What is decided of a row before it is written: both labels, and possible templates.

    `pool` holds groups of templates. A group is drawn first and then one of its templates, so that
    a construction with many variants is no more frequent than another.
    """

    pool: list[list[Template]]
    label: int
    spurious_label: int


@dataclass(frozen=True)
class Draft:
    """A written row: its template, and its texts; in an edited set the edit is a second version."""

    template: Template
    versions: list[tuple[str, str | None]]

    @property
    def sentences(self) -> list[str]:
        return [sentence for texts in self.versions for sentence in texts if sentence]

    @property
    def keys(self) -> set[frozenset]:
        """What makes a row new: its texts, in whatever order."""
        return {frozenset(texts) for texts in self.versions}


def make_set(
    name: str,
    spec: SetSpec,
    grammar: Grammar,
    strength: float,
    seed: int,
    owner: dict,
) -> list[dict]:
    """The rows of one set. No sentence is in two sets: `owner` maps each to the set that has it."""
    # a str seed is hashed by sha512 and only random() is used, so that all platforms agree
    rng = Random(f"{seed}/{name}")
    rows = []
    seen = set()
    for number, planned in enumerate(plan_rows(spec, grammar, strength, rng)):
        draft = new_draft(name, spec, grammar, rng, planned, seen, owner)
        owner.update(dict.fromkeys(draft.sentences, name))
        seen |= draft.keys
        rows += finished_rows(name, spec, draft, planned.label, number, first=len(rows))
    return rows


def new_draft(
    name: str,
    spec: SetSpec,
    grammar: Grammar,
    rng: Random,
    planned: PlannedRow,
    seen: set[frozenset],
    owner: dict[str, str],
) -> Draft:
    """The first draft that repeats neither a row of this set nor a sentence of another."""
    for draft in drafts(spec, grammar, rng, planned):
        is_free = all(owner.get(sentence, name) == name for sentence in draft.sentences)
        if is_free and not seen & draft.keys:
            return draft
    raise UserError(
        f"{grammar.task}.yaml has too few sentences for {name}: no new one with label "
        f"{planned.label} and shortcut label {planned.spurious_label} in {TRIES} tries; give a "
        "smaller train_rows, or add words or templates to it"
    )


def drafts(spec: SetSpec, grammar: Grammar, rng: Random, planned: PlannedRow) -> Iterator[Draft]:
    """The drafts, out of `TRIES` attempts, whose texts have the spurious label that was planned."""
    for _ in range(TRIES):
        template = pick(rng, pick(rng, planned.pool))
        writer = Writer(grammar, rng, planned.label, planned.spurious_label, spec)
        versions = [writer.write(template)]
        if spec.edited:
            versions.append(writer.write(template, flipped=True))
        if all(fits(grammar, texts, planned.spurious_label) for texts in versions):
            yield Draft(template, versions)


def fits(grammar: Grammar, texts: tuple[str, str | None], spurious_label: int) -> bool:
    """Whether the shortcut suggests this label, and a pair does not hold the same text twice."""
    text, text_pair = texts
    return shortcut_label(grammar, text, text_pair) == spurious_label and text != text_pair


def finished_rows(
    name: str,
    spec: SetSpec,
    draft: Draft,
    label: int,
    number: int,
    first: int,
) -> Iterator[dict]:
    """The rows of a draft as they are stored; `first` is the number of the first of them."""
    short_name = name.removeprefix("testbed_")
    labels = (label, 1 - label)  # of the text as written, and of its edit
    for version, (text, text_pair) in enumerate(draft.versions):
        row = {"text": text}
        if text_pair:
            row["text_pair"] = text_pair
        row["label"] = labels[version]
        if name == "testbed_overlap":
            row["label"] = min(label, 1)  # two labels: 0 entailment, 1 non-entailment
        row["uid"] = f"{short_name}-{first + version:05d}"
        row["group"] = draft.template.id
        if spec.edited or spec.unseen_words:
            # a set of unseen words stands for rewritten texts whose originals are not part of it
            is_original = spec.edited and version == 0
            half = "original" if is_original else "edited"
            row["group"] = f"{short_name}-{number:04d}:{half}"
        yield row


def plan_rows(
    spec: SetSpec,
    grammar: Grammar,
    strength: float,
    rng: Random,
) -> list[PlannedRow]:
    """The plan of every row, in random order. How many rows are of a kind is exact, not drawn."""
    templates = [template for section in spec.sections for template in grammar.templates[section]]
    if spec.agree == "template":
        return shuffled(rng, one_spurious_label_a_template(spec.size, templates))
    k = N_LABELS[spec.task]
    agree = agreement(strength, k) if spec.agree is None else spec.agree
    wanted = labels_and_spurious_labels(spec.size, k, agree)
    pools = {both: template_pool(spec, templates, *both) for both in set(wanted)}
    planned = [PlannedRow(pools[both], *both) for both in wanted]
    return shuffled(rng, planned)


def one_spurious_label_a_template(size: int, templates: list[Template]) -> list[PlannedRow]:
    """`size` rows, spread evenly over templates that each have a spurious label of their own."""
    share = size / len(templates)
    planned = []
    for i, template in enumerate(templates):
        count = round((i + 1) * share) - round(i * share)
        planned += count * [PlannedRow([[template]], template.labels[0], template.spurious_label)]
    return planned


def labels_and_spurious_labels(size: int, k: int, agree: float) -> list[tuple[int, int]]:
    """(label, spurious label) of `size` rows, in a share `agree` of each label the same."""
    wanted = []
    for label in range(k):
        n = (size + label) // k
        n_agree = round(n * agree)
        others = [other for other in range(k) if other != label]
        wanted += n_agree * [(label, label)]
        wanted += [(label, others[i % (k - 1)]) for i in range(n - n_agree)]
    return wanted


def template_pool(
    spec: SetSpec,
    templates: list[Template],
    label: int,
    spurious_label: int,
) -> list[list[Template]]:
    """The templates that can have this label and spurious label, grouped by their construction."""
    needed_labels = {0, 1} if spec.edited else {label}
    by_construction = {}
    for template in templates:
        fits_spurious_label = template.spurious_label in (None, spurious_label)
        if needed_labels <= set(template.labels) and fits_spurious_label:
            construction = template.id.split("+")[0]
            by_construction.setdefault(construction, []).append(template)
    return list(by_construction.values())


def pick(rng: Random, items: list):
    return items[int(rng.random() * len(items))]


def shuffled(rng: Random, items: list) -> list:
    keys = [rng.random() for _ in items]
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


class Writer:
    """Writes texts from templates.

    Random choices are remembered, so that a text can be written again with one thing changed.
    """

    def __init__(
        self,
        grammar: Grammar,
        rng: Random,
        label: int,
        spurious_label: int,
        spec: SetSpec,
    ):
        self.grammar = grammar
        self.rng = rng
        self.label = label
        self.spurious_label = spurious_label
        self.spec = spec
        self.choices = {}

    def write(self, template: Template, flipped: bool = False) -> tuple[str, str | None]:
        """Text and text pair of a template; `flipped` writes the edit with the other label."""
        self.gold = 1 - self.label if flipped else self.label
        self.counts = Counter()
        self.used = set()
        self.bound = {}
        self.domain = self.choose_domain()
        text = template.edit if flipped and template.edit else template.text
        text = self.finish(self.fill(text))
        if template.text_pair is None:
            return text, None
        return text, self.finish(self.fill(template.text_pair))

    def choose_domain(self) -> dict:
        domains = self.grammar.domains
        if self.spec.unseen_domains:
            domains = self.grammar.unseen_domains
        if not domains:
            return {}
        names = sorted(domains)
        return domains[names[self.choose("domain", len(names))]]

    def fill(self, text: str, side: str = "") -> str:
        """The text with its options chosen and its slots filled."""
        text = OPTION.sub(lambda match: self.option(match[1].split("|")), text)
        return SLOT.sub(lambda match: self.slot(*match.groups(), side), text)

    def option(self, options: list[str]) -> str:
        return options[self.choose("option", len(options))]

    def slot(self, sign: str, name: str | None, source: str, forms: str, side: str) -> str:
        """The text of one slot; a named entry stays the same for the whole row."""
        columns = self.bound.get(source)
        if columns is None:
            columns = self.draw(self.grammar.names.get(source, source), self.side(sign) or side)
            if name or source in self.grammar.names:
                self.bound[name or source] = columns
        text = columns[0]
        for form in forms.split(".")[1:]:
            if form.isdigit():
                text = columns[int(form) - 1]
            elif form == "they":
                text = self.pronoun(source, columns)
            else:
                text = inflect(text, form, self.grammar.forms)
        return text

    def side(self, sign: str) -> str:
        """The side of an opinion word that a slot's sign asks for; "" for a slot without one."""
        if not sign:
            return ""
        label = {"+": self.gold, "-": 1 - self.gold, "~": self.spurious_label}[sign]
        return SIDES[label]

    def pronoun(self, source: str, columns: list[str]) -> str:
        """The pronoun of an entry; where the entry leaves it open, a random one that is kept."""
        either = "fm"[self.choose(f"{source}.they", 2, again=True)]
        gender = columns[1] if len(columns) > 1 else either
        return {"f": "she", "m": "he"}[gender]

    def draw(self, category: str, side: str) -> list[str]:
        """An entry that this sentence has not used, with its own slots filled."""
        entry = self.unused(category, self.entries(category, side))
        self.used.add(entry.key)
        return [self.fill(column, side) for column in entry.columns]

    def entries(self, category: str, side: str) -> list[Entry]:
        entries = self.grammar.entries(category, side, self.domain)
        may_be_unseen = self.spec.unseen_words and category in self.grammar.unseen
        if may_be_unseen and self.choose(f"{category}?", 2):
            return self.grammar.unseen[category][side]
        return entries

    def unused(self, category: str, entries: list[Entry]) -> Entry:
        """The first entry from a random one on that is not used; the last where all are."""
        start = self.choose(category, len(entries))
        rotated = entries[start:] + entries[:start]
        for entry in rotated:
            # one with slots reads differently each time
            if entry.key not in self.used or "{" in entry.key:
                return entry
        return rotated[-1]

    def choose(self, what: str, n: int, again: bool = False) -> int:
        """A number below `n`. `again` repeats the last choice of this kind."""
        if not again:
            self.counts[what] += 1
        key = (what, self.counts[what])
        if key not in self.choices:
            self.choices[key] = self.rng.random()
        return int(self.choices[key] * n)

    def finish(self, text: str) -> str:
        """Put spaces, articles and capitals right."""
        text = re.sub(r" +", " ", text).strip()
        text = re.sub(r" ([.,;:!?])", r"\1", text)
        text = re.sub(r"\b([Aa]) (?=([\w-]+))", self.article, text)
        return re.sub(r"(^|[.!?] )([a-z])", lambda match: match[1] + match[2].upper(), text)

    def article(self, match: re.Match) -> str:
        article, next_word = match.groups()
        return f"{article}n " if self.takes_an(next_word) else f"{article} "

    def takes_an(self, word: str) -> bool:
        if word in self.grammar.forms["an_before"]:
            return True
        if word in self.grammar.forms["a_before"]:
            return False
        return word[0].lower() in "aeiou"
