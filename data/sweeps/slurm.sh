#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=32 --time=24:00:00
# The paper's grid as one Slurm job: `sbatch data/sweeps/slurm.sh OUT`, from a checkout whose environment is active.
# OUT is a folder that all nodes share, or an address such as s3://bucket/runs. Submit it again when its time is up:
# what is recorded is skipped, what was cut off resumes.
set -eu
# from Slurm 22.05 on, steps do not inherit the CPUs of the job
cpus=${SLURM_CPUS_PER_TASK:-32}
out=${1:?expected a place for the records: sbatch data/sweeps/slurm.sh OUT}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --nodelist="$head" ray start --head --port 6379 --block &
sleep 20
workers=$((SLURM_JOB_NUM_NODES - 1))
if [ "$workers" -gt 0 ]; then
  srun --nodes="$workers" --ntasks="$workers" --cpus-per-task="$cpus" --exclude="$head" \
    ray start --address "$head:6379" --block &
  sleep 20
fi
python -m mtlib sweep data/sweeps/paper.yaml --engine ray --address "$head:6379" --out "$out" --cpus-per-run 8
