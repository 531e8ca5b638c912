"""Draw the unlabelled cases of cases.csv: a masked place in a sentence, and what might stand there.

    python data/plausibility/draw_cases.py NEW_FILE.csv

Sentences: the testbed's training and evaluation sets, and own_sentences.txt. Fillers: the bundled masked LM's
likeliest token, one of its ranks 2 to 10, one of its ranks 11 to 300, or any token of the vocabulary. The column
`plausible` is left empty for an annotator; which way a filler was drawn is not written down, so that nobody sees it.
"""

import csv
import random
import sys
from pathlib import Path

import torch

from mtlib.data.sources import load
from mtlib.data.tasks import TASKS
from mtlib.diversity.fillings import rendered
from mtlib.marking import continues_word
from mtlib.masking import maskable_positions
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM

WAYS = ("likeliest", "ranks 2 to 10", "ranks 11 to 300", "any")
# sentences per task, own sentences, weights of the ways, whole words only. The second batch, drawn after the first was
# labelled, has more fillers that fit, since these turned out to be few; the third was drawn to measure the judge on.
BATCHES = (
    (44, 68, (0.4, 0.25, 0.2, 0.15), False),
    (28, 56, (0.5, 0.4, 0.1, 0.0), True),
    (38, 40, (0.5, 0.35, 0.1, 0.05), False),
)


def main(path: Path) -> None:
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
    continues = continues_word(plm.tokenizer)
    cases = []
    for number, (per_task, own, weights, whole_words) in enumerate(BATCHES):
        draw = random.Random(number)
        for sentence in draw_sentences(per_task, own, draw):
            case = draw_case(plm, continues, *sentence, weights, whole_words, draw)
            if case is not None and case not in cases:
                cases.append(case)
    with path.open("x", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["uid", "task", "text", "original", "filler", "plausible"])
        writer.writerows([f"case-{number:03}", *case, ""] for number, case in enumerate(cases))


def draw_sentences(per_task: int, own: int, draw: random.Random) -> list[tuple[str, str]]:
    sentences = []
    for task in TASKS.values():
        for name in draw.choices([task.testbed.train, *task.evaluation_sets("testbed")], k=per_task):
            example = draw.choice(list(load(name)))
            part = draw.choice([part for part in ("text", "text_pair") if part in example])
            sentences.append((task.name, example[part]))
    lines = (Path(__file__).parent / "own_sentences.txt").read_text().splitlines()
    sentences += [("own", sentence) for sentence in (lines * 2)[:own]]
    draw.shuffle(sentences)
    return sentences


def draw_case(plm, continues, task: str, text: str, weights, whole_words: bool, draw: random.Random) -> tuple | None:
    """(task, marked text, original, filler), or None where the filler is the original."""
    encoded = plm.tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    batch = dict(encoded)
    ids = batch["input_ids"][0].tolist()
    places = maskable_positions(batch, plm.tokenizer)[0].nonzero()[:, 0].tolist()
    if whole_words:
        places = [place for place in places if not continues[ids[place]] and not continues[ids[place + 1]]]
    position = draw.choice(places)
    mask = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    mask[0, position] = True
    with torch.no_grad():
        ranked = plm.masked_lm_logits(batch, mask)[0].argsort(descending=True).tolist()
    ranked = [token for token in ranked if token not in plm.tokenizer.all_special_ids]
    way = draw.choices(WAYS, weights)[0]
    filler_id = {
        "likeliest": ranked[0],
        "ranks 2 to 10": draw.choice(ranked[1:10]),
        "ranks 11 to 300": draw.choice(ranked[10:300]),
        "any": draw.choice(ranked),
    }[way]
    if filler_id == ids[position]:
        return None
    start, end = offsets[position]
    place, filler = rendered(
        plm.tokenizer, continues, text, start, end, filler_id, next_continues=bool(continues[ids[position + 1]])
    )
    return task, f"{text[:place]}⟦{filler}⟧{text[end:]}", text[place:end], filler


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
