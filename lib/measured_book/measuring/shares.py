"""The shares of a repeat: which measurements a run measures again, so that ten runs measure all.

Fingerprints, which cost less, are taken of a fifth in each run, so that any six runs in a row take all.

Which share it is follows from the commit alone, so that a run can be made once more anywhere: the number of
commits that lead to it, modulo the number of shares. Ten commits in a row repeat everything.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from measured_book.measuring.measurement import Measurement

SHARES = 10
"""Runs that measure everything again in full."""

TURNS = 5
"""Into how many parts fingerprints are divided; a run takes those of one, and of what it measures in full."""


def share_of(commits: int, shares: int = SHARES) -> int:
    """The share that is due at a commit, given how many commits lead to it, itself included."""
    return commits % shares


def due_share(folder: Path | None = None) -> int:
    """The share that is due at the commit that is checked out.

    Where history is cut off, so that nobody can count, the commit's own name chooses; outside a repository it
    is the first.
    """
    where = folder or Path.cwd()
    try:
        if _git(where, "rev-parse", "--is-shallow-repository") == "true":
            return share_of(int(_git(where, "rev-parse", "HEAD"), 16))
        return share_of(int(_git(where, "rev-list", "--count", "HEAD")))
    except (OSError, subprocess.CalledProcessError):
        return 0


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def divided(
    measurements: Sequence[Measurement], seconds: Mapping[str, float], shares: int = SHARES
) -> list[list[Measurement]]:
    """Measurements in shares that take about as long as one another.

    Args:
        measurements: all of them.
        seconds: about how long each takes, by label; one that is not known counts a second.
        shares: how many.
    """
    found: list[list[Measurement]] = [[] for _ in range(shares)]
    loads = [0.0] * shares
    longest_first = sorted(measurements, key=lambda one: (-seconds.get(one.label, 1.0), one.label))
    for one in longest_first:
        least = loads.index(min(loads))
        found[least].append(one)
        loads[least] += seconds.get(one.label, 1.0)
    return found
