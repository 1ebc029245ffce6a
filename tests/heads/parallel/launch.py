"""Real processes: torchrun and gloo."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}


def torchrun(n: int, *flags: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), *flags]


def run(n: int, module: str, *words: str, **settings: Any) -> str:
    """What the processes printed; one that fails is a failure."""
    command = [*torchrun(n), "-m", module, *words]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, cwd=ROOT, **settings
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-6000:]}"
    return done.stdout
