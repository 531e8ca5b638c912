#!/usr/bin/env bash
# Install mtlib as its users do, each time from an empty folder: the wheel alone, with [notebooks], from git, on Colab.
# bash tests/install.sh [FOLDER]: FOLDER keeps the environment for the next call; without it a temporary one is used.
# PYTHON chooses the interpreter, PIP_CONSTRAINT a file of versions: requirements.lock (the default), for Python 3.11
# tests/constraints-lowest.txt, or none if it is empty: then pip takes the newest.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
temporary=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$temporary"' EXIT
folder=${1:-$temporary}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=$folder/venv/bin/python
unset PYTHONPATH
export HF_HUB_OFFLINE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
if [ -n "${PIP_CONSTRAINT=$root/requirements.lock}" ]; then
  cp "$PIP_CONSTRAINT" "$temporary/constraint.txt"  # pip splits the variable at blanks
  export PIP_CONSTRAINT=$temporary/constraint.txt
else
  unset PIP_CONSTRAINT
fi

step() { echo "== $* (after $SECONDS s)"; }
empty() { rm -rf "$folder/work" && mkdir "$folder/work" && cd "$folder/work"; }

step "an environment, and a wheel"
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder/venv"
rm -rf "$folder/dist"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder/dist" "$root"
wheel=$(echo "$folder"/dist/mask_tuning-*.whl)

step "the wheel alone: the README's example"
"$python" -m pip uninstall --quiet --yes mask-tuning mtlib
"$python" -m pip install --quiet "$wheel"
empty
sed -n '/^```python$/,/^```$/p' "$root/README.md" | sed '/^```/d' > example.py
"$python" example.py | tail -n 1 | tee printed.txt
grep -q "'brask'.*'zorvik'" printed.txt

step "the wheel alone: one command of every group, a method with a bias model, a table"
short=(--train-size 64 --epochs 1 --out runs)
"$python" -m mtlib run --task sentiment --method fine_tuning --sets testbed_contrast "${short[@]}"
"$python" -m mtlib run --task nli --method bias_product --sets testbed_nli_m "${short[@]}"
"$python" -m mtlib tables decisive > tables.txt
"$python" -m mtlib doctor
"$python" -m mtlib data list > sets.txt
"$python" -m mtlib policies exact whole_word --train-size 64 > policies.txt
"$python" -m mtlib suspects "$root/data/example/reviews.csv" --text review --label opinion > suspects.txt
"$python" -m mtlib bundle runs --to bundle.jsonl

step "the wheel with [notebooks]: notebook 01"
"$python" -m pip install --quiet "$wheel[notebooks]"
empty
"$python" -m papermill --no-progress-bar --log-level ERROR -k python3 "$root/notebooks/01_data.ipynb" 01.ipynb -p profile smoke
"$python" -m mtlib doctor

step "from git, over the network of this machine (pip takes no file:// with extras)"
rm -rf "$folder/mtlib.git" && git clone --quiet --bare "$root" "$folder/mtlib.git"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
git daemon --base-path="$folder" --export-all --listen=127.0.0.1 --port="$port" --reuseaddr &
address=git://127.0.0.1:$port/mtlib.git
"$python" -m pip uninstall --quiet --yes mask-tuning mtlib
"$python" -m pip install --quiet "mask-tuning[notebooks] @ git+$address"
empty
"$python" -m mtlib --help > help.txt
"$python" -m mtlib notebooks > refused.txt 2>&1 || grep -q "pip does not install them, git does" refused.txt

step "on Colab: no clone, packages imported before, its widgets; every notebook as far as its imports"
"$python" - "$root" "$folder/colab" "$address" <<'END'
import pathlib
import sys

import nbformat

root, out = map(pathlib.Path, sys.argv[1:3])
out.mkdir(exist_ok=True)
for path in sorted(root.glob("notebooks/0*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    imports = [
        number
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and "mtlib" in cell.source and "install" not in cell.metadata.get("tags", [])
    ]
    notebook.cells = notebook.cells[: imports[0] + 1]
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", []):
            cell.source = cell.source.replace('repository = ""', f'repository = "{sys.argv[3]}"')
    nbformat.write(notebook, out / path.name)
END
"$python" -m pip uninstall --quiet --yes mask-tuning mtlib
env -u PIP_CONSTRAINT "$python" -m pip install --quiet ipywidgets==7.7.1
empty
mkdir -p ipython/profile_default/startup ipython/google/colab
touch ipython/google/colab/__init__.py
cat > ipython/profile_default/startup/colab.py <<'END'
import os
import sys

sys.path.append(os.environ["IPYTHONDIR"])
import google.colab, matplotlib.pyplot, numpy, pandas  # a session on Colab has them loaded
END
export IPYTHONDIR=$PWD/ipython
colab=("$folder"/colab/*.ipynb)
"$python" -m papermill --no-progress-bar --log-level ERROR -k python3 "${colab[0]}" first.ipynb -p profile smoke 2> first.txt && exit 1
grep -q "Restart session" first.txt
for notebook in "${colab[@]}"; do
  "$python" -m papermill --no-progress-bar --log-level ERROR -k python3 "$notebook" "$(basename "$notebook")" -p profile smoke
done

step "all of it worked"
