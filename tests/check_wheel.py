"""Run by `make wheel` inside an environment that holds the wheel, torch and entmax alone."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import subprocess
import sys
from pathlib import Path

import torch

import sparring

assert "site-packages" in sparring.__file__, sparring.__file__
assert importlib.metadata.version("sparring") == sparring.__version__
assert importlib.resources.files("sparring").joinpath("py.typed").is_file()
assert len(sparring.list_losses()) == 16, sparring.list_losses()
extras = ("accelerate", "datasets", "lightning", "numpy", "pydantic", "rich", "sklearn", "transformers")
assert [name for name in extras if importlib.util.find_spec(name)] == [], "this is not the empty environment"
logits = torch.randn(8, 5, requires_grad=True)
for name in sparring.list_losses():
    target = torch.randint(2, (8, 5)) if name.startswith("multilabel") else torch.randint(5, (8,))
    sparring.make_loss(name)(logits, target).backward()
model = torch.nn.Linear(5, 3)
with sparring.skip.compact(model) as compaction:
    (model(torch.randn(8, 5)) * (torch.arange(8) % 2)[:, None]).sum().backward()
assert compaction.stats.n_samples_backward == 4, compaction.stats
try:
    import sparring.training.loop
except ImportError as error:
    assert "sparring[lab]" in str(error), error  # noqa: PT017
else:
    raise AssertionError("the loop needs Accelerate, which is not here")
for command, code, says in (
    (["losses"], 0, "as-softmax"),
    (["run", "digits"], 1, "pip install 'sparring[lab]'"),
):
    done = subprocess.run(
        [Path(sys.executable).parent / "sparring", *command], capture_output=True, text=True
    )
    assert done.returncode == code, done
    assert says in done.stdout + done.stderr, done
    assert "Traceback" not in done.stderr, done
sys.stdout.write(f"wheel {sparring.__version__} works with torch {torch.__version__} and entmax alone\n")
