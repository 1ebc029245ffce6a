"""Run by make: install.py WORDS… does what `pip install WORDS…` does, with uv, in less processor time.

uv does not read pip's settings. They are translated here, so that it looks where pip looks. Where one of them
has no counterpart, or uv cannot be had, or fails, pip installs.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
CONSTRAINTS = str(Path(__file__).parents[1] / "constraints.txt")
VARIABLES = {
    "cert": ["SSL_CERT_FILE"],
    "default-timeout": ["UV_HTTP_TIMEOUT"],
    "extra-index-url": ["UV_INDEX"],
    "find-links": ["UV_FIND_LINKS"],
    "index-url": ["UV_DEFAULT_INDEX"],
    "no-cache-dir": ["UV_NO_CACHE"],
    "no-index": ["UV_NO_INDEX"],
    "proxy": ["HTTP_PROXY", "HTTPS_PROXY"],
    "timeout": ["UV_HTTP_TIMEOUT"],
    "trusted-host": ["UV_INSECURE_HOST"],
}
NOT_NEEDED = {"break-system-packages", "cache-dir", "disable-pip-version-check", "no-input", "progress-bar"}
NOT_NEEDED |= {"quiet", "require-virtualenv", "retries", "root-user-action"}


def uv_variables(settings: str) -> dict[str, str]:
    """The environment for uv that says what `pip config list` printed.

    Raises:
        KeyError: a setting has no counterpart.
    """
    lines = [line.partition("=")[::2] for line in settings.splitlines()]
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip: the best version of all indexes
    for section in ("global", "install", ":env:"):  # the later one holds
        for name, value in lines:
            key = name.removeprefix(f"{section}.")
            if key != name and key not in NOT_NEEDED:
                words = str(ast.literal_eval(value)).split()
                for variable in VARIABLES[key]:
                    variables[variable] = ("," if key == "find-links" else " ").join(words)
    return variables


def main(words: list[str]) -> int:
    try:
        if importlib.util.find_spec("uv") is None:
            subprocess.run([*PIP, "install", "-q", "-c", CONSTRAINTS, "uv"], check=True)
        settings = subprocess.run([*PIP, "config", "list"], check=True, capture_output=True, text=True).stdout
        command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable, *words]
        subprocess.run(command, check=True, env={**uv_variables(settings), **os.environ})
    except (KeyError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"uv cannot install here ({error!r}), pip does\n")
        return subprocess.run([*PIP, "install", "-q", "--no-compile", *words]).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
