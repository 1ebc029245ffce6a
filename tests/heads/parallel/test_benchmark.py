"""benchmarks/parallel.py runs, and measures the memory and bytes that its model predicts."""

import subprocess
import sys

from tests.heads.parallel.launch import ENVIRONMENT, ROOT

SCRIPT = [sys.executable, str(ROOT / "benchmarks" / "parallel.py")]


def table(*flags: str) -> list[list[str]]:
    done = subprocess.run(
        [*SCRIPT, *flags], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in done.stdout.splitlines()
        if line.startswith("│")
    ]


def test_what_is_measured_is_what_the_model_says() -> None:
    rows = table("--quick", "--repeats", "1")
    assert [row[:2] for row in rows][-1] == ["class-parallel, AS-Softmax, 90 % won", "2"]
    assert len(rows) == 11
    for name, ranks, _, kept, says, *_ in rows:
        assert kept == says, (name, ranks)
    sent = {row[0]: (row[6], row[7]) for row in rows if row[1] == "2"}
    assert sent["class-parallel, softmax"] == ("17.2", "17.2")
    assert float(sent["gathering logits"][0].replace(",", "")) > 50 * 17.2


def test_clusters() -> None:
    rows = table("--clusters")
    assert rows[0][:3] == ["10,000,000", "1", "81.9"]
    assert rows[-1][:3] == ["100,000,000", "256", "3.2"]
