"""The site's builder: where its links lead, and that it notices one that leads nowhere."""

import importlib.util

import pytest

from mtlib.paths import DATA_DIR

BUILDER = DATA_DIR.parent / "notebooks" / "site" / "build.py"


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_builder", BUILDER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "address", "found"),
    [
        ("[front](../README.md#install)", None, "[front](/index.md#install)"),
        ("[03](03_mask_tuning.ipynb)", None, "[03](/notebooks/03_mask_tuning.ipynb)"),
        (
            "[there](https://arxiv.org/abs/2307.10457)",
            None,
            "[there](https://arxiv.org/abs/2307.10457)",
        ),
        ("[the rules](../LICENSE)", None, "the rules"),
        (
            "[the rules](../LICENSE)",
            "https://x.org/a",
            "[the rules](https://x.org/a/blob/main/LICENSE)",
        ),
        (
            "[play](../figures/playground.html)",
            None,
            '<a href="../figures/playground.html">play</a>',
        ),
    ],
)
def test_links_of_a_page(site, link, address, found):
    assert site.linked(f"See {link}.", "notebooks/README.md", address) == f"See {found}."


def test_a_broken_link_is_noticed(site, tmp_path):
    links = '<a href="b.html#here"></a> <a href="b.html#gone"></a> <img src="c.png">'
    (tmp_path / "a.html").write_text(f"{links} <a href='https://x.org'></a>")
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    assert list(site.check_links(tmp_path)) == ["a.html: b.html#gone", "a.html: c.png"]
