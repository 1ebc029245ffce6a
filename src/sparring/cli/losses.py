"""``sparring losses``: list the losses."""

import argparse
import inspect
from typing import Any

from sparring.cli.terminal import print_json
from sparring.lab.loss_settings import loss_settings
from sparring.losses import list_losses
from sparring.losses.base import find_loss

EXAMPLES = "  sparring losses --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has no flags of its own."""


def main(options: argparse.Namespace) -> None:
    rows = [_describe(name) for name in list_losses()]
    if options.json:
        print_json(rows)
        return
    for row in rows:
        settings = ", ".join(f"{name}={default}" for name, default in row["settings"].items())
        print(f"{row['name']:<26} {row['class']}({settings})\n    {row['about']}")


def _describe(name: str) -> dict[str, Any]:
    cls = find_loss(name)
    about = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    return {"name": name, "class": cls.__name__, "settings": loss_settings(name), "about": about}
