"""The page to play with: its JavaScript computes what PyTorch computes, and it answers to clicks and typing."""

import base64
import html
import json
import re
import shutil
import subprocess
from itertools import chain

import numpy
import pytest
import torch

from mtlib.paths import FIGURE_DIR
from mtlib.tutorial import playground

PAGE = FIGURE_DIR / "playground.html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)

# of every model and sentence: masked-LM scores at the masked places, the filled sentence, the classifier's scores of it
SCORES = """(sentences => data.models.map(({tensors}) => sentences.map(([ids, at]) => {
  const {filled, scores} = fill(tensors, ids, new Set(at));
  return [at.map(i => scores[i]), filled, classify(tensors, filled)];
})))"""
USE = """(() => {
  const said = () => [...document.querySelectorAll(".says")].map(one => one.textContent.split(" ").at(-2));
  const type = text => { $("typed").value = text; document.forms[0].requestSubmit(); return $("fault").textContent; };
  const masksAfter = button => { button.click(); return document.querySelectorAll("mark").length / 3; };
  const masks = [...$("words").children, $("clear"), $("mask")].map(masksAfter);
  const typed = [type("A wonderful hotel, from emil rather superb too!"), said(), $("truth").textContent];
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
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture
def data(text) -> dict:
    return json.JSONDecoder().raw_decode(text.partition("const data = ")[2])[0]


@pytest.fixture
def in_browser(text, tmp_path):
    """Gives what a JavaScript expression is at the end of the page."""
    if BROWSER is None:
        pytest.skip("no Chromium (Debian's package chromium) to open the page in")

    def value_of(expression: str):
        ending = (
            f'<pre id="answer"></pre><script>$("answer").textContent = JSON.stringify({expression});</script></html>'
        )
        (tmp_path / "page.html").write_text(text.replace("</html>", ending), encoding="utf-8")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command += ["--dump-dom", (tmp_path / "page.html").as_uri()]
        dom = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
        return json.loads(html.unescape(re.search(r'<pre id="answer">(.*?)</pre>', dom, flags=re.S)[1]))

    return value_of


def with_weights(model, stored: str, tensors: list):
    """The notebook's model with a page's weights."""
    flat, own = numpy.frombuffer(base64.b64decode(stored), dtype="<f2").astype("float32"), model.state_dict()
    parts = torch.from_numpy(flat).split([size for _, size in tensors])
    weights = {name: part.view_as(own[name]) for (name, _), part in zip(tensors, parts, strict=True)}
    model.load_state_dict(weights | {"mlm.weight": weights["words.weight"]})
    return model.eval()


def test_the_page_is_made_from_the_template_and_needs_no_network(text, data):
    assert playground.page(data) == text, "the template has changed: run `python -m mtlib playground`"
    assert len(text) < 4_000_000 and not re.search(r"https?://|src=|@import|fetch\(", text)


@torch.no_grad()
def test_javascript_computes_what_pytorch_computes(data, in_browser):
    notebook = playground.of_notebook("fill")
    assert notebook["vocabulary"] == data["vocabulary"], "notebook 03 has changed: run `python -m mtlib playground`"
    ids = torch.cat([notebook["data"][name][0][:100] for name in ("agrees", "misleads")])  # (200, length)
    torch.manual_seed(0)
    places = notebook["mask"](ids, 0.3)
    sentences = [[row[row > 0].tolist(), at.nonzero()[:, 0].tolist()] for row, at in zip(ids, places, strict=True)]
    found = in_browser(f"{SCORES}({json.dumps(sentences)})")
    for stored, of_sentences in zip(data["models"], found, strict=True):
        model = with_weights(notebook["Model"](), stored["weights"], data["tensors"])
        mlm_scores, filled, scores = zip(*of_sentences, strict=True)
        _, expected = notebook["fill"](model, ids, places)
        assert [*filled] == [row[row > 0].tolist() for row in expected]
        torch.testing.assert_close(torch.tensor(scores), model.classify(expected), atol=1e-4, rtol=0)
        expected = model.mlm(model.trunk(ids.masked_fill(places, notebook["MASK"]))[places])
        torch.testing.assert_close(torch.tensor([*chain(*mlm_scores)]), expected, atol=1e-4, rtol=0)
        for name in ("agrees", "misleads"):
            ids_of, labels = notebook["data"][name]
            right = (model.classify(ids_of).argmax(1) == labels).float().mean().item()
            assert stored[name] == pytest.approx(100 * right, abs=0.15)


def test_the_page_answers_to_clicks_typing_and_the_slider(data, in_browser):
    found = in_browser(USE)
    assert found["masks"] == [*range(1, len(data["first"].split()) + 1), 0, 2]
    fault, says, truth = found["typed"]
    assert fault == "" and says == ["✗", "✗", "✓"], "the first two read topic and name"
    assert truth.endswith("say positive +, topic and name (dashed) suggest negative −.")
    assert found["swapped"] == ["a wonderful film from anna rather superb too", ["✓", "✓", "✓"]]
    unknown, too_long, sentence = found["faults"]
    assert "do not know: car." in unknown and too_long == "Type 1 to 11 words." and sentence == found["swapped"][0]
    for share, line in zip(data["shares"], found["moved"], strict=True):
        masked, right = map(int, re.match(r"(\d+) of 20 masked: (\d+) % right", line).groups())
        assert masked == share["words"] and right == pytest.approx(numpy.mean(share["misleads"]), abs=0.51)
