"""The Slurm script, run with stand-ins for the commands of a cluster."""

import os
import subprocess

import pytest
import typer

from mtlib import cli
from tests.conftest import ROOT

SCRIPT = ROOT / "data" / "sweeps" / "slurm.sh"


@pytest.mark.parametrize("nodes", [4, 1])
def test_what_the_script_starts_where(nodes, tmp_path):
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    stand_ins, log = tmp_path / "bin", tmp_path / "log"
    stand_ins.mkdir()
    for name, body in {
        "scontrol": f'echo "scontrol $*" >> "$LOG"; seq -f node%.0f {nodes}',
        "srun": 'echo "srun $*" >> "$LOG"',
        "python": 'echo "python $*" >> "$LOG"',
        "sleep": "wait",
    }.items():
        (stand_ins / name).write_text(f"#!/bin/bash\n{body}\n")
        (stand_ins / name).chmod(0o755)
    environment = os.environ | {
        "SLURM_JOB_NODELIST": f"node[1-{nodes}]",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_CPUS_PER_TASK": "12",
        "LOG": str(log),
        "PATH": f"{stand_ins}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["bash", SCRIPT, "/shared/runs"]
    # its output ends when the steps in the background have ended
    subprocess.run(command, check=True, env=environment, capture_output=True, cwd=ROOT)
    first, *steps = log.read_text().splitlines()
    assert first == f"scontrol show hostnames node[1-{nodes}]"
    options = "--engine ray --address node1:6379 --out /shared/runs --cpus-per-run 8"
    sweep = f"sweep data/sweeps/paper.yaml {options}"
    expected = [
        "srun --nodes=1 --ntasks=1 --cpus-per-task=12 --nodelist=node1 ray start --head --port 6379"
        " --block",
        f"python -m mtlib {sweep}",
    ]
    if nodes > 1:
        others = "srun --nodes=3 --ntasks=3 --cpus-per-task=12 --exclude=node1"
        expected.append(f"{others} ray start --address node1:6379 --block")
    assert sorted(steps) == sorted(expected)
    command, *arguments = sweep.split()
    parser = typer.main.get_command(cli.app).commands[command]
    parser.make_context(command, [*arguments])  # every option exists
    assert (ROOT / arguments[0]).exists()


def test_a_job_without_a_place_for_records():
    refused = subprocess.run(
        ["bash", SCRIPT], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, cwd=ROOT
    )
    assert refused.returncode != 0 and "expected a place for the records" in refused.stderr
