"""The lock of a run folder under stress: processes take it and delete the folder; no two hold it at once."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from sparring.files import sweep
from sparring.lab.errors import UserError
from sparring.lab.lock import alone, remove
from tests.hostile.size import FACTOR

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no lock there")
PROCESSES = 4


def take(folder: str, seconds: float, deletes: bool, results: str) -> None:
    """Count how often the lock was taken, and how often another process was inside at the same time."""
    path, mark = Path(folder), Path(results) / "inside"
    n_taken = n_overlaps = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if deletes and n_taken % 3 == 0:
                remove(path)
                n_taken += 1
                continue
            with alone(path):
                n_taken += 1
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    n_overlaps += 1
                else:
                    (path / "summary.json").write_text("{}")
                    time.sleep(0)
                    if not (path / "summary.json").exists():  # somebody deleted the folder meanwhile
                        n_overlaps += 1
                    mark.unlink()
        except UserError:
            continue
    (Path(results) / f"{os.getpid()}.txt").write_text(f"{n_taken} {n_overlaps}")


@pytest.mark.parametrize("deletes", [False, True])
def test_no_two_processes_hold_the_lock(deletes: bool, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    arguments = (str(tmp_path / "run" / "seed-0"), 1.5 * FACTOR, deletes, str(tmp_path / "results"))
    context = multiprocessing.get_context("fork")  # spawned ones would spend their time importing
    workers = [context.Process(target=take, args=arguments) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    counts = [tuple(map(int, path.read_text().split())) for path in (tmp_path / "results").glob("*.txt")]
    assert sum(taken for taken, _ in counts) > 20
    assert sum(overlaps for _, overlaps in counts) == 0
    assert not (tmp_path / "run" / "seed-0" / "lock").exists()


def test_a_lock_that_was_deleted_with_its_folder_leaves_the_next_one_alone(tmp_path: Path) -> None:
    """The first lock is deleted and a second one is taken, which the first holder must not remove."""
    path = tmp_path / "seed-0"
    first, second = alone(path), alone(path)
    first.__enter__()
    (path / "lock").unlink()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (path / "lock").exists()
    with pytest.raises(UserError, match="another process is at work"), alone(path):
        pass
    second.__exit__(None, None, None)
    assert not (path / "lock").exists()


def test_the_holder_sweeps_what_a_kill_left(tmp_path: Path) -> None:
    """Also if a running process has the number of the dead one. Other files remain."""
    (tmp_path / "model").mkdir()
    swept = [f"summary.json.{pid}.part" for pid in (1, os.getppid(), os.getpid(), 2**22 + 1, 10**30)]
    kept = ["notes.part", "x.abc.part", "model/a.1.part"]
    for name in (*swept, *kept):
        (tmp_path / name).touch()
    with alone(tmp_path):
        assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.part")) == sorted(kept)


def test_without_the_lock_only_the_dead_are_swept(tmp_path: Path) -> None:
    for pid in (os.getppid(), 2**22 + 1):
        (tmp_path / f"report.html.{pid}.part").touch()
        (tmp_path / f"other.html.{pid}.part").touch()
    sweep(tmp_path, "report.html")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted(
        [f"report.html.{os.getppid()}.part", *(f"other.html.{pid}.part" for pid in (os.getppid(), 2**22 + 1))]
    )
