"""A server of NVIDIA's MPS for one command, with stand-ins for the driver's programs and for Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SYSTEM = (
    "cat",
    "env",
    "grep",
    "ls",
    "mkdir",
    "mkfifo",
    "mktemp",
    "rm",
    "sh",
    "sleep",
    "tail",
    "timeout",
)
RUNS = "MPS: processes use the GPU side by side, with a server for this command alone\n"
ASKED = "control: get_server_list"

# The daemon: a process with a file of its number beside its pipes. Its first client makes it start a server.
CONTROL = r"""
pipe=${CUDA_MPS_PIPE_DIRECTORY:-$USUAL}
file=$pipe/nvidia-cuda-mps-control.pid
if [ "$*" = -d ]; then
    echo "control: -d, devices ${CUDA_VISIBLE_DEVICES-all}, $pipe" >>"$LOG"
    [ -z "${NO_DAEMON:-}" ] || { echo "Failed to create a socket"; exit 1; }
    [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || exit 1
    sleep 300 >/dev/null 2>&1 &
    daemon=$!
    (
        [ -z "${LATE:-}" ] || sleep 0.5
        echo "$daemon" >"$file"
    ) &
    [ -n "${LATE:-}" ] || wait $!
    exit
fi
read -r word
echo "control: $word" >>"$LOG"
[ -z "${NOT_OURS:-}" ] || [ "$pipe" != "$USUAL" ] || exit 1
[ -f "$file" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
case $word in
quit) [ -n "${STUBBORN:-}" ] || { kill "$(cat "$file")"; rm "$file"; } ;;
get_server_list) [ ! -f "$pipe/client" ] || echo 4711 ;;
esac
"""
PYTHON = r"""
case "$*" in
*torch.zeros*)
    echo "probe: devices ${CUDA_VISIBLE_DEVICES-all}" >>"$LOG"
    case ${PROBE:-} in
    hangs) exec sleep 60 ;;
    fails) echo 'raise RuntimeError("Error: here")
RuntimeError: Error 805: MPS client failed to connect
Device-side assertions may help' >&2; exit 1 ;;
    alone) ;;
    *) : >"$CUDA_MPS_PIPE_DIRECTORY/client" ;;
    esac ;;
*)
    echo "python: $*, devices ${CUDA_VISIBLE_DEVICES-all}" >>"$LOG"
    echo "${CUDA_MPS_PIPE_DIRECTORY-none} ${CUDA_MPS_LOG_DIRECTORY-none}" >"$SEEN"
    [ -z "${STAYS:-}" ] || { echo here; exec sleep 60; }
    exit "${STATUS:-0}" ;;
esac
"""


class Machine:
    """A machine with a GPU and the programs of its driver, all of them stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.log, self.seen, self.usual = folder / "log", folder / "seen", folder / "usual"
        self.bin.mkdir()
        self.usual.mkdir()
        for tool in SYSTEM:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.stand_in("nvidia-cuda-mps-control", CONTROL)
        self.stand_in("nvidia-smi", 'echo "GPU 0: NVIDIA H100 (UUID: GPU-4711)"')
        self.stand_in("python", PYTHON)
        script = (ROOT / "tools" / "side-by-side").read_text()
        # Where a real driver has its pipes and its devices.
        for there, here in {"/tmp/nvidia-mps": self.usual, "/dev/nvidia": folder / "node"}.items():
            assert there in script
            script = script.replace(there, str(here))
        self.tool = folder / "side-by-side"
        self.tool.write_text(script)
        self.tool.chmod(0o755)

    def stand_in(self, name: str, script: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (self.bin / name).chmod(0o755)

    def environment(self, **variables: str) -> dict[str, str]:
        own = {"LOG": str(self.log), "SEEN": str(self.seen), "USUAL": str(self.usual)}
        return {"PATH": str(self.bin), **own, **variables}

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.tool, "python", *(words or ("-m", "measuring"))],
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.tool, "python", "stays"],
            env=self.environment(STAYS="1", **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @property
    def told(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def pipe(self) -> Path:
        """Of the server that was started."""
        (started,) = [line for line in self.told if line.startswith("control: -d")]
        return Path(started.rpartition(" ")[2])

    @property
    def daemon(self) -> int:
        """The daemon's process."""
        return int((self.pipe / "nvidia-cuda-mps-control.pid").read_text())


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for line in made.told:  # nothing is left behind by a test that fails
        if line.startswith("control: -d"):
            pipe = Path(line.rpartition(" ")[2])
            for file in pipe.glob("*.pid"):
                with suppress(ProcessLookupError):
                    os.kill(int(file.read_text()), signal.SIGTERM)
            shutil.rmtree(pipe.parent, ignore_errors=True)


def becomes(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def lives(process: int) -> bool:
    """Return whether it runs, and is not one that ended and that nobody has asked for its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stopped(machine: Machine) -> bool:
    return becomes(lambda: not machine.pipe.parent.exists()) and "control: quit" in machine.told


def alone(machine: Machine, done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether the command ran without a server."""
    return done.returncode == 0 and machine.seen.read_text() == "none none\n"


def test_the_command_runs_beside_a_server_of_its_own_that_is_stopped_after_it(machine: Machine):
    done = machine.run("-m", "measuring", "--renew")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", RUNS)
    pipe, log = machine.seen.read_text().split()
    assert Path(pipe) == machine.pipe
    assert Path(pipe).parent == Path(log).parent
    assert pipe.startswith("/tmp/measured-mps."), "a socket's path may have 107 characters"
    assert stopped(machine)
    assert machine.told == [
        ASKED,  # is there a server already?
        f"control: -d, devices all, {pipe}",
        ASKED,  # is it up?
        "probe: devices all",
        ASKED,  # had it a client?
        "python: -m measuring --renew, devices all",
        "control: quit",
    ]


def test_the_server_lives_as_long_as_the_command_and_not_longer(machine: Machine):
    with machine.start() as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "here\n"
        daemon = machine.daemon
        time.sleep(0.3)
        assert lives(daemon)
        assert "control: quit" not in machine.told
        command.kill()
    assert stopped(machine), "however the command ended"
    assert not lives(daemon)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("to_all", [True, False], ids=["as by Ctrl-C", "to the command"])
def test_a_signal_ends_the_command_and_the_server(
    machine: Machine, number: signal.Signals, to_all: bool
):
    with machine.start() as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "here\n"
        daemon = machine.daemon
        (os.killpg if to_all else os.kill)(command.pid, number)
        assert command.wait(20) == -number, "the command got it itself"
    assert stopped(machine)
    assert not lives(daemon)


def test_a_signal_while_the_server_starts_ends_it_too(machine: Machine):
    with machine.start(PROBE="hangs") as command:
        assert becomes(lambda: "probe: devices all" in machine.told)
        daemon = machine.daemon
        os.killpg(command.pid, signal.SIGTERM)
        assert command.wait(20) != 0
    assert stopped(machine)
    assert not lives(daemon)
    assert not machine.seen.exists()


def test_the_exit_status_is_the_commands(machine: Machine):
    assert machine.run(STATUS="3").returncode == 3
    assert stopped(machine)
    assert machine.run(STATUS="3", MEASURED_MPS="0").returncode == 3


def test_a_server_that_does_not_quit_is_ended(machine: Machine):
    machine.stand_in(  # as the real one, but waits are short
        "sleep", f'[ "$1" != 1 ] || set -- 0.05; exec {shutil.which("sleep")} "$@"'
    )
    with machine.start(STUBBORN="1") as command:
        assert command.stdout is not None
        command.stdout.readline()
        daemon = machine.daemon
        command.kill()
    assert becomes(lambda: not lives(daemon), 30)
    assert stopped(machine)


def test_a_daemon_may_take_a_moment_to_answer(machine: Machine):
    assert machine.run(LATE="1").stderr == RUNS
    assert machine.told.count(ASKED) > 3
    assert stopped(machine)


def test_devices_that_are_named_are_the_servers_which_numbers_them_anew(machine: Machine):
    done = machine.run(CUDA_VISIBLE_DEVICES="1")
    assert done.stderr == RUNS
    assert machine.told[1].startswith("control: -d, devices 1,")
    assert [line for line in machine.told if line.startswith("p")] == [
        "probe: devices all",
        "python: -m measuring, devices all",
    ]
    assert stopped(machine)


# --- where a server does not work -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"NO_DAEMON": "1"}, "Failed to create a socket"),
        ({"PROBE": "fails"}, "RuntimeError: Error 805: MPS client failed to connect"),
        ({"PROBE": "alone"}, "a process ran without it"),
    ],
    ids=["the daemon does not start", "the probe fails", "the probe has no server"],
)
def test_the_command_runs_without_a_server_that_does_not_work(
    machine: Machine, variables: dict[str, str], why: str
):
    done = machine.run(CUDA_VISIBLE_DEVICES="1", **variables)
    assert alone(machine, done)
    assert done.stderr == (
        f"MPS: no server works here ({why}), so processes take turns on the GPU, which is slower\n"
    )
    assert not machine.pipe.parent.exists(), "it is gone before the command runs"
    assert machine.told[-2:] == ["control: quit", "python: -m measuring, devices 1"]


def test_a_probe_that_hangs_ends(machine: Machine):
    machine.stand_in(  # as the real one, but for a second
        "timeout",
        "while case $1 in nvidia-* | env) false ;; esac; do shift; done\n"
        f'exec {shutil.which("timeout")} --foreground 1 "$@"',
    )
    done = machine.run(PROBE="hangs")
    assert alone(machine, done)
    assert "no server works here (no answer)" in done.stderr
    assert not machine.pipe.parent.exists()


# --- where none is wanted ---------------------------------------------------------------------------


def untouched(machine: Machine, done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether the command ran as it is, no word was said and nothing was started."""
    others = [line for line in machine.told if not line.startswith("python:")]
    quiet = done.stdout == done.stderr == ""
    return done.returncode == 0 and quiet and machine.seen.exists() and set(others) <= {ASKED}


@pytest.mark.parametrize("missing", ["nvidia-cuda-mps-control", "nvidia-smi"])
def test_without_a_gpu_nothing_is_said_or_started(machine: Machine, missing: str):
    (machine.bin / missing).unlink()
    assert untouched(machine, machine.run())
    assert machine.told == ["python: -m measuring, devices all"]


def test_a_driver_without_nvidia_smi_shows_its_devices(machine: Machine):
    (machine.bin / "nvidia-smi").unlink()
    (machine.folder / "node0").touch()
    assert machine.run().stderr == RUNS
    assert stopped(machine)


@pytest.mark.parametrize(
    "variables",
    [
        {"MEASURED_MPS": "0"},
        {"MEASURED_DEVICE": "cpu"},
        {"MEASURED_DEVICE_PROCESSES": "1"},
        {"CUDA_VISIBLE_DEVICES": ""},
        {"CUDA_VISIBLE_DEVICES": "-1"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_nothing_is_said_or_started_where_it_is_of_no_use(
    machine: Machine, variables: dict[str, str]
):
    assert untouched(machine, machine.run(**variables))
    assert ASKED not in machine.told
    assert machine.seen.read_text() == "none none\n"


def test_a_server_that_variables_name_is_left_alone(machine: Machine):
    assert untouched(machine, machine.run(CUDA_MPS_PIPE_DIRECTORY="/mine"))
    assert machine.seen.read_text() == "/mine none\n"
    assert ASKED not in machine.told


@pytest.mark.parametrize("other", ["", "1"], ids=["the user's own", "another user's"])
def test_a_server_at_the_usual_place_is_left_alone(machine: Machine, other: str):
    with subprocess.Popen(["sleep", "60"]) as daemon:
        (machine.usual / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
        done = machine.run(NOT_OURS=other)
        daemon.kill()
    assert untouched(machine, done)
    assert machine.seen.read_text() == "none none\n", "clients find it by themselves"


def test_one_that_answers_is_left_alone_though_its_process_is_not_to_be_seen(machine: Machine):
    (machine.usual / "nvidia-cuda-mps-control.pid").write_text("999999999\n")
    assert untouched(machine, machine.run())
    assert ASKED in machine.told


def test_what_a_server_left_behind_is_no_server(machine: Machine):
    (machine.usual / "nvidia-cuda-mps-control.pid").write_text("999999999\n")
    assert machine.run(NOT_OURS="1").stderr == RUNS
    assert stopped(machine)


# --- who uses it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "by"), [([], "tools/side-by-side "), (["CLUSTER=tcp://there:8786"], "")]
)
def test_make_measure_uses_it_where_this_machine_measures(words: list[str], by: str):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    said = subprocess.run(
        ["make", "-n", "measure", *words],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    command = said.stdout.splitlines()[-1]
    assert command.startswith(f"{by}.venv/bin/python -m measured_book.measuring"), command
