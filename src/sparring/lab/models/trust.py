"""Code that a model's folder or repository brings along runs only where ``--trust-remote-code`` says so.

transformers asks on standard input when it is told nothing, so it is always told. The switch comes from the command line alone: a file
such as the ``config.toml`` of somebody else's run cannot turn it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.lab.errors import UserError

FIELD = "trust_remote_code"
FLAG = "--trust-remote-code"
SETTINGS = ("config.json", "tokenizer_config.json", "preprocessor_config.json")
MAP = b'"auto_map"'
GENERATE = (
    "custom_generate/generate.py"  # older transformers run it from a local folder without being told to
)


@contextmanager
def refusing(name: str | Path, trust: bool) -> Iterator[None]:
    """Around everything that loads a model by name or folder: what transformers refuses becomes an error that names the flag."""
    if not trust and (Path(name) / GENERATE).exists():
        raise _refusal(name)
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        asked = FIELD in str(error)
        if trust or not (asked or _names_code(Path(name))):
            raise
        raise _refusal(
            name, "" if asked else f" (without it: {' '.join(str(error).split())[:200]})"
        ) from None


def _names_code(folder: Path) -> bool:
    """Whether a folder's settings name code: of a tokenizer transformers says only that it cannot be made."""
    files = (folder / name for name in SETTINGS)
    return any(MAP in file.read_bytes() for file in files if file.is_file())


def _refusal(name: str | Path, reason: str = "") -> UserError:
    return UserError(
        f'model "{name}" brings code of its own, which was not run; {FLAG} runs it, for a model that you trust{reason}'
    )
