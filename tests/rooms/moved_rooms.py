"""What claims were judged by, and what pages printed, as it is kept for rooms whose readings were rewritten.

    python tests/rooms/moved_rooms.py ROOM ...        keep what the code says now, in place of what is kept

A file of `before/` holds, for one room: a checksum of the values of each result; of each claim and part
the verdict, effect, interval and p, and of each value it is judged by how many numbers there are, their mean,
and their mean weighted by their places; and the numbers of each page, in order, as readers see them.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measured_book.evidence.verdicts import parts_of
from measured_book.measuring.judged import Judged
from measured_book.measuring.judging import judge_room, value_of

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("before")
_ROLE = re.compile(r"\{measured\}`([^`]*)`")


def state_of(room: str) -> dict[str, Any]:
    """What the code says of a room now."""
    judged = judge_room(room)
    return {
        "results": {n: _checksum(one.result) for n, one in judged.results.items() if one.result},
        "claims": {claim: _claim(record) for claim, record in judged.records.items()},
        "pages": _pages(judged),
    }


def _checksum(result: Any) -> str:
    told = hashlib.sha256(json.dumps(dict(result.coords), sort_keys=True).encode())
    for name, (axes, values) in sorted(result.variables.items()):
        told.update(f"{name} {axes}".encode())
        told.update(np.ascontiguousarray(values).tobytes())
    return told.hexdigest()[:16]


def _claim(record: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": record["verdict"]} | {
        name or "whole": {
            **{key: part["statistics"].get(key) for key in ("effect", "interval", "p", "p_holm")},
            "verdict": part["statistics"]["verdict"],
            "values": {key: _moments(values) for key, values in part["values"].items()},
        }
        for name, part in parts_of(record).items()
    }


def _moments(values: list[float]) -> list[float]:
    array = np.asarray(values, dtype=float)
    places = np.arange(1, array.size + 1)
    return [array.size, float(array.mean()), float((array * places).mean())]


def _pages(judged: Judged) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "book").rglob("*.md")):
        text = path.read_text("utf-8")
        own = re.search(r"^measured: \{room: (\w+)", text, re.MULTILINE)
        for expression in _ROLE.findall(text):
            room, sign, rest = expression.partition("/")
            elsewhere = bool(sign) and room.isidentifier()
            if (room if elsewhere else own and own[1]) == judged.room:
                words = value_of(judged, rest if elsewhere else expression)
                found.setdefault(path.stem, []).append(words)
    return found


def kept(room: str) -> dict[str, Any]:
    """What is kept of a room."""
    found: dict[str, Any] = json.loads((FOLDER / f"{room}.json").read_text("utf-8"))
    return found


def keep(room: str) -> None:
    """Keep what the code says now."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(_rounded(state_of(room)), ensure_ascii=False, sort_keys=True)
    text = text.replace('}, "', '},\n"')
    (FOLDER / f"{room}.json").write_text(text + "\n", "utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.11g}") if isinstance(value, float) else value


if __name__ == "__main__":
    for name in sys.argv[1:]:
        keep(name)
