"""What a trained classifier follows: exchange a word for one of another label, and ask again.

Where a word and the rest of the text agree, hiding the word changes no answer, whichever of the
two the model reads. So each suspect word is exchanged for suspects of another label that stand in
similar contexts. A model that reads the word then answers with the other label. As a control the
word is exchanged for suspects of its own label, after which nothing should change.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from inspect import signature
from pathlib import Path

import numpy as np
import pandas
import torch
from datasets import Dataset
from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mtlib.checkpoints import load_config, load_model, load_pretrained
from mtlib.contexts import evaluating
from mtlib.encoding import DEFAULT_LENGTH, Collator
from mtlib.errors import UserError
from mtlib.own_data.suspects import suspects, texts_and_labels
from mtlib.plm import SharedPLM
from mtlib.rows.folding import Finder, Found, fold, phrases_of, words_of
from mtlib.rows.forms import NOT_HIDDEN, kind_of
from mtlib.tokens import text_reader

Texts = tuple[str, ...]  # of a row: its text, or a pair of texts
_MOST_PARTNERS = 3
_LEAST_SIMILAR = 0.5  # of the similarity of the nearest partner
_SAMPLE = 500  # texts with a suspect in which contexts are counted, and some of which are rows
_BACKGROUND = 5000  # texts among which words that predict nothing are looked for
_NEUTRAL_WORDS = 200
_LEAST_ROWS = 5  # of the background that hold a word that predicts nothing
_NEAR = 60  # characters on either side of a word in which its neighbours are looked for
_IN_CASE = ("word", "phrase")  # kinds that are written in the case of what they replace
_EITHER = "either"  # where a given word is exchanged that predicts nothing
_IN_COLUMNS = {"text": (0,), "text_pair": (1,), "both": (0, 1), _EITHER: (0, 1)}
_NUMBERED = "LABEL_"  # how transformers names classes that nobody has named
COLUMNS = [
    "suspect",
    "kind",
    "where",
    "label",
    "marked",
    "rows",
    "partners",
    "follows",
    "control",
    "leans",
    "low",
    "high",
    "change",
    "before",
    "after",
]


def leans(
    model: str | Path | SharedPLM,
    rows: Dataset | pandas.DataFrame | Iterable[pandas.DataFrame],
    words: str | Iterable[str] | pandas.DataFrame | None = None,
    *,
    partners: pandas.DataFrame | None = None,
    n_rows: int = 40,
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> pandas.DataFrame:
    """How often a classifier's answer follows each suspect word, most followed first.

        data = read_table("reviews.csv", text="review", label="opinion")
        print(leans("model", data))

    It tells whether the model follows a word, never whether it should: to exchange *no* for *a*
    may change what is true.

    Args:
        model: a folder or hub id that transformers reads as a sequence classifier, or a
            `SharedPLM`, which is moved to the GPU if there is one, and whose tokenizer gets a
            padding token if it has none.
        rows: `text` (and `text_pair`), and `label` or `labels`, as for `suspects`. Labels are
            needed only where `words` and `partners` do not bring them. Memory does not grow with
            the number of rows.
        words: what to ask about. None: all of `partners`. Words and phrases, which count as marked
            as misleading; or a table with a column `word`, in which a column `mask` may mark some
            of them (else all are marked). A table of `suspects` also brings their labels.
        partners: a table of `suspects` that words are exchanged for, for example of the training
            rows where `rows` are others. None: the suspects of `rows`.
        n_rows: rows of each word, chosen by a hash of their texts, so that copies count once. Only
            rows in which the model reads the word are taken: it is not cut off, nor [UNK].
        labels: the names of the model's classes by number, where its configuration lacks them.
        max_length: texts are cut to so many tokens; by default to 128, or to more where the model
            was trained on longer ones by this package.
        batch_size: texts that go through the model together.
        seed: chooses other rows.
        report: called with a sentence on what was left out, or exchanged in another way.

    Returns:
        A table with a line for each word: `suspect`, `kind`, `where` (in pairs alone; "either" for
        a given word that predicts nothing), the `label` that it predicts ("": none), `marked`, the
        number of `rows`, and its `partners`, at most three: suspects of the same kind and of
        another label in the most similar contexts. Then in per cent of these rows: `follows`, the
        answer becomes the partner's label; `control`, the answer changes when the word is exchanged
        for suspects of its own label (0 where there are none); `leans`, the difference, with its
        95 % interval over rows, `low` to `high` (Newcombe's for paired shares); `change`, the mean
        change of the probability of the answer, in points. `before` and `after` are the texts of
        one row, one that follows where there is one.

        Words that are marked and followed (`low` above 0) stand first, then all others, the most
        followed first. A word without a partner of another label is exchanged for words that
        predict nothing; `follows` is then the share of answers that change, and `report` says so.

    Raises:
        UserError: no such model, or one without a trained classifier; labels that are not those of
            the model; no column of texts; none of the words stands in a text.
    """
    classifier = _Classifier.of(model, labels, max_length, batch_size)
    pool = _pool(rows, words, partners)
    numbers = _class_numbers({label for suspect in pool for label in suspect.labels}, classifier)
    asked = [suspect for suspect in pool if suspect.asked]
    has_rivals = all(_rivals(suspect, pool) for suspect in asked)
    samples = _Samples(pool, max(_SAMPLE, 2 * n_rows), seed, with_background=not has_rivals)
    samples.collect(rows)
    chooser = _Chooser(pool, samples)
    console = Console(stderr=True)
    bar = {"console": console, "transient": True, "disable": not console.is_terminal}
    lines = []
    for suspect in track(asked, "exchanging words", **bar):
        exchange = chooser.exchange(suspect)
        if rows_read := _read_rows(suspect, exchange, classifier, n_rows):
            lines.append(_line(suspect, exchange, rows_read, classifier, numbers))
    _report_exceptions(asked, lines, pool, report)
    table = pandas.DataFrame(lines, columns=COLUMNS)
    if samples.n_texts < 2:
        table = table.drop(columns="where")
    return _sorted(table)


def paired_interval(
    first: np.ndarray, second: np.ndarray, level: float = 0.95
) -> tuple[float, float]:
    """The interval of a difference of two shares of the same rows, as shares.

    Newcombe's (1998, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", method 10): Wilson's intervals of both shares, joined by
    their correlation. Unlike Student's it has a width where all rows are alike.

    Args:
        first, second: for each row whether it counts, bool `(n,)`.
        level: of confidence.
    """
    n = len(first)
    p, q = first.mean(), second.mean()
    p_low, p_high = _wilson(first, level)
    q_low, q_high = _wilson(second, level)
    both = int((first & second).sum())
    neither = int((~first & ~second).sum())
    product = both * neither - int((first & ~second).sum()) * int((~first & second).sum())
    if product > 0:
        product = max(product - n / 2, 0)
    spread = math.sqrt(p * (1 - p) * q * (1 - q)) * n * n
    phi = product / spread if spread else 0.0
    below = _joined(p - p_low, q_high - q, phi)
    above = _joined(p_high - p, q - q_low, phi)
    return float(p - q - below), float(p - q + above)


def _wilson(values: np.ndarray, level: float) -> tuple[float, float]:
    interval = binomtest(int(values.sum()), len(values)).proportion_ci(level, method="wilson")
    return interval.low, interval.high


def _joined(first: float, second: float, phi: float) -> float:
    return math.sqrt(max(0.0, first**2 - 2 * phi * first * second + second**2))


# --- the classifier ---


@dataclass
class _Classifier:
    """Class probabilities of texts, by any model of transformers.

    Args:
        model: a `*ForSequenceClassification`.
        tokenizer: the model's.
        labels: the names of its classes.
        length: texts are cut to so many tokens.
        batch_size: texts that are read together.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: list[str]
    length: int
    batch_size: int

    @classmethod
    def of(
        cls,
        model: str | Path | SharedPLM,
        labels: Sequence[str] | None,
        max_length: int | None,
        batch_size: int,
    ) -> "_Classifier":
        if isinstance(model, SharedPLM):
            network, tokenizer = model.classifier, model.tokenizer
        else:
            name = str(model)
            tokenizer = load_pretrained(AutoTokenizer, name)
            config = load_config(name, {}, {})
            network = load_model(AutoModelForSequenceClassification, name, config, {})
        if torch.cuda.is_available():
            network.to("cuda")
        if tokenizer.pad_token is None:  # GPT-2's
            tokenizer.pad_token = tokenizer.eos_token
            network.config.pad_token_id = tokenizer.pad_token_id
        names = [network.config.id2label[number] for number in range(network.config.num_labels)]
        if labels is not None:
            _check_number(labels, names)
            names = list(labels)
        length = max_length or max(DEFAULT_LENGTH, getattr(network.config, "trained_length", 0))
        length = min(length, tokenizer.model_max_length)
        return cls(network, tokenizer, names, length, batch_size)

    def __post_init__(self):
        self.reader = text_reader(self.tokenizer)
        self.collate = Collator(self.tokenizer)
        self.inputs = signature(self.model.forward).parameters.keys()

    def encode(self, texts: Sequence[Texts]) -> list[dict]:
        """The model's inputs of each row."""
        columns = [list(column) for column in zip(*texts, strict=True)]
        encoded = self.reader(*columns, truncation=True, max_length=self.length)
        return [
            {name: values[row] for name, values in encoded.items()} for row in range(len(texts))
        ]

    @torch.inference_mode()
    def probabilities(self, examples: Sequence[dict]) -> np.ndarray:
        """`(n, num_labels)`; texts of similar lengths are read together."""
        order = np.argsort([len(example["input_ids"]) for example in examples], kind="stable")
        probabilities = np.empty((len(examples), len(self.labels)))
        with evaluating(self.model):
            for first in range(0, len(order), self.batch_size):
                numbers = order[first : first + self.batch_size]
                batch = self.collate([examples[number] for number in numbers])
                inputs = {
                    name: values.to(self.model.device)
                    for name, values in batch.items()
                    if name in self.inputs
                }
                logits = self.model(**inputs, return_dict=True).logits  # (batch, num_labels)
                probabilities[numbers] = logits.float().softmax(-1).cpu().numpy()
        return probabilities


def _check_number(labels: Sequence[str], names: Sequence[str]) -> None:
    if len(labels) != len(names):
        raise UserError(
            f"labels is {', '.join(labels)}; expected {len(names)} names, one for each class of "
            f"the model ({', '.join(names)})."
        )


def _class_numbers(labels: Iterable[str], classifier: _Classifier) -> dict[str, int]:
    """The number of the model's class for each label of the rows.

    Names may differ in case. The numbers 0, 1, 2 are those of classes without names.
    """
    by_name = {fold(name): number for number, name in enumerate(classifier.labels)}
    if all(name.startswith(_NUMBERED) for name in classifier.labels):
        by_name |= {str(number): number for number in range(len(classifier.labels))}
    unknown = sorted(label for label in labels if fold(label) not in by_name)
    if unknown:
        raise UserError(
            f"the rows have the label {unknown[0]!r}, and the model's are "
            f"{', '.join(classifier.labels)}; give the names of its classes as `labels` "
            "(`--labels`), in the order of their numbers."
        )
    return {label: by_name[fold(label)] for label in labels}


# --- suspects and their partners ---


@dataclass(frozen=True)
class _Suspect:
    """A word that is exchanged, or that others are exchanged for.

    Args:
        word: as it is shown.
        kind: words are exchanged for others of their kind.
        where: the texts of a pair in which it is exchanged; "either": wherever it stands.
        labels: those that it predicts, the surest first; none for a word that predicts nothing.
        asked: whether it gets a line.
        marked: as misleading, by a person.
    """

    word: str
    kind: str = "word"
    where: str = "text"
    labels: tuple[str, ...] = ()
    asked: bool = False
    marked: bool = False

    @property
    def folded(self) -> str:
        return _folded(self.word)

    @property
    def label(self) -> str:
        return self.labels[0] if self.labels else ""

    @property
    def is_class(self) -> bool:
        """Whether it stands for all of a kind, as `<price>` does, and so for no text."""
        return self.word.startswith("<") and self.word.endswith(">")

    def places(self, text: str, finder: Finder) -> Iterator[Found]:
        """Where it stands.

        `finder` finds it and other words, and of words that overlap the longest alone.
        """
        if self.kind not in _IN_CASE:  # forms overlap, so each is looked for alone
            finder = Finder([self.word])
        return (place for place in finder.places(text) if place.folded == self.folded)


def _pool(
    rows,
    words: str | Iterable[str] | pandas.DataFrame | None,
    partners: pandas.DataFrame | None,
) -> list[_Suspect]:
    """Words to ask about and words to exchange them for, each once."""
    marks = None if words is None else _marks(words)
    pool: dict[str, _Suspect] = {}
    for table in _tables(rows, words, partners, marks or ()):
        for suspect in _suspects_of(table, marks):
            pool.setdefault(suspect.folded, suspect)
    for word, is_marked in (marks or {}).items():
        given = _Suspect(word, kind_of(word), _EITHER, asked=True, marked=is_marked)
        pool.setdefault(word, given)
    exchangeable = [suspect for suspect in pool.values() if suspect.kind not in NOT_HIDDEN]
    if not exchangeable:
        raise UserError("no word of the rows predicts a label; name words to ask about.")
    return exchangeable


def _tables(
    rows,
    words: str | Iterable[str] | pandas.DataFrame | None,
    partners: pandas.DataFrame | None,
    asked: Collection[str],
) -> Iterator[pandas.DataFrame]:
    """Tables that say which labels words predict, in the order in which `_pool` heeds them.

    The first one that has a word decides.
    """
    known: set[str] = set()
    if isinstance(words, pandas.DataFrame) and {"word", "label"} <= {*words}:
        known |= {*map(_folded, words["word"])}
        yield words
    partners = suspects(rows) if partners is None else partners
    known |= {*map(_folded, partners["word"])}
    yield partners
    if unknown := [word for word in asked if word not in known]:
        yield suspects(rows, None, 1, words=unknown)


def _folded(word: str) -> str:
    return " ".join(fold(word).split())


def _marks(words: str | Iterable[str] | pandas.DataFrame) -> dict[str, bool]:
    """The words to ask about, folded, and whether a person marked them as misleading."""
    if isinstance(words, pandas.DataFrame) and words.empty:
        raise UserError("words names no word; leave it out to ask about all suspects.")
    if not isinstance(words, pandas.DataFrame):
        return {_folded(word): True for word in phrases_of(words)}
    if "word" not in words:
        columns = ", ".join(map(str, words))
        raise UserError(f"words is a table with {columns}; expected a column word.")
    listed = map(_folded, phrases_of(words["word"]))
    if "mask" in words:
        is_marked = [mark in (True, "x", "X") for mark in words["mask"]]
        return dict(zip(listed, is_marked, strict=True))
    # a table of suspects is what a machine has found, and any other list is a person's
    return dict.fromkeys(listed, "z" not in words)


def _suspects_of(table: pandas.DataFrame, marks: Mapping[str, bool] | None) -> Iterator[_Suspect]:
    """The words of a table of `suspects`, each with all labels that it predicts."""
    table = table.sort_values("z", ascending=False, kind="stable") if "z" in table else table
    for word, lines in table.groupby("word", sort=False):
        line = lines.iloc[0]
        folded = _folded(word)
        yield _Suspect(
            word,
            str(line.get("kind", kind_of(folded))),
            str(line.get("where", "text")).partition(",")[0],  # the surest place
            tuple(dict.fromkeys(map(str, lines["label"]))),
            asked=marks is None or folded in marks,
            marked=marks is not None and marks.get(folded, False),
        )


def _rivals(suspect: _Suspect, pool: Iterable[_Suspect]) -> list[_Suspect]:
    """Suspects of the same kind that predict other labels alone.

    For a word without labels these are all that have one.
    """
    return [
        other for other in _of_same_kind(suspect, pool) if not {*other.labels} & {*suspect.labels}
    ]


def _allies(suspect: _Suspect, pool: Iterable[_Suspect]) -> list[_Suspect]:
    """Other suspects of the same kind that predict the same label."""
    return [other for other in _of_same_kind(suspect, pool) if other.label == suspect.label]


def _of_same_kind(suspect: _Suspect, pool: Iterable[_Suspect]) -> Iterator[_Suspect]:
    for other in pool:
        is_partner = other.labels and not other.is_class and other is not suspect
        if is_partner and other.kind == suspect.kind:
            yield other


@dataclass
class _Exchange:
    """What a suspect is exchanged for, and the texts in which it stands.

    `rivals` are words of another label or, if there is none, words without a label; `allies` are
    those of the control, which may be none.
    """

    rivals: list[_Suspect]
    allies: list[_Suspect]
    texts: list[Texts]
    finder: Finder


class _Chooser:
    """Chooses partners by the neighbours that they have in the sampled texts."""

    def __init__(self, pool: Sequence[_Suspect], samples: "_Samples"):
        self.pool = pool
        self.samples = samples
        self.contexts = {
            suspect.folded: contexts_of(suspect, samples.texts_with(suspect), samples.finder)
            for suspect in pool
        }
        self.neutral = _neutral_words(samples.background, pool)
        finder = Finder([word.word for word in self.neutral]) if self.neutral else None
        for word in self.neutral:
            self.contexts[word.folded] = contexts_of(word, samples.background_texts(), finder)

    def exchange(self, suspect: _Suspect) -> _Exchange:
        rivals = self._nearest(suspect, _rivals(suspect, self.pool))
        allies = self._nearest(suspect, _allies(suspect, self.pool))
        if not rivals:
            rivals = self._nearest(suspect, self.neutral)
        texts = self.samples.texts_with(suspect)
        return _Exchange(rivals, allies, texts, self.samples.finder)

    def _nearest(self, suspect: _Suspect, others: Iterable[_Suspect]) -> list[_Suspect]:
        """Those in the most similar contexts, without any that are far less similar than these."""
        own_context = self.contexts[suspect.folded]
        similarity = {other: cosine(own_context, self.contexts[other.folded]) for other in others}
        nearest = sorted(similarity, key=lambda other: (-similarity[other], other.folded))
        least = _LEAST_SIMILAR * max(similarity.values(), default=0.0)
        return [other for other in nearest[:_MOST_PARTNERS] if similarity[other] >= least]


def contexts_of(suspect: _Suspect, texts: Iterable[Texts], finder: Finder) -> Counter:
    """How often each word stands directly before ("<") and behind (">") a suspect."""
    words = Finder()
    counts: Counter = Counter()
    for row in texts:
        for column in _columns_of(suspect, row):
            text = row[column]
            for place in suspect.places(text, finder):
                before = words.places(text[max(0, place.start - _NEAR) : place.start])
                behind = words.places(text[place.end : place.end + _NEAR])
                counts["<", before[-1].folded if before else ""] += 1
                counts[">", behind[0].folded if behind else ""] += 1
    return counts


def cosine(first: Counter, second: Counter) -> float:
    """The cosine of two vectors of counts; 0 where one is empty."""
    product = sum(n * second[key] for key, n in first.items())
    squares = sum(n * n for n in first.values()) * sum(n * n for n in second.values())
    return product / math.sqrt(squares) if squares else 0.0


def _columns_of(suspect: _Suspect, texts: Texts) -> tuple[int, ...]:
    """The texts of a row in which it is exchanged; of a row with a single text that one."""
    columns = _IN_COLUMNS[suspect.where]
    return columns if max(columns) < len(texts) else (0,)


def _neutral_words(background: Sequence[tuple], pool: Iterable[_Suspect]) -> list[_Suspect]:
    """Frequent words that stand with each label about as often as chance would have it."""
    labels = Counter(label for _, label in background)
    rows_of: dict[str, Counter] = {}
    for texts, label in background:
        for word in set().union(*map(words_of, texts)):
            rows_of.setdefault(word, Counter())[label] += 1
    for suspect in pool:
        rows_of.pop(suspect.folded, None)
    frequent = sorted(rows_of, key=lambda word: (-rows_of[word].total(), word))
    neutral = [
        _Suspect(word)
        for word in frequent
        if word.isalpha() and _predicts_nothing(rows_of[word], labels)
    ]
    return neutral[:_NEUTRAL_WORDS]


def _predicts_nothing(counts: Counter, labels: Counter) -> bool:
    """Whether each label has its share of a word's rows, give or take one standard deviation."""
    n = counts.total()
    if n < _LEAST_ROWS:
        return False
    for label, n_label in labels.items():
        base_rate = n_label / labels.total()
        if abs(counts[label] - base_rate * n) > math.sqrt(base_rate * (1 - base_rate) * n):
            return False
    return True


# --- rows ---


@dataclass
class _Sample:
    """So many values with the smallest keys, in whichever order they come; each key once."""

    size: int
    values: dict[int, object] = field(default_factory=dict)
    keys: list[int] = field(default_factory=list)  # negative, the largest key first

    def add(self, key: int, value: object) -> None:
        is_full = len(self.keys) == self.size
        if key in self.values or (is_full and key > -self.keys[0]):
            return
        heapq.heappush(self.keys, -key)
        self.values[key] = value
        if is_full:
            del self.values[-heapq.heappop(self.keys)]

    def in_order(self) -> list:
        return [self.values[key] for key in sorted(self.values)]


class _Samples:
    """Texts in which each suspect stands, and texts of all rows."""

    def __init__(self, pool: Sequence[_Suspect], size: int, seed: int, with_background: bool):
        self.finder = Finder([suspect.word for suspect in pool])
        self.by_word = {suspect.folded: suspect for suspect in pool}
        self.seed = seed.to_bytes(8, "little")
        self.with_suspect = {suspect.folded: _Sample(size) for suspect in pool}
        self.all_rows = _Sample(_BACKGROUND if with_background else 0)
        self.n_texts = 1

    def collect(self, rows) -> None:
        """Read all rows, once."""
        for texts, label in texts_and_labels(rows):
            self.n_texts = len(texts)
            found = [self.finder.found(text) for text in texts]
            key = self._key(texts)
            for word in set().union(*found):
                suspect = self.by_word[word]
                columns = _columns_of(suspect, texts)
                if suspect.where == _EITHER or all(word in found[column] for column in columns):
                    self.with_suspect[word].add(key, texts)
            if self.all_rows.size:
                self.all_rows.add(key, (texts, label))

    def texts_with(self, suspect: _Suspect) -> list[Texts]:
        return self.with_suspect[suspect.folded].in_order()

    @property
    def background(self) -> list[tuple[Texts, object]]:
        return self.all_rows.in_order()

    def background_texts(self) -> list[Texts]:
        return [texts for texts, _ in self.background]

    def _key(self, texts: Texts) -> int:
        content = "\0".join(texts).encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(content, digest_size=8, key=self.seed).digest())


# --- exchanging ---


def exchanged(texts: Texts, suspect: _Suspect, partner: _Suspect, finder: Finder) -> Texts:
    """The texts with a partner in each place of a suspect, in its case; all else stays."""
    columns = _columns_of(suspect, texts)
    return tuple(
        _replaced(text, suspect, partner, finder) if column in columns else text
        for column, text in enumerate(texts)
    )


def _replaced(text: str, suspect: _Suspect, partner: _Suspect, finder: Finder) -> str:
    pieces = []
    end = 0
    for place in suspect.places(text, finder):
        pieces += [text[end : place.start], in_case_of(text[place.start : place.end], partner)]
        end = place.end
    return "".join([*pieces, text[end:]])


def in_case_of(written: str, partner: _Suspect) -> str:
    """A partner in the case in which the suspect is written: CAPITALS, Title Case or Capitalised.

    Addresses, numbers and signs stay as they are.
    """
    if partner.kind not in _IN_CASE:
        return partner.word
    if written.isupper() and len(written) > 1:
        return partner.word.upper()
    if written.istitle():
        return " ".join(_capitalised(word) for word in partner.word.split(" "))
    return _capitalised(partner.word) if written[:1].isupper() else partner.word


def _capitalised(word: str) -> str:
    return word[:1].upper() + word[1:]


@dataclass
class _Row:
    """A row, with its texts before and after the exchange, and for the control."""

    before: Texts
    after: Texts
    control: Texts
    rival: _Suspect


def _read_rows(
    suspect: _Suspect, exchange: _Exchange, classifier: _Classifier, n_rows: int
) -> list[_Row]:
    """The first rows whose tokens change with the suspect, so that the model can read it."""
    rows: list[_Row] = []
    if not exchange.rivals:
        return rows
    for first in range(0, len(exchange.texts), n_rows):
        some = [
            _row(number, suspect, exchange)
            for number in range(first, min(first + n_rows, len(exchange.texts)))
        ]
        before = classifier.encode([row.before for row in some])
        after = classifier.encode([row.after for row in some])
        rows += [
            row
            for row, old, new in zip(some, before, after, strict=True)
            if list(old["input_ids"]) != list(new["input_ids"])
        ]
        if len(rows) >= n_rows:
            break
    return rows[:n_rows]


def _row(number: int, suspect: _Suspect, exchange: _Exchange) -> _Row:
    """The partners take turns from row to row."""
    texts = exchange.texts[number]
    rival = exchange.rivals[number % len(exchange.rivals)]
    control = texts
    if exchange.allies:
        ally = exchange.allies[number % len(exchange.allies)]
        control = exchanged(texts, suspect, ally, exchange.finder)
    return _Row(texts, exchanged(texts, suspect, rival, exchange.finder), control, rival)


def _line(
    suspect: _Suspect,
    exchange: _Exchange,
    rows: Sequence[_Row],
    classifier: _Classifier,
    numbers: Mapping[str, int],
) -> dict:
    """The line of a suspect.

    Args:
        suspect: the word that is exchanged.
        exchange: its partners.
        rows: in which the model reads it.
        classifier: answers.
        numbers: the number of its class for each label.
    """
    texts = [text for name in ("before", "after", "control") for text in _column(rows, name)]
    probabilities = classifier.probabilities(classifier.encode(texts))
    before, after, control = probabilities.reshape(3, len(rows), -1)  # (rows, num_labels) each
    answers = before.argmax(1)  # (rows,)
    changed = after.argmax(1) != answers
    follows = changed
    if exchange.rivals[0].labels:  # words that predict nothing have none to follow
        targets = np.array([numbers[row.rival.label] for row in rows])
        follows = changed & (after.argmax(1) == targets)
    controls = control.argmax(1) != answers
    low, high = paired_interval(follows, controls)
    every_row = range(len(rows))
    example = rows[int(follows.argmax())]  # the first that follows, else the first
    return {
        "suspect": suspect.word,
        "kind": suspect.kind,
        "where": suspect.where,
        "label": suspect.label,
        "marked": suspect.marked,
        "rows": len(rows),
        "partners": ", ".join(rival.word for rival in exchange.rivals),
        "follows": 100 * follows.mean(),
        "control": 100 * controls.mean(),
        "leans": 100 * (follows.mean() - controls.mean()),
        "low": 100 * low,
        "high": 100 * high,
        "change": 100 * (after[every_row, answers] - before[every_row, answers]).mean(),
        "before": " / ".join(example.before),
        "after": " / ".join(example.after),
    }


def _report_exceptions(
    asked: Iterable[_Suspect],
    lines: Iterable[dict],
    pool: Sequence[_Suspect],
    report: Callable[[str], None],
) -> None:
    """Say which words have no line, and which were not exchanged for a word of another label."""
    with_line = {line["suspect"] for line in lines}
    left_out = [suspect for suspect in asked if suspect.word not in with_line]
    if left_out:
        report(
            f"left out: {_listed(left_out)}; they stand in no row, are cut off or [UNK] for the "
            "model, or nothing can take their place."
        )
    alone = [word for word in asked if word.word in with_line and not _rivals(word, pool)]
    if alone:
        report(
            f"no suspect of the same kind has another label: {_listed(alone)}; exchanged for words "
            "that predict nothing."
        )


def _listed(suspects_to_name: Iterable[_Suspect]) -> str:
    return ", ".join(suspect.word for suspect in suspects_to_name)


def _column(rows: Iterable[_Row], name: str) -> list[Texts]:
    return [getattr(row, name) for row in rows]


def _sorted(table: pandas.DataFrame) -> pandas.DataFrame:
    """Marked words that are followed first; the most followed first."""
    first = table["marked"].astype(bool) & (table["low"] > 0)
    ranked = table.assign(first=first).sort_values(
        ["first", "leans", "change", "suspect"], ascending=[False, False, True, True]
    )
    return ranked[[*table]].reset_index(drop=True)
