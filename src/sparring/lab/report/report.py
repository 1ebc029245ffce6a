"""One page of everything a set of runs left on disk: HTML that needs no network, drawn from records alone.

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
from sparring.lab.report.blocks import Block, Cell, Table, blocks, number, over, title_of
from sparring.lab.report.gather import Contestant, Section
from sparring.lab.runs import records
from sparring.lab.runs.config import IDENTITY, LOSS_SETTINGS

MOST_ROWS = (
    7000  # of one curve over the steps, all contestants together: a page of dozens of runs stays small
)
MOST_HISTOGRAMS = 900  # likewise
LEAST_POINTS, LEAST_LOOKS = 30, 5


def make(paths: Sequence[Path], output: Path, title: str | None = None) -> dict[str, Any]:
    """Write the page; what it is made of comes back."""
    if output.is_dir():
        raise UserError(f"{output}: a folder; the report is one file, such as {output / 'report.html'}")
    found = gather.sections(gather.find(paths))
    n = sum(len(section.contestants) for section in found)
    n_points = max(LEAST_POINTS, min(curves.MOST_POINTS, MOST_ROWS // n))
    n_looks = max(LEAST_LOOKS, min(curves.MOST_LOOKS, MOST_HISTOGRAMS // n))
    tasks = [collect(section, n_points, n_looks) for section in found]
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
    section: Section, n_points: int = curves.MOST_POINTS, n_looks: int = curves.MOST_LOOKS
) -> dict[str, Any]:
    """Everything the page says of one task, as plain data."""
    seen = samples.Predictions(section)
    common, own = gather.settings(section)
    facts = section.facts
    looks = curves.chosen(range(1, max(map(curves.n_looks, section.contestants)) + 1), n_looks)
    return {
        "task": section.name,
        "kind": facts["kind"],
        "metric": section.metric,
        "part": section.part,
        "data": {
            **{name: facts[name] for name in ("sizes", "notes")},
            "source": Path(facts["source"]).name
            if Path(facts["source"]).is_absolute()
            else facts["source"],  # a page is handed on
            "classes": len(facts["labels"]),
        },
        "names": section.names,
        "rows": gather.rows(section),
        "significance": samples.significance(section, seen),
        "looks": len(looks),
        "curves": _curves(section, n_points, looks),
        "sensitivity": sensitivity(section),
        "references": _references(section),
        "classes": samples.by_class(section, seen),
        "hardest": samples.hardest(seen),
        "settings": {"common": common, "own": own},
        "machines": gather.machines(section),
    }


def _curves(section: Section, n_points: int, looks: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    figures = ("loss", "won_share", "delta", "accumulation")
    by_step: dict[str, list[dict[str, Any]]] = {name: [] for name in figures}
    for each in section.contestants:
        for name, rows in curves.steps(each, figures, n_points).items():
            by_step[name] += rows
    n_samples = section.facts["sizes"]["train"]
    every = section.contestants
    return {
        "metric": [row for each in every for row in curves.evaluations(each, section.metric, 100)],
        "dev_loss": [row for each in every for row in curves.evaluations(each, "loss")],
        "train_loss": by_step["loss"],
        "won_share": [_share(row) for row in by_step["won_share"]],
        **{name: by_step[name] if curves.varies(by_step[name]) else [] for name in ("delta", "accumulation")},
        "margins": [row for each in every for row in curves.margins(each, looks)],
        "points": [row for each in every for row in curves.points(each, section.metric, 100)],
        "backwards": [
            row
            for each in every
            for row in curves.epochs(each, lambda epoch: 100 * epoch["n_backward"] / n_samples)
        ],
    }


def _share(row: dict[str, Any]) -> dict[str, Any]:
    """In percent, the band within 0 and 100."""
    return {
        **row,
        **{name: curves.rounded(100 * min(1.0, max(0.0, row[name]))) for name in ("value", "low", "high")},
    }


def sensitivity(section: Section) -> dict[str, list[dict[str, Any]]]:
    """By setting: contestants that are the same but for the number of it, two values at least."""
    found: dict[str, list[dict[str, Any]]] = {}
    for setting in LOSS_SETTINGS:
        families: dict[str, list[Contestant]] = {}
        for each in section.contestants:
            if isinstance(each.config.get(setting), (int, float)):
                rest = json.dumps(
                    [each.prefix, *(each.config.get(name) for name in IDENTITY if name != setting)]
                )
                families.setdefault(rest, []).append(each)
        rows = [
            row
            for family in families.values()
            if len(family) > 1
            for row in _family(section, setting, family)
        ]
        if rows:
            found[setting] = rows
    return found


def _family(section: Section, setting: str, family: Sequence[Contestant]) -> list[dict[str, Any]]:
    name = " ".join(word for word in family[0].name.split() if not word.startswith(f"{setting}="))
    rows = []
    for each in sorted(family, key=lambda one: one.config[setting]):
        figures = list(each.figures(section.part, section.metric).values())
        rows.append({"family": name, "setting": each.config[setting], **curves.spread(figures, 100)})
    return rows


def _references(section: Section) -> dict[str, float]:
    """Plain softmax, where it is the first."""
    first = section.contestants[0]
    if first.config["loss"] not in gather.PLAIN:
        return {}
    return {
        first.name: curves.spread(list(first.figures(section.part, section.metric).values()), 100)["value"]
    }


# ------------------------------------------------------------ the page


def page(data: dict[str, Any]) -> str:
    """The data as HTML; everything that came from a run is escaped."""
    sections: list[dict[str, Any]] = []
    specs: dict[str, Any] = {}
    for i, facts in enumerate(data["tasks"]):
        made = []
        for block in blocks(facts):
            at = f"t{i}-{slug(block.title)}"
            made.append({"id": at, "block": block, "charts": _place(at, block, specs)})
        sections.append({"id": f"t{i}", "facts": facts, "blocks": made})
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        resources.files("sparring.lab.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    drawn_by = "_".join(
        alt.SCHEMA_VERSION.split(".")[:2]
    )  # the Vega-Lite that the definitions were written for
    bundle = vl_convert.javascript_bundle(vl_version=drawn_by).replace("</script", "<\\/script")  # type: ignore[call-arg]
    return template.render(
        data=data, sections=sections, overview=overview(data), specs=_in_script(specs), bundle=bundle
    )


def _place(at: str, block: Block, specs: dict[str, Any]) -> list[dict[str, str]]:
    """A place for every chart of a block; the definitions go to ``specs``."""
    places = []
    for n, (caption, chart) in enumerate(block.charts.items()):
        spec = specs[f"{at}-{n}"] = chart.properties(width="container", description=caption).to_dict()
        spec["datasets"] = {name: packed(rows) for name, rows in spec["datasets"].items()}
        places.append({"id": f"{at}-{n}", "caption": caption})
    return places


def packed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows as a table, each word once: a third of the size. The page unpacks them.

    >>> packed([{"name": "softmax", "x": 1}, {"name": "softmax", "x": 2}])
    {'fields': ['name', 'x'], 'words': ['softmax'], 'text': [0], 'rows': [[0, 1], [0, 2]]}
    """
    fields = list(dict.fromkeys(name for row in rows for name in row))
    words = {
        word: i
        for i, word in enumerate(dict.fromkeys(v for row in rows for v in row.values() if isinstance(v, str)))
    }
    text = [i for i, name in enumerate(fields) if any(isinstance(row.get(name), str) for row in rows)]
    cells = [[words[v] if isinstance(v := row.get(name), str) else v for name in fields] for row in rows]
    return {"fields": fields, "words": list(words), "text": text, "rows": cells}


def _in_script(value: Any) -> str:
    """JSON that no text in it can end early: HTML looks for < alone."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def slug(title: str) -> str:
    """
    >>> slug("Time and samples saved")
    'time-and-samples-saved'
    """
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def overview(data: dict[str, Any]) -> Table | None:
    """Where there are several tasks: the first contestant of each, and the best of the others."""
    if len(data["tasks"]) < 2:
        return None
    rows = []
    for facts in data["tasks"]:
        part, (first, *others) = facts["part"], facts["rows"]
        best = max(others, key=lambda row: row[part]["mean"], default=None)
        cells = [Cell(facts["task"]), Cell(f"{part} {title_of(facts['metric'])}"), Cell(first["contestant"])]
        numbers = [over(best[part]), number(best["faster"], 2, "×")] if best else [Cell("–")] * 2
        rows.append([*cells, Cell(best["contestant"] if best else "–"), over(first[part]), *numbers])
    return Table(
        "Overview",
        ["task", "figure", "first", "best of the others", "% of the first", "% of the best", "faster"],
        rows,
        left=4,
    )
