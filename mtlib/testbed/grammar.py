"""The grammar of the bundled data: templates and word lists, read from YAML and checked.

A text holds options `[one|another|]` and slots `{[sign][name=]source[.column][.form]}`:

    {city}            an entry of the word list `city`
    {+adj} {-adj}     of the side of `adj` that agrees with the label, of the other side
    {~topic}          of the side of the shortcut
    {A=person} {A}    an entry of `person`, and the same one again; `names` of the file have their own list
    {V.2.past}        the second column of the entry, in the past tense (forms: see FORMS)

Entries may hold slots themselves. A domain (film, meal, ...) adds word lists that are used together.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from mtlib.errors import UserError
from mtlib.paths import TESTBED_DIR

GRAMMAR_DIR = TESTBED_DIR / "grammar"
LABELS = {"sentiment": 2, "nli": 3, "paraphrase": 2}
SIDES = ("neg", "pos")  # of an opinion word, by label
FORMS = ("past", "part", "s", "ing", "pl", "they")
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


@dataclass
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
    lure_words: list[set] = field(default_factory=lambda: [set(), set()])  # per label

    def entries(self, category: str, side: str, domain: dict) -> list[Entry]:
        entries = domain.get(category) or self.words[category]
        return entries[side] if isinstance(entries, dict) else entries

    def all_domains(self) -> list[dict]:
        return [*self.domains.values(), *self.unseen_domains.values()]

    def sources(self) -> list[dict]:
        return [self.words, self.unseen, *self.all_domains()]

    def template(self, template_id: str) -> Template:
        templates = {template.id: template for section in self.templates.values() for template in section}
        if template_id not in templates:
            raise UserError(
                f"{template_id!r} is no template of {self.task}.yaml; expected one of {', '.join(templates)}."
            )
        return templates[template_id]


@cache
def load_grammar(task: str, grammar_dir: Path = GRAMMAR_DIR) -> Grammar:
    """Read and check <task>.yaml, with the names.yaml and forms.yaml that all tasks share. Not to be changed."""
    file = f"{task}.yaml"
    raw, shared = read_yaml(grammar_dir, file), read_yaml(grammar_dir, "names.yaml")
    unseen_domains = raw.get("unseen_domains", {})
    for key in ("shortcut", "words", "domains", "templates"):
        if not raw.get(key):
            raise UserError(f"{file} lacks {key!r}, expected a mapping of that name; add it")
    grammar = Grammar(
        task=task,
        forms=read_yaml(grammar_dir, "forms.yaml"),
        shortcut=raw["shortcut"],
        names=raw.get("names", {}),
        words=parse_words(shared["words"] | raw["words"], file),
        unseen=parse_words(raw.get("unseen", {}), file),
        domains={name: parse_words(domain, file) for name, domain in raw["domains"].items()},
        unseen_domains={name: parse_words(domain, file) for name, domain in unseen_domains.items()},
        templates={name: [parse_template(t, file) for t in section] for name, section in raw["templates"].items()},
    )
    grammar.templates["train"] += [parse_template(t, file) for t in crossed(raw)]
    for label, side in enumerate(SIDES):
        for category in grammar.shortcut.get("words", []):
            entries = [e for source in grammar.sources() if category in source for e in source[category][side]]
            grammar.lure_words[label] |= {tokens(entry.columns[0])[-1] for entry in entries}
    check_grammar(grammar, file)
    return grammar


def crossed(raw: dict) -> list[dict]:
    """Templates that a file gives as a table: premises x hypotheses, or questions x questions x pairings."""
    templates = []
    for state, premises in raw.get("premises", {}).items():
        for premise, text in premises.items():
            for claim, hypotheses in raw["hypotheses"].items():
                label = raw["rule"].get(state, {}).get(claim)
                for name, hypothesis in hypotheses.items():
                    pair = {"text": text, "text_pair": hypothesis["text"], "lure": hypothesis["lure"]}
                    templates.append({"id": f"{premise}+{claim}-{name}", "label": label} | pair)
    questions = raw.get("questions", {})
    for name, pairing in raw.get("pairings", {}).items():
        for kind, other in [(kind, other) for kind in questions for other in questions]:
            label = int(kind == other and pairing["same"])
            pair = {"text": any_of(questions[kind], *pairing["text"])}
            pair["text_pair"] = any_of(questions[other], *pairing["text_pair"])
            templates.append({"id": f"{kind}+{other}-{name}", "label": label, "lure": pairing["lure"]} | pair)
    return templates


def any_of(questions: list[str], action: str, situation: str = "") -> str:
    """One of the questions, asked about an action and in a situation: the names of the slots for them."""
    options = "|".join(question.replace("{E", "{" + action) for question in questions)
    return (f"{{{situation}}}, " if situation else "") + f"[{options}]"


def read_yaml(folder: Path, file: str) -> dict:
    path = Path(folder) / file
    if not path.is_file():
        raise UserError(f"{path} is missing, expected a grammar file there; restore it or give another grammar_dir")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if not isinstance(content, dict):
            raise yaml.YAMLError(f"found {type(content).__name__}")
        return content
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not valid YAML, expected a mapping of words and templates; mend it: {error}"
        ) from error


def parse_words(words: dict, file: str) -> dict:
    """Entries by category; opinion categories have a list for each side."""
    parsed = {}
    for category, value in words.items():
        if isinstance(value, dict):
            parsed[category] = {side: parse_entries(value.get(side), f"{category}.{side}", file) for side in SIDES}
        else:
            parsed[category] = parse_entries(value, category, file)
    return parsed


def parse_entries(value: str | list | None, category: str, file: str) -> list[Entry]:
    """From "a, b, c" or a list. "/" and "|" part columns; "x = y" may be read from either end."""
    texts = [text.strip() for text in (value.split(",") if isinstance(value, str) else value or [])]
    if not texts or not all(texts):
        raise UserError(
            f"{file}: the word list {category!r} is {value!r}, expected at least one word and no empty one; fill it"
        )
    entries = []
    for text in texts:
        columns = tuple(column.strip() for column in re.split(r"[/|=]", text))
        entries.append(Entry(columns, text))
        if "=" in text:
            entries.append(Entry((columns[1], columns[0], *columns[2:]), text))
    return entries


def parse_template(raw: dict, file: str) -> Template:
    name, label = raw.get("id"), raw.get("label")
    if not name or not raw.get("text"):
        raise UserError(f"{file}: template {raw!r} needs an id and a text; add them")
    labels = tuple(label) if isinstance(label, list) else (label,)
    allowed = range(LABELS[file.removesuffix(".yaml")])
    if not labels or any(label not in allowed for label in labels):
        raise UserError(
            f"{file}: template {name!r} has label {label!r}, expected one of {list(allowed)}; give it a label rule"
        )
    return Template(name, labels, raw.get("lure"), raw["text"], raw.get("text_pair"), raw.get("edit"))


def check_grammar(grammar: Grammar, file: str) -> None:
    for section, templates in grammar.templates.items():
        for name, count in Counter(template.id for template in templates).items():
            if count > 1:
                raise UserError(
                    f"{file}: template id {name!r} is used {count} times in {section!r}, expected once; rename one"
                )
        for template in templates:
            texts = [template.text, template.text_pair or "", template.edit or ""]
            check_slots(grammar, texts, f"template {template.id!r}", file)
    for source in grammar.sources():
        for category, entries in source.items():
            sided = isinstance(entries, dict)
            for entry in (entry for side in entries.values() for entry in side) if sided else entries:
                check_slots(grammar, list(entry.columns), f"word list {category!r}", file, sided)


def check_slots(grammar: Grammar, texts: list[str], where: str, file: str, inherits: bool = False) -> None:
    """`inherits`: the texts are words of one side, so that their slots need no sign."""
    slots = [slot for text in texts for slot in SLOT.findall(text)]
    named = {name for _, name, _, _ in slots}
    for sign, _, source, forms in slots:
        source = grammar.names.get(source, source)
        for form in forms.split(".")[1:]:
            if form not in FORMS and not form.isdigit():
                raise UserError(
                    f"{file}: {where} has the unknown form {form!r} in {{{source}{forms}}}, expected one of"
                    f" {', '.join(FORMS)} or the number of a column; mend it"
                )
        sided = any(isinstance(words.get(source), dict) for words in grammar.sources())
        if sided and not sign and not inherits:
            raise UserError(
                f"{file}: {where} has {{{source}}} without a sign, expected {{+{source}}} (the label's side),"
                f" {{-{source}}} (the other side) or {{~{source}}} (the shortcut's side); add one"
            )
        if source not in named and source not in grammar.words and not all(source in d for d in grammar.all_domains()):
            raise UserError(
                f"{file}: {where} has the unknown slot {{{source}}}, expected a word list of that name in"
                " `words` or in every domain; add it or mend the spelling"
            )
    rest = SLOT.sub("", " ".join(texts))
    if "{" in rest or "}" in rest:
        raise UserError(
            f"{file}: {where} has a brace that is no slot in {rest!r}, expected {{name}} or {{+name.form}}; mend it"
        )


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
