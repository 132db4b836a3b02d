"""Whether there is memory enough for a model, asked before it is loaded."""

from __future__ import annotations

from pathlib import Path


def check_memory(gigabytes: float, about: str) -> None:
    """Say before loading that there is too little memory.

    Args:
        gigabytes: what will be needed.
        about: what will be loaded, in a few words.

    Raises:
        MemoryError: when less is left.
    """
    left = memory_left()
    if left is not None and left < gigabytes:
        raise MemoryError(
            f"expected {gigabytes:.1f} GB of free memory to load {about}, got {left:.1f} GB: close other "
            "programs, or use a machine with more memory"
        )


def memory_left(root: Path = Path("/")) -> float | None:
    """Gigabytes that this process may still take: of the machine, or of its container where that is less.

    Args:
        root: below which Linux's `proc` and `sys` lie.

    Returns:
        None where the system does not say.
    """
    found = []
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(float(line.split()[1]) * 1024)
    except OSError:
        return None
    group = root / "sys/fs/cgroup"
    try:
        limit = float((group / "memory.max").read_text())
        used = float((group / "memory.current").read_text())
        reclaimable = 0.0
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                reclaimable = float(line.split()[1])
        found.append(limit - used + reclaimable)
    except (OSError, ValueError):  # no container, or one without a limit, which says `max`
        pass
    return min(found) / 1e9 if found else None
