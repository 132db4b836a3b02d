"""What tests of several folders share."""

import gc
import os
import signal
import time
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from tiers import is_another_turn, is_quick, reason

# Where the pages are published, these say which edition is printed. Books inside tests are no edition of it;
# what looks at the printed pages reads it from the note beside them.
for _name in ("MEASURED_EDITION", "MEASURED_COMMIT"):
    os.environ.pop(_name, None)

_BEGAN = pytest.StashKey[float]()

# The tensors of tests are small: more threads would only wait for one another, long when others work too.
torch.set_num_threads(1)

# Python looks through all objects that it knows for unused ones, again and again: a tenth of the tests' time.
# Here it looks seldom, and not through what has been imported and collected, which stays to the end.
gc.set_threshold(20_000, 20, 50)


def pytest_collection_finish() -> None:
    """Leave out what is there before the first test from what looks for unused objects."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPU, before PyTorch looks for one: unit tests compute on the CPU, on every machine alike.

    All notebooks (`make notebooks`) run as a reader runs them, on what there is.
    """
    config.addinivalue_line("markers", "gpu: needs a CUDA device; `pytest -m gpu` runs these alone")
    if config.getoption("markexpr") != "gpu" and os.environ.get("MEASURED_NOTEBOOKS") != "all":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["MEASURED_DEVICE"] = "cpu"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make test` leaves to `make test-all`; skip what needs a GPU where there is none."""
    if is_quick():
        left = [one for one in items if reason(one.nodeid) or is_another_turn(one.nodeid)]
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [one for one in items if one not in out]
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run `pytest -m gpu`"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin to count the seconds, where there is a limit to them."""
    session.config.stash[_BEGAN] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what comes when the seconds of `make check` are used up; the nearest tests came first."""
    limit = os.environ.get("MEASURED_SECONDS")
    if limit and time.monotonic() - item.config.stash[_BEGAN] > float(limit):
        pytest.skip(f"the {limit} seconds of `make check` are used up; `make test` runs it")


@pytest.fixture
def unhooked():
    """Switch off the shape checks that only tests have, to see the errors that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def heeded() -> Iterator[None]:
    """Commands that are started heed Ctrl-C, also where the tests themselves run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
