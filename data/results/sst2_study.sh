#!/usr/bin/env bash
# SST-2 with the bundled model. Each arm: five learning rates compared on in-distribution dev alone (seed 0), then the
# best of them with every seed on every set. Resumable: what has a record is skipped.
#   data/results/sst2_study.sh FOLDER [ARM ...]     ARM: fine_tuning, joint, alternating (default: all)
#   FOLDER: original releases of SST-2, the IMDB contrast sets and IMDB-CAD; PYTHON: the interpreter, default .venv's
set -euo pipefail
folder=$(realpath "$1"); shift
arms=("$@"); [ ${#arms[@]} -gt 0 ] || arms=(fine_tuning joint alternating)
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}

size=6000               # of 67,349 training phrases, the same ones in every run
rates=(5e-5 1e-4 2e-4 5e-4 1e-3)
seeds=(0 1 2)

train() { "$python" -m mtlib run --task sentiment --source "$folder" --train-size "$size" "$@"; }

best_rate() {  # of the records in a folder, by sst2 dev accuracy
  "$python" - "$1" <<'PY'
import sys
from pathlib import Path
from mtlib.runs.records import read_records
best = max(read_records([Path(sys.argv[1])]), key=lambda record: record["metrics"]["sst2"]["accuracy"])
print(best["config"]["learning_rate"])
PY
}

for arm in "${arms[@]}"; do
  case $arm in
    fine_tuning) options=(--method fine_tuning) ;;
    joint) options=(--method mask_tuning) ;;
    alternating) options=(--method mask_tuning --update alternating) ;;
    *) echo "unknown arm $arm; expected fine_tuning, joint or alternating" >&2; exit 2 ;;
  esac
  for rate in "${rates[@]}"; do
    train "${options[@]}" --learning-rate "$rate" --sets sst2 --out "runs/sst2_grid/$arm"
  done
  rate=$(best_rate "runs/sst2_grid/$arm")
  echo "$arm: rate $rate"
  for seed in "${seeds[@]}"; do
    train "${options[@]}" --learning-rate "$rate" --seed "$seed" --out runs/sst2
  done
done
for arm in "${arms[@]}"; do
  "$python" -m mtlib bundle "runs/sst2_grid/$arm" --to data/results/sst2_grid.jsonl
done
"$python" -m mtlib bundle runs/sst2 --to data/results/sst2.jsonl
"$python" -m mtlib tables data/results/sst2.jsonl --format markdown --per-seed
