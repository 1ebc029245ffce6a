"""Run by `make wheel`: link_requirements.py FOLDER adds what sparring requires to its environment in FOLDER.

The packages are links to those of the environment that runs this, so that nothing is downloaded. Each has
to have a version that is required, and what nothing requires is not there.
"""

import sys
import sysconfig
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def link(dist: Distribution, site: Path) -> None:
    """Link a package's modules and its metadata, without its scripts."""
    for name in {file.parts[0] for file in dist.files or ()} - {"..", "__pycache__"}:
        (site / name).symlink_to(Path(str(dist.locate_file(name))).resolve())


def main(folder: str) -> None:
    site = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
    (sparring,) = Distribution.discover(name="sparring", path=[str(site)])
    requirements = list(map(Requirement, sparring.requires or ()))
    linked: set[str] = set()
    for requirement in requirements:  # grows meanwhile
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        dist = distribution(requirement.name)
        assert requirement.specifier.contains(dist.version, prereleases=True), (requirement, dist.version)
        if dist.name not in linked:
            linked.add(dist.name)
            link(dist, site)
            requirements += map(Requirement, dist.requires or ())


if __name__ == "__main__":
    main(sys.argv[1])
