"""Whether this machine can run the project: what pip says of the installed packages, and where training will run."""

import subprocess
import sys


def pip_check() -> tuple[bool, str]:
    """Whether the installed packages fit together, and `pip check`'s words for it."""
    command = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, (done.stdout or done.stderr).strip()


def device_note() -> str:
    """Where training will run, and what to do if that is not what one expects: advice, never an error."""
    import torch

    from mtlib.contexts import precision

    kind = "bf16" if precision()["bf16"] else "float32"
    if torch.cuda.is_available():
        return f"GPU: {torch.cuda.get_device_name()}, {kind}."
    return (
        f"CPU, {torch.get_num_threads()} threads, {kind}: right for the profiles `smoke` and `cpu`. For `gpu` and "
        "`paper` take a machine with a GPU (on Colab: Runtime > Change runtime type > T4 GPU)."
    )
