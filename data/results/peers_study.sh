#!/usr/bin/env bash
# The other methods of Table I on the sentiment testbed (PLAN_peers.md). Resumable: what has a record is skipped.
#   data/results/peers_study.sh [FOLDER]     FOLDER: for records, default runs/peers; PYTHON: the interpreter
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-runs/peers}
python=${PYTHON:-.venv/bin/python}
rates=("2e-4 1e-3" "1e-4 1e-4" "2e-4 2e-4")  # of trunk and classifier
bias_rate=2e-2  # of the bias network of product of experts
ensembles=(learned_mixin reweight product_of_experts fine_tuning)
others=(mask_tuning_poe confidence_regularization span_cutoff mask_tuning hidden_cut)

train() {  # ARM RATES SEED
  local options trunk classifier
  read -r trunk classifier <<< "$2"
  case $1 in
    fine_tuning | span_cutoff | hidden_cut) options=(--method "$1") ;;
    mask_tuning) options=(--method mask_tuning --update balanced --mlm-head-learning-rate 5e-4) ;;
    mask_tuning_poe)
      options=(--method mask_tuning --update balanced --mlm-head-learning-rate 5e-4)
      options+=(--classification product_of_experts --bias shortcut --bias-learning-rate "$bias_rate") ;;
    product_of_experts) options=(--method "$1" --bias shortcut --bias-learning-rate "$bias_rate") ;;
    *) options=(--method "$1" --bias shortcut) ;;
  esac
  "$python" -m mtlib run --task sentiment "${options[@]}" --epochs 8 --seed "$3" --out "$out/$1" \
    --learning-rate "$trunk" --classifier-learning-rate "$classifier"
}

best_rates() {  # ARM: by accuracy in distribution, seed 0
  "$python" - "$out/$1" <<'PY'
import sys
from mtlib.runs.records import read_records
records = [record for record in read_records([sys.argv[1]]) if record["config"]["seed"] == 0 and record["metrics"]]
best = max(records, key=lambda record: record["metrics"]["testbed_sentiment"]["accuracy"])
print(best["config"]["learning_rate"], best["config"]["classifier_learning_rate"])
PY
}

more_seeds() {  # ARM ...
  local arm seed best
  for seed in 1 2; do
    for arm in "$@"; do
      best=$(best_rates "$arm")
      train "$arm" "$best" "$seed"
    done
  done
}

bundle() { "$python" -m mtlib bundle "$out"/*/ --to data/results/peers.jsonl --history 20; }

reference() {  # as many examples without the shortcut as the ensembles' weights are worth, for as many steps
  local source=runs/testbed_0
  [ -e "$source" ] || "$python" -m mtlib testbed --strength 0 --out "$source"
  "$python" -m mtlib run --task sentiment --method fine_tuning --source "$source" --train-size 1376 \
    --epochs 23.25 --learning-rate 2e-4 --classifier-learning-rate 1e-3 --out "$out/.reference"
  "$python" -m mtlib bundle "$out/.reference" --to data/results/peers_reference.jsonl --history 20
}

for arm in "${ensembles[@]}"; do train "$arm" "${rates[0]}" 0; bundle; done
reference
for arm in "${others[@]}"; do train "$arm" "${rates[0]}" 0; bundle; done
for pair in "${rates[@]:1}"; do
  for arm in "${ensembles[@]}"; do train "$arm" "$pair" 0; done
  bundle
done
more_seeds "${ensembles[@]}"
bundle
for pair in "${rates[@]:1}"; do
  for arm in "${others[@]}"; do train "$arm" "$pair" 0; done
  bundle
done
more_seeds "${others[@]}"
bundle
