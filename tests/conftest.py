from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start: xdist already uses the cores

import pytest
import torch
from hypothesis import settings

collect_ignore = ["check_wheel.py"]  # `make wheel` runs it in an environment of its own

settings.register_profile("sparring", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("sparring")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # xdist already uses the cores
