"""Former names of modules work for one version, and say where their names are now."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from operator import attrgetter
from pathlib import Path

import pytest
from measured_transformer._moved import CHANGED, MOVED

NAME = "measured_transformer"


def homes(former: str) -> list[str]:
    return [f"{NAME}.{home}" for home in MOVED[former]]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import former names anew, and leave nothing of them behind."""
    for former in MOVED:
        monkeypatch.delitem(sys.modules, f"{NAME}.{former}", raising=False)


@pytest.mark.parametrize("former", MOVED)
def test_a_former_module_warns_and_has_the_names_of_its_homes(former: str):
    with pytest.warns(DeprecationWarning, match="former name works for one version") as told:
        module = importlib.import_module(f"{NAME}.{former}")
    (warning,) = told
    assert str(warning.message).startswith(f"{NAME}.{former} is now ")
    modules = [importlib.import_module(home) for home in homes(former)]
    for home in modules:
        assert home.__name__ in str(warning.message)
        for name, value in vars(home).items():
            if getattr(value, "__module__", None) == home.__name__:
                assert any(getattr(module, name) is vars(one).get(name) for one in modules)


def test_no_former_module_hides_one_that_is_there():
    library = Path(importlib.import_module(NAME).__file__ or "").parent
    there = [old for old in MOVED if (library / (old.replace(".", "/") + ".py")).is_file()]
    assert there == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module(f"{NAME}.analysis.residual")


def test_every_form_of_import_finds_it_and_the_warning_names_the_users_line(tmp_path: Path):
    script = tmp_path / "course.py"
    script.write_text(
        "import measured_transformer.parts.linear as first\n"
        "from measured_transformer.analysis import norms\n"
        "from measured_transformer.analysis.norm_arms import Watched, sandwich\n"
        "from measured_book.figures.facts import *\n"
        "print(first.Linear.__module__, norms.fold_norms.__module__, Watched.__module__, sandwich.__module__)\n"
        "print(stored.__module__, who_fires.__module__)\n"
    )
    command = [sys.executable, "-W", "default::DeprecationWarning", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        f"{NAME}.parts.kernels.linear",
        f"{NAME}.analysis.folding",
        f"{NAME}.variants.gradients",
        f"{NAME}.variants.norms",
        f"{NAME}.figures.fact_tables",
        f"{NAME}.chapters.facts.figures",
    ]
    for line in (1, 2, 3, 4):
        assert f"course.py:{line}: DeprecationWarning" in done.stderr


def test_a_name_that_it_never_had_is_an_error():
    with pytest.warns(DeprecationWarning, match="variants.norms"):
        former = importlib.import_module(f"{NAME}.analysis.norm_arms")
    with pytest.raises(AttributeError, match="no attribute 'sandwhich'"):
        _ = former.sandwhich
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{NAME}.analysis.never_was")


STANDING = [(module, name) for module in CHANGED if module not in MOVED for name in CHANGED[module]]


def now_at(module: str, name: str) -> tuple[str, str]:
    home, _, new = CHANGED[module][name].partition(":")
    return f"{NAME}.{home}", new or name


@pytest.mark.parametrize(("module", "name"), STANDING)
def test_a_name_that_left_a_module_is_still_known_there(module: str, name: str):
    home, new = now_at(module, name)
    told = f"{NAME}.{module}.{name} is now {home}.{new}; the former name works for one version"
    with pytest.warns(DeprecationWarning, match=re.escape(told)):
        found = getattr(importlib.import_module(f"{NAME}.{module}"), name)
    assert found == attrgetter(new)(importlib.import_module(home))


@pytest.mark.parametrize("module", sorted({module for module, _ in STANDING}))
def test_other_names_are_errors(module: str):
    with pytest.raises(AttributeError, match="no attribute 'never_was'"):
        _ = importlib.import_module(f"{NAME}.{module}").never_was


@pytest.mark.parametrize("former", [module for module in CHANGED if module in MOVED])
def test_names_that_changed_when_their_module_moved(former: str):
    with pytest.warns(DeprecationWarning, match="former name works"):
        module = importlib.import_module(f"{NAME}.{former}")
    for name in CHANGED[former]:
        home, new = now_at(former, name)
        assert getattr(module, name) is attrgetter(new)(importlib.import_module(home))
