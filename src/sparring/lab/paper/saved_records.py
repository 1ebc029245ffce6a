"""Records in the folder that ``--save`` writes: their runs are not repeated, wherever they were made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparring.lab.paper.studies import STUDIES
from sparring.lab.paper.study_records import Record, Results, read_results
from sparring.lab.runs.records import RunFolder


class SavedRecords:
    """The records of all studies in a folder; none without a folder.

    A run is known by its seed and the name of its folder, which has a digest of settings, data and model.
    Records of earlier versions have no such name.
    """

    def __init__(self, folder: Path | None = None) -> None:
        names = [f"{name.replace(' ', '_')}.jsonl" for name in STUDIES]
        paths = [folder / name for name in names if (folder / name).exists()] if folder is not None else []
        self.studies = {results.study: results for results in map(read_results, paths)}
        self._records: dict[tuple[str, int], list[Record]] = {}
        for results in self.studies.values():
            for record in results.records:
                if "run" in record:
                    self._records.setdefault((record["run"], record["seed"]), []).append(record)

    def find(self, folder: RunFolder, seed: int, curves: Sequence[str]) -> Record | None:
        """The record of a run, if one has these curves."""
        records = self._records.get((folder.name, seed), [])
        return next((record for record in records if all(curve in record for curve in curves)), None)

    def on_parts(self, folder: RunFolder, seed: int) -> list[Record]:
        """The records of runs on a part of the data that a run has chosen."""
        ending = f"-of-{folder.name}"
        return [
            records[0]
            for (name, run_seed), records in self._records.items()
            if run_seed == seed and name.endswith(ending)
        ]

    def merged(self, results: Results) -> Results:
        """Results with the other saved records of the same study.

        Of a task that both have, records are kept that were made with the same settings: of other methods,
        and of other seeds.
        """
        saved = self.studies.get(results.study)
        if saved is None:
            return results
        done = {_key(record) for record in results.records}
        others = [
            record
            for record in saved.records
            if _key(record) not in done
            and results.descriptions.get(record["task"], saved.descriptions[record["task"]])
            == saved.descriptions[record["task"]]
        ]
        order = {method: i for i, method in enumerate(_methods(saved.records, results.records))}
        tasks = {task: i for i, task in enumerate({**saved.descriptions, **results.descriptions})}
        records = sorted(
            [*others, *results.records],
            key=lambda record: (tasks[record["task"]], record["seed"], order[record["method"]]),
        )
        return Results(results.study, records, {**saved.descriptions, **results.descriptions})


def _key(record: Record) -> tuple[str, str, int]:
    return record["task"], record["method"], record["seed"]


def _methods(*groups: Sequence[Record]) -> list[str]:
    """The methods of all records, those of the longest list of them first and in its order."""
    lists = [list(dict.fromkeys(record["method"] for record in records)) for records in groups]
    lists.sort(key=len, reverse=True)
    return list(dict.fromkeys(method for methods in lists for method in methods))
