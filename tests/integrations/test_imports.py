"""Without its packages an integration says which command installs them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
BLOCKED = {
    "hf": ("accelerate", "SparringTrainer needs transformers and accelerate: pip install 'sparring[hf]'"),
    "lightning": ("lightning", "this needs Lightning: pip install 'sparring[lightning]'"),
    "sentence_transformers": (
        "sentence_transformers",
        "this needs sentence-transformers: pip install 'sparring[sentence-transformers]'",
    ),
}
for name, (package, message) in BLOCKED.items():
    sys.modules[package] = None
    try:
        __import__("sparring.integrations." + name)
    except ImportError as error:
        assert str(error) == message, error
    else:
        raise AssertionError(name)
    del sys.modules[package]
"""


def test_missing_packages_are_named_with_their_command() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
