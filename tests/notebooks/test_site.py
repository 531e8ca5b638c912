"""The site's builder: where its links lead, and that it notices one that leads nowhere."""

import pytest

from notebooks import address
from notebooks.site import build as site
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("link", "repository", "found"),
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
def test_links_of_a_page(link, repository, found):
    assert site.linked(f"See {link}.", "notebooks/README.md", repository) == f"See {found}."


def test_a_broken_link_is_noticed(tmp_path):
    links = '<a href="b.html#here"></a> <a href="b.html#gone"></a> <img src="c.png">'
    (tmp_path / "a.html").write_text(f"{links} <a href='https://x.org'></a>")
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    assert list(site.check_links(tmp_path)) == ["a.html: b.html#gone", "a.html: c.png"]


def test_the_readme_and_the_notebooks_name_the_projects_address_where_it_has_one():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    without = address.in_readme(readme, None)
    there = address.in_readme(without, "https://github.com/a/b")
    assert "git clone https://github.com/a/b && cd b\n" in there
    assert "research.google.com/github/a/b/blob/main/notebooks/03_mask_tuning.ipynb" in there
    assert address.in_readme(there, None) == without
    opening = "# 03 · Title\n\n**Question** What?"
    linked = address.in_opening(opening, "03.ipynb", "https://github.com/a/b")
    heading, blank, badge, *rest = linked.split("\n")
    assert (heading, blank, rest) == ("# 03 · Title", "", ["", "**Question** What?"])
    assert badge.endswith("research.google.com/github/a/b/blob/main/notebooks/03.ipynb)")
    assert address.in_opening(linked, "03.ipynb", None) == opening
    install = 'import sys\nrepository = ""  # the address'
    given = address.in_install(install, "https://e.org/a")
    assert given == 'import sys\nrepository = "https://e.org/a"  # the address'
    assert address.in_install(given, None) == install
    assert address.in_readme(readme, address.repository()) == readme, "run `make publish`"
