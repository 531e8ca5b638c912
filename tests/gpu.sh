#!/usr/bin/env bash
# All checks that need a GPU, in one call: bash tests/gpu.sh [MODEL FOLDER]. Results go to build/gpu.
# With MODEL (a base-sized masked LM) and FOLDER (the original releases) one epoch of SST-2 is trained as well.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
out=build/gpu
failed=0
mkdir -p "$out"

check() {  # NAME COMMAND...: its output is shown and kept; a failure does not stop the others
  local name=$1
  shift
  echo "== $name (after $SECONDS s)"
  "$@" 2>&1 | tee "$out/$name.txt" || failed=1
}

check machine nvidia-smi
check doctor "$python" -m mtlib doctor
check throughput "$python" -m mtlib bench --throughput bert-base
check losses "$python" -m pytest tests/test_gpu.py
check resume "$python" -m pytest tests/runs/test_runs.py -k killed_run
check one-run "$python" -m mtlib run --task sentiment --method mask_tuning --out "$out/runs" --fresh
if [ $# -eq 2 ]; then
  check sst2 "$python" -m mtlib run --task sentiment --method mask_tuning --update balanced --model "$1" --source "$2" \
    --epochs 1 --learning-rate 3e-5 --classifier-learning-rate 3e-4 --mlm-head-learning-rate 3e-4 --out "$out/runs"
fi
exit "$failed"
