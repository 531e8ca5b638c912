#!/usr/bin/env bash
# All checks that need a GPU, in one call of a few minutes: bash tests/gpu.sh [SECONDS]. Results go to $OUT, or to
# build/gpu. With MODEL (a base-sized masked LM) and SOURCE (the original releases) in the environment, notebook 03
# runs under its profile gpu, and the decisive experiment goes on for what is left of SECONDS (540 by default): no run is
# begun that could not end.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${OUT:-build/gpu}
seconds=${1:-540}
failed=0
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

check() {  # NAME COMMAND...: its output is shown and kept; a failure does not stop the others
  local name=$1
  shift
  echo "== $name (after $SECONDS s)"
  timeout $((seconds > SECONDS + 5 ? seconds - SECONDS : 5)) "$@" 2>&1 | tee "$out/$name.txt" || failed=1
}

check machine nvidia-smi
check losses "$python" -m pytest tests/test_gpu.py
check throughput "$python" -m mtlib bench --throughput bert-base
check resume "$python" -m pytest tests/runs/test_runs.py -k killed_run
if [ -n "${MODEL:-}" ] && [ -n "${SOURCE:-}" ]; then
  check notebook "$python" -m mtlib notebooks 03 --profile gpu --out "$out/notebooks" \
    -p model="$MODEL" -p source="$SOURCE" -p train_size=16000
  check decisive "$python" -m mtlib sweep data/sweeps/decisive.yaml --model "$MODEL" --source "$SOURCE" \
    --processes 6 --minutes $(((seconds - SECONDS) / 60 - 2)) --out "$out/runs"
  tar -czf "$out/records.tar.gz" -C "$out/runs" --exclude=.work .
fi
exit "$failed"
