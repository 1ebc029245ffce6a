"""The numbers of the README, and of the page about δ, read from the result files that they cite.

    python benchmarks/headlines.py            compare them with docs/results; exit 1 if they differ
    python benchmarks/headlines.py --write    write the tables of numbers into the pages

Every number of the table is against softmax. Once docs/results/frontier has results, the row of the preset
``fast`` is made from them instead of those of the earlier preset.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- numbers: benchmarks/headlines.py --write -->\n", "<!-- end of numbers -->\n"
AS_LONG, AT_EQUAL_COST = "fast, as long", "fast"  # methods of benchmarks/frontier.py
EARLIER = "the earlier form"  # of the preset: docs/results/speed
Read = Callable[[str], Any]  # a result file by its path below docs/results


def read(name: str) -> Any:
    """A result file, or the names of the tasks of a folder."""
    path = RESULTS / name
    if path.is_dir():
        return sorted(file.stem for file in path.glob("*.json"))
    return json.loads(path.read_text(encoding="utf-8"))


def helps(condition: bool) -> str:
    return "yes" if condition else "no"


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign; a typographic minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def contestant(report: Any, name: str) -> Any:
    return next(row for row in report["rows"] if row["contestant"] == name)


def skipping(load: Read) -> tuple[str, str]:
    """Processor time of exact skipping over that of softmax."""
    files = {"clinc_oos": "clinc_oos_first", "reuters21578": "reuters21578", "conll2003": "conll2003"}
    reports = {task: load(f"speed/{file}.json") for task, file in files.items()}
    shares = {task: contestant(report, "skip: rows")["cpu_time"] for task, report in reports.items()}
    words = ", ".join(f"{share:.2f} on `{task}`" for task, share in shares.items())
    return helps(max(shares.values()) < 0.95), words


def preset(load: Read) -> tuple[str, str]:
    """Processor time and quality of the preset ``fast``, over all tasks."""
    tasks = frontier(load)
    if not tasks:
        time, difference = earlier(load("speed/clinc_oos.json"))
        return helps(time < 0.95), f"{time:.2f} on `clinc_oos`, {signed(difference)} points ({EARLIER})"
    times, differences = zip(*tasks.values(), strict=True)
    words = f"{min(times):.2f} to {max(times):.2f} on {len(tasks)} tasks, "
    words += f"{signed(min(differences))} to {signed(max(differences))} points"
    saves = [time < 0.95 for time in times]
    return "depends" if any(saves) and not all(saves) else helps(all(saves)), words


def hard_task(load: Read) -> tuple[str, str]:
    """The same on a task that the network wins late."""
    tasks = frontier(load)
    time, difference = tasks["sst5"] if "sst5" in tasks else earlier(load("speed/sst5.json"))
    words = f"{time:.2f} on `sst5`, {signed(difference)} points"
    verdict = "less" if time < 0.95 else "no"
    return verdict, words if "sst5" in tasks else f"{words} ({EARLIER} of `fast`)"


def frontier(load: Read) -> dict[str, tuple[float, float]]:
    """By task: processor time of ``fast`` over softmax's with as many epochs, and points against it."""
    tasks = {}
    for task in load("frontier"):
        pairs = [pair for group in paired(load, task, AS_LONG).values() for pair in group]
        if pairs:
            time = statistics.mean(run["cpu_seconds"] / base["cpu_seconds"] for run, base in pairs)
            tasks[task] = (time, statistics.mean(points(run, base) for run, base in pairs))
    return tasks


def paired(load: Read, task: str, method: str) -> dict[str, list[tuple[Any, Any]]]:
    """By budget: the runs of a method, each with softmax's run of the same seed."""
    runs = load(f"frontier/{task}.json")["runs"]
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for name, run in runs.items():
        match = re.fullmatch(rf"run_{method}_([\d.]+)_(\d+)", name)
        base = runs.get(f"run_softmax_{match[1]}_{match[2]}") if match else None
        if match and base is not None:
            groups.setdefault(match[1], []).append((run, base))
    return groups


def points(run: Any, base: Any) -> float:
    return 100 * float(run["test"]["metric"] - base["test"]["metric"])


def equal_cost(load: Read) -> tuple[str, str]:
    """The preset against softmax that trains for the same cost, with fewer epochs."""
    means = [
        statistics.mean(points(run, base) for run, base in group)
        for task in load("frontier")
        for group in paired(load, task, AT_EQUAL_COST).values()
    ]
    if not means:
        return "not measured", "softmax with fewer epochs is the rival to beat"
    words = f"{signed(min(means))} to {signed(max(means))} points in {len(means)} comparisons"
    level = 0.5  # points that do not help anybody
    return "depends" if min(means) < level < max(means) else helps(min(means) >= level), words


def earlier(report: Any) -> tuple[float, float]:
    """Processor time and points of the earlier preset against softmax."""
    ours, base = contestant(report, "everything on"), contestant(report, "softmax")
    return ours["cpu_time"], 100 * (ours["test"]["mean"] - base["test"]["mean"])


def accuracy(load: Read) -> tuple[str, str]:
    """AS-Softmax against softmax, metric by metric: where a difference shows over seeds, and the means."""
    power = next(t for t in load("paper/accuracy.json")["tables"] if t["title"] == "What the runs can show")
    gaps = [row[power["columns"].index("AS-Softmax − softmax")] for row in power["rows"]]
    means, seeds = [gap["mean"] for gap in gaps], [gap["n"] for gap in gaps]
    n_better, n_worse = (sum(gap["p"] <= 0.05 and sign * gap["mean"] > 0 for gap in gaps) for sign in (1, -1))
    n_seeds = " to ".join(str(n) for n in dict.fromkeys((min(seeds), max(seeds))))
    words = f"{n_better} better, {n_worse} worse of {len(gaps)} metrics"
    words += f" ({signed(min(means))} to {signed(max(means))} points, {n_seeds} seeds)"
    if n_better and n_worse:
        return "depends", words
    return helps(n_better > 0) if n_better or n_worse else "cannot tell", words


def noisy(load: Read, title: str, method: str, column: str) -> float:
    """A cell of the tables of accuracy under wrong labels."""
    table = next(table for table in load("labels/accuracy.json")["tables"] if table["title"] == title)
    row = next(row for row in table["rows"] if row[0] == method)
    return float(row[table["columns"].index(column)]["mean"])


def calibration(load: Read) -> tuple[str, str]:
    ours, base = (noisy(load, "Clean labels", method, "ECE %") for method in ("AS-Softmax", "softmax"))
    words = f"ECE {ours:.1f} % (softmax {base:.1f} %) on `clinc_oos`"
    groups = paired(load, "clinc_oos", AS_LONG) if "clinc_oos" in load("frontier") else {}
    pairs = [pair for group in groups.values() for pair in group]
    if not pairs:
        return helps(ours < base), words
    fast, softmax = (100 * statistics.mean(pair[i]["test"]["ece"] for pair in pairs) for i in (0, 1))
    verdict = "only `fast`" if fast < softmax and ours >= base else helps(ours < base)
    return verdict, f"{words}; [`fast`][frontier] {fast:.1f} % ({softmax:.1f} %)"


def wrong_labels(load: Read) -> tuple[str, str]:
    methods = ("AS-Softmax", "GCE", "softmax, suspects dropped")
    gains = [noisy(load, "20 % of the labels wrong", method, "against softmax") for method in methods]
    words = "{} points at 20 % wrong labels; `gce` {}, `sparring suspects` {}".format(*map(signed, gains))
    return helps(gains[0] > 0), words


def batch_norm(load: Read) -> tuple[str, str]:
    steps = [step for step in load("skip/skip.json")["steps"] if step["model"] == "cnn, BatchNorm"]
    times = [1 / step["speedup"] for step in steps if step["form"] == "rows" and step["won"] < 1]
    return helps(
        max(times) < 0.95
    ), f"{min(times):.2f} to {max(times):.2f}: it couples samples, so nothing is skipped"


def loss_alone(load: Read) -> tuple[str, str]:
    """Time of the loss over that of ``F.cross_entropy``, with few and with many classes."""
    words = []
    for name in ("few_classes", "as_softmax"):
        entries = [e for e in load(f"losses/{name}.json")["default"] if e["loss"] == "as-softmax"]
        classes = sorted({entry["shape"][1] for entry in entries})
        chosen = classes if name == "few_classes" else classes[-1:]
        ratios = [entry["ratio"] for entry in entries if entry["shape"][1] in chosen]
        sizes = " to ".join(f"{n:,}" for n in dict.fromkeys((chosen[0], chosen[-1])))
        words.append(f"{min(ratios):.1f} to {max(ratios):.1f} with {sizes} classes")
    return "depends", ", ".join(words)


def many_classes(load: Read) -> tuple[str, str]:
    entries = [e for e in load("linear/linear.json")["results"] if e["loss"] == "linear_as_softmax_loss"]
    times = [1 / entry["speed"] for entry in entries if entry["state"] in ("0 % won", "99 % won")]
    words = f"{min(times):.2f} (99 % won) to {max(times):.2f} (0 % won), against torch's best form"
    return helps(max(times) < 0.95), words


ROWS: tuple[tuple[str, Callable[[Read], tuple[str, str]]], ...] = (
    ("[Time, exact skipping][speed]", skipping),
    ('[Time, `speed="fast"`][frontier]', preset),
    ("[Time, hard tasks][frontier]", hard_task),
    ("[Time, BatchNorm][skip]", batch_norm),
    ("[Time, loss alone][losses]", loss_alone),
    ("[Time, fused head][linear]", many_classes),
    ("[Accuracy][paper]", accuracy),
    ("[Accuracy at equal cost][frontier]", equal_cost),
    ("[Calibration][labels]", calibration),
    ("[Wrong labels][labels]", wrong_labels),
)


def table(load: Read = read) -> str:
    """The table of the README. Links are defined below it."""
    lines = ["| | Does it help, against softmax? (time: softmax = 1) |", "|---|---|"]
    for title, row in ROWS:
        verdict, words = row(load)
        source = title.replace("[frontier]", "[speed]") if EARLIER in words else title
        lines.append(f"| {source} | **{verdict}:** {words} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, new: str, begin: str = BEGIN, end: str = END) -> str:
    """A page with another text between two lines."""
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page must have the lines {begin.strip()} and {end.strip()}")
    return before + begin + new + end + after


DELTA_BEGIN, DELTA_END = "<!-- delta: benchmarks/headlines.py --write -->\n", "<!-- end of delta -->\n"


def delta_table(load: Read = read) -> str:
    """Each δ against softmax, as means over tasks."""
    tasks = [table for table in load("paper/delta.json")["tables"] if table["columns"][-1] == "time"]
    columns: dict[str, list[list[float]]] = {}
    for table in tasks:
        for name, _, gap, ece, _, time in table["rows"]:
            points = gap["mean"] if isinstance(gap, dict) else gap
            columns.setdefault(name, []).append([points, 100 * ece["mean"], time])
    lines = [f"| mean of {len(tasks)} tasks | points | ECE % | time |", "|---|---:|---:|---:|"]
    for name, values in columns.items():
        points, ece, time = (statistics.mean(column) for column in zip(*values, strict=True))
        words = "0" if name == "Softmax" else signed(points)
        lines.append(f"| {name.removesuffix(', skip').lower()} | {words} | {ece:.1f} | {time:.2f} |")
    return "\n" + "\n".join(lines) + "\n\n"


def pages() -> dict[Path, str]:
    """The pages with numbers, as they should be."""
    of_delta = ROOT / "docs" / "explanation" / "as_softmax.md"
    text = of_delta.read_text(encoding="utf-8")
    return {
        README: with_table(README.read_text(encoding="utf-8"), table()),
        of_delta: with_table(text, delta_table(), DELTA_BEGIN, DELTA_END),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    for path, text in pages().items():
        if args.write:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} differs from docs/results: run python benchmarks/headlines.py --write")
    print(table())


if __name__ == "__main__":
    main()
