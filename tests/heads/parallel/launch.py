"""torchrun in a process of its own, for the tests of it; the others use tests/processes.py."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}


def torchrun(n: int, *flags: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), *flags]
