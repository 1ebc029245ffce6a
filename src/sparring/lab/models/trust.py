"""Code that comes with a model runs only with ``trust_remote_code``.

transformers asks on standard input if it is not told, so it is always told. Only the caller sets the
switch: a file such as the ``config.toml`` of another person's run cannot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.lab.errors import UserError, option

FIELD = "trust_remote_code"
SETTINGS = ("config.json", "tokenizer_config.json", "preprocessor_config.json")
AUTO_MAP = b'"auto_map"'  # the setting that names code
GENERATE = "custom_generate/generate.py"  # older versions of transformers run it from a folder without asking


@contextmanager
def refusing(name: str | Path, trust: bool) -> Iterator[None]:
    """Around the loading of a model: if transformers refuses to run its code, the error names the setting."""
    folder = Path(name)
    if not trust and (folder / GENERATE).exists():
        raise _refusal(name)
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        refused = FIELD in str(error)
        if trust or not (refused or _names_code(folder)):
            raise
        reason = "" if refused else f" (without it: {' '.join(str(error).split())[:200]})"
        raise _refusal(name, reason) from None


def _names_code(folder: Path) -> bool:
    """Whether settings in a folder name code. For tokenizers, the error of transformers does not say so."""
    files = (folder / name for name in SETTINGS)
    return any(AUTO_MAP in file.read_bytes() for file in files if file.is_file())


def _refusal(name: str | Path, reason: str = "") -> UserError:
    return UserError(
        f'model "{name}" brings code of its own, which was not run; '
        f"if you trust the model, add {option(FIELD, True)}{reason}"
    )
