#!/usr/bin/env bash
# The other methods of Table I on the sentiment testbed (PLAN_peers.md). Resumable: what has a record is skipped.
#   data/results/peers_study.sh [FOLDER]     FOLDER: for records, default runs/peers; PYTHON: the interpreter
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-runs/peers}
python=${PYTHON:-.venv/bin/python}
rates=(1e-4 2e-4)
bias_rate=2e-2  # of the bias network of product of experts
ensembles=(learned_mixin product_of_experts reweight fine_tuning)
others=(confidence_regularization mask_tuning_poe span_cutoff mask_tuning hidden_cut)

train() {  # ARM RATE SEED
  local options
  case $1 in
    fine_tuning | span_cutoff | hidden_cut) options=(--method "$1") ;;
    mask_tuning) options=(--method mask_tuning --update balanced --mlm-head-learning-rate 5e-4) ;;
    mask_tuning_poe)
      options=(--method mask_tuning --update balanced --mlm-head-learning-rate 5e-4)
      options+=(--classification product_of_experts --bias shortcut --bias-learning-rate "$bias_rate") ;;
    product_of_experts) options=(--method "$1" --bias shortcut --bias-learning-rate "$bias_rate") ;;
    *) options=(--method "$1" --bias shortcut) ;;
  esac
  "$python" -m mtlib run --task sentiment "${options[@]}" --epochs 8 --learning-rate "$2" --seed "$3" --out "$out/$1"
}

best_rate() {  # ARM: by accuracy in distribution, seed 0
  "$python" - "$out/$1" <<'PY'
import sys
from mtlib.runs.records import read_records
records = [record for record in read_records([sys.argv[1]]) if record["config"]["seed"] == 0 and record["metrics"]]
best = max(records, key=lambda record: record["metrics"]["testbed_sentiment"]["accuracy"])
print(best["config"]["learning_rate"])
PY
}

more_seeds() {  # ARM ...
  local arm seed rate
  for seed in 1 2; do
    for arm in "$@"; do
      rate=$(best_rate "$arm")
      train "$arm" "$rate" "$seed"
    done
  done
}

bundle() { "$python" -m mtlib bundle "$out"/*/ --to data/results/peers.jsonl --history 20; }

for rate in "${rates[@]}"; do
  for arm in "${ensembles[@]}"; do train "$arm" "$rate" 0; done
  bundle
done
for arm in "${others[@]}"; do train "$arm" 1e-4 0; bundle; done
more_seeds "${ensembles[@]}"
bundle
for arm in "${others[@]}"; do train "$arm" 2e-4 0; done
bundle
more_seeds "${others[@]}"
bundle
