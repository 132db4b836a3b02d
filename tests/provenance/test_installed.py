"""Which code counts as a reader's own, and which as a package's."""

import sys
from pathlib import Path

import numpy
import pytest
from measured_transformer.provenance import modules
from measured_transformer.provenance.modules import is_installed


@pytest.fixture(autouse=True)
def _looked_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a path of imports names is looked up once a process: here once a test."""
    for name in ("is_installed", "_installed_folders"):
        monkeypatch.setattr(modules, name, getattr(modules, name).__wrapped__)


def _folder(path: Path, *, installed: bool) -> str:
    file = path / "somepackage" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text("VALUE = 1\n")
    if installed:
        (path / "somepackage-1.0.dist-info").mkdir()
    return str(file)


@pytest.mark.parametrize("installed", [True, False])
def test_a_package_counts_as_installed_wherever_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """`pip install --target` and a search path are how packages come to the machines of a cluster."""
    file = _folder(tmp_path / "there", installed=installed)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "there"), *sys.path])
    assert modules.is_installed(file) is installed


def test_a_folder_that_no_path_names_is_a_readers_own(tmp_path: Path) -> None:
    """Else a package's metadata beside a reader's own file would hide a change of it."""
    assert not modules.is_installed(_folder(tmp_path / "apart", installed=True))


def test_the_interpreters_packages_count_as_installed() -> None:
    """NumPy does, and this library does not."""
    assert is_installed(str(numpy.__file__))
    assert not is_installed(str(modules.__file__))
