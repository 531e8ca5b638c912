"""Write the project's address into the README and the notebooks: part of `make publish`.

The address stands in one place, `[project.urls]` of pyproject.toml, as `Repository`. With it the
README gets badges and a line to clone, and each notebook a link to Colab and what its first cell
installs there; without it neither asks for what a reader cannot know.
"""

import re
import tomllib
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
_COLAB = "https://colab.research.google.com"
_COLAB_LINE = re.compile(rf"\n\n\[!\[Open in Colab\]\({re.escape(_BADGE)}\)\]\([^)]*\)")


def main() -> None:
    address = repository()
    readme = ROOT / "README.md"
    readme.write_text(in_readme(readme.read_text(encoding="utf-8"), address), encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        opening = notebook.cells[0]
        opening.source = in_opening(opening.source, path.name, address)
        for cell in notebook.cells:
            if "install" in cell.metadata.get("tags", []):
                cell.source = in_install(cell.source, address)
        nbformat.write(notebook, path)
    print(f"address: {address or 'none, see [project.urls] in pyproject.toml'}")


def repository() -> str | None:
    """The project's address, without a slash or ".git" at its end; None while it has none."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        address = tomllib.load(file)["project"]["urls"].get("Repository")
    return address and address.rstrip("/").removesuffix(".git")


def in_readme(text: str, address: str | None) -> str:
    """The README with badges below its heading and the line to clone, or without either."""
    badges = clone = ""
    if address:
        workflow = f"{address}/actions/workflows/tests.yml"
        in_colab = colab("03_mask_tuning.ipynb", address)
        badges = f"\n[![tests]({workflow}/badge.svg)]({workflow}) {in_colab}\n"
        name = address.rpartition("/")[2]
        clone = f"\n    git clone {address} && cd {name}\n"
    return _block(_block(text, "badges", badges), "clone", clone)


def in_opening(source: str, name: str, address: str | None) -> str:
    """A notebook's first cell with a link to Colab below its heading, or without one."""
    heading, line_end, rest = _COLAB_LINE.sub("", source).partition("\n")
    link = f"\n\n{colab(name, address)}" if address else ""
    return f"{heading}{link}{line_end}{rest}"


def in_install(code: str, address: str | None) -> str:
    """The code of an install cell with the address; without one the cell asks for it on Colab."""
    line = f'repository = "{address or ""}"'
    return re.sub(r'^repository = ".*?"', lambda match: line, code, flags=re.M)


def colab(name: str, address: str) -> str:
    """A badge that opens a notebook in Colab, which reads GitHub's repositories."""
    path = address.removeprefix("https://github.com/")
    return f"[![Open in Colab]({_BADGE})]({_COLAB}/github/{path}/blob/main/notebooks/{name})"


def _block(text: str, name: str, content: str) -> str:
    """The text with other content between the comments that name a block."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    return re.sub(pattern, lambda match: match[1] + content + match[2], text, flags=re.S)


if __name__ == "__main__":
    main()
