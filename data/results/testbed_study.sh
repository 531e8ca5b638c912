#!/usr/bin/env bash
# The testbed's fourth probe: the bundled model fine-tuned on each task, with its shortcut (0.9) and without (0).
#   data/results/testbed_study.sh [PYTHON]
set -euo pipefail
python=${1:-.venv/bin/python}
cd "$(dirname "$0")/../.."
for strength in 0.9 0; do
  source=testbed
  if [ "$strength" != 0.9 ]; then
    source=runs/testbed_$strength
    [ -e "$source" ] || "$python" -m mtlib testbed --strength "$strength" --out "$source"
  fi
  for task in sentiment nli paraphrase; do
    "$python" -m mtlib run --task "$task" --method fine_tuning --source "$source" --out runs/testbed
  done
done
"$python" -m mtlib bundle runs/testbed --to data/results/testbed.jsonl
"$python" data/testbed/make_datasheet.py
