"""Answers that break what they run in: none passes, none does harm, and each verdict says what happened."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from measured_book.exercises import check, judging, results, state
from measured_book.exercises.answers import Answer, close, demand, tensor
from measured_book.exercises.confined import confine
from measured_book.exercises.processes import EndedError, Limits, Process, can_copy
from measured_book.exercises.wire import decode, dumps, encode, loads
from torch import nn

pytestmark = pytest.mark.skipif(not can_copy(), reason="only Linux can copy a process")
NAME = "learning_rate.half_life"
RIGHT = {0.5: 1.0, 0.9: 6.578813478960583, 0.98: 34.309618291498, 0.999: 692.8005491785763}


def right(beta):
    return RIGHT[beta]


def loops(beta):
    while True:
        pass


def prints(beta):
    while True:
        print("x" * 1000)


def takes_memory(beta):
    held = []
    while True:
        held.append(bytearray(10**8))


def takes_tensors(beta):
    held = []
    while True:
        held.append(torch.ones(10**8))


def recurses(beta):
    return recurses(beta)


def exits(beta):
    exit()


def leaves(beta):
    os._exit(0)


def interrupts(beta):
    raise KeyboardInterrupt


def kills_itself(beta):
    os.kill(os.getpid(), 9)


def breaks_down(beta):
    return ctypes.string_at(0)


def forks(beta):
    if os.fork() == 0:
        time.sleep(60)
    return right(beta)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (loops, "has not ended after 1 seconds"),
        (prints, "has not ended after 1 seconds"),
        (recurses, "raises RecursionError"),
        (exits, "ends the program (exit, quit or SystemExit)"),
        (leaves, "ends its process (with 0)"),
        (interrupts, "raises KeyboardInterrupt"),
        (kills_itself, "breaks down (SIGKILL)"),
        (breaks_down, "breaks down (SIGSEGV)"),
    ],
)
def test_an_answer_that_breaks_its_process_is_told_so_with_its_input(answer, words, capsys):
    result = check(NAME, answer, seconds=1.0)
    assert not result
    assert words in result.message
    assert result.input == "beta = 0.5"
    assert len(capsys.readouterr().out) < 11_000


@pytest.mark.parametrize("answer", [takes_memory, takes_tensors])
def test_memory_without_end_is_told(answer):
    message = check(NAME, answer, seconds=20.0, show=False).message
    assert message == "the function needs more memory than an answer may take"


def test_what_an_answer_leaves_running_is_ended(monkeypatch):
    begun = time.monotonic()
    assert check(NAME, forks, show=False)
    assert time.monotonic() - begun < 30


def ends_its_parent(beta):
    os.kill(os.getppid(), 9)
    return right(beta)


def ends_everybody(beta):
    os.kill(-1, 9)
    return right(beta)


def limits_its_parent(beta):
    import resource  # not on every system

    resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
    return right(beta)


def goes_its_own_way(beta):
    os.setsid()
    return right(beta)


@pytest.fixture(scope="module")
def confining():
    with Process(lambda line: line.send(b"%d" % confine()), Limits(confined=False)) as process:
        if process.receive() == b"0":
            pytest.skip("this kernel takes no filter of system calls")


@pytest.mark.parametrize(
    "answer", [ends_its_parent, ends_everybody, limits_its_parent, goes_its_own_way]
)
def test_an_answer_reaches_no_other_process(answer, confining):
    assert "raises PermissionError" in check(NAME, answer, show=False).message


def test_nothing_that_an_answer_starts_stays(confining, tmp_path):
    made = tmp_path / "number"

    def detaches(beta):
        if os.fork() == 0:
            with contextlib.suppress(PermissionError):
                os.setsid()
            if os.fork() == 0:
                made.write_text(str(os.getpid()))
                time.sleep(60)
            os._exit(0)
        while not (made.exists() and made.read_text()):
            time.sleep(0.01)
        return right(beta)

    assert check(NAME, detaches, show=False)
    number = int(made.read_text())
    for _ in range(100):
        state = Path(f"/proc/{number}/stat")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if state.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        break
    else:
        pytest.fail("what the answer started is still there")


def test_a_confined_process_ends_itself_and_its_own_as_before(confining):
    def work(line):
        child = os.fork()
        if child == 0:
            time.sleep(60)
        with contextlib.suppress(PermissionError):
            os.kill(child, 9)
            line.send(b"it ended another process")
        os.kill(0, 0)  # asks for the group, and ends nobody
        line.send(b"as before")

    with Process(work, Limits(seconds=20.0)) as process:
        assert process.receive() == b"as before"


def test_a_real_interrupt_of_the_reader_goes_through(monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Process, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check(NAME, right)


# Answers that claim to be right -------------------------------------------------------------------


class Agreeable(float):
    """Equal to everything, at no distance from anything."""

    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0.0

    __rsub__ = __abs__ = __rpow__ = lambda self, *other: 0.5
    __hash__ = float.__hash__


class AgreeableTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


@pytest.fixture
def doubled(monkeypatch):
    """The exercise `made.doubled`: twice a tensor."""
    from measured_book.exercises import registry

    registry.exercises()
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))

    def doubled(answer: Answer) -> None:
        """Write `doubled(x)`."""
        x = torch.arange(3.0)
        demand(close(tensor(answer(x), (3,)), 2 * x), "not doubled")

    doubled.__module__ = "tests.made"
    registry.exercise("book/made")(doubled)
    return "made.doubled"


def test_a_number_that_equals_everything_is_only_its_value():
    assert not check(NAME, lambda beta: Agreeable(3), show=False)
    assert not check("learning_rate.edge", (Agreeable(3), Agreeable(4)), show=False)


def test_a_tensor_that_agrees_with_everything_is_only_its_entries(doubled):
    wrong = torch.ones(3).as_subclass(AgreeableTensor)
    assert check(doubled, lambda x: wrong, show=False).message == "not doubled"


def patches(x):
    torch.allclose = lambda *_, **__: True
    torch.Tensor.__eq__ = torch.Tensor.eq = lambda *_: True
    return x


def test_what_an_answer_replaces_is_replaced_for_itself_alone(doubled):
    before = torch.allclose
    assert not check(doubled, patches, show=False)
    assert torch.allclose is before


def test_what_the_program_has_replaced_does_not_reach_the_checker(doubled, monkeypatch):
    from measured_book.exercises import answers

    agree = lambda *_, **__: True  # noqa: E731
    monkeypatch.setattr(torch, "allclose", agree)
    monkeypatch.setattr(torch.Tensor, "__sub__", lambda a, b: a)
    monkeypatch.setattr(answers, "demand", agree)
    monkeypatch.setattr(answers, "close", agree)
    assert not check(doubled, lambda x: x, show=False)
    assert torch.allclose is agree, "the program keeps what it has"
    assert check(doubled, lambda x: 2 * x, show=False)


def test_what_is_no_value_is_described(doubled):
    for given, words in [
        (lambda x: (i for i in x), "shall be a tensor, got generator <generator"),
        (lambda x: object(), "shall be a tensor, got <object"),
        (lambda x: nn.Linear(1, 1), "shall be a tensor, got a module Linear"),
        (lambda x: print, "shall be a tensor, got the function print"),
    ]:
        assert words in check(doubled, given, show=False).message


def endless(x):
    made = []
    made.append(made)
    return made


class Sly(list):
    def __iter__(self):
        raise SystemExit

    def __len__(self):
        return 3


def test_values_that_fight_being_read_do_not_pass(doubled):
    assert not check(doubled, endless, show=False)
    assert not check(doubled, lambda x: Sly([0.0, 2.0, 5.0]), show=False)
    assert not check(doubled, lambda x: Sly, show=False)


def test_messages_to_the_checker_cannot_be_forged_into_a_verdict(doubled, tmp_path):
    def forges(x):
        for fd in range(3, 200):
            try:
                os.write(fd, len(b'["passed",1]').to_bytes(8, "little") + b'["passed",1]')
            except OSError:
                continue
        return x

    mine = tmp_path / "mine.txt"
    with mine.open("w") as file:
        assert not check(doubled, forges, show=False)
        file.write("my own words")
    assert mine.read_text() == "my own words", "files of the program are out of reach as well"


# The state of the program --------------------------------------------------------------------------


def test_settings_of_the_program_change_no_verdict_and_are_left_as_they_were(doubled):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    try:
        told = check(
            doubled, lambda x: torch.tensor(2.0) * x if torch.is_grad_enabled() else x, show=False
        )
        assert told, told
        assert check(doubled, lambda x: 2 * x.to(torch.get_default_dtype()), show=False)
        assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def test_a_seed_that_an_answer_sets_is_not_the_programs():
    def seeds(beta):
        torch.manual_seed(1)
        np.random.seed(1)
        os.environ["SEEN_BY_NOBODY"] = "1"
        return right(beta)

    before = torch.get_rng_state()
    assert check(NAME, seeds, show=False)
    assert torch.equal(before, torch.get_rng_state())
    assert "SEEN_BY_NOBODY" not in os.environ


def test_an_answer_of_a_program_with_threads_and_gradients_does_not_hang(doubled):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        weight = torch.ones(300, 300, requires_grad=True)
        (weight @ weight).sum().backward()

        def heavy(x):
            leaf = x.clone().requires_grad_()
            (torch.ones(400, 400) @ torch.ones(400, 400)).sum()
            (gradient,) = torch.autograd.grad((leaf * leaf).sum(), leaf)
            return gradient

        assert check(doubled, heavy, seconds=20.0, show=False)
    finally:
        stop.set()
        other.join()
        torch.set_num_threads(threads)


def test_where_a_process_cannot_be_copied_the_verdict_says_so(doubled, monkeypatch):
    monkeypatch.setattr(judging, "can_copy", lambda: False)
    result = check(doubled, lambda x: 2 * x, show=False)
    assert result.passed
    assert "without limits" in result.note
    assert "only Linux" in str(result)
    assert "Checked in the program" in result._repr_html_()
    assert "ends the program" in check(doubled, lambda x: exit(), show=False).message


# Where it is shown --------------------------------------------------------------------------------


def test_a_script_prints_each_verdict_and_what_the_answer_printed(capsys):
    def talks(beta):
        print("beta is", beta)
        return right(beta)

    check(NAME, talks)
    check(NAME, lambda beta: 3)
    told = capsys.readouterr().out
    assert told.index("beta is 0.5\n") < told.index(f"passed: {NAME}, on 4 inputs")
    assert told.index(f"passed: {NAME}") < told.index(f"not yet: {NAME}")


def test_output_is_cut_off(capsys):
    check(NAME, lambda beta: print("x" * 20_000) or right(beta))
    told = capsys.readouterr().out
    assert 10_000 <= told.count("x") < 10_100
    assert "it printed more than this" in told


def test_a_script_run_by_itself_shows_both(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "from measured_book import check\n"
        f"check({NAME!r}, lambda beta: 1 / (1 - beta))\n"
        "def mine(beta):\n    return {0.5: 1.0}[beta]\n"
        f"check({NAME!r}, mine)\n"
        'check("learning_rate.edge", (0.02, 2 / 101))\n'
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert lines == [f"not yet: {NAME}", f"not yet: {NAME}", "passed: learning_rate.edge"]
    assert "in its line `return {0.5: 1.0}[beta]`" in done.stdout


@pytest.fixture
def cell(monkeypatch):
    """A notebook's cell; gives what it displays."""
    shown: list[str] = []
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    monkeypatch.setattr(results, "_notebook", lambda: shell)
    monkeypatch.setattr("IPython.display.display", lambda html: shown.append(html.data))
    return shell, shown


def test_of_several_checks_in_a_cell_each_is_seen(cell):
    shell, shown = cell
    check(NAME, lambda beta: 3)
    last = check("learning_rate.edge", (0.02, 2 / 101))
    last._ipython_display_()  # as the value of the cell
    assert ["not yet" in html for html in shown] == [True, False]
    shell.execution_count = 2
    last._ipython_display_()  # asked for again, in a later cell
    assert len(shown) == 3


def test_a_notebook_that_runs_shows_each_once():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    source = (
        "from measured_book import check\n"
        "def mine(beta):\n    return 3\n"
        f"check({NAME!r}, mine)\n"
        'check("learning_rate.edge", (0.02, 2 / 101))'
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    (done,) = nbclient.NotebookClient(notebook, timeout=120).execute().cells
    shown = ["".join(output.data["text/html"]) for output in done.outputs]
    assert ["not yet" in html for html in shown] == [True, False]


# The wire ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None, ..., True, -3, 2**200, 0.1, float("inf"), "ä", b"\x00", 1 + 2j, [1, (2, {3})], {"a": [None]},
        torch.randn(2, 3), torch.ones(2, dtype=torch.bfloat16), torch.tensor([True]), torch.empty(0, 2),
        torch.arange(6).reshape(2, 3).T, np.arange(3.0), np.float32(2), np.array([[1]], dtype=np.int8),
    ],
)  # fmt: skip
def test_plain_values_come_back_the_same(value):
    found = decode(loads(dumps(encode(value))))
    assert type(found) is type(value)
    if isinstance(value, torch.Tensor):
        assert found.dtype == value.dtype
        assert torch.equal(found, value)
    elif isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert np.array_equal(found, value)
    else:
        assert found == value


def test_a_message_that_is_no_value_is_refused():
    for tree in (
        ["os.system", "true"],
        ["tensor", "Tensor", [1], "AAAA", False],
        [],
        None,
        ["int"],
    ):
        with pytest.raises(ValueError, match="expected a"):
            decode(tree)


def test_a_process_that_sends_too_much_is_ended():
    def work(line):
        line._end.sendall((2**40).to_bytes(8, "little"))
        time.sleep(30)

    with (
        Process(work, Limits(seconds=20.0)) as process,
        pytest.raises(EndedError, match="more than 256 MiB"),
    ):
        process.receive()
    assert process.is_over()


def test_what_is_watched_are_the_functions_that_checkers_compare_by():
    names = {(owner.__name__, name) for owner, had in state._HAS for name in had}
    for one in (("torch", "allclose"), ("Answer", "number"), ("Fault", "__init__")):
        assert one in names
    assert ("measured_book.exercises.answers", "demand") in names
    assert ("measured_book.exercises.answers", "close") in names
