"""Forked kernels: as fresh as others, sooner there, and gone when they should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bookpress import kernel_server
from bookpress.kernel_server import Server, Shared, manager_for
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat.v4 import new_code_cell, new_notebook
from small_book import SmallBook

pytestmark = pytest.mark.skipif(
    sys.platform != "linux",
    reason="kernels are forked on Linux only; others start them as test_execute does",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        patch.setenv("OMP_NUM_THREADS", "1")
        made = Server()
    yield made
    made.close()


def run(server: Server, *cells: str, timeout: int = 120, **settings: Any) -> list[Any]:
    """Execute cells in a forked kernel; the texts that each printed or showed."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook, timeout=timeout, kernel_manager_class=manager_for(server.address), **settings
    )
    client.execute()
    shown = []
    for cell in notebook.cells:
        outputs = [o.get("text") or o.get("data", {}).get("text/plain") for o in cell.outputs]
        shown.append("".join(filter(None, outputs)).strip())
    return shown


PARENT = "import os; print(os.getppid())"


def test_a_kernel_is_forked_with_packages_loaded_and_the_library_not(server: Server) -> None:
    parent, loaded, library, arguments = run(
        server,
        PARENT,
        "import sys; print([n in sys.modules for n in ('torch', 'scipy.stats', 'xarray')],"
        " 'matplotlib.pyplot' in sys.modules)",
        "print([n for n in sys.modules if n.startswith(('measured_', 'bookpress'))])",
        "print(sys.argv[1], __name__)",
    )
    assert int(parent) == server.pid
    assert loaded == "[True, True, True] False"
    assert library == "[]"
    assert arguments == "-f __main__"


def test_a_kernel_has_the_folder_and_environment_of_who_asked_for_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED_FOR_BY", "one")
    asked = "import os; print(os.environ['ASKED_FOR_BY'], os.getcwd())"
    settings = {"resources": {"metadata": {"path": str(tmp_path)}}}
    assert run(server, asked, **settings) == [f"one {tmp_path}"]
    monkeypatch.setenv("ASKED_FOR_BY", "two")
    assert run(server, asked)[0].startswith("two ")


def test_nothing_of_one_kernel_is_left_for_the_next(server: Server) -> None:
    made = "import torch, numpy; torch.left = numpy.left = 1; torch.manual_seed(7); a = 1"
    run(server, made)
    drawn = "print(hasattr(torch, 'left'), hasattr(numpy, 'left'), 'a' in globals())"
    seed = "print(torch.initial_seed())"
    assert run(server, "import torch, numpy", drawn, seed) == run(
        server, "import torch, numpy", drawn, seed
    )
    assert run(server, "import torch, numpy", drawn)[1] == "False False False"


def test_figures_arrive_in_the_notebook_and_programs_can_be_started(server: Server) -> None:
    figure, program = run(
        server,
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
        "import subprocess\nprint(subprocess.run(['false']).returncode)",
    )
    assert figure.startswith("<Figure size"), figure
    assert program == "1"


def test_an_optimiser_takes_the_steps_that_it_takes_elsewhere(server: Server) -> None:
    code = (
        "import torch\ntorch.manual_seed(0)\nw = torch.nn.Parameter(torch.randn(3, 3))\n"
        "o = torch.optim.AdamW([w], lr=0.1, fused=True)\n"
        "for _ in range(3):\n    o.zero_grad(); (w @ w).square().sum().backward(); o.step()\n"
        "print(w.detach().flatten().tolist())"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run(server, code) == [elsewhere.stdout.strip()]


def test_errors_and_deaths_are_told_as_of_any_kernel(server: Server) -> None:
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(server, "1 / 0")
    with pytest.raises(DeadKernelError):
        run(server, "import os; os._exit(3)")
    with pytest.raises(DeadKernelError):
        run(server, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert run(server, "print('and the next one lives')") == ["and the next one lives"]


def test_a_cell_that_takes_too_long_is_interrupted(server: Server) -> None:
    slow = "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('stopped')"
    began = time.monotonic()
    first, second = run(server, slow, "print('goes on')", timeout=3, interrupt_on_timeout=True)
    assert time.monotonic() - began < 40
    assert (first, second) == ("stopped", "goes on")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until(happens: Any, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happens():
            return True
        time.sleep(0.05)
    return False


CLIENT = str(Path(kernel_server.__file__).with_name("fork_client.py"))
LAUNCH = [sys.executable, "-m", "ipykernel_launcher", "-f"]


def test_a_client_that_is_killed_takes_its_kernel_with_it(server: Server, tmp_path: Path) -> None:
    told = tmp_path / "kernel.json"
    client = subprocess.Popen([sys.executable, CLIENT, server.address, *LAUNCH, str(told)])
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    assert wait_until(told.exists)
    kernels = [int(pid) for pid in children.read_text("utf-8").split()]
    assert kernels
    assert all(map(alive, kernels))
    client.send_signal(signal.SIGKILL)
    client.wait()
    assert wait_until(lambda: not any(map(alive, kernels)))


def test_where_no_server_answers_an_ordinary_kernel_starts() -> None:
    ordinary = [sys.executable, "-c", "print('ordinary')", "ipykernel_launcher"]
    command = [sys.executable, CLIENT, "/nowhere/socket", *ordinary]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "ordinary\n"


def test_a_server_ends_with_who_started_it() -> None:
    code = (
        "from bookpress.kernel_server import Server\ns = Server()\nprint(s.pid, s.address, flush=True)\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert wait_until(lambda: not alive(int(done.stdout.split()[0])))


def shared(expected: int, *, cuda: bool = False) -> bool:
    """Return whether there is a server for as many kernels, and kernels that are asked of it."""
    kernels = Shared(dict, lambda: cuda)
    try:
        for _ in range(expected):
            kernels.expect()
        assert (kernels.pid is None) == (kernels.manager is None)
        return kernels.manager is not None
    finally:
        kernels.close()


def test_kernels_are_forked_where_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernel_server.VARIABLE, raising=False)
    assert not shared(0)
    assert not shared(1)
    assert shared(38)
    assert not shared(38, cuda=True)
    monkeypatch.setenv(kernel_server.VARIABLE, "1")
    assert not shared(0)
    assert shared(1)
    monkeypatch.setattr(kernel_server.sys, "platform", "darwin")
    assert not shared(38)


def test_one_server_is_started_with_what_is_set_for_all_and_ends_with_the_run() -> None:
    kernels = Shared(lambda: {"SET_FOR_ALL": "yes"}, lambda: False)
    for _ in range(9):
        kernels.expect()
    server = kernels.pid
    asked = kernels.manager(connection_file="kernel.json").format_kernel_cmd()
    address = Path(asked[asked.index(CLIENT) + 1])
    assert address.exists()
    found = Path(f"/proc/{server}/environ").read_bytes()
    assert b"SET_FOR_ALL=yes" in found
    assert "SET_FOR_ALL" not in os.environ
    kernels.expect()
    assert kernels.pid == server
    kernels.close()
    assert not alive(server)
    assert not address.exists()


def test_another_interpreter_s_kernels_are_left_alone(server: Server) -> None:
    manager = manager_for(server.address)()
    manager.connection_file = "kernel.json"
    forked = manager.format_kernel_cmd()
    assert forked[3] == CLIENT
    assert forked[5:9] == [sys.executable, "-m", "ipykernel_launcher", "-f"]
    manager.kernel_spec.argv = ["julia", "-e", "{connection_file}"]
    assert manager.format_kernel_cmd() == ["julia", "-e", os.path.realpath("kernel.json")]


def test_a_book_measures_the_same_with_forked_kernels(new_book: SmallBook) -> None:
    for page, name in {"book/one.md": "one", "book/part/two.md": "two"}.items():
        asked = f"open('{new_book.root}/parents', 'a').write(f'{{__import__(\"os\").getppid()}} ')"
        new_book.replace(page, f"'{name} sees'", f"{asked} and '{name} sees'")
    done = new_book.press("execute", "--jobs", "2", BOOKPRESS_FORK="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(new_book.runs()) == ["one", "two"]
    parents = new_book.read("parents").split()
    assert len(parents) == 2
    assert len(set(parents)) == 1, "one server forked both kernels"
    new_book.replace("lib/tiny/glass.py", "return 1", "return 3")
    done = new_book.press("execute", BOOKPRESS_FORK="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert new_book.runs() == ["one"]
    kept = new_book.stored_notebook("one").read_text("utf-8")
    assert "one sees 4" in kept, "the library as it was"
