"""A small room: a chapter that measures something in a blink, for the tests of measuring."""

import importlib
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

MEASURE = '''
"""What this chapter measures."""

from measured_book.measuring import evidence, job, measurement, number
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

TASK = Reversal(vocab=4, length=4)
ARMS = ("pre", "post")
RATE = 0.01


def trainings(seed, *, width=8):
    return {arm: job(shaped(arm, width), TASK, seed, steps=4, learning_rate=RATE) for arm in ARMS}


def shaped(arm, width):
    return Config(vocab=4, d_model=width, n_heads=2, n_layers=1, placement=arm)


@measurement(seeds=3, coords={"arm": ARMS}, trainings=trainings)
def losses(seed, runs, *, width=8):
    """The loss of the last step.

    And nothing else.
    """
    return {"loss": ("arm", [runs[arm].losses[-1] for arm in ARMS])}


@measurement(seeds=2)
def draws(seed):
    """A number a draw."""
    return {"error": 1e-12 * (1 + seed), "control": 1.0}


@evidence("CS-1.3")
def _(draws):
    return {"error": draws.error, "control": draws.control}


@evidence("DD-7.7")
def _(losses):
    return {"treatment": losses.loss.sel(arm="pre"), "baseline": losses.loss.sel(arm="post")}


@number
def lowest(losses):
    return float(losses.loss.min())
'''

CLAIMS = """
chapter = "book/test/demo"

[[claim]]
id = "CS-1.3"
source = "CS"
place = "section 1"
statement = "Errors are small."
kind = "identity"
scope = "Here."
test = "The largest error."
expected = "confirmed"
[claim.rule]
type = "identity"
tolerance = 1e-9
control_above = 1e-3

[[claim]]
id = "DD-7.7"
source = "DD"
place = "section 7"
statement = "The first arm is better."
kind = "experiment"
scope = "Here."
test = "The loss."
seeds = 3
expected = "inconclusive"
[claim.rule]
type = "difference"
direction = "less"
smallest_effect = 0.5
"""


class Inline(Executor):
    """Does calls where they are made, so that tests see what they do."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append(fn.__name__)
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Room:
    """A room in a folder of its own, inside a book of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.file = folder / "measure.py"
        self.results = folder / "results"

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.reload()

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.write(text.replace(old, new))

    def reload(self) -> None:
        name = f"measured_book.rooms.{self.name}"
        for module in [m for m in sys.modules if m.startswith(name)]:
            del sys.modules[module]
        importlib.invalidate_caches()

    def measurement(self, name: str) -> Any:
        return importlib.import_module(f"measured_book.rooms.{self.name}.measure").__dict__[name]

    @property
    def all(self) -> list[Any]:
        return [self.measurement("losses"), self.measurement("draws")]
