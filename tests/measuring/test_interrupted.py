"""Killed in the middle, and two at once: nothing twice, nothing lost, nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from demo_room import Room
from measured_book.evidence.results import read_result
from measured_transformer.provenance.modules import file_of

LIBRARY = file_of("measured_book.measuring").parents[2]
SLOW = '''
"""What this chapter measures, slowly, and writing down what it does."""

import os
import time
from pathlib import Path

from measured_book.measuring import Search, job, measurement, tuned
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)


def wrote(what):
    path = Path(os.environ["TRACES"], f"{what}-{os.getpid()}-{time.time_ns()}")
    path.touch()


def slow(step):
    if step.number == 1:
        wrote("train")
        time.sleep(0.3)


def trainings(seed):
    return {"it": job(CONFIG, TASK, seed, steps=3, learning_rate=0.01, after_step=slow)}


@measurement(seeds=8, trainings=trainings)
def losses(seed, runs):
    """The last loss."""
    wrote(f"look{seed}")
    time.sleep(0.3)
    while seed == 70 and Path(os.environ["TRACES"], "hold").exists():
        time.sleep(0.05)
    return {"loss": runs["it"].losses[-1]}
'''
SITE = """
import measured_book.rooms
from pathlib import Path
from measured_book.evidence import results

results._ROOMS = Path({rooms!r})
measured_book.rooms.__path__[:] = [{rooms!r}]
"""


class Process:
    """`python -m measured_book.measuring` in a session of its own, for a room of a test."""

    def __init__(self, room: Room, folder: Path, *options: str) -> None:
        site, self.traces = folder / "site", folder / "traces"
        for made in (site, self.traces):
            made.mkdir(exist_ok=True)
        rooms = str(room.folder.parent)
        (site / "sitecustomize.py").write_text(SITE.format(rooms=rooms))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "measured_book.measuring", *options],
            env={
                **os.environ,
                "OPENBLAS_CORETYPE": "Haswell",  # or the program would start twice, and come late
                "PYTHONPATH": os.pathsep.join([str(site), str(LIBRARY)]),
                "TRACES": str(self.traces),
                "OMP_NUM_THREADS": "2",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def workers(self) -> list[int]:
        """The processes that have left traces and still run."""
        known = {int(path.name.split("-")[1]) for path in self.traces.iterdir()}
        return [pid for pid in known if Path(f"/proc/{pid}").exists() and not is_zombie(pid)]

    def end(self) -> tuple[int, str]:
        """Wait for the end; the status, and all that was said."""
        out, _ = self.process.communicate(timeout=300)
        return self.process.returncode, self.said + out

    def says(self, words: str) -> None:
        """Wait until it has said something."""
        assert self.process.stdout is not None
        while words not in self.said:
            line = self.process.stdout.readline()
            assert line, f"it ended without having said {words!r}:\n{self.said}"
            self.said += line


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(condition: object, seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.05)


def kept() -> list[Path]:
    return list(Path("_build/measuring/demo.losses").rglob("*.json"))


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks at processes as Linux has them"
)
@pytest.mark.parametrize("whole_group", [False, True])
def test_after_a_kill_the_next_run_goes_on(room: Room, tmp_path: Path, whole_group: bool) -> None:
    room.write(SLOW)
    first = Process(room, tmp_path)
    until(lambda: len(kept()) >= 2)
    (os.killpg if whole_group else os.kill)(first.process.pid, signal.SIGKILL)
    first.process.wait()
    until(lambda: not first.workers(), 20)  # nobody goes on training what nobody waits for
    done = [int(path.stem) for path in kept()]
    assert not room.results.exists()
    before = len(list(Path("_build/runs").glob("*.safetensors")))
    count = len(list(first.traces.glob("train-*")))
    room.results.mkdir()
    (room.results / ".losses.json.abc.part").write_text("half a")  # killed while it wrote
    status, told = Process(room, tmp_path).end()
    assert status == 0, told
    assert f"{8 - len(done)} of 8 seeds to measure" in told
    for seed in done:
        # the first seed is read twice more, for the fingerprint
        assert len(list(first.traces.glob(f"look{seed}-*"))) == (1 if seed else 1 + 2)
    # and its training begun twice more
    again = len(list(first.traces.glob("train-*"))) - count - 2
    assert again == 8 - before
    assert [path.name for path in room.results.iterdir()] == ["losses.json"]
    assert read_result(room.results / "losses.json").seeds == [0, 10, 20, 30, 40, 50, 60, 70]
    assert not list(Path("_build/measuring/demo.losses").rglob("*.json"))


def test_two_at_once_do_nothing_twice(room: Room, tmp_path: Path) -> None:
    room.write(SLOW)
    pair = [Process(room, tmp_path) for _ in range(2)]
    ends = [each.end() for each in pair]
    assert [status for status, _ in ends] == [0, 0], ends
    told = "".join(text for _, text in ends)
    assert told.count("1 measured, 0 held") == 1
    assert told.count("0 measured, 1 held") == 1
    looks = [path.name.split("-")[0] for path in pair[0].traces.glob("look*")]
    once = [f"look{seed}" for seed in range(0, 80, 10)]
    assert sorted(looks) == sorted([*once, "look0", "look0"])  # and for the fingerprint
    assert len(list(pair[0].traces.glob("train-*"))) == 8 + 2


def test_two_that_renew_at_once_measure_once(room: Room, tmp_path: Path) -> None:
    room.write(SLOW)
    hold = tmp_path / "traces" / "hold"
    hold.parent.mkdir()
    hold.touch()  # the first goes on to its end when the second waits for it
    first = Process(room, tmp_path, "--renew")
    until(lambda: kept())  # it holds the lock
    second = Process(room, tmp_path, "--renew")
    second.says("another process is measuring it")
    hold.unlink()
    ends = [each.end() for each in (first, second)]
    assert [status for status, _ in ends] == [0, 0], ends
    assert "1 measured, 0 held" in ends[0][1]
    assert "0 measured, 1 held" in ends[1][1]
    assert "another process is measuring it" in ends[1][1]
    assert len(list(first.traces.glob("look*"))) == 8 + 2
    alone = Process(room, tmp_path, "--renew")
    assert "1 measured, 0 held" in alone.end()[1]
    assert len(list(first.traces.glob("look*"))) == 8 + 2 + 8  # of this code one is kept already
