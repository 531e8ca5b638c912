"""One text looked at closely: words masked by hand, what the model fills in, and what that does to the class."""

from collections.abc import Collection
from dataclasses import dataclass
from html import escape

import pandas
import torch

from mtlib.contexts import evaluating
from mtlib.diversity.fillings import marked_html
from mtlib.marking import WORD
from mtlib.plm import SharedPLM
from mtlib.runs.environment import is_interactive


@dataclass(frozen=True)
class Exploration:
    """A text before and after refilling; a notebook shows it as HTML.

    `tokens` and `perturbed` are its tokens, `fillers` the likeliest ones of each masked position with their
    probabilities, best first, and `classes` has the probability of each class for the original and the refilled text.
    """

    tokens: list[str]
    perturbed: list[str]
    fillers: dict[int, list[tuple[str, float]]]
    classes: pandas.DataFrame

    def _repr_html_(self) -> str:
        """Marks differ by tag as well as by colour, so that they survive without styles."""

        def line(tokens: list[str], tag: str) -> str:
            marked = [f"<{tag}>{escape(token)}</{tag}>" if i in self.fillers else escape(token)
                      for i, token in enumerate(tokens)]  # fmt: skip
            return " ".join(marked)

        best = pandas.DataFrame(
            [[self.tokens[i], ", ".join(f"“{token}” {p:.1%}" for token, p in fillers)]
             for i, fillers in self.fillers.items()],
            columns=["masked token", "best fillers"],
        )  # fmt: skip
        classes = self.classes.map("{:.1%}".format)
        return (
            f'<p style="line-height:1.4">original: {line(self.tokens, "b")}<br>'
            f"refilled: {line(self.perturbed, 'mark')}</p>{best.to_html(index=False)}{classes.to_html()}"
        )


@torch.no_grad()
def explore(
    plm: SharedPLM, text: str, masked: Collection[int] = (), text_pair: str | None = None, n_fillers: int = 5
) -> Exploration:
    """Mask words of a text, fill them with the likeliest token each, and classify the text before and after.

    Args:
        plm: the model, before or after training; dropout is off meanwhile.
        masked: which words, by their number, from 0; those of the pair are counted on.
        n_fillers: how many candidates to list for each masked token.
    """
    encoded = plm.tokenizer(text, text_pair, truncation=True, return_offsets_mapping=True, return_tensors="pt")
    offsets, parts = encoded.pop("offset_mapping")[0].tolist(), encoded.sequence_ids(0)
    places = [_words(text, text_pair)[number][1:] for number in masked]
    mask = [any(part == of and start < right and left < end for of, left, right in places)
            for part, (start, end) in zip(parts, offsets, strict=True)]  # fmt: skip
    batch, mask = encoded.to(plm.device), torch.tensor([mask], device=plm.device)  # (1, seq)
    with evaluating(plm):
        logits, perturbed_ids = plm.fill_masks(batch, mask)  # (n_masked, vocab), (1, seq)
        both = [plm.classify({**batch, "input_ids": ids})[0] for ids in (batch["input_ids"], perturbed_ids)]
    names = plm.tokenizer.convert_ids_to_tokens
    best = logits.float().softmax(-1).topk(min(n_fillers, logits.shape[-1]))  # (n_masked, n_fillers)
    fillers = [list(zip(names(ids), values, strict=True))
               for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)]  # fmt: skip
    original, refilled = (logits.float().softmax(-1).tolist() for logits in both)
    return Exploration(
        names(batch["input_ids"][0].tolist()),
        names(perturbed_ids[0].tolist()),
        dict(zip(mask[0].nonzero().flatten().tolist(), fillers, strict=True)),
        pandas.DataFrame({"original": original, "refilled": refilled}, index=[*plm.config.id2label.values()]),
    )


def click_to_mask(plm: SharedPLM, text: str, masked: Collection[int] = (), text_pair: str | None = None):
    """`explore`, with a button for each word that masks it. Where nobody can press one, the picture alone."""
    if not is_interactive():
        return explore(plm, text, masked, text_pair)
    import ipywidgets as w

    buttons = [
        w.ToggleButton(value=number in masked, description=word, layout={"width": "auto"})
        for number, (word, *_) in enumerate(_words(text, text_pair))
    ]
    output = w.HTML()

    def update(_=None) -> None:
        pressed = [number for number, button in enumerate(buttons) if button.value]
        output.value = explore(plm, text, pressed, text_pair)._repr_html_()

    for button in buttons:
        button.observe(update, names="value")
    update()
    return w.VBox([w.HBox(buttons, layout={"flex_flow": "row wrap"}), output])


def highlight_words(text: str, words: Collection[str]) -> str:
    """`text` as HTML with every word of `words` (lower case) inside `<mark>`."""
    return marked_html(WORD.sub(lambda word: f"⟦{word[0]}⟧" if word[0].lower() in words else word[0], text))


def _words(text: str, text_pair: str | None) -> list[tuple[str, int, int, int]]:
    """Each word with its text (0 or 1), start and end."""
    return [(word[0], part, *word.span()) for part, whole in enumerate((text, text_pair or ""))
            for word in WORD.finditer(whole)]  # fmt: skip
