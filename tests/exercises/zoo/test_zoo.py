"""The zoo: every bug fits the library, is caught by good tests, and is gone afterwards."""

import json
import random
import re
from pathlib import Path

import pytest
import reference_tests
import torch
from measured_book.exercises.zoo import WINGS, bugs_of, grade, grade_file, infected, running
from measured_book.exercises.zoo.__main__ import main
from measured_book.exercises.zoo.bugs import BUGS, Bug, Edit
from measured_book.exercises.zoo.grading import Grade, _sighting
from measured_book.exercises.zoo.infection import StaleBugError, difference, edited, exchange
from measured_book.exercises.zoo.rewrites import REWRITES
from measured_transformer.inference.sampling import with_temperature
from measured_transformer.parts import attention
from measured_transformer.training.schedules import Constant

GOOD = [test for name, test in vars(reference_tests).items() if name.startswith("test_")]
PLACES = {edit.where for edit in REWRITES}
HOT = next(bug for bug in BUGS if bug.name == "hot instead of cold")


def notices(test) -> bool:
    torch.manual_seed(0)
    try:
        test()
    except Exception:
        return True
    return False


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_good_tests_notice_every_bug(bug):
    with infected(bug):
        assert any(notices(test) for test in GOOD)


def test_good_tests_pass_on_every_right_library():
    assert not [test.__name__ for test in GOOD if notices(test)]
    healthy = {function: function.__code__ for function in edited(REWRITES, PLACES)}
    for edits in ((), REWRITES):
        exchange(edited(edits, PLACES, random.Random(3)))
        try:
            assert not [test.__name__ for test in GOOD if notices(test)]
        finally:
            exchange(healthy)


def test_good_tests_catch_every_bug_each_run_in_a_process_of_its_own():
    found = grade(GOOD, public=True)
    assert not found.refused
    assert found.alive == ()
    assert found.share == 1
    assert set(found.caught) == {bug.name for bug in BUGS}


def test_every_bug_has_a_harmless_rewrite_of_what_it_changes():
    places = {edit.where for edit in REWRITES}
    assert not {edit.where for bug in BUGS for edit in bug.edits} - places


def test_a_diff_shows_the_bug_alone():
    for bug in BUGS:
        told = difference(bug)
        assert "if True:" not in told
        assert "if False:" not in told
        assert not [
            line for line in told.splitlines() if line.startswith("- ") and f"+ {line[2:]}" in told
        ]
    shared = next(bug for bug in BUGS if bug.name == "one layer many times")
    assert difference(shared).splitlines()[1:] == ["+ block = self.blocks[0]"]


def test_names_and_wings():
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert sum(len(bugs_of(wing)) for wing in WINGS) == len(bugs_of()) == len(BUGS)
    with pytest.raises(ValueError, match=r"expected one of the wings attention, .*, got 'heads'"):
        bugs_of("heads")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_told_with_what_it_changes(bug):
    told = difference(bug)
    assert "\n+ " in told
    assert bug.story.endswith(".")


def test_every_bug_was_seen_in_public():
    sightings = [bug.seen for bug in BUGS if bug.seen is not None]
    assert len(sightings) == len(BUGS) == 38
    assert sum(seen.kindred for seen in sightings) == 5
    addresses = {seen.address for seen in sightings}
    assert len(addresses) == len(sightings)
    for seen in sightings:
        assert re.fullmatch(
            r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/[1-9]\d*", seen.address
        )
        assert seen.what.endswith(".")


def test_a_bug_of_ones_own_needs_no_sighting():
    mine = Bug("mine", "layers", "It is mine.", (Edit("parts.norms:LayerNorm.forward", "x", "y"),))
    assert mine.seen is None
    assert _sighting(mine.seen) == []


def test_whoever_imported_a_function_before_has_the_bug_too():
    one = torch.ones(2)
    with infected(HOT):
        assert with_temperature(one, 4.0).tolist() == [4, 4]
    assert with_temperature(one, 4.0).tolist() == [0.25, 0.25]


def test_the_library_is_healthy_after_an_error():
    def leave():
        with infected(HOT):
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert with_temperature(torch.ones(1), 2.0).item() == 0.5


def test_an_edit_that_no_longer_fits_changes_nothing():
    stale = Bug(
        "stale",
        "attention",
        "The second edit is of code that is gone.",
        (
            Edit("parts.masks:causal_mask", "allowed.tril(", "allowed.triu("),
            Edit("parts.attention_functions:attend", "pattern * values", "values"),
        ),
    )
    with pytest.raises(StaleBugError, match="once in its source, got 0 times"), infected(stale):
        pass
    assert attention.causal_mask(2).tolist() == [[True, False], [True, True]]


def test_tests_that_fail_on_the_library_as_it_is_earn_nothing_and_others_do():
    def test_wrong():
        raise AssertionError("no\nsecond line")

    def test_right():
        assert Constant(warmup=2)(0) > 0

    found = grade([test_wrong, test_right], wing="training")
    assert found.refused == {"test_wrong": "it fails on the library as it is: AssertionError: no"}
    assert found.caught == {"a first step of zero": "test_right"}
    assert "These tests earn nothing; mend them first:\n  test_wrong: it fails" in repr(found)


def test_a_grade_tells_what_was_caught_and_only_where_the_rest_lives():
    def test_temperature():
        assert with_temperature(torch.ones(1), 2.0).item() == 0.5

    found = grade([test_temperature], wing="generation")
    assert found.caught == {"hot instead of cold": "test_temperature"}
    assert found.share == 1 / 5
    told = repr(found)
    assert "+ divided = logits * temperature" in told
    assert HOT.seen is not None
    assert f"  A relative: {HOT.seen.what[:20]}" in told
    assert f"\n  {HOT.seen.address}\n" in told
    assert f'<a href="{HOT.seen.address}">' in found._repr_html_()
    assert "still alive: 4 in generation" in told
    assert not any(name in told for name in found.alive), "that would give them away"
    assert told.count("https://") == 1, "so would where they were seen"
    assert json.loads(found.as_json())["alive"] == 4
    assert "&lt;" in Grade({}, (), {"test_<b>": "no"})._repr_html_()


def test_random_numbers_go_on_as_if_nothing_had_happened():
    torch.manual_seed(5)
    expected = torch.rand(2)[1]
    torch.manual_seed(5)
    torch.rand(1)
    grade([lambda: torch.rand(3)], wing="training")
    assert torch.rand(1) == expected


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ([], "at least one test"),
        ([lambda model: None], "tests without arguments"),
        (["test_it"], "expected functions, got 'test_it'"),
    ],
)
def test_what_is_no_test_is_refused(unhooked, tests, said):
    with pytest.raises(ValueError, match=said):
        grade(tests)


def write(folder: Path, text: str) -> Path:
    path = folder / "my_tests.py"
    path.write_text(text, "utf-8")
    return path


def test_a_file_is_graded_each_run_in_a_process_of_its_own(tmp_path, capsys):
    file = write(
        tmp_path,
        """\
import os
from measured_transformer.training.schedules import Constant

def helper(x): ...

def test_warm_up():
    print("whatever a test prints")
    if Constant(warmup=2)(0) == 0:
        os._exit(7)

def test_nothing(): ...
""",
    )
    told = tmp_path / "grade.json"
    arguments = [str(file), "--wing", "training", "--json", str(told)]
    assert main([*arguments, "--demand", "0.5"]) == 1
    assert "caught 1 of 4" in capsys.readouterr().out
    assert json.loads(told.read_text())["caught"] == {
        "a first step of zero": "it ends its process (with 7)"
    }
    assert main([*arguments, "--demand", "0.25"]) == 0


def test_files_that_cannot_be_graded(tmp_path, capsys):
    assert main([str(tmp_path / "none.py")]) == 2
    assert "expected a file of tests" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"on the library as it is; expected at least one test"):
        grade_file(write(tmp_path, "x = 1"))
    with pytest.raises(ValueError, match=r"no answer within 0\.5 s"):
        grade_file(write(tmp_path, "while True: pass"), seconds=0.5)
    with pytest.raises(ValueError, match=r"a Python file that can be read; invalid syntax"):
        grade_file(write(tmp_path, "def ("))
    with pytest.raises(ValueError, match=r"tests without arguments, got test_it"):
        grade_file(write(tmp_path, "def test_it(model): ..."))


def test_where_a_process_cannot_be_copied_tests_run_here(monkeypatch):
    def test_temperature():
        assert with_temperature(torch.ones(1), 2.0).item() == 0.5

    monkeypatch.setattr(running, "can_copy", lambda: False)
    found = grade([test_temperature, lambda: None], wing="generation")
    assert found.caught == {"hot instead of cold": "test_temperature"}
    assert with_temperature(torch.ones(1), 2.0).item() == 0.5
