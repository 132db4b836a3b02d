"""The first cell of a page's notebook: it brings what is missing, or says in one sentence why it cannot."""

from __future__ import annotations

from collections.abc import Mapping

LIBRARY = "measured-transformer"

_CELL = """\
# This notebook needs the book's library and a few packages that its tasks use. Where one is missing (on
# Colab, say), this installs it, and the library as it was when this page was printed. By hand:
# pip install "{library}"
import importlib.util
import json
import subprocess
import sys
from importlib import metadata

revision = "{revision}"
library = "{library}"
packages = {{  # what a notebook imports: what brings it
{packages}}}
{alone}

class NotReady(Exception):
    def _render_traceback_(self):  # one sentence instead of a traceback
        return [str(self)]


def is_missing(module):
    return importlib.util.find_spec(module) is None


def pip_install(*asked):
    command = [sys.executable, "-m", "pip", "install", "--quiet", *asked]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise NotReady(
            f"pip could not install {{' '.join(asked)}} ({{reason}}), which the cells below need: "
            "mend that and run this cell again."
        )


library_is_missing = is_missing("measured_transformer") or is_missing("measured_book")
try:
    source = metadata.distribution("{name}").read_text("direct_url.json")
except metadata.PackageNotFoundError:
    source = None
pinned = json.loads(source or "{{}}").get("vcs_info", {{}})  # empty where pip did not get it from a repository
installed = {{pinned.get("commit_id"), pinned.get("requested_revision")}} - {{None}}

if library_is_missing:
    pip_install(library)
elif installed and revision not in installed:  # that of another page
    pip_install("--force-reinstall", "--no-deps", library)
    if "measured_transformer" in sys.modules:
        raise NotReady("The library is now that of this page: restart the kernel, and run all cells.")
if wanted := [brought for module, brought in packages.items() if is_missing(module)]:
    pip_install(*wanted)
{install_alone}importlib.invalidate_caches()
if lacking := [name for name in ("measured_transformer", "measured_book", *packages{more}) if is_missing(name)]:
    raise NotReady(f"{{', '.join(lacking)}} cannot be imported after its install: restart the kernel.")"""

_ALONE = """\
alone = {{  # the same, without what it asks for in turn: that is large, and no cell needs it
{packages}}}
"""
_INSTALL_ALONE = """\
if wanted := [brought for module, brought in alone.items() if is_missing(module)]:
    pip_install("--no-deps", *wanted)
"""


def first_cell(
    requirements: Mapping[str, str],
    *,
    extras: str,
    repository: str,
    revision: str,
    alone: Mapping[str, str] | None = None,
) -> str:
    """Return the source of the cell.

    Args:
        requirements: module that the notebook may import, beside the library -> the requirement that brings it.
        extras: of the library, with commas, that hold these requirements.
        repository: address of the library's repository.
        revision: commit, tag or branch with which the page was printed.
        alone: the same as `requirements`, for what is installed without its own requirements.
    """
    return _CELL.format(
        name=LIBRARY,
        library=f"{LIBRARY}[{extras}] @ git+{repository}@{revision}",
        revision=revision,
        packages=_rows(requirements),
        alone=_ALONE.format(packages=_rows(alone)) if alone else "",
        install_alone=_INSTALL_ALONE if alone else "",
        more=", *alone" if alone else "",
    )


def _rows(requirements: Mapping[str, str]) -> str:
    return "".join(f'    "{module}": "{brought}",\n' for module, brought in requirements.items())
