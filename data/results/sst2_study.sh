#!/usr/bin/env bash
# SST-2 with the bundled model: first the learning-rate grid on in-distribution dev alone, then the comparison.
#   data/results/sst2_study.sh FOLDER [PYTHON]      FOLDER: original releases of SST-2, IMDB contrast sets and IMDB-CAD
# Resumable: what has a record is skipped. Records go to runs/sst2_grid and runs/sst2.
set -euo pipefail
source_folder=$1
python=${2:-.venv/bin/python}
cd "$(dirname "$0")/../.."

size=6000      # of 67,349 training phrases, the same ones for every run
seeds=(0 1 2)
rates=(1e-4 2e-4 5e-4 1e-3)

train() {  # METHOD, then any other options
  "$python" -m mtlib run --task sentiment --source "$source_folder" --train-size "$size" --method "$@"
}

for rate in "${rates[@]}"; do
  train fine_tuning --learning-rate "$rate" --sets sst2 --out runs/sst2_grid
  train mask_tuning --learning-rate "$rate" --sets sst2 --out runs/sst2_grid
  train mask_tuning --learning-rate "$rate" --update alternating --sets sst2 --out runs/sst2_grid
done

# the best rate of each row of the grid, by sst2 (dev) accuracy
best() {  # METHOD UPDATE
  "$python" - "$1" "$2" <<'PY'
import sys
from pathlib import Path
from mtlib.runs import read_records
method, update = sys.argv[1:]
found = [r for r in read_records([Path("runs/sst2_grid")])
         if r["config"]["method"] == method and (r["config"]["update"] or "-") == update]
print(max(found, key=lambda r: r["metrics"]["sst2"]["accuracy"])["config"]["learning_rate"])
PY
}
fine=$(best fine_tuning -) joint=$(best mask_tuning joint) alternating=$(best mask_tuning alternating)
echo "chosen rates: fine_tuning $fine, mask_tuning joint $joint, alternating $alternating"

for seed in "${seeds[@]}"; do
  train fine_tuning --learning-rate "$fine" --seed "$seed" --out runs/sst2
  train mask_tuning --learning-rate "$joint" --seed "$seed" --out runs/sst2
  train mask_tuning --learning-rate "$alternating" --update alternating --seed "$seed" --out runs/sst2
done

"$python" -m mtlib bundle runs/sst2_grid --to data/results/sst2_grid.jsonl
"$python" -m mtlib bundle runs/sst2 --to data/results/sst2.jsonl
"$python" -m mtlib tables data/results/sst2.jsonl --format markdown --per-seed
