"""Programs in processes of their own, forked from a server that has imported torch and transformers already.

A new Python would spend two seconds on torch and eight on transformers' Trainer. What a program imports, and
how it is started by torchrun, is for the tests of that: they start a new Python.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
import weakref
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

ROOT = Path(__file__).parents[1]
CONTEXT: Any = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
if os.name == "posix":
    CONTEXT.set_forkserver_preload(
        [
            *("sparring.cli.app", "sparring.lab.runs.jobs", "sparring.integrations.hf", "sklearn.datasets"),
            *("sparring.heads.parallel", "torch.distributed.checkpoint", "torch.distributed.fsdp"),
            *("torch.distributed.tensor.parallel", "tests.processes"),
        ]
    )


class Program:
    """A script (its path) or a module (its name) that runs with arguments, as ``__main__``.

    ``variables`` are added to the environment. Output goes to files, which go with this object.
    """

    def __init__(self, name: str | Path, *words: object, cwd: Path = ROOT, **variables: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        arguments = (str(name), list(map(str, words)), str(cwd), environment, self.folder)
        self.process = CONTEXT.Process(target=_run, args=arguments)
        self.process.start()
        self.pid: int = self.process.pid

    def poll(self) -> int | None:
        """The exit code, or None while the program runs."""
        code: int | None = self.process.exitcode
        return code

    def wait(self, timeout: float = 300) -> int:
        self.process.join(timeout)
        code = self.poll()
        if code is None:
            self.kill()
            raise TimeoutError(f"after {timeout} seconds:\n{self.err[-4000:]}")
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    @property
    def out(self) -> str:
        return self._read("out")

    @property
    def err(self) -> str:
        return self._read("err")

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _run(name: str, words: list[str], cwd: str, environment: dict[str, str], folder: Path) -> None:
    os.setpgid(0, 0)  # signals to its group reach what it starts, and nobody else
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name_of_file in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name_of_file, os.O_WRONLY | os.O_CREAT), number)
    files = (io.FileIO(number, "w", closefd=False) for number in (1, 2))
    sys.stdout, sys.stderr = (io.TextIOWrapper(file, "utf-8", write_through=True) for file in files)
    sys.argv = [name, *words]
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    gc.freeze()  # what the server imported is no garbage
    if name.endswith(".py"):
        sys.path.insert(0, str(Path(name).parent))
        runpy.run_path(name, run_name="__main__")
    else:
        sys.path.insert(0, cwd)
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def start_ranks(
    n: int, name: str | Path, *words: object, cwd: Path = ROOT, **variables: str
) -> list[Program]:
    """A program on n ranks, which find each other as under torchrun. The caller waits for them."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    usual = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "GLOO_SOCKET_IFNAME": "lo",
        "ACCELERATE_USE_CPU": "true",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    programs = []
    for rank in range(n):
        numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        programs.append(Program(name, *words, cwd=cwd, **{**usual, **numbers, **variables}))
        programs[-1].store = store  # type: ignore[attr-defined]  # it ends with the last of them
    return programs


def run_ranks(
    n: int, name: str | Path, *words: object, cwd: Path = ROOT, fails: bool = False, **variables: str
) -> str:
    """Run a program on n ranks and return their output. Where one fails, the others are killed.

    ``fails``: that is expected; otherwise it is a failure of the test.
    """
    programs = start_ranks(n, name, *words, cwd=cwd, **variables)
    try:
        running = {program.process.sentinel: program for program in programs}
        while running:
            ended = [running.pop(sentinel) for sentinel in wait(list(running), timeout=300)]
            assert ended, "nothing for 300 seconds"
            codes = [program.wait() for program in ended]
            if any(codes):
                errors = "\n".join(program.err[-4000:] for program in programs)
                assert fails, errors
                return errors
    finally:
        for program in programs:
            program.kill()
    assert not fails, "no rank failed"
    return "".join(program.out for program in programs)
