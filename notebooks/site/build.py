"""Build the project's site, without a network: `make site`, then open build/site/index.html.

The pages are those of the repository, at the same places; only what a site needs beside them stands
in this folder. Sphinx refuses a link to a page or a heading that is not there, `check_links` one in
the finished HTML.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from notebooks.address import repository

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
SOURCE = ROOT / "build" / "site_source"
OUT = ROOT / "build" / "site"
PAGES = {
    "The course": [
        "notebooks/README.md",
        *sorted(f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")),
        "site/figures.md",
    ],
    "Use it": ["data/README.md", "mtlib/README.md", "site/api.md"],
    "Does the paper hold?": [
        "data/results/REPORT.md",
        "data/results/PLAN.md",
        "data/results/README.md",
        "data/models/README.md",
    ],
}
FOLDED = {
    "solution": "hide-cell",
    "check": "hide-input",
    "figure": "hide-input",
    "expected": "remove-cell",
    "install": "remove-cell",
}  # tags of cells, and of myst-nb
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
_PLAYGROUND = "figures/playground.html"


def main() -> None:
    collect()
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-c",
        str(SITE),
    ]
    if code := subprocess.run([*command, str(SOURCE), str(OUT)], cwd=ROOT, check=False).returncode:
        sys.exit(code)
    playground_page()
    if broken := list(check_links(OUT)):
        sys.exit("\n".join(["broken links:", *broken]))
    print(f"written: {OUT / 'index.html'}")


# --- the sources ---


def collect() -> None:
    """Copy the pages to `build/site_source`, with links that hold there."""
    for folder in (SOURCE, OUT):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SITE, SOURCE / "site", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copytree(
        ROOT / "figures", SOURCE / "figures", ignore=shutil.ignore_patterns("*.py", "__pycache__")
    )
    address = repository()
    figures = (SITE / "figures.md").read_text(encoding="utf-8")
    write("site/figures.md", linked(figures, "notebooks/site/figures.md", address))
    write(
        "index.md",
        with_contents(
            linked((ROOT / "README.md").read_text(encoding="utf-8"), "README.md", address)
        ),
    )
    for name in (
        name for names in PAGES.values() for name in names if not name.startswith("site/")
    ):
        text = (ROOT / name).read_text(encoding="utf-8")
        write(
            name,
            notebook(text, name, address)
            if name.endswith(".ipynb")
            else linked(text, name, address),
        )


def write(name: str, text: str) -> None:
    path = SOURCE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def with_contents(front: str) -> str:
    """The front page, and behind it the site's table of contents (which the side bar shows)."""
    parts = [front]
    for caption, names in PAGES.items():
        lines = "\n".join(f"/{name.rpartition('.')[0]}" for name in names)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n")
    return "\n".join(parts)


def notebook(text: str, name: str, address: str | None) -> str:
    """A notebook whose solutions are folded, without the cell that installs mtlib on Colab."""
    content = json.loads(text)
    for cell in content["cells"]:
        tags = cell["metadata"].setdefault("tags", [])
        tags += [FOLDED[tag] for tag in tags if tag in FOLDED]
        if alternative := "; ".join(alternative_texts(cell)):
            cell["metadata"]["mystnb"] = {"image": {"alt": alternative}}
        if cell["cell_type"] == "markdown":
            cell["source"] = linked("".join(cell["source"]), name, address)
    return json.dumps(content)


def alternative_texts(cell: dict) -> Iterator[str]:
    """Of the pictures among a cell's outputs."""
    for output in cell.get("outputs", []):
        for metadata in output.get("metadata", {}).values():
            if isinstance(metadata, dict) and "alt" in metadata:
                yield metadata["alt"]


def linked(text: str, name: str, address: str | None) -> str:
    """The text of the page `name`, whose links lead to the site's pages, or to the repository, or
    are plain text.
    """
    pages = {page for names in PAGES.values() for page in names} | {"README.md"}
    folder = (ROOT / name).parent

    def replaced(match: re.Match) -> str:
        path, anchor = match[1], match[2] or ""
        target = (folder / path).resolve().relative_to(ROOT).as_posix()
        if target == "README.md":
            return f"](/index.md{anchor})"
        if target == _PLAYGROUND or target in pages or target.startswith("figures/"):
            return f"](/{target}{anchor})"
        return f"]({address}/blob/main/{target})" if address else "]()"

    text = _LINK.sub(replaced, text.replace(" (download it, open it in a browser)", ""))
    text = re.sub(r"(?<!!)\[([^]!]+)\]\(/figures/\w+\.png\)", r"[\1](/site/figures.md)", text)
    text = re.sub(
        rf"\[([^]]+)\]\(/{_PLAYGROUND}\)", rf'<a href="{up(name)}{_PLAYGROUND}">\1</a>', text
    )
    return re.sub(r"(?<!!)\[([^]]+)\]\(\)", r"\1", text)


def up(name: str) -> str:
    """From the page's folder to the site's."""
    return "../" * name.count("/")


def playground_page() -> None:
    """The page to play with, with a way back."""
    text = (ROOT / _PLAYGROUND).read_text(encoding="utf-8")
    title = "Back to the course: Mask-tuning from nothing"
    before, heading, after = text.partition("<h1")
    if not heading:
        sys.exit(f"{_PLAYGROUND} has no <h1> that the way back could stand before")
    back = f'<p><a href="../notebooks/03_mask_tuning.html">{title}</a></p>'
    (OUT / "figures").mkdir(exist_ok=True)
    (OUT / _PLAYGROUND).write_text(f"{before}{back}\n{heading}{after}", encoding="utf-8")


# --- the finished pages ---


class _Links(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        for name in ("href", "src"):
            if attributes.get(name):
                self.targets.add(attributes[name])


def check_links(folder: Path) -> Iterator[str]:
    """Links within the site whose page or anchor is not there."""
    pages = {path: _Links(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    for path, page in pages.items():
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            missing_anchor = (
                parts.fragment
                and file in pages
                and unquote(parts.fragment) not in pages[file].anchors
            )
            if not file.exists() or missing_anchor:
                yield f"{path.relative_to(folder)}: {target}"


if __name__ == "__main__":
    main()
