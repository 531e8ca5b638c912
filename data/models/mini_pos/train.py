"""Train the part-of-speech probe on the bundled model's frozen states, and write its card.

    python data/models/mini_pos/train.py UD_FOLDER

UD_FOLDER holds en_ewt-ud-train.conllu, -dev.conllu and -test.conllu of Universal Dependencies' English EWT treebank.
The layer is chosen on dev with a quarter of train; test is only reported.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import SETTINGS_FILE, WEIGHTS_FILE, Piece, PosProbe, pieces_at

HERE = Path(__file__).resolve().parent
# of these the Penn tag tells number, tense or degree, or sets possessives ("their") apart, which stand where a
# determiner does
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
TAGS = sorted([f"{upos}/{xpos}" for upos, fine in REFINED.items() for xpos in fine] + list(PLAIN))
EPOCHS, BATCH, RATE, WEIGHT_DECAY = 12, 512, 3e-3, 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
    data = {part: read_conllu(folder / f"en_ewt-ud-{part}.conllu") for part in ("train", "dev", "test")}

    by_layer = {}
    for layer in range(plm.config.num_hidden_layers + 1):
        probe = fit(plm, layer, *vectors(plm, layer, data["train"][::4])[:2])
        by_layer[layer] = evaluate(probe, *vectors(plm, layer, data["dev"]))["accuracy"]
        print(f"layer {layer}: dev {by_layer[layer]:.4f}", flush=True)
    layer = max(by_layer, key=by_layer.get)
    probe = fit(plm, layer, *vectors(plm, layer, data["train"])[:2])
    save(probe)
    probe = PosProbe.bundled()  # float16 weights, as shipped
    scores = {part: evaluate(probe, *vectors(plm, layer, data[part])) for part in ("dev", "test")}
    settings = json.loads((HERE / SETTINGS_FILE).read_text())
    settings |= {"dev_by_layer": by_layer, **scores}
    (HERE / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")
    (HERE / "README.md").write_text(card(settings), encoding="utf-8")
    print(json.dumps({part: {k: v for k, v in score.items() if k != "per_tag"} for part, score in scores.items()}))


def read_conllu(path: Path) -> list[tuple[str, list[tuple[tuple[int, int], str]]]]:
    """Sentences as (text, words as (place, tag)); a word whose place or tag is unclear is left out."""
    sentences = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        text, words, inside_until = "", [], 0
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            number, form, _, upos, xpos, *_, misc = line.split("\t")
            if "." in number:  # an empty node of the enhanced graph
                continue
            blank = "" if "SpaceAfter=No" in misc else " "
            if "-" in number:  # a written word that two or more syntactic words share
                inside_until, written, start = int(number.partition("-")[2]), form, len(text)
                text += form + blank
                continue
            tag = f"{upos}/{xpos}" if xpos in REFINED.get(upos, ()) else upos
            if int(number) <= inside_until:
                if not written.startswith(form):
                    written = "\0"  # the parts do not spell the whole: none of the rest will be found in it
                    continue
                place, start, written = (start, start + len(form)), start + len(form), written[len(form) :]
            else:
                place = len(text), len(text) + len(form)
                text += form + blank
            if tag in TAGS:
                words.append((place, tag))
        sentences.append((text.rstrip(), words))
    return sentences


def vectors(plm: SharedPLM, layer: int, sentences: list) -> tuple[torch.Tensor, torch.Tensor, int]:
    """States `(n, hidden)` and tags `(n,)` of the words that begin and end with a word piece, and how many do not."""
    reader = blank_probe(plm, layer)
    sentences = sorted(sentences, key=lambda sentence: len(sentence[0]))  # like lengths together: little padding
    places = [[place for place, _ in words] for _, words in sentences]
    found = reader.states([text for text, _ in sentences], places, exact)
    pairs = [
        (state.half(), TAGS.index(tag))
        for states, (_, words) in zip(found, sentences, strict=True)
        for state, (_, tag) in zip(states, words, strict=True)
        if state is not None
    ]
    left_out = sum(len(words) for _, words in sentences) - len(pairs)
    return torch.stack([state for state, _ in pairs]), torch.tensor([tag for _, tag in pairs]), left_out


def exact(pieces: list[Piece], place: tuple[int, int]) -> list[int]:
    """The pieces at a place, if they begin and end where it does."""
    inside = pieces_at(pieces, place)
    return inside if inside and (pieces[inside[0]].start, pieces[inside[-1]].end) == place else []


def blank_probe(plm: SharedPLM, layer: int) -> PosProbe:
    zeros = torch.zeros(len(TAGS), plm.config.hidden_size)
    return PosProbe(plm.trunk, plm.tokenizer, zeros, torch.zeros(len(TAGS)), TAGS, layer)


def fit(plm: SharedPLM, layer: int, states: torch.Tensor, tags: torch.Tensor) -> PosProbe:
    """Multinomial logistic regression by AdamW, linear decay."""
    probe = blank_probe(plm, layer)
    probe.weight.requires_grad_(), probe.bias.requires_grad_()
    optimizer = torch.optim.AdamW([probe.weight, probe.bias], lr=RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * -(-len(states) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(states)).split(BATCH):
            loss = cross_entropy(probe.scores(states[rows].float()), tags[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    probe.weight, probe.bias = probe.weight.detach(), probe.bias.detach()
    return probe


def save(probe: PosProbe) -> None:
    """Weights as float16, tags and layer as JSON."""
    state = {"weight": probe.weight.half().contiguous(), "bias": probe.bias.half().contiguous()}
    save_file(state, HERE / WEIGHTS_FILE, metadata={"format": "pt"})
    settings = {"tags": list(probe.tags), "layer": probe.layer}
    (HERE / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")


def evaluate(probe: PosProbe, states: torch.Tensor, tags: torch.Tensor, left_out: int) -> dict:
    predicted = torch.cat([probe.scores(part.float()).argmax(dim=-1) for part in states.split(4096)])
    coarse = [tag.partition("/")[0] for tag in TAGS]
    pairs = list(zip(predicted.tolist(), tags.tolist(), strict=True))
    right, n = Counter(gold for guess, gold in pairs if guess == gold), Counter(gold for _, gold in pairs)
    return {
        "words": len(tags),
        "left_out": left_out,
        "accuracy": (predicted == tags).float().mean().item(),
        "upos_accuracy": sum(coarse[guess] == coarse[gold] for guess, gold in pairs) / len(pairs),
        "per_tag": {TAGS[tag]: {"n": n[tag], "correct": right[tag]} for tag in range(len(TAGS))},
    }


CARD = """\
# mini_pos: part-of-speech probe on the bundled masked LM

A linear classifier of words on the frozen states of `data/models/mini`, layer {layer} of 4: {tags} tags x 384, float16,
27 kB. `mtlib.policies.pos_probe.PosProbe` runs it; `suspects --nouns-first` and the part-of-speech
policies ask it. This page is written by `train.py`.

    python data/models/mini_pos/train.py UD_FOLDER        # about 6 minutes on a CPU core

A word's vector is the mean of its pieces' states. Tags are universal parts of speech, refined by the Penn tag where it
tells number, tense or degree; possessives (`PRON/PRP$`) stand apart.

## Data and licence

Trained on Universal Dependencies English EWT (web text: weblogs, newsgroups, e-mails, reviews, answers), commit
15d613d8447b3478787d4c278730a1e48a945efb; train is put together from the per-document files, without dev's and test's
sentences. The layer was chosen on dev; test is only reported. The treebank is licensed under CC BY-SA 4.0; no sentence
of it is part of this project. The probe holds statistics derived from it and is offered under the same licence,
CC BY-SA 4.0; `train.py` is under the project's. The bundled masked LM has read plain text of EWT's sources, so dev and
test are not wholly new to it.

## Accuracy

| set | words | tag, % | part of speech, % |
| --- | ---: | ---: | ---: |
{sets}

Left out of the counts: words that do not begin and end with a word piece ("do" in "don't"; {left_out} in test), and
words with a rare pair of tags.
`probe.json` has the accuracy of each layer and tag.
"""


def card(settings: dict) -> str:
    return CARD.format(
        layer=settings["layer"],
        tags=len(settings["tags"]),
        left_out=settings["test"]["left_out"],
        sets="\n".join(
            f"| {name} | {found['words']:,} | {100 * found['accuracy']:.1f} | {100 * found['upos_accuracy']:.1f} |"
            for name, found in (("dev", settings["dev"]), ("test", settings["test"]))
        ),
    )


if __name__ == "__main__":
    main()
