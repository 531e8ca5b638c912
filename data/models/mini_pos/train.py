"""Train the part-of-speech probe on the bundled model's frozen states, and write its card.

    python data/models/mini_pos/train.py UD_FOLDER

UD_FOLDER holds en_ewt-ud-train.conllu, -dev.conllu and -test.conllu of the English EWT treebank of
Universal Dependencies. The layer is chosen on dev by probes trained on a quarter of train; test is
only reported.
"""

import argparse
import json
import math
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import BatchEncoding

from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import SETTINGS_FILE, WEIGHTS_FILE, PosProbe

HERE = Path(__file__).resolve().parent
# parts of speech whose Penn tag adds number, tense or degree; among pronouns it marks possessives
# ("their"), which stand where a determiner does
REFINED = {
    "NOUN": ("NN", "NNS"),
    "PROPN": ("NNP", "NNPS"),
    "VERB": ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"),
    "AUX": ("MD", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ"),
    "ADJ": ("JJ", "JJR", "JJS"),
    "ADV": ("RB", "RBR", "RBS", "WRB"),
    "PRON": ("PRP$",),
}
PLAIN = ("ADP", "CCONJ", "DET", "INTJ", "NUM", "PART", "PRON", "PUNCT", "SCONJ", "SYM", "X")
TAGS = sorted([f"{upos}/{xpos}" for upos in REFINED for xpos in REFINED[upos]] + list(PLAIN))
EPOCHS = 12
BATCH = 512
RATE = 3e-3
WEIGHT_DECAY = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
    train = read_conllu(folder / "en_ewt-ud-train.conllu")
    dev = read_conllu(folder / "en_ewt-ud-dev.conllu")
    test = read_conllu(folder / "en_ewt-ud-test.conllu")
    dev_by_layer = score_layers(plm, train[::4], dev)
    layer = max(dev_by_layer, key=dev_by_layer.get)
    states, tags, _ = vectors(plm, layer, train)
    save(fit(plm, layer, states, tags))
    probe = PosProbe.bundled()  # float16 weights, as shipped
    report = json.loads((HERE / SETTINGS_FILE).read_text())
    report["dev_by_layer"] = dev_by_layer
    report["dev"] = evaluate(probe, *vectors(plm, layer, dev))
    report["test"] = evaluate(probe, *vectors(plm, layer, test))
    (HERE / SETTINGS_FILE).write_text(json.dumps(report, indent=1) + "\n")
    (HERE / "README.md").write_text(card(report), encoding="utf-8")
    for part in ("dev", "test"):
        print(f"{part}: {report[part]['accuracy']:.4f}")


def score_layers(plm: SharedPLM, train: list, dev: list) -> dict[int, float]:
    """The accuracy on `dev` of a probe on each layer."""
    accuracies = {}
    for layer in range(plm.config.num_hidden_layers + 1):
        states, tags, _ = vectors(plm, layer, train)
        probe = fit(plm, layer, states, tags)
        accuracies[layer] = evaluate(probe, *vectors(plm, layer, dev))["accuracy"]
        print(f"layer {layer}: dev {accuracies[layer]:.4f}", flush=True)
    return accuracies


def read_conllu(path: Path) -> list[tuple[str, list[tuple[tuple[int, int], str]]]]:
    """Sentences as (text, words), and words as (span, tag).

    A word is left out if its span is unclear or its tag is not in `TAGS`.
    """
    sentences = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        sentence = Sentence()
        for line in block.splitlines():
            if not line.startswith("#"):
                sentence.read(line)
        sentences.append((sentence.text.rstrip(), sentence.words))
    return sentences


class Sentence:
    """A sentence of a treebank, read line by line.

    One written word ("don't") may stand for several syntactic words ("do", "n't"). It has a line of
    its own, numbered "3-4", before theirs. Their spans are found inside it as long as their forms
    spell it.
    """

    def __init__(self):
        self.text = ""
        self.words = []
        self.last_part = 0  # number of the last syntactic word of the current written word
        self.remaining = ""  # of the current written word, what its parts have not spelt yet
        self.start = 0  # where that stands in the text

    def read(self, line: str) -> None:
        number, form, _, upos, xpos, *_, misc = line.split("\t")
        blank = "" if "SpaceAfter=No" in misc else " "
        if "." in number:
            return  # an empty node of the enhanced graph
        if "-" in number:
            self.last_part = int(number.partition("-")[2])
            self.remaining = form
            self.start = len(self.text)
            self.text += form + blank
            return
        if int(number) <= self.last_part:
            span = self.span_of_part(form)
        else:
            span = (len(self.text), len(self.text) + len(form))
            self.text += form + blank
        tag = f"{upos}/{xpos}" if xpos in REFINED.get(upos, ()) else upos
        if span and tag in TAGS:
            self.words.append((span, tag))

    def span_of_part(self, form: str) -> tuple[int, int] | None:
        """Where a part of the current written word stands; None if the parts do not spell it."""
        if not self.remaining.startswith(form):
            self.remaining = "\0"  # no later part is looked for either
            return None
        span = (self.start, self.start + len(form))
        self.start += len(form)
        self.remaining = self.remaining.removeprefix(form)
        return span


def vectors(plm: SharedPLM, layer: int, sentences: list) -> tuple[torch.Tensor, torch.Tensor, int]:
    """States `(n, hidden)` and tags `(n,)` of words, and the number of words that are left out.

    A word is left out if it does not begin and end with a word piece.
    """
    probe = blank_probe(plm, layer)
    # sorted by length, so that batches need little padding
    sentences = sorted(sentences, key=lambda sentence: len(sentence[0]))
    spans = [[span for span, _ in words] for _, words in sentences]
    found = probe.states([text for text, _ in sentences], spans, exact)
    states = []
    tags = []
    left_out = 0
    for states_of_sentence, (_, words) in zip(found, sentences, strict=True):
        for state, (_, tag) in zip(states_of_sentence, words, strict=True):
            if state is None:
                left_out += 1
            else:
                states.append(state.half())
                tags.append(TAGS.index(tag))
    return torch.stack(states), torch.tensor(tags), left_out


def exact(batch: BatchEncoding, row: int, span: tuple[int, int]) -> list[int]:
    """The pieces in a span, if they begin and end where it does."""
    start, end = span
    first = batch.char_to_token(row, start)
    last = batch.char_to_token(row, end - 1)
    if first is None or last is None:
        return []
    begins = batch.token_to_chars(row, first).start == start
    ends = batch.token_to_chars(row, last).end == end
    return [*range(first, last + 1)] if begins and ends else []


def blank_probe(plm: SharedPLM, layer: int) -> PosProbe:
    weight = torch.zeros(len(TAGS), plm.config.hidden_size)
    bias = torch.zeros(len(TAGS))
    return PosProbe(plm.trunk, plm.tokenizer, weight, bias, TAGS, layer)


def fit(plm: SharedPLM, layer: int, states: torch.Tensor, tags: torch.Tensor) -> PosProbe:
    """Multinomial logistic regression by AdamW with a linearly decaying rate."""
    probe = blank_probe(plm, layer)
    parameters = [probe.weight.requires_grad_(), probe.bias.requires_grad_()]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * math.ceil(len(states) / BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(states)).split(BATCH):
            loss = cross_entropy(probe.scores(states[rows].float()), tags[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    probe.weight = probe.weight.detach()
    probe.bias = probe.bias.detach()
    return probe


def save(probe: PosProbe) -> None:
    """Weights as float16, tags and layer as JSON."""
    state = {"weight": probe.weight.half().contiguous(), "bias": probe.bias.half().contiguous()}
    save_file(state, HERE / WEIGHTS_FILE, metadata={"format": "pt"})
    settings = {"tags": list(probe.tags), "layer": probe.layer}
    (HERE / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")


def evaluate(probe: PosProbe, states: torch.Tensor, tags: torch.Tensor, left_out: int) -> dict:
    predictions = [probe.scores(part.float()).argmax(dim=-1) for part in states.split(4096)]
    predicted = torch.cat(predictions)
    is_correct = predicted == tags
    numbers = Counter(tags.tolist())
    correct = Counter(tags[is_correct].tolist())
    coarse = [tag.partition("/")[0] for tag in TAGS]
    pairs = zip(predicted.tolist(), tags.tolist(), strict=True)
    n_coarse_correct = sum(coarse[prediction] == coarse[tag] for prediction, tag in pairs)
    per_tag = {}
    for number, tag in enumerate(TAGS):
        per_tag[tag] = {"n": numbers[number], "correct": correct[number]}
    return {
        "words": len(tags),
        "left_out": left_out,
        "accuracy": is_correct.float().mean().item(),
        "upos_accuracy": n_coarse_correct / len(tags),
        "per_tag": per_tag,
    }


CARD = """\
# mini_pos: part-of-speech probe on the bundled masked LM

A linear classifier of words on the frozen states of `data/models/mini`, layer {layer} of 4:
{tags} tags x 384, float16, 27 kB. `mtlib.policies.pos_probe.PosProbe` runs it; `suspects
--nouns-first` and the part-of-speech policies ask it. This page is written by `train.py`.

    python data/models/mini_pos/train.py UD_FOLDER        # about 6 minutes on a CPU core

A word's vector is the mean of its pieces' states. Tags are universal parts of speech, refined by
the Penn tag where it tells number, tense or degree; possessives (`PRON/PRP$`) stand apart.

## Data and licence

Trained on Universal Dependencies English EWT (web text: weblogs, newsgroups, e-mails, reviews,
answers), commit 15d613d8447b3478787d4c278730a1e48a945efb; train is put together from the
per-document files, without dev's and test's sentences. The layer was chosen on dev; test is only
reported. The treebank is licensed under CC BY-SA 4.0; no sentence of it is part of this project.
The probe holds statistics derived from it and is offered under the same licence, CC BY-SA 4.0;
`train.py` is under the project's. The bundled masked LM has read plain text of EWT's sources, so
dev and test are not wholly new to it.

## Accuracy

| set | words | tag, % | part of speech, % |
| --- | ---: | ---: | ---: |
{sets}

Left out of the counts: words that do not begin and end with a word piece ("do" in "don't";
{left_out} in test), and words with a rare pair of tags. `probe.json` has the accuracy of each
layer and tag.
"""


def card(report: dict) -> str:
    rows = []
    for name in ("dev", "test"):
        scores = report[name]
        accuracy = f"{100 * scores['accuracy']:.1f}"
        upos_accuracy = f"{100 * scores['upos_accuracy']:.1f}"
        rows.append(f"| {name} | {scores['words']:,} | {accuracy} | {upos_accuracy} |")
    return CARD.format(
        layer=report["layer"],
        tags=len(report["tags"]),
        left_out=report["test"]["left_out"],
        sets="\n".join(rows),
    )


if __name__ == "__main__":
    main()
