"""Made-up releases: small files in the layout of each original release, quirks included."""

import json
from pathlib import Path

import datasets

from mtlib.data.registry import SETS
from mtlib.data.sources import load

PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
MNLI_HEADER = ["index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2",
               "label1", "label2", "label3", "label4", "label5", "gold_label"]  # fmt: skip
MNLI_TRAIN_HEADER = [name for name in MNLI_HEADER if name not in ("label2", "label3", "label4", "label5")]
HANS_HEADER = ["gold_label", *PARSES, "sentence1", "sentence2", "pairID", "heuristic", "subcase", "template"]
QQP_HEADER = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]


def tsv(*rows, end="\n") -> bytes:
    return "".join("\t".join(row) + end for row in rows).encode()


def mnli_row(header, index, genre, premise, hypothesis, gold):
    cells = {"index": index, "genre": genre, "sentence1": premise, "sentence2": hypothesis, "gold_label": gold}
    return [cells.get(name, "") for name in header]


def hans_row(number, premise, hypothesis, gold, heuristic, subcase):
    return [gold, "", "", "", "", premise, hypothesis, f"ex{number}", heuristic, subcase, "NA"]


def jsonl(*rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


MADE_UP = {
    "sst2/SST-2/train.tsv": tsv(
        ["sentence", "label"], ["a warm film ", "1"], ['"quoted" and dull ', "0"], ["so-so ", "0"]
    ),
    "sst2/SST-2/dev.tsv": tsv(["sentence", "label"], ['" a tale with an open quote ', "1"], ["it drags ", "0"]),
    "imdb_contrast/IMDb/data/dev_original.tsv": b"Sentiment\tText\n"
    b'Negative\t"Dull.<br /><br />She called it ""art""."\nPositive\tA joy to watch.\n',
    "imdb_contrast/IMDb/data/dev_contrast.tsv": b"Sentiment\tText\n"
    b'Positive\t"Grand.<br />She called it ""art""."\nNegative\tA pain to watch.\n',
    "imdb_contrast/IMDb/data/test_original.tsv": b"Sentiment\tText\nPositive\tI laughed.\nNegative\tI slept.\n",
    "imdb_contrast/IMDb/data/test_contrast.tsv": b"Sentiment\tText\nNegative\tI frowned.\nPositive\tI woke up.\n",
    "imdb_cad/sentiment/combined/paired/dev_paired.tsv": b"Sentiment\tText\tbatch_id\n"
    b"Negative\tBad sound.\t7\nPositive\tGood sound.\t7\n",
    "imdb_cad/sentiment/combined/paired/test_paired.tsv":  # one field runs over two lines
    b'Sentiment\tText\tbatch_id\r\nPositive\t"Good cast,\ngood plot."\t7\r\nNegative\tBad cast, bad plot.\t7\r\n',
    "imdb_cad/sentiment/combined/paired/train_paired.tsv": b"Sentiment\tText\tbatch_id\n"
    b"Negative\tThe film is very bad.\t3\nPositive\tThe film is good.\t3\n",
    "mnli/MNLI/train.tsv": tsv(
        MNLI_TRAIN_HEADER,
        mnli_row(MNLI_TRAIN_HEADER, "31", "fiction", "The cat sat.", "A cat sat.", "entailment"),
        mnli_row(MNLI_TRAIN_HEADER, "1000000", "", "The dog ran.", "The dog slept.", "contradiction"),
    ),
    "mnli/MNLI/dev_matched.tsv": tsv(
        MNLI_HEADER,
        mnli_row(MNLI_HEADER, "0", "travel", '"Stop," she said', "She spoke. ", "entailment"),
        mnli_row(MNLI_HEADER, "1", "travel", "It may rain.", "It will snow.", "-"),
        mnli_row(MNLI_HEADER, "2", "slate", "The bus left.", "It was late.", "neutral"),
    ),
    "mnli/MNLI/dev_mismatched.tsv": tsv(
        MNLI_HEADER,
        mnli_row(MNLI_HEADER, "0", "", "We do n't know .", "We know .", "contradiction"),
        mnli_row(MNLI_HEADER, "1", "", "They paid .", "They paid cash .", "neutral"),
    ),
    "hans/heuristics_evaluation_set.txt": tsv(
        HANS_HEADER,
        hans_row(
            0,
            "The baker saw the clerk .",
            "The clerk saw the baker .",
            "non-entailment",
            "lexical_overlap",
            "ln_subject/object_swap",
        ),
        hans_row(
            1,
            "Before the rain fell , the clerk left .",
            "The rain fell .",
            "entailment",
            "constituent",
            "ce_after_since_clause",
        ),
    ),
    "qqp/QQP/train.tsv": tsv(
        QQP_HEADER,
        ["133", "1", "2", '"What does ""gist"" mean?"', "What is a gist?", "1"],
        ["97", "3", "4", "Why does it break here", ""],  # the official file has lines broken in two
        ["How long is a mile?", "How long is a knot?", "0"],
        ["134", "5", "6", 'Is 5" long?', '"Who" said "no"', "0"],
    ),
    "qqp/QQP/dev.tsv": tsv(
        QQP_HEADER,
        ["1", "", "", "How old is he?", "What is his age?", "1"],
        ["2", "", "", "Who won?", '"""Who"" lost?"', "0"],
    ),
    "paws/paws_qqp/output/train.tsv": tsv(
        ["id", "sentence1", "sentence2", "label"],
        ["1", "Can cats chase dogs ?", "Can dogs chase cats ?", "0"],
        ["2", "Is tea hot ?", "Is tea hot ?", "1"],
        end="\r\n",
    ),
    "paws/paws_qqp/output/dev_and_test.tsv": tsv(
        ["id", "sentence1", "sentence2", "label"],
        ["1", "b'Is caf\\xc3\\xa9 a noun ?'", 'b"It \'s not a noun ?"', "0"],
        ["2", "b'Say \\'hi\\' , \\\\o/'", "Plain text stays .", "1"],
    ),
    "paws/final/dev.tsv": tsv(["id", "sentence1", "sentence2", "label"], ["1", "He met her .", "She met him .", "0"]),
    "paws/final/test.tsv": tsv(["id", "sentence1", "sentence2", "label"], ["1", "It is so .", "So it is .", "1"]),
    **{
        f"anli/anli_v1.0/R{round_}/{split}.jsonl": jsonl(
            {"uid": f"{split}-a", "context": "Bread — baked daily.", "hypothesis": "There is bread. ", "label": "e"},
            {"uid": f"{split}-b", "context": "Bread.\tMilk.", "hypothesis": "It is cheap.", "label": "n", "reason": ""},
            {"uid": f"{split}-c", "context": '"Bread"', "hypothesis": "No bread.", "label": "c"},
        )
        for round_ in (1, 2, 3)
        for split in ("dev", "test")
    },
}
KEPT_ROWS = {path: content.rstrip().count(b"\n") for path, content in MADE_UP.items()}
KEPT_ROWS |= {path: rows + 1 for path, rows in KEPT_ROWS.items() if path.endswith(".jsonl")}
KEPT_ROWS |= {
    "mnli/MNLI/dev_matched.tsv": 2,
    "qqp/QQP/train.tsv": 2,
    "imdb_cad/sentiment/combined/paired/test_paired.tsv": 2,
}


def write_releases(root: Path, monkeypatch) -> Path:
    """A folder with all the made-up files, and a registry that expects their sizes."""
    for path, content in MADE_UP.items():
        write(root, path, content)
    for name in real_sets():
        expect(monkeypatch, name, rows=KEPT_ROWS, sha256="", copies=())
    return root


def expect(monkeypatch, set_name: str, **changes) -> None:
    """Give every file of a set other registered facts, as `rows=2` or `rows={path: 2}`."""

    def changed(file):
        expected = {key: value[file.path] if isinstance(value, dict) else value for key, value in changes.items()}
        return file.model_copy(update=expected)

    files = tuple(map(changed, SETS[set_name].files))
    monkeypatch.setitem(SETS, set_name, SETS[set_name].model_copy(update={"files": files}))


def write(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


def real_sets() -> list[str]:
    return [name for name in SETS if not name.startswith("testbed_")]


def rows_of(dataset: datasets.Dataset) -> list[tuple]:
    return [tuple(row.values()) for row in dataset]


HUB_COLUMNS = {
    "nyu-mll/glue sst2": ("sentence",),
    "nyu-mll/glue mnli": ("premise", "hypothesis"),
    "nyu-mll/glue qqp": ("question1", "question2"),
    "facebook/anli plain_text": ("premise", "hypothesis"),
    "jhu-cogsci/hans None": ("premise", "hypothesis"),
    "google-research-datasets/paws labeled_final": ("sentence1", "sentence2"),
}


def on_the_hub(set_name: str, splits: str, releases: Path) -> datasets.Dataset:
    """The made-up release in the hub's columns."""
    hub = SETS[set_name].remote
    ours = load(set_name, str(releases), splits)
    columns = {"label": ours["label"][:]}
    for theirs, text in zip(HUB_COLUMNS[f"{hub.id} {hub.config}"], ("text", "text_pair"), strict=False):
        columns[theirs] = [f"{value} " for value in ours[text]]
    numbers = [uid.rpartition("/")[2] for uid in ours["uid"]]
    if hub.id == "nyu-mll/glue":
        columns["idx"] = [int(number) for number in numbers]
    elif hub.id == "facebook/anli":
        columns["uid"] = numbers
    elif hub.id == "jhu-cogsci/hans":
        columns["heuristic"], columns["subcase"] = zip(*(group.split("/", 1) for group in ours["group"]), strict=True)
    else:
        columns["id"] = [int(number) for number in numbers]
    return datasets.Dataset.from_dict(columns)
