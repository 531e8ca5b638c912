"""The playground: its JavaScript computes what PyTorch does, and it answers clicks and typing."""

import base64
import html
import json
import re
import shutil
import subprocess
from functools import partial
from itertools import chain

import numpy
import pytest
import torch

from mtlib.tutorial import toy
from notebooks.playground import build

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

# for every model and sentence: the masked-LM scores at the masked positions, the filled sentence,
# and the classifier's scores of it
SCORES = """(sentences => data.models.map(({tensors}) => sentences.map(([ids, at]) => {
  const {filled, scores} = fill(tensors, ids, new Set(at));
  return [at.map(i => scores[i]), filled, classify(tensors, filled)];
})))"""
USE = """(() => {
  const said = () =>
    [...document.querySelectorAll(".says")].map(line => line.textContent.split(" ").at(-2));
  const type = text => {
    $("typed").value = text;
    document.forms[0].requestSubmit();
    return $("fault").textContent;
  };
  const masksAfter = button => {
    button.click();
    return document.querySelectorAll("mark").length / 3;
  };
  const masks = [...$("words").children, $("clear"), $("mask")].map(masksAfter);
  const fault = type("A wonderful hotel, from emil rather superb too!");
  const typed = [fault, said(), $("truth").textContent];
  $("swap").click();
  const swapped = [words.join(" "), said()];
  const faults = [type("the car was awful"), type("the ".repeat(12)), words.join(" ")];
  const moved = data.shares.map((_, i) => {
    $("share").value = i;
    $("share").oninput();
    return $("result").textContent;
  });
  return {masks, typed, swapped, faults, moved};
})()"""


@pytest.fixture(scope="module")
def text() -> str:
    return build.PAGE.read_text(encoding="utf-8")


@pytest.fixture
def data(text) -> dict:
    return json.JSONDecoder().raw_decode(text.partition("const data = ")[2])[0]


@pytest.fixture
def in_browser(text, tmp_path):
    """Gives what a JavaScript expression is at the end of the page."""
    if BROWSER is None:
        pytest.skip("no Chromium (Debian's package chromium) to open the page in")

    def value_of(expression: str):
        script = f'$("answer").textContent = JSON.stringify({expression});'
        ending = f'<pre id="answer"></pre><script>{script}</script></html>'
        page = tmp_path / "page.html"
        page.write_text(text.replace("</html>", ending), encoding="utf-8")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
        opened = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        answer = re.search(r'<pre id="answer">(.*?)</pre>', opened.stdout, flags=re.S)[1]
        return json.loads(html.unescape(answer))

    return value_of


def with_weights(model, stored: str, tensors: list):
    """The toy's model with a page's weights."""
    flat = numpy.frombuffer(base64.b64decode(stored), dtype="<f2").astype("float32")
    parts = torch.from_numpy(flat).split([size for _, size in tensors])
    weights = model.state_dict()
    for (name, _), part in zip(tensors, parts, strict=True):
        weights[name] = part.view_as(weights[name])
    weights["mlm.weight"] = weights["words.weight"]
    model.load_state_dict(weights)
    return model.eval()


def test_the_page_is_made_from_the_template_and_needs_no_network(text, data):
    advice = "run `make playground`"
    assert build.page(data) == text, f"the template has changed: {advice}"
    assert len(text) < 4_000_000 and not re.search(r"https?://|src=|@import|fetch\(", text)


@torch.no_grad()
def test_javascript_computes_what_pytorch_computes(data, in_browser):
    advice = "run `make playground`"
    assert toy.vocabulary == data["vocabulary"], f"the language has changed: {advice}"
    agrees = toy.data["agrees"][0][:20]
    misleads = toy.data["misleads"][0][:20]
    ids = torch.cat([agrees, misleads])  # (40, length)
    torch.manual_seed(0)
    places = toy.mask(ids, 0.3)
    sentences = []
    for row, mask in zip(ids, places, strict=True):
        sentences.append([row[row > 0].tolist(), mask.nonzero()[:, 0].tolist()])
    found = in_browser(f"{SCORES}({json.dumps(sentences)})")
    for stored, of_sentences in zip(data["models"], found, strict=True):
        model = with_weights(toy.Model(), stored["weights"], data["tensors"])
        mlm_scores, filled, scores = zip(*of_sentences, strict=True)
        _, expected = toy.fill(model, ids, places)
        assert [*filled] == [row[row > 0].tolist() for row in expected]
        assert_close = partial(torch.testing.assert_close, atol=1e-4, rtol=0)
        assert_close(torch.tensor(scores), model.classify(expected))
        expected = model.mlm(model.trunk(ids.masked_fill(places, toy.MASK))[places])
        assert_close(torch.tensor([*chain(*mlm_scores)]), expected)
        for name in ("agrees", "misleads"):
            ids_of, labels = toy.data[name]
            right = (model.classify(ids_of).argmax(1) == labels).float().mean().item()
            assert stored[name] == pytest.approx(100 * right, abs=0.15)


def test_the_page_answers_to_clicks_typing_and_the_slider(data, in_browser):
    found = in_browser(USE)
    assert found["masks"] == [*range(1, len(data["first"].split()) + 1), 0, 2]
    fault, says, truth = found["typed"]
    assert fault == "" and says == ["✗", "✗", "✓"], "the first two read topic and name"
    assert truth.endswith("say positive +, topic and name (dashed) suggest negative −.")
    sentence, says = found["swapped"]
    assert sentence == "a wonderful film from anna rather superb too"
    assert says == ["✓", "✓", "✓"]
    unknown, too_long, unchanged = found["faults"]
    assert "do not know: car." in unknown and too_long == "Type 1 to 11 words."
    assert unchanged == sentence
    for share, line in zip(data["shares"], found["moved"], strict=True):
        masked, right = map(int, re.match(r"(\d+) of 20 masked: (\d+) % right", line).groups())
        assert masked == share["words"]
        assert right == pytest.approx(numpy.mean(share["misleads"]), abs=0.51)
