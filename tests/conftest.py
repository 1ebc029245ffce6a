from __future__ import annotations

import gc
import os

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # of the processes that tests start: xdist already uses the cores

os.environ.pop("COLUMNS", None)  # tables are as wide as without a terminal, in workers of xdist too

import pytest
import torch
from hypothesis import settings

collect_ignore = ["check_wheel.py", "install.py", "link_requirements.py"]  # make runs them

settings.register_profile("sparring", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("sparring")

# Files that start processes or train much come first, so that no worker is left with one at the end.
FIRST = (
    "heads/parallel/",
    "runs/test_jobs.py",
    "integrations/test_hf.py",
    "runs/test_runner.py",
    "test_report_browser.py",
    "test_package.py",
    "losses/test_contract.py",
    "kinds/test_every_kind.py",
    "test_cli.py",
    "integrations/",
    "_benchmark.py",
    "training/test_replicas.py",
    "training/test_loop.py",
    "_triton.py",
    "paper/test_command.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((i for i, name in enumerate(FIRST) if name in item.nodeid), len(FIRST)))


@pytest.fixture(autouse=True, scope="module")
def _freeze() -> None:
    """No search for garbage among modules and tests: at the end of a short run it took a third of it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # xdist already uses the cores
