"""One page about a set of runs: HTML that needs no network, drawn from the records of the runs alone.

run folders ─► gather.sections ─► collect ─► blocks ─► page.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment

from sparring import __version__
from sparring.lab.errors import UserError
from sparring.lab.report import curves, gather, samples
from sparring.lab.report.block import Block, words_of
from sparring.lab.report.blocks import blocks
from sparring.lab.report.gather import LOSS_SETTINGS, Contestant, Section
from sparring.lab.runs import records
from sparring.lab.runs.summaries import percent_cell
from sparring.lab.table import MISSING, Table, number

MOST_ROWS = 7000  # of one curve over all contestants, so that a page of dozens of runs stays small
MOST_HISTOGRAMS = 900  # over all contestants
LEAST_POINTS, LEAST_HISTOGRAMS = 30, 5  # of one contestant
Row = dict[str, Any]


def build_report(paths: Sequence[Path], output: Path, title: str | None = None) -> dict[str, Any]:
    """Write the report of the runs in these folders.

    Args:
        paths: Run folders, or folders above them.
        output: The HTML file.
        title: The page's title; the names of the tasks by default.

    Returns:
        What the page is made of, as plain data.

    Raises:
        UserError: A path is missing or holds no finished run, or ``output`` is a folder.
    """
    if output.is_dir():
        raise UserError(f"{output}: a folder; the report is one file, such as {output / 'report.html'}")
    sections = gather.sections(gather.find(paths))
    n_contestants = sum(len(section.contestants) for section in sections)
    n_points = max(LEAST_POINTS, min(curves.MOST_POINTS, MOST_ROWS // n_contestants))
    n_histograms = max(LEAST_HISTOGRAMS, min(curves.MOST_HISTOGRAMS, MOST_HISTOGRAMS // n_contestants))
    tasks = [collect(section, n_points, n_histograms) for section in sections]
    data = {
        "title": title or "Sparring: " + ", ".join(facts["task"] for facts in tasks),
        "sparring": __version__,
        "n_runs": sum(len(row["seeds"]) for facts in tasks for row in facts["rows"]),
        "n_unfinished": len(gather.unfinished(paths)),
        "tasks": tasks,
    }
    records.write(output, page(data))
    return {"report": str(output), "bytes": output.stat().st_size, **data}


# ------------------------------------------------------------ the data


def collect(
    section: Section, n_points: int = curves.MOST_POINTS, n_histograms: int = curves.MOST_HISTOGRAMS
) -> dict[str, Any]:
    """Everything that the page says about one task, as plain data."""
    predictions = samples.Predictions(section)
    facts = section.facts
    source = Path(facts["source"])
    evaluations = curves.thinned(max(map(curves.n_evaluations, section.contestants)), n_histograms)
    return {
        "task": section.name,
        "kind": facts["kind"],
        "metric": section.metric,
        "part": section.part,
        "data": {
            **{name: facts[name] for name in ("sizes", "notes")},
            "source": source.name if source.is_absolute() else facts["source"],  # no paths of this machine
            "classes": len(facts["labels"]),
        },
        "names": section.names,
        "rows": section.rows(),
        "significance": samples.significance(section, predictions),
        "looks": len(evaluations),
        "curves": _curves(section, n_points, evaluations),
        "sensitivity": sensitivity(section),
        "references": _references(section),
        "reliability": curves.reliability(section),
        "classes": samples.by_class(section, predictions),
        "confusions": samples.confusions(section, predictions),
        "hardest": samples.hardest(predictions),
        "mistakes": samples.mistakes(predictions),
        "suspects": samples.suspects(section),
        "settings": section.settings(),
        "machines": section.machines(),
    }


def _curves(section: Section, n_points: int, evaluations: Sequence[int]) -> dict[str, list[Row]]:
    n_train = section.facts["sizes"]["train"]
    drawn: dict[str, list[Row]] = {}

    def add(curve: str, rows: list[Row]) -> None:
        drawn.setdefault(curve, []).extend(rows)

    for contestant in section.contestants:
        steps = curves.steps(contestant, ("loss", "won_share", "delta", "accumulation"), n_points)
        add("train_loss", steps["loss"])
        add("won_share", [_in_percent(row) for row in steps["won_share"]])
        add("delta", steps["delta"])
        add("accumulation", steps["accumulation"])
        add("metric", curves.evaluations(contestant, section.metric, 100))
        add("dev_loss", curves.evaluations(contestant, "loss"))
        add("margins", curves.margins(contestant, evaluations))
        add("points", curves.points(contestant, section.metric))
        add("backwards", curves.epochs(contestant, lambda epoch: 100 * epoch["n_backward"] / n_train))
    for curve in ("delta", "accumulation"):
        drawn[curve] = drawn[curve] if curves.varies(drawn[curve]) else []
    return drawn


def _in_percent(row: Row) -> Row:
    """A share in percent, the band within 0 and 100."""
    edges = {name: min(1.0, max(0.0, row[name])) for name in ("value", "low", "high")}
    return {**row, **{name: curves.rounded(100 * edge) for name, edge in edges.items()}}


def sensitivity(section: Section) -> dict[str, list[Row]]:
    """By setting: the contestants that differ in its value alone, at least two of them."""
    by_setting: dict[str, list[Row]] = {}
    for setting in LOSS_SETTINGS:
        families: dict[str, list[Contestant]] = {}
        for contestant in section.contestants:
            if isinstance(contestant.config.get(setting), (int, float)):
                others = {name: value for name, value in contestant.config.items() if name != setting}
                key = json.dumps([contestant.prefix, others])
                families.setdefault(key, []).append(contestant)
        for family in families.values():
            if len(family) > 1:
                by_setting.setdefault(setting, []).extend(_family(section, setting, family))
    return by_setting


def _family(section: Section, setting: str, family: Sequence[Contestant]) -> list[Row]:
    name = " ".join(word for word in family[0].name.split() if not word.startswith(f"{setting}="))
    rows = []
    for contestant in sorted(family, key=lambda contestant: contestant.config[setting]):
        scores = list(contestant.scores(section.part, section.metric).values())
        rows.append({"family": name, "setting": contestant.config[setting], **curves.band(scores, 100)})
    return rows


def _references(section: Section) -> dict[str, float]:
    """Plain softmax, if it is the first."""
    first = section.contestants[0]
    if first.config["loss"] not in gather.PLAIN:
        return {}
    return {first.name: curves.band(list(first.scores(section.part, section.metric).values()), 100)["value"]}


# ------------------------------------------------------------ the page


def page(data: dict[str, Any]) -> str:
    """The data as HTML; everything that came from a run is escaped."""
    sections: list[dict[str, Any]] = []
    specs: dict[str, Any] = {}
    for i, facts in enumerate(data["tasks"]):
        parts = []
        for block in blocks(facts):
            block_id = f"t{i}-{slug(block.title)}"
            parts.append({"id": block_id, "block": block, "charts": _place(block_id, block, specs)})
        sections.append({"id": f"t{i}", "facts": facts, "blocks": parts})
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("sparring.lab.report").joinpath("page.html").read_text(encoding="utf-8")
    vega_lite = "_".join(alt.SCHEMA_VERSION.split(".")[:2])  # the version that the charts are written for
    bundle = vl_convert.javascript_bundle(vl_version=vega_lite)  # type: ignore[call-arg]
    return environment.from_string(template).render(
        data=data,
        sections=sections,
        overview=overview(data),
        specs=_in_script(specs),
        bundle=bundle.replace("</script", "<\\/script"),
    )


def _place(block_id: str, block: Block, specs: dict[str, Any]) -> list[dict[str, str]]:
    """A place for every chart of a block; the definitions go to ``specs``."""
    places = []
    for n, (caption, chart) in enumerate(block.charts.items()):
        spec = specs[f"{block_id}-{n}"] = chart.properties(width="container", description=caption).to_dict()
        spec["datasets"] = {name: packed(rows) for name, rows in spec["datasets"].items()}
        places.append({"id": f"{block_id}-{n}", "caption": caption})
    return places


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows with each word stored once, a third of the size. A script of the page unpacks them.

    >>> packed([{"name": "softmax", "x": 1}, {"name": "softmax", "x": 2}])
    {'fields': ['name', 'x'], 'words': ['softmax'], 'text': [0], 'rows': [[0, 1], [0, 2]]}
    """
    fields = list(dict.fromkeys(name for row in rows for name in row))
    words = list(dict.fromkeys(value for row in rows for value in row.values() if isinstance(value, str)))
    index = {word: i for i, word in enumerate(words)}
    text = [i for i, name in enumerate(fields) if any(isinstance(row.get(name), str) for row in rows)]
    cells = [[index[v] if isinstance(v := row.get(name), str) else v for name in fields] for row in rows]
    return {"fields": fields, "words": words, "text": text, "rows": cells}


def _in_script(value: Any) -> str:
    """JSON without "<", so that no text in it can end the script."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def slug(title: str) -> str:
    """
    >>> slug("Time and samples saved")
    'time-and-samples-saved'
    """
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def overview(data: dict[str, Any]) -> Table | None:
    """For several tasks: the first contestant of each, and the best of the others."""
    if len(data["tasks"]) < 2:
        return None
    rows = []
    for facts in data["tasks"]:
        part, (first, *others) = facts["part"], facts["rows"]
        best = max(others, key=lambda row: row[part]["mean"], default=None)
        rows.append(
            [
                facts["task"],
                f"{part} {words_of(facts['metric'])}",
                first["contestant"],
                best["contestant"] if best else "–",
                percent_cell(first[part]),
                percent_cell(best[part]) if best else MISSING,
                number(best["faster"], unit="x") if best else MISSING,
            ]
        )
    columns = ["task", "metric", "first", "best of the others", "% of the first", "% of the best", "faster"]
    return Table("Overview", columns, rows, n_text=4)
