"""What the sets are: where each lives, how its release is laid out, how many rows it has, what to do when it is gone.

`SETS` is the registry; importing it reads no file and asks no server.
"""

import ast
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mtlib.errors import UserError

SENTIMENT = ("negative", "positive")
NLI = ("entailment", "neutral", "contradiction")
HANS = ("entailment", "non-entailment")
PARAPHRASE = ("not paraphrase", "paraphrase")


@dataclass(frozen=True)
class Copy:
    """A copy of a release file that is known by its checksum. `note` says how what is read from it deviates."""

    sha256: str
    rows: int
    note: str = ""


@dataclass(frozen=True)
class ReleaseFile:
    """One file of an original release. `rows` is the official number of labelled rows (None: not fixed)."""

    split: str
    path: str  # dataset folder + path inside the release; the dataset folder may be left out on disk
    rows: int | None
    sha256: str = ""  # of the file as published, where that is known
    copies: tuple[Copy, ...] = ()
    half: str = ""  # "original" or "edited" where a file holds one half of a contrast set


@dataclass(frozen=True)
class Columns:
    """How a source names its columns. `uid`, `group` and `pair` are templates over a row, {split} and {position}."""

    text: str
    label: str
    labels: Mapping[str, int]
    text_pair: str = ""
    uid: str = "{position}"
    group: str = ""
    pair: str = ""  # contrast sets: what the original and its edited version have in common
    unlabelled: str = ""  # rows with this label are dropped, as the official readers do

    @property
    def needed(self) -> set[str]:
        templates = "".join((self.uid, self.group, self.pair))
        named = {name for _, name, _, _ in string.Formatter().parse(templates) if name}
        return {self.text, self.label, self.text_pair, *named} - {"", "split", "position"}


@dataclass(frozen=True)
class Hub:
    """A set on the Hugging Face hub. The revisions were seen pinned in public projects, not checked on the hub."""

    id: str
    config: str | None
    revision: str
    splits: Mapping[str, str]  # release split -> hub split
    columns: Columns


@dataclass(frozen=True)
class RawFiles:
    """The release files themselves, at one commit of a public repository; verified by sha256."""

    repository: str
    commit: str


@dataclass(frozen=True)
class DataSet:
    """Everything `load` has to know about one set."""

    label_names: tuple[str, ...]
    files: tuple[ReleaseFile, ...]
    format: str  # "tsv" (quoting off), "csv" (tab-separated, CSV quoting) or "jsonl"
    columns: Columns
    licence: str
    when_gone: str
    remote: Hub | RawFiles | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> splits, default first
    clean: Callable[[str], str] = str.strip
    is_train: bool = False  # a training set may be a subset; an evaluation set must be whole
    paired: bool = False
    skips_broken_lines: bool = False

    @property
    def pair(self) -> bool:
        return bool(self.columns.text_pair)

    @property
    def split_options(self) -> Mapping[str, tuple[str, ...]]:
        return self.options or {self.files[0].split: (self.files[0].split,)}


def get_set(set_name: str) -> DataSet:
    if set_name not in SETS:
        raise UserError(f"unknown set {set_name!r}; expected one of {', '.join(SETS)}")
    return SETS[set_name]


def is_bundled(set_name: str) -> bool:
    return set_name.startswith("testbed_")


# ------------------------------------------------------------------------------------ how a release writes its texts


def _without_line_breaks(text: str) -> str:
    """IMDB reviews carry HTML line breaks; every run of them becomes one space."""
    return re.sub(r"\s*(?:<br\s*/?>\s*)+", " ", text).strip()


def _csv_unquoted(text: str) -> str:
    """QQP quotes the fields that hold a quotation mark, in a file that is otherwise unquoted (and so does the hub)."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1].replace('""', ""):
        text = text[1:-1].replace('""', '"')
    return text.strip()


def _from_bytes_literal(text: str) -> str:
    """Under Python 3, Google's PAWS-QQP script writes every sentence as a bytes literal: b'...'."""
    if text[:2] in ("b'", 'b"') and text[-1] == text[1]:
        text = ast.literal_eval(text).decode("utf-8")
    return text.strip()


# ------------------------------------------------------------------------------------------- sets of the same release


def _numbered(names: tuple[str, ...]) -> dict[str, int]:
    return {str(number): number for number in range(len(names))}


def _named(names: tuple[str, ...]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _glue(config: str, split: str, hub_split: str, columns: Columns) -> Hub:
    return Hub("nyu-mll/glue", config, "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c", {split: hub_split}, columns)


def _sst2(file: ReleaseFile, hub_split: str) -> DataSet:
    columns = Columns("sentence", "label", _numbered(SENTIMENT))
    return DataSet(
        SENTIMENT,
        (file,),
        "tsv",
        columns,
        licence="none stated by Stanford or GLUE; research use",
        when_gone='On the hub (source "hub") and in GLUE: put its folder SST-2 into the source folder as sst2/SST-2/.',
        remote=_glue("sst2", file.split, hub_split, columns),
        is_train=file.split == "train",
    )


def _mnli(file: ReleaseFile, hub_split: str) -> DataSet:
    return DataSet(
        NLI,
        (file,),
        "tsv",
        Columns(
            "sentence1",
            "gold_label",
            _named(NLI),
            text_pair="sentence2",
            uid="{index}",
            group="{genre}",
            unlabelled="-",
        ),
        licence="OANC for most of the corpus; fiction CC BY 3.0, CC BY-SA 3.0 or US public domain",
        when_gone='On the hub (source "hub") and in GLUE: put its folder MNLI into the source folder as mnli/MNLI/.',
        remote=_glue(
            "mnli",
            file.split,
            hub_split,
            Columns("premise", "label", _numbered(NLI), text_pair="hypothesis", uid="{idx}"),
        ),
        is_train=file.split == "train",
    )


def _anli(round_: str, dev: ReleaseFile, test: ReleaseFile) -> DataSet:
    return DataSet(
        NLI,
        (dev, test),
        "jsonl",
        Columns("context", "label", {"e": 0, "n": 1, "c": 2}, text_pair="hypothesis", uid="{uid}", group=round_),
        licence="CC BY-NC 4.0",
        when_gone='On the hub (source "hub") and in anli_v1.0.zip: unpack it in the source folder as anli/anli_v1.0/.',
        remote=Hub(
            "facebook/anli",
            "plain_text",
            "8e4813d81f46d313dac7892e1c28076917cfcdf9",
            {"dev": f"dev_{round_}", "test": f"test_{round_}"},
            Columns("premise", "label", _numbered(NLI), text_pair="hypothesis", uid="{uid}", group=round_),
        ),
        options={"test": ("test",), "dev": ("dev",), "dev+test": ("dev", "test")},
    )


def _qqp(file: ReleaseFile, hub_split: str) -> DataSet:
    # GLUE's `id` is not on the hub: position is the one uid that both have.
    columns = Columns("question1", "is_duplicate", _numbered(PARAPHRASE), text_pair="question2")
    return DataSet(
        PARAPHRASE,
        (file,),
        "tsv",
        columns,
        licence="Quora Terms of Service, non-commercial use",
        when_gone='On the hub (source "hub") and in GLUE: put its folder QQP into the source folder as qqp/QQP/.',
        remote=_glue("qqp", file.split, hub_split, replace(columns, label="label")),
        clean=_csv_unquoted,
        is_train=file.split == "train",
        skips_broken_lines=True,
    )


def _paws_columns(name: str) -> Columns:
    return Columns(
        "sentence1", "label", _numbered(PARAPHRASE), text_pair="sentence2", uid="{split}/{id}", group=name + "/{split}"
    )


def _testbed(name: str, label_names: tuple[str, ...], pair: bool, paired: bool = False) -> DataSet:
    return DataSet(
        label_names,
        (ReleaseFile("train" if name.endswith("_train") else "test", f"{name}.jsonl", None),),
        "jsonl",
        Columns(
            "text", "label", _numbered(label_names), text_pair="text_pair" if pair else "", uid="{uid}", group="{group}"
        ),
        licence="made for this project, Apache-2.0",
        when_gone="The testbed comes with the project: restore data/testbed from it.",
        is_train=name.endswith("_train"),
        paired=paired,
    )


# ------------------------------------------------------------------------------------------------------- the registry

_REVIEW = Columns("Text", "Sentiment", {"Negative": 0, "Positive": 1})

SETS: dict[str, DataSet] = {
    "sst2_train": _sst2(
        ReleaseFile(
            "train",
            "sst2/SST-2/train.tsv",
            67_349,
            copies=(Copy("48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1", 67_349),),
        ),
        "train",
    ),
    "sst2": _sst2(
        ReleaseFile(
            "dev",
            "sst2/SST-2/dev.tsv",
            872,
            copies=(Copy("54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0", 872),),
        ),
        "validation",
    ),
    "imdb_contrast": DataSet(
        SENTIMENT,
        (
            ReleaseFile(
                "dev",
                "imdb_contrast/IMDb/data/dev_original.tsv",
                100,
                "349a8821bb8932d7ad236e4a6d3ed01fd9b99fdae1c7c6a1a9f3d442de4a4304",
                half="original",
            ),
            ReleaseFile(
                "dev",
                "imdb_contrast/IMDb/data/dev_contrast.tsv",
                100,
                "ec5c984b43c045613dc00c4fd044f362e78351eef82bf07e4429583decaa0e92",
                half="edited",
            ),
            ReleaseFile(
                "test",
                "imdb_contrast/IMDb/data/test_original.tsv",
                488,
                "9dc78ddeb5cb6ff6060d24df33a83b6d29f9828994f4b1a5e0086f7e774713bd",
                half="original",
            ),
            ReleaseFile(
                "test",
                "imdb_contrast/IMDb/data/test_contrast.tsv",
                488,
                "3bcb3bd41218b6a5d7bef7fe020a243919f3df0f12f55291b25ef8bbdbe04173",
                half="edited",
            ),
        ),
        "csv",
        replace(_REVIEW, pair="{split}-{position}"),  # row i of one file pairs with row i of the other
        licence="no licence file upstream; research data of Gardner et al. 2020",
        when_gone="The files are those of github.com/allenai/contrast-sets, folder IMDb/data: put them into the source "
        "folder as imdb_contrast/IMDb/data/. No copy on the hub is known.",
        remote=RawFiles("allenai/contrast-sets", "e2b87316ba7b30093bc9ffbc340e6550cab79f67"),
        options={"dev+test": ("dev", "test"), "test": ("test",)},
        clean=_without_line_breaks,
        paired=True,
    ),
    "imdb_cad": DataSet(
        SENTIMENT,
        # The rows of orig/ and new/ are not aligned; only combined/paired says which belong together.
        (
            ReleaseFile(
                "dev",
                "imdb_cad/sentiment/combined/paired/dev_paired.tsv",
                490,
                "4c2d8a70cbce23eba27fb1f0bb5043cf044811912435cf8d10c3ea6fc7a51363",
            ),
            ReleaseFile(
                "test",
                "imdb_cad/sentiment/combined/paired/test_paired.tsv",
                976,
                "9534b20850205c59015b313983cae7afb31c54c04ffcbd19cea7f1bce5011275",
            ),
        ),
        "csv",
        replace(_REVIEW, pair="{split}-{batch_id}"),
        licence="Apache-2.0",
        when_gone="The files are those of github.com/acmi-lab/counterfactually-augmented-data; put them into the "
        "source folder as imdb_cad/sentiment/. (The hub's tasksource/counterfactually-augmented-imdb has the "
        "revised reviews without the pairing.)",
        remote=RawFiles("acmi-lab/counterfactually-augmented-data", "6f232a1d2a11462a30ce08fb4825b734ab30828e"),
        options={"dev+test": ("dev", "test"), "test": ("test",)},
        clean=_without_line_breaks,
        paired=True,
    ),
    "imdb_cad_train": DataSet(
        SENTIMENT,
        (
            ReleaseFile(
                "train",
                "imdb_cad/sentiment/combined/paired/train_paired.tsv",
                3_414,
                "7ac50ca3d70890f80e11ee59955cdbfc43f26b5078d0603717817ab224d2af18",
            ),
        ),
        "csv",
        replace(_REVIEW, pair="{split}-{batch_id}"),
        licence="Apache-2.0",
        when_gone="See imdb_cad.",
        remote=RawFiles("acmi-lab/counterfactually-augmented-data", "6f232a1d2a11462a30ce08fb4825b734ab30828e"),
        clean=_without_line_breaks,
        is_train=True,
        paired=True,
    ),
    "mnli_train": _mnli(
        ReleaseFile(
            "train",
            "mnli/MNLI/train.tsv",
            392_702,
            copies=(
                Copy(
                    "3889cc4053ab273e9ca8752afdbc7cb7e563bf454f4ce3fbd96d5e0a113e908b",
                    10_471,
                    "research copy, a random subset of 10,471 of 392,702 rows; genre in 480 of them",
                ),
            ),
        ),
        "train",
    ),
    "mnli_m": _mnli(
        ReleaseFile(
            "dev_matched",
            "mnli/MNLI/dev_matched.tsv",
            9_815,
            copies=(Copy("1708d083b743c2992690b2659eff23c906dbc92c04063fdfd1fd50c39d663b1b", 9_815),),
        ),
        "validation_matched",
    ),
    "mnli_mm": _mnli(
        ReleaseFile(
            "dev_mismatched",
            "mnli/MNLI/dev_mismatched.tsv",
            9_832,
            copies=(
                Copy(
                    "85dc7d6fa8510e780977abc6fdea6bcfb97466829bb496be7d3e23d09f1b77bb",
                    9_832,
                    "research copy: the text is Penn-Treebank tokenised, so scores differ a little from the raw text",
                ),
            ),
        ),
        "validation_mismatched",
    ),
    "hans": DataSet(
        HANS,
        (
            ReleaseFile(
                "evaluation",
                "hans/heuristics_evaluation_set.txt",
                30_000,
                copies=(Copy("5e6859624cce8a2813508525dfd6a2796ac50e2240cde25e5c37a02793d39a33", 30_000),),
            ),
        ),
        "tsv",
        Columns(
            "sentence1",
            "gold_label",
            _named(HANS),
            text_pair="sentence2",
            uid="{pairID}",
            group="{heuristic}/{subcase}",
        ),
        licence="MIT",
        when_gone='On the hub (source "hub") and in github.com/tommccoy1/hans: put heuristics_evaluation_set.txt into '
        "the source folder as hans/heuristics_evaluation_set.txt. (The hub's tasksource/hans is a re-split.)",
        # On main the hub still has a loading script, which is never run here; this branch is its Parquet conversion.
        # Records name the commit that the branch gave.
        remote=Hub(
            "jhu-cogsci/hans",
            None,
            "refs/convert/parquet",
            {"evaluation": "validation"},
            Columns(
                "premise",
                "label",
                _numbered(HANS),
                text_pair="hypothesis",
                uid="ex{position}",
                group="{heuristic}/{subcase}",
            ),
        ),
    ),
    "anli_r1": _anli(
        "r1",
        ReleaseFile(
            "dev",
            "anli/anli_v1.0/R1/dev.jsonl",
            1_000,
            copies=(Copy("cf2a4216809498438d125dfc764db6a6dedd8076a91fe84f6f8b46d6d8851189", 1_000),),
        ),
        ReleaseFile(
            "test",
            "anli/anli_v1.0/R1/test.jsonl",
            1_000,
            copies=(Copy("12ba042c46deb86cd06c95512119d3ac447bfbd8998900aaf6d287b932bdc093", 1_000),),
        ),
    ),
    "anli_r2": _anli(
        "r2",
        ReleaseFile(
            "dev",
            "anli/anli_v1.0/R2/dev.jsonl",
            1_000,
            copies=(Copy("e27b74add95e6407f08ab12914866f80e55d2ae6091000000d4ff548519ed5ce", 1_000),),
        ),
        ReleaseFile(
            "test",
            "anli/anli_v1.0/R2/test.jsonl",
            1_000,
            copies=(Copy("c4dc739ee8dd6efcbbb0e119fcea30062eb31f2295bb4f575629c5cd3dbf2fdb", 1_000),),
        ),
    ),
    "anli_r3": _anli(
        "r3",
        ReleaseFile(
            "dev",
            "anli/anli_v1.0/R3/dev.jsonl",
            1_200,
            copies=(
                Copy(
                    "1dca7f08ab27c757ded39a42feb696b94d7330a41f84247fd464f86967eeff58",
                    1_197,
                    "research copy: 1,197 of 1,200 rows, three neutral ones are missing; mojibake in two contexts",
                ),
            ),
        ),
        ReleaseFile(
            "test",
            "anli/anli_v1.0/R3/test.jsonl",
            1_200,
            copies=(Copy("5d1d6afa0f09fc229f50738e280a70a3aa7b847601c3403d3fb466d06c4b97cb", 1_200),),
        ),
    ),
    "qqp_train": _qqp(
        ReleaseFile(
            "train",
            "qqp/QQP/train.tsv",
            363_846,
            copies=(
                Copy(
                    "e0eb477785d320b20b41bd4e1448590eda1f53adec27296937fd4546f4c492ca",
                    9_309,
                    "research copy, a random subset of 9,309 of 363,846 rows",
                ),
            ),
        ),
        "train",
    ),
    "qqp": _qqp(
        ReleaseFile(
            "dev",
            "qqp/QQP/dev.tsv",
            40_430,
            copies=(
                Copy(
                    "508cd749cae2d8891eef5f8bbc3952cd5540cab4df21aa88725d7d94b1ddf5f1",
                    1_000,
                    "research copy: 1,000 held-out pairs, most likely from official train, not the official dev split",
                ),
            ),
        ),
        "validation",
    ),
    "paws_qqp": DataSet(
        PARAPHRASE,
        (
            ReleaseFile(
                "train",
                "paws/paws_qqp/output/train.tsv",
                11_988,
                copies=(
                    Copy(
                        "0f20ebc8495c5ef0bb0fd2d057a7e4969f3792ba4f16175df50bc2096ceb464a",
                        11_988,
                        "built with a later NLTK than 3.2.5: rows with quotation marks can have shifted words",
                    ),
                ),
            ),
            ReleaseFile(
                "dev_and_test",
                "paws/paws_qqp/output/dev_and_test.tsv",
                677,
                copies=(
                    Copy("8a9221ef6d8d88c1e5a6a68997c4abb15c6e1a90db95ad8e9c7936023c2aa6cf", 677),
                    Copy("f65890ccffd7a6432520c009dd3e5c03a96205c80a8f89b04bb58f44c1f35c8f", 677),
                ),
            ),
        ),
        "tsv",
        _paws_columns("paws_qqp"),
        licence="PAWS: free for any purpose with acknowledgement; the text is Quora's, non-commercial use, not to be "
        "passed on",
        when_gone="PAWS-QQP is not distributed, because of Quora's licence: build it. Take Quora's "
        "quora_duplicate_questions.tsv (404,290 pairs), the index paws_qqp.tar.gz that the README of "
        "github.com/google-research-datasets/paws links to, and its qqp_generate_data.py (NLTK 3.2.5; the "
        "b'...' that Python 3 makes it write are decoded here). Write its two outputs to "
        "FOLDER/paws/paws_qqp/output/train.tsv and dev_and_test.tsv and give FOLDER as source. paws_wiki is "
        "a stand-in under its own name.",
        options={"train": ("train",), "dev_and_test": ("dev_and_test",), "both": ("train", "dev_and_test")},
        clean=_from_bytes_literal,
    ),
    "paws_wiki": DataSet(
        PARAPHRASE,
        (
            ReleaseFile(
                "dev",
                "paws/final/dev.tsv",
                8_000,
                copies=(Copy("069c5c604db421f5d3513e932e9b1025456f1ffa7321ddb8336189bbc627bd67", 8_000),),
            ),
            ReleaseFile(
                "test",
                "paws/final/test.tsv",
                8_000,
                copies=(Copy("51fc5f45bf33e7991a0c09b38bb4ff1ee482afd170128ae5ae5d8c4ba1d250cf", 8_000),),
            ),
        ),
        "tsv",
        _paws_columns("paws_wiki"),
        licence="PAWS: free for any purpose with acknowledgement",
        when_gone='On the hub (source "hub") and in paws_wiki_labeled_final.tar.gz, which the README of '
        "github.com/google-research-datasets/paws links to: unpack it into the source folder as paws/final/.",
        remote=Hub(
            "google-research-datasets/paws",
            "labeled_final",
            "161ece9501cf0a11f3e48bd356eaa82de46d6a09",
            {"dev": "validation", "test": "test"},
            _paws_columns("paws_wiki"),
        ),
        options={"test": ("test",), "dev": ("dev",)},
        clean=_from_bytes_literal,
    ),
    **{
        name: _testbed(name, label_names, pair, paired)
        for name, label_names, pair, paired in (
            ("testbed_sentiment_train", SENTIMENT, False, False),
            ("testbed_sentiment", SENTIMENT, False, False),
            ("testbed_contrast", SENTIMENT, False, True),
            ("testbed_counterfactual", SENTIMENT, False, False),
            ("testbed_nli_train", NLI, True, False),
            ("testbed_nli_m", NLI, True, False),
            ("testbed_nli_mm", NLI, True, False),
            ("testbed_overlap", HANS, True, False),
            ("testbed_adversarial", NLI, True, False),
            ("testbed_paraphrase_train", PARAPHRASE, True, False),
            ("testbed_paraphrase", PARAPHRASE, True, False),
            ("testbed_scramble", PARAPHRASE, True, False),
        )
    },
}
