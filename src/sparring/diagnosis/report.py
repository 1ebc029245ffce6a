"""What the doctor found, as a table for people and as JSON for a bug report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

OK = "ok"
WRONG = "WRONG"
SKIPPED = "skipped"
NOTE = ""


@dataclass
class Finding:
    """One line of the table.

    Args:
        section: What it is about: "machine", "kernels", "skipping", "syncs", "times" or "choice".
        name: The thing that was looked at.
        status: "ok", "WRONG", "skipped", or "" for a line that only informs.
        detail: The measurement, or the reason.
        value: The measurement as a number, if it is one.
    """

    section: str
    name: str
    status: str
    detail: str
    value: float | None = None


@dataclass
class Diagnosis:
    """All findings. ``str()`` is the table.

    >>> diagnosis = Diagnosis([Finding("kernels", "equation, cpu", "ok", "off by 1e-07", 1e-7)])
    >>> diagnosis.ok
    True
    """

    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == WRONG]

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        width = max((len(finding.name) for finding in self.findings), default=0)
        section = None
        for finding in self.findings:
            if finding.section != section:
                section = finding.section
                yield section
            yield f"  {finding.name:<{width}}  {finding.status:<7}  {finding.detail}".rstrip()
        n_wrong = len(self.wrong)
        n_skipped = sum(finding.status == SKIPPED for finding in self.findings)
        skipped = f"; {n_skipped} skipped" if n_skipped else ""
        yield f"everything is right{skipped}" if self.ok else f"{n_wrong} WRONG{skipped}: please report this"
