"""What the stand-in serves: the sets that can be downloaded, with made-up rows in the hub's layout;
tiny models.
"""

import csv
import hashlib
import io
import json
from collections import defaultdict
from pathlib import Path

import datasets
from transformers import AutoModelForMaskedLM, AutoTokenizer, set_seed

from mtlib.data.registry import SETS, Columns, DataSet, Hub, RawFiles
from mtlib.data.sources import load
from mtlib.paths import MINI_MODEL_DIR
from tests.conftest import ARCHITECTURES, BERT_SPECIALS, make_tokenizer

ROWS = {"train": 256, "test": 24}
# the bundled set that lends its sentences, by the labels of the set that is made up
LENDERS = {
    SETS[name].label_names: name
    for name in ("testbed_sentiment", "testbed_nli_m", "testbed_overlap", "testbed_paraphrase")
}
MODELS = {"bert-base-uncased": "bert", "roberta-base": "roberta", "facebook/bart-base": "bart"}
HEURISTICS = ("lexical_overlap", "subsequence", "constituent")


def write_hub(root: Path) -> Path:
    """Everything the stand-in serves, and `expected.json`: rows and checksums by release file."""
    expected, configs = {}, defaultdict(dict)
    for data_set in SETS.values():
        if isinstance(data_set.remote, Hub):
            for split, hub_split in data_set.remote.splits.items():
                file = _parquet_file(data_set.remote, hub_split)
                rows = _rows(
                    data_set, data_set.remote.columns, ROWS["train" if split == "train" else "test"]
                )
                target = root / "datasets" / data_set.remote.id / file
                target.parent.mkdir(parents=True, exist_ok=True)
                datasets.Dataset.from_list(rows).to_parquet(target)
                configs[data_set.remote.id].setdefault(data_set.remote.config, {})[hub_split] = file
            for file in data_set.files:
                expected[file.path] = {"rows": ROWS["train" if file.split == "train" else "test"]}
        elif isinstance(data_set.remote, RawFiles):
            for file in data_set.files:
                content = _table(_rows(data_set, data_set.columns, ROWS["test"], file.half))
                expected[file.path] = {
                    "rows": ROWS["test"],
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
                folder = root / "raw" / data_set.remote.repository / data_set.remote.commit
                target = folder / file.path.partition("/")[2]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    for repository, by_config in configs.items():
        if None not in by_config:  # the branch with Parquet conversions has no card
            (root / "datasets" / repository / "README.md").write_text(_card(by_config))
    (root / "expected.json").write_text(json.dumps(expected))
    for name in MODELS:
        _write_model(name, root / "models" / name)
    return root


def _parquet_file(hub: Hub, split: str) -> str:
    return (
        f"{hub.config}/{split}-00000-of-00001.parquet"
        if hub.config
        else f"plain_text/{split}/0000.parquet"
    )


def _card(by_config: dict[str, dict[str, str]]) -> str:
    """The head of a dataset's card: which files a configuration's splits are."""
    configs = [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": path} for split, path in files.items()],
        }
        for name, files in by_config.items()
    ]
    return f"---\nconfigs: {json.dumps(configs)}\n---\n"


def _rows(data_set: DataSet, columns: Columns, n: int, half: str = "") -> list[dict]:
    """`n` rows under the set's own names.

    The edited half of a pair has another text and the other label.
    """
    lent, names = load(LENDERS[data_set.label_names]), columns.labels
    rows = []
    for position in range(n):
        in_file = (
            "batch_id" in columns.pair
        )  # both halves of a pair stand in one file, one below the other
        example = lent[(position // 2 if in_file else position) * (len(lent) // n)]
        edited = half == "edited" or (in_file and position % 2 == 1)
        name = names[1 - example["label"] if edited else example["label"]]
        text = example["text"]
        if columns.pair:
            text = " ".join(3 * [text])  # reviews are long
        row = {columns.text: text + (" Or so they said." if edited else "")}
        if columns.text_pair:
            row[columns.text_pair] = example["text_pair"]
        rows.append(
            row
            | {columns.label: int(name) if name.isdigit() else name}
            | _others(columns, position)
        )
    return rows


def _others(columns: Columns, position: int) -> dict:
    values = {
        "idx": position,
        "id": position,
        "uid": f"made-up-{position}",
        "batch_id": position // 2,
        "heuristic": HEURISTICS[position % 3],
        "subcase": "made_up",
    }
    return {name: value for name, value in values.items() if name in columns.needed}


def _table(rows: list[dict]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter="\t")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _write_model(name: str, folder: Path) -> None:
    """Random weights in a tiny model under a real one's name, with words that the sets have."""
    set_seed(0)
    config, (specials, double) = ARCHITECTURES[MODELS[name]]
    tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    if specials is not BERT_SPECIALS:
        words = [word for word in tokenizer.get_vocab() if word not in tokenizer.all_special_tokens]
        tokenizer = make_tokenizer(specials, double, words)
        tokenizer.model_max_length = 512
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 514}
    config = type(config).from_dict(config.to_dict() | size)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
