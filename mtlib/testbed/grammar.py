"""The grammar of the bundled data: templates and word lists, read from YAML.

A text holds options `[one|another|]` and slots `{[sign][name=]source[.column][.form]}`:

    {city}            an entry of the word list `city`
    {+adj} {-adj}     of the side of `adj` that agrees with the label, of the other side
    {~topic}          of the side of the shortcut
    {A=person} {A}    an entry of `person`, and the same one again; `names` in the file says which
                      list a name without a source takes its entry from
    {V.2.past}        the second column of the entry, in the past tense (see `inflect`)

Entries may hold slots themselves. A domain (film, meal, ...) adds word lists that are used
together.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from mtlib.data.yaml_files import load_yaml
from mtlib.paths import TESTBED_DIR

N_LABELS = {"sentiment": 2, "nli": 3, "paraphrase": 2}
SIDES = ("neg", "pos")  # of an opinion word, by label
SLOT = re.compile(r"\{([-+~]?)(?:(\w+)=)?(\w+)((?:\.\w+)*)\}")
WORD = r"[a-z0-9]+(?:['-][a-z0-9]+)*"  # of a text in lower case
OPTION = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Entry:
    """A word, or a row of words that belong together.

    Two entries with the same key are one row, read from either end.
    """

    columns: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class Template:
    id: str
    labels: tuple[int, ...]
    spurious_label: int | None  # None: the spurious label is carried by {~...} slots and may be any
    text: str
    text_pair: str | None = None
    edit: str | None = None  # the text with the other label; else the opinion words change sides


@dataclass(frozen=True)
class Grammar:
    task: str
    forms: dict
    shortcut: dict
    names: dict  # {A} stands for an entry of names["A"], the same one throughout a row
    words: dict
    unseen: dict
    domains: dict
    unseen_domains: dict
    templates: dict[str, list[Template]]

    def entries(self, category: str, side: str, domain: dict) -> list[Entry]:
        entries = domain.get(category) or self.words[category]
        return entries[side] if isinstance(entries, dict) else entries

    def all_entries(self, category: str, side: str) -> list[Entry]:
        """All entries of an opinion category that are on one side, in all word lists."""
        domains = [*self.domains.values(), *self.unseen_domains.values()]
        entries = []
        for words in (self.words, self.unseen, *domains):
            entries += words.get(category, {}).get(side, ())
        return entries

    def template(self, template_id: str) -> Template:
        for section in self.templates.values():
            for template in section:
                if template.id == template_id:
                    return template
        raise LookupError(f"{self.task}.yaml has no template {template_id!r}")


@cache
def load_grammar(task: str) -> Grammar:
    """Read <task>.yaml, and the names.yaml and forms.yaml that all tasks share.

    The result is cached: do not change it.
    """
    raw = _read_yaml(task)
    shared = _read_yaml("names")
    templates = {}
    for name, section in raw["templates"].items():
        templates[name] = [_template(**entry) for entry in section]
    templates["train"] += [*crossed_premises(raw), *crossed_questions(raw)]
    return Grammar(
        task=task,
        forms=_read_yaml("forms"),
        shortcut=raw["shortcut"],
        names=raw.get("names", {}),
        words=parse_words(shared["words"] | raw["words"]),
        unseen=parse_words(raw.get("unseen", {})),
        domains=parse_domains(raw["domains"]),
        unseen_domains=parse_domains(raw.get("unseen_domains", {})),
        templates=templates,
    )


def crossed_premises(raw: dict) -> Iterator[Template]:
    """Templates that a file gives as a table: premises x hypotheses."""
    for state, premises in raw.get("premises", {}).items():
        for premise, text in premises.items():
            for claim, hypotheses in raw["hypotheses"].items():
                label = raw["rule"].get(state, {}).get(claim)
                for name, hypothesis in hypotheses.items():
                    template_id = f"{premise}+{claim}-{name}"
                    text_pair = hypothesis["text"]
                    spurious_label = hypothesis["spurious_label"]
                    yield _template(template_id, label, text, spurious_label, text_pair=text_pair)


def crossed_questions(raw: dict) -> Iterator[Template]:
    """Templates that a file gives as a table: questions x questions x pairings."""
    questions = raw.get("questions", {})
    for name, pairing in raw.get("pairings", {}).items():
        for first, second in product(questions, questions):
            label = int(first == second and pairing["same"])
            text = any_of(questions[first], *pairing["text"])
            text_pair = any_of(questions[second], *pairing["text_pair"])
            template_id = f"{first}+{second}-{name}"
            spurious_label = pairing["spurious_label"]
            yield _template(template_id, label, text, spurious_label, text_pair=text_pair)


def _template(
    id: str,
    label: int | list[int],
    text: str,
    spurious_label: int | None = None,
    **texts: str,
) -> Template:
    labels = tuple(label) if isinstance(label, list) else (label,)
    return Template(id, labels, spurious_label, text, **texts)


def any_of(questions: list[str], action: str, situation: str = "") -> str:
    """One of the questions, asked about an action and in a situation.

    Both are names of slots: "{E" of a question becomes "{" + action.
    """
    options = "|".join(question.replace("{E", "{" + action) for question in questions)
    question = f"[{options}]"
    return f"{{{situation}}}, {question}" if situation else question


def parse_domains(domains: dict) -> dict:
    return {name: parse_words(words) for name, words in domains.items()}


def parse_words(words: dict) -> dict:
    """Entries by category; opinion categories have a list for each side."""
    parsed = {}
    for category, value in words.items():
        if isinstance(value, dict):
            parsed[category] = {side: parse_entries(value[side]) for side in SIDES}
        else:
            parsed[category] = parse_entries(value)
    return parsed


def parse_entries(value: str | list) -> list[Entry]:
    """From "a, b, c" or a list. "/" and "|" separate columns; "x = y" is read from either end."""
    texts = value.split(",") if isinstance(value, str) else value
    entries = []
    for text in texts:
        key = text.strip()
        columns = [column.strip() for column in re.split(r"[/|=]", text)]
        entries.append(Entry(tuple(columns), key))
        if "=" in text:
            first, second, *rest = columns
            entries.append(Entry((second, first, *rest), key))
    return entries


def _read_yaml(name: str) -> dict:
    text = (TESTBED_DIR / "grammar" / f"{name}.yaml").read_text(encoding="utf-8")
    return load_yaml(text)


def inflect(phrase: str, form: str, forms: dict) -> str:
    """A form of a phrase.

    "pl" is the plural of a noun phrase, whose last word is inflected. "s", "ing", "past" and "part"
    (past participle) are forms of a verb phrase, whose first word is inflected.
    """
    if form == "pl":
        rest, _, noun = phrase.rpartition(" ")
        plural = forms["nouns"].get(noun) or add_s(noun)
        return f"{rest} {plural}".strip()
    verb, _, rest = phrase.partition(" ")
    return f"{inflect_verb(verb, form, forms)} {rest}".strip()


def inflect_verb(verb: str, form: str, forms: dict) -> str:
    if form == "s":
        return add_s(verb)
    if form == "ing":
        return add_ing(verb, forms)
    irregular = forms["verbs"].get(verb)
    if irregular is None:
        return add_ed(verb, forms)
    return irregular[0] if form == "past" else irregular[-1]


def add_ing(verb: str, forms: dict) -> str:
    if verb.endswith("ie"):
        return verb.removesuffix("ie") + "ying"
    return re.sub(r"(?<=[^eoy])e$", "", doubled(verb, forms)) + "ing"


def add_ed(verb: str, forms: dict) -> str:
    if verb.endswith("e"):
        return verb + "d"
    return re.sub(r"(?<=[^aeiou])y$", "i", doubled(verb, forms)) + "ed"


def doubled(verb: str, forms: dict) -> str:
    """The verb as it is before "-ed" and "-ing": with its last letter twice, where that doubles."""
    has_one_short_vowel = re.fullmatch(r"(qu|[^aeiou])*[aeiou][^aeiouwxy]", verb)
    if has_one_short_vowel or verb in forms["doubling"]:
        return verb + verb[-1]
    return verb


def add_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    if re.search(r"(s|x|z|ch|sh)$", word):
        return word + "es"
    return word + "s"


def tokens(text: str) -> list[str]:
    return re.findall(WORD, text.lower())
