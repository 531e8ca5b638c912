"""The grammar of the bundled data: templates and word lists, read from YAML.

A text holds options `[one|another|]` and slots `{[sign][name=]source[.column][.form]}`:

    {city}            an entry of the word list `city`
    {+adj} {-adj}     of the side of `adj` that agrees with the label, of the other side
    {~topic}          of the side of the shortcut
    {A=person} {A}    an entry of `person`, and the same one again; `names` of the file have their own list
    {V.2.past}        the second column of the entry, in the past tense (forms: see `inflect`)

Entries may hold slots themselves. A domain (film, meal, ...) adds word lists that are used together.
"""

import re
from dataclasses import dataclass
from functools import cache
from itertools import product

import yaml

from mtlib.paths import TESTBED_DIR

LABELS = {"sentiment": 2, "nli": 3, "paraphrase": 2}
SIDES = ("neg", "pos")  # of an opinion word, by label
SLOT = re.compile(r"\{([-+~]?)(?:(\w+)=)?(\w+)((?:\.\w+)*)\}")
WORD = r"[a-z0-9]+(?:['-][a-z0-9]+)*"  # of a text in lower case
OPTION = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Entry:
    """A word, or a row of words that belong together. Rows with one key are one, read from either end."""

    columns: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class Template:
    id: str
    labels: tuple[int, ...]
    lure: int | None  # None: the lure is carried by {~...} slots and may be any
    text: str
    text_pair: str | None = None
    edit: str | None = None  # the minimal edit with the other label; else the opinion words change sides


@dataclass(frozen=True)
class Grammar:
    task: str
    forms: dict
    shortcut: dict
    names: dict  # {A} stands for an entry of names["A"] and is the same one wherever it appears
    words: dict
    unseen: dict
    domains: dict
    unseen_domains: dict
    templates: dict[str, list[Template]]

    def entries(self, category: str, side: str, domain: dict) -> list[Entry]:
        entries = domain.get(category) or self.words[category]
        return entries[side] if isinstance(entries, dict) else entries

    def all_entries(self, category: str, side: str) -> list[Entry]:
        """Of an opinion category, wherever they stand."""
        sources = (self.words, self.unseen, *self.domains.values(), *self.unseen_domains.values())
        return [entry for source in sources for entry in source.get(category, {}).get(side, ())]

    def template(self, template_id: str) -> Template:
        return next(each for section in self.templates.values() for each in section if each.id == template_id)


@cache
def load_grammar(task: str) -> Grammar:
    """Read <task>.yaml, with the names.yaml and forms.yaml that all tasks share. Not to be changed."""
    raw, forms, shared = (_read_yaml(name) for name in (task, "forms", "names"))
    templates = {name: [_template(**entry) for entry in section] for name, section in raw["templates"].items()}
    templates["train"] += crossed(raw)
    return Grammar(
        task=task,
        forms=forms,
        shortcut=raw["shortcut"],
        names=raw.get("names", {}),
        words=parse_words(shared["words"] | raw["words"]),
        unseen=parse_words(raw.get("unseen", {})),
        domains={name: parse_words(domain) for name, domain in raw["domains"].items()},
        unseen_domains={name: parse_words(domain) for name, domain in raw.get("unseen_domains", {}).items()},
        templates=templates,
    )


def crossed(raw: dict) -> list[Template]:
    """Templates that a file gives as a table: premises x hypotheses, or questions x questions x pairings."""
    templates = []
    for state, premises in raw.get("premises", {}).items():
        for (premise, text), (claim, hypotheses) in product(premises.items(), raw["hypotheses"].items()):
            label = raw["rule"].get(state, {}).get(claim)
            for name, hypothesis in hypotheses.items():
                templates.append(
                    _template(
                        f"{premise}+{claim}-{name}",
                        label,
                        text=text,
                        text_pair=hypothesis["text"],
                        lure=hypothesis["lure"],
                    )
                )
    questions = raw.get("questions", {})
    for (name, pairing), kind, other in product(raw.get("pairings", {}).items(), questions, questions):
        label = int(kind == other and pairing["same"])
        text, pair = any_of(questions[kind], *pairing["text"]), any_of(questions[other], *pairing["text_pair"])
        templates.append(_template(f"{kind}+{other}-{name}", label, text=text, text_pair=pair, lure=pairing["lure"]))
    return templates


def _template(id: str, label: int | list[int], text: str, lure: int | None = None, **texts: str) -> Template:
    return Template(id, tuple(label) if isinstance(label, list) else (label,), lure, text, **texts)


def any_of(questions: list[str], action: str, situation: str = "") -> str:
    """One of the questions, asked about an action and in a situation: the names of the slots for them."""
    options = "|".join(question.replace("{E", "{" + action) for question in questions)
    return (f"{{{situation}}}, " if situation else "") + f"[{options}]"


def parse_words(words: dict) -> dict:
    """Entries by category; opinion categories have a list for each side."""
    return {
        category: {side: parse_entries(value[side]) for side in SIDES}
        if isinstance(value, dict)
        else parse_entries(value)
        for category, value in words.items()
    }


def parse_entries(value: str | list) -> list[Entry]:
    """From "a, b, c" or a list. "/" and "|" part columns; "x = y" may be read from either end."""
    entries = []
    for text in value.split(",") if isinstance(value, str) else value:
        columns = tuple(column.strip() for column in re.split(r"[/|=]", text))
        entries.append(Entry(columns, text.strip()))
        if "=" in text:
            entries.append(Entry((columns[1], columns[0], *columns[2:]), text.strip()))
    return entries


def _read_yaml(name: str) -> dict:
    text = (TESTBED_DIR / "grammar" / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def inflect(phrase: str, form: str, forms: dict) -> str:
    """`past`, `part`(iciple), `s`, `ing` of a verb phrase (first word); `pl`(ural) of a noun (last word)."""
    if form == "pl":
        head, _, noun = phrase.rpartition(" ")
        return f"{head} {forms['nouns'].get(noun) or add_s(noun)}".strip()
    verb, _, rest = phrase.partition(" ")
    doubles = re.fullmatch(r"(qu|[^aeiou])*[aeiou][^aeiouwxy]", verb) or verb in forms["doubling"]
    doubled = verb + verb[-1] if doubles else verb
    if form == "ing":
        verb = re.sub(r"ie$", "y", verb) if verb.endswith("ie") else re.sub(r"(?<=[^eoy])e$", "", doubled)
        verb += "ing"
    elif form == "s":
        verb = add_s(verb)
    elif verb in forms["verbs"]:
        verb = forms["verbs"][verb][0 if form == "past" else -1]
    else:
        verb = doubled + "d" if verb.endswith("e") else re.sub(r"(?<=[^aeiou])y$", "i", doubled) + "ed"
    return f"{verb} {rest}".strip()


def add_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) else "s")


def tokens(text: str) -> list[str]:
    return re.findall(WORD, text.lower())
