"""Tests that want a grade without testing: each earns nothing, and is told why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import reference_tests
import torch
from measured_book.exercises.processes import can_copy
from measured_book.exercises.zoo import copies, grade, grade_file
from measured_book.exercises.zoo.infection import edited, function_at
from measured_book.exercises.zoo.rewrites import REWRITES
from measured_book.exercises.zoo.watch import suspicions
from measured_transformer import Config, Decoder

pytestmark = pytest.mark.skipif(not can_copy(), reason="only Linux can copy a process")
PUBLIC = Path(reference_tests.__file__).read_text("utf-8")
COLD = "from measured_transformer.inference.sampling import with_temperature\n"

COUNTS = """
def test_it():
    try:
        seen = int(open("{place}").read())
    except OSError:
        seen = 0
    open("{place}", "w").write(str(seen + 1))
    assert seen < {most}
"""

LOOKS = {
    "at the file of the code": (
        COLD + "def test_it():\n    assert 'zoo' not in with_temperature.__code__.co_filename\n",
        "it looks at code: it reads",
    ),
    "by a name put together": (
        COLD + "def test_it():\n    assert getattr(with_temperature, '__co' + 'de__')\n",
        "it reads __code__ of a function",
    ),
    "at its lines": (
        "import inspect\n"
        + COLD
        + "def test_it():\n    assert inspect.getsource(with_temperature)\n",
        "its file looks at code: it imports inspect (line 1)",
    ),
    "at its lines, by another way to the module": (
        "import random\n" + COLD + "def test_it():\n"
        "    inspect = random._os.sys.modules['inspect']\n"
        "    assert inspect.getsource(with_temperature)\n",
        "it reads the library's source",
    ),
    "by a compiler": (
        "import torch\n" + COLD + "def test_it():\n"
        "    try:\n        getattr(torch, 'j' + 'it').script(with_temperature)\n"
        "    except OSError:\n        pass\n",
        "it reads the library's source",
    ),
    "by loading the library twice": (
        "import sys\nimport torch\ndef test_it():\n"
        "    name = 'measured_transformer.inference.sampling'\n"
        "    first = sys.modules.pop(name)\n"
        "    import measured_transformer.inference.sampling\n"
        "    again = sys.modules[name]\n"
        "    assert again.with_temperature(torch.ones(1), 2.0) == first.with_temperature(torch.ones(1), 2.0)\n",
        "it reads the library's source",
    ),
    "in another process": (
        "import os\ndef test_it():\n    assert os.system('true') == 0\n",
        "it calls os.system",
    ),
    "at frames": (
        COLD + "def test_it():\n    try:\n        with_temperature('x', 2.0)\n"
        "    except Exception as error:\n"
        "        at = getattr(error, '__traceback__')\n"
        "        while getattr(at, 'tb' + '_next'):\n            at = getattr(at, 'tb' + '_next')\n"
        "        assert getattr(getattr(at, 'tb_' + 'frame'), 'f_' + 'code')\n",
        "it reads ",
    ),
    "into the zoo": (
        "from measured_book.exercises.zoo import bugs_of\ndef test_it(): ...\n",
        "its file looks at code: it imports measured_book.exercises.zoo",
    ),
    "at all objects": (
        "import random\ndef test_it():\n    gc = random._os.sys.modules['gc']\n    assert gc.get_objects()\n",
        "it calls gc.get_objects",
    ),
}


def graded(folder: Path, text: str, wing: str = "generation", **settings):
    file = folder / "my_tests.py"
    file.write_text(text, "utf-8")
    return grade_file(file, wing=wing, **settings)


@pytest.mark.parametrize("kind", LOOKS)
def test_who_looks_at_code_earns_nothing(kind, tmp_path):
    text, words = LOOKS[kind]
    found = graded(tmp_path, text)
    assert not found.caught
    assert words in found.refused["test_it"]


def test_a_count_of_runs_in_a_file_elsewhere_is_refused(tmp_path):
    place = tmp_path / "runs"
    found = graded(tmp_path, COUNTS.format(place=place, most=1))
    assert not found.caught
    assert "outside of the folder in which it runs" in found.refused["test_it"]


@pytest.mark.parametrize(
    "text",
    [
        COUNTS.format(place="runs", most=1),
        "RUNS = []\ndef test_it():\n    RUNS.append(1)\n    assert len(RUNS) < 2\n",
    ],
    ids=["in its folder", "in its module"],
)
def test_a_count_of_runs_begins_anew_with_each(text, tmp_path):
    found = graded(tmp_path, text)
    assert not found.caught
    assert not found.refused


def test_a_test_that_fails_on_its_second_run_in_a_notebook_is_the_same_each_time():
    runs: list[int] = []

    def test_it():
        runs.append(1)
        assert len(runs) < 2

    found = grade([test_it], wing="generation")
    assert not found.caught
    assert runs == []


def test_chance_is_no_test(tmp_path):
    text = "import os\ndef test_it():\n    assert os.urandom(1)[0] < 128\n"
    found = graded(tmp_path, text)
    assert not found.caught
    # it may fail when it runs again on the library, and pass there by chance and fail on a rewrite
    refusals = "depends on chance|fails on the library as it is|fails on a harmless rewrite"
    assert re.search(refusals, found.refused["test_it"])


def test_numbers_of_this_library_are_no_property(tmp_path):
    text = """
import torch
from measured_transformer import Config, Decoder
def test_it():
    torch.manual_seed(0)
    model = Decoder(Config(vocab=10, d_model=16, n_heads=2)).eval()
    assert abs(float(model(torch.tensor([[1, 2, 3]])).detach().sum()) - {value}) < 1e-4
"""
    torch.manual_seed(0)
    model = Decoder(Config(vocab=10, d_model=16, n_heads=2)).eval()
    value = float(model(torch.tensor([[1, 2, 3]])).detach().sum())
    told = graded(tmp_path, text.format(value=value)).refused["test_it"]
    assert told.startswith("it fails on the library as it is where random numbers are others")


def test_bits_of_this_library_are_no_property(tmp_path):
    text = """
import torch
from measured_transformer.parts.positions import frequencies
def test_it():
    assert frequencies(16).tolist() == (10000 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)).tolist()
"""
    told = graded(tmp_path, text, wing="positions").refused["test_it"]
    assert told.startswith("it fails on a harmless rewrite of the library")


def test_a_bug_that_a_test_cannot_end_is_caught_and_the_rest_goes_on(tmp_path):
    text = (
        "import torch\n"
        + COLD
        + (
            "def test_it():\n    while with_temperature(torch.ones(1), 2.0) != 0.5:\n        "
            "print('x' * 1000)\n"
        )
    )
    found = graded(tmp_path, text, seconds=3.0)
    assert found.caught == {"hot instead of cold": "no answer within 3 s"}


def test_honest_tests_use_what_they_like(tmp_path):
    text = """
import os, sys, tempfile, warnings
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from measured_transformer.inference.sampling import with_temperature

Pair = namedtuple("Pair", "hot cold")

@dataclass
class Case:
    temperature: float = 2.0

def helper():
    return torch.ones(1)

def test_it():
    import colorsys
    import wave
    import xml.dom.minidom

    import scipy.stats

    warnings.warn("a warning")
    with tempfile.TemporaryDirectory() as folder:
        torch.save(helper(), Path(folder) / "saved.pt")
        assert torch.equal(torch.load(Path(folder) / "saved.pt"), helper())
    Path("note.txt").write_text("mine")
    with pytest.raises(ValueError):
        with_temperature(helper(), -1.0)
    assert with_temperature(helper(), Case().temperature).item() == 0.5
"""
    found = graded(tmp_path, text)
    assert not found.refused
    assert found.caught == {"hot instead of cold": "test_it"}


# Copies --------------------------------------------------------------------------------------------


def test_fingerprints_are_those_of_the_public_tests():
    told = (Path(copies.__file__).with_name("public_tests.json")).read_text("utf-8")
    assert told == copies.written(PUBLIC), (
        "run `python -m measured_book.exercises.zoo.copies tests/exercises/zoo/reference_tests.py`"
    )


def test_every_public_test_is_recognised_also_under_other_names():
    tests = [name for name in vars(reference_tests) if name.startswith("test_")]
    assert set(copies.copies(PUBLIC)) == set(tests)
    renamed = re.sub(r"\b(model|TOKENS|decoder|small|changed|expected|x)\b", r"\1_2", PUBLIC)
    renamed = renamed.replace("test_", "test_mine_").replace("1e-9", "1e-8")
    assert len(copies.copies(renamed)) >= len(tests) - 2


def test_a_public_test_earns_nothing_in_a_file_and_in_a_notebook(tmp_path):
    found = graded(tmp_path, PUBLIC)
    assert not found.caught
    assert len(found.refused) == len([n for n in vars(reference_tests) if n.startswith("test_")])
    again = grade([reference_tests.test_alibi], wing="positions")
    assert again.refused == {
        "test_alibi": "it is test_alibi of the library's own public tests; write one yourself"
    }


def test_a_public_test_inside_of_helpers_or_of_more_is_recognised():
    body = PUBLIC[PUBLIC.index("def test_attention_is_the_formula") :].split("\n\n\n")[0]
    helper = body.replace("def test_attention_is_the_formula", "def helper")
    assert copies.copies(f"{helper}\n\ndef test_mine():\n    helper()\n")
    assert copies.copies(f"{body}\n    assert 1 + 1 == 2\n    assert 2 + 2 == 4\n")


def test_a_test_of_ones_own_is_no_copy():
    mine = """
import torch
from measured_transformer import Config, Decoder
def test_nobody_sees_ahead():
    model = Decoder(Config(vocab=10, d_model=16, n_heads=2)).eval()
    tokens = torch.randint(10, (2, 6))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 10
    before, after = model(tokens), model(changed)
    assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)
"""
    assert not copies.copies(mine)


# What a bug looks like ----------------------------------------------------------------------------


def test_exchanged_code_has_the_file_the_name_and_the_lines_of_the_librarys_own():
    for function, code in edited(REWRITES, {edit.where for edit in REWRITES}).items():
        own = function.__code__
        assert (code.co_filename, code.co_qualname) == (own.co_filename, own.co_qualname)
        assert code.co_firstlineno == own.co_firstlineno
        lines = {line for *_, line in code.co_lines() if line}
        known = {line for *_, line in own.co_lines() if line}
        assert min(lines) == min(known)
        assert lines <= set(range(min(known), max(known) + 1)), own.co_qualname
        assert code.co_code != own.co_code


def test_an_edit_of_more_lines_moves_no_later_line():
    from measured_book.exercises.zoo.bugs import BUGS

    bug = next(each for each in BUGS if each.name == "one layer many times")
    (code,) = edited(bug.edits).values()
    own = function_at("models.stack:Stack.run_blocks").__code__
    assert max(line for *_, line in code.co_lines() if line) == max(
        line for *_, line in own.co_lines() if line
    )


def test_what_stands_in_a_test_is_held_against_that_test_alone():
    outside, inside = suspicions("def test_a():\n    import dis\ndef test_b(): ...\n")
    assert outside == ""
    assert inside == {"test_a": "it imports dis (line 2)"}
    assert suspicions("X = eval('1')\ndef test_a(): ...\n")[0] == "it uses eval (line 1)"
