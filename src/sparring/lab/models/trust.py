"""Code that comes with a model runs only with ``--trust-remote-code``.

transformers asks on standard input unless it is told, so it always is. The setting comes from the command
line alone: a file such as the ``config.toml`` of another person's run cannot turn it on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.lab.errors import UserError

FIELD = "trust_remote_code"
FLAG = "--trust-remote-code"
SETTINGS = ("config.json", "tokenizer_config.json", "preprocessor_config.json")
GENERATE = (
    "custom_generate/generate.py"  # older transformers run it from a local folder without being told to
)


@contextmanager
def refusing(name: str | Path, trust: bool) -> Iterator[None]:
    """Wrap everything that loads a model: if transformers refuses to run code, the error names the flag."""
    if not trust and (Path(name) / GENERATE).exists():
        raise _refusal(name)
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        refused = FIELD in str(error)
        if trust or not (refused or _names_code(Path(name))):
            raise
        reason = "" if refused else f" (without it: {' '.join(str(error).split())[:200]})"
        raise _refusal(name, reason) from None


def _names_code(folder: Path) -> bool:
    """Whether a folder's settings name code. For a tokenizer, transformers does not mention it."""
    files = (folder / name for name in SETTINGS)
    return any(b'"auto_map"' in file.read_bytes() for file in files if file.is_file())


def _refusal(name: str | Path, reason: str = "") -> UserError:
    advice = f"{FLAG} runs it, for a model that you trust{reason}"
    return UserError(f'model "{name}" brings code of its own, which was not run; {advice}')
