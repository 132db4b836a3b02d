"""Each chapter asks a real model its question, in a few lines that a reader can take along; and they run."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path

import measured_transformer
import pytest
import torch
from bookpress.chapters import load_book
from bookpress.sphinx.rooms import declared
from measured_transformer.language import published

ROOT = Path(__file__).parents[2]
LINES, WIDTH = 15, 72
ELSEWHERE = {
    "book/feed-forward/mixture-of-experts": "the model has no experts: the chapter trains its own",
    "book/training/ladder": "a finished model knows no other schedule: the chapter trains its own",
    "book/inside/workbench": "its models run in the page",
    "book/inside/your-own-checkpoint": "a whole session, which another test runs",
}
"""Chapters without such lines, and why."""
_FENCE = re.compile(r"^```(python|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHAPTERS = {
    chapter.docname: chapter.path.read_text("utf-8")
    for chapter in load_book(ROOT).chapters
    if declared(chapter.path.read_text("utf-8"))
}


def asked(page: str) -> list[tuple[str, str]]:
    """The kind and the code of each block of a page that loads a pretrained model."""
    blocks = [(kind, re.sub(r"^(:.*\n)+", "", code)) for kind, code in _FENCE.findall(page)]
    return [(kind, code) for kind, code in blocks if "pretrained(" in code]


PRINTED_ONLY = {
    name: code
    for name, page in CHAPTERS.items()
    if name not in ELSEWHERE
    for kind, code in asked(page)
    if kind == "python"
}
"""Blocks that printing does not execute, the last one of each chapter."""


def test_each_chapter_asks_a_real_model_in_a_few_lines():
    missing = [name for name, page in CHAPTERS.items() if not asked(page)]
    assert sorted(missing) == sorted(name for name in ELSEWHERE if name in missing)
    long = {
        name: [len(lines), max(map(len, lines))]
        for name, page in CHAPTERS.items()
        if name not in ELSEWHERE
        for _, code in asked(page)
        for lines in [[line for line in code.splitlines() if line.strip()]]
        if len(lines) > LINES or max(map(len, lines)) > WIDTH
    }
    assert long == {}


@cache
def loaded(name: str):
    return measured_transformer.pretrained(name)


@pytest.mark.parametrize("name", PRINTED_ONLY)
def test_these_lines_run(name, monkeypatch, capsys):
    code = PRINTED_ONLY[name]
    checkpoints = re.findall(r'pretrained\("([^"]+)"\)', code)
    if lacking := published.missing(checkpoints):
        pytest.skip(f"{', '.join(lacking)} is not installed")
    trains = "backward()" in code
    real = {one: loaded(one) for one in checkpoints}
    give = copy.deepcopy if trains else lambda model: model
    monkeypatch.setattr(measured_transformer, "pretrained", lambda one: give(real[one]))
    torch.manual_seed(0)
    exec(compile(code, name, "exec"), {"__name__": "__main__"})
    told = capsys.readouterr().out
    assert len(told.splitlines()) >= 1
    assert "nan" not in told
