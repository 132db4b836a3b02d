"""Every exercise with a checker: its page's solution passes, its start fails, and mistakes are told by name.

The solution and the start are the very code that the page prints. The mistakes stand in the tables `WRONG` of
`tests/rooms/<room>/wrong_answers.py`: exercise -> what went wrong -> (answer, words of the message).
"""

from __future__ import annotations

import re
import runpy
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measured_book.exercises as package
import pytest
from exercise_pages import Part, parts, parts_of
from measured_book.exercises import check
from measured_book.exercises.registry import exercises
from measured_book.exercises.results import Result

ROOT = Path(__file__).parents[2]
PAGES = list(parts(ROOT / "book"))
EXERCISES = {one.name: one for one in exercises()}
WRONG: dict[str, dict[str, tuple[Any, str]]] = {}
for table in sorted((ROOT / "tests/rooms").glob("*/wrong_answers.py")):
    WRONG |= runpy.run_path(str(table))["WRONG"]
MISTAKES = [(name, slip) for name, slips in WRONG.items() for slip in slips]

Checked = list[tuple[str, Any, Result]]


def printed(kind: str) -> dict[str, Part]:
    """Exercise -> the exercise or solution of the book that checks its answer."""
    return {name: part for part in PAGES if part.kind == kind for name in part.names}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Checked]:
    """Run code as a reader would, and give what it had checked."""
    seen: Checked = []

    def recorded(name: str, answer: Any) -> Result:
        result = check(name, answer)
        seen.append((name, answer, result))
        return result

    def run_code(code: str) -> Checked:
        exec(compile(code, "<page>", "exec"), {"__name__": "__main__"})
        return seen

    monkeypatch.setattr(package, "check", recorded)
    return run_code


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_on_the_page_passes(name: str, run: Callable[[str], Checked]):
    solution = printed("solution").get(name)
    assert solution, f"no solution in the book holds check({name!r}, ...)"
    assert solution.folded, f"the solution of {name} is not folded; give it `:class: dropdown`"
    (code,) = (block for block in solution.code if f'check("{name}"' in block)
    results = {found: result for found, _, result in run(code)}
    assert results[name].passed, results[name]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_start_on_the_page_fails_as_not_written_yet(name: str, run: Callable[[str], Checked]):
    start = printed("exercise").get(name)
    assert start, f"no exercise in the book holds check({name!r}, ...)"
    assert start.page == EXERCISES[name].chapter
    assert start.label == printed("solution")[name].label
    (code,) = (block for block in start.code if f'check("{name}"' in block)
    results = {found: result for found, _, result in run(code)}
    assert not results[name].passed
    assert re.search("nothing to check yet|still to be written", results[name].message)


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("answer", [None, ..., "no answer", [[]], lambda *_, **__: None, object()])
def test_no_answer_at_all_fails(name: str, answer: Any):
    result = check(name, answer)
    assert not result.passed
    assert "cannot be checked" not in result.message, "the checker should see this coming"


@pytest.mark.parametrize("name", EXERCISES)
def test_there_is_a_wrong_answer_to_every_exercise(name: str):
    assert WRONG.get(name), f"add a plausible wrong answer to {name} to its room of tests/rooms"


@pytest.mark.parametrize(("name", "slip"), MISTAKES)
def test_a_wrong_answer_fails_with_words_on_its_fault(name: str, slip: str):
    answer, words = WRONG[name][slip]
    result = check(name, answer)
    assert not result.passed, f"{name} passes although {slip}"
    assert words in result.message
    assert "cannot be checked" not in result.message


@pytest.mark.parametrize("name", EXERCISES)
def test_no_message_holds_the_number_that_is_asked_for(name: str, run: Callable[[str], Checked]):
    solution = printed("solution")[name]
    given = [answer for code in solution.code for found, answer, _ in run(code) if found == name]
    numbers = [n for answer in given for n in (answer if isinstance(answer, tuple) else [answer])]
    shown = {f"{n:.3g}" for n in numbers if isinstance(n, float) and n != round(n)}
    for answer, _ in WRONG[name].values():
        told = set(re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", check(name, answer).message))
        came = {
            f"{n:.6g}"
            for n in (answer if isinstance(answer, tuple) else [answer])
            if isinstance(n, float)
        }
        assert not shown & (told - came)


def test_what_the_pages_check_is_registered_and_told_apart():
    for kind in ("exercise", "solution"):
        pages = defaultdict(list)
        for part in PAGES:
            for name in part.names:
                if part.kind == kind:
                    pages[name].append(part.label)
        assert set(pages) == set(EXERCISES)
        assert not {name: labels for name, labels in pages.items() if len(labels) > 1}
    assert set(WRONG) <= set(EXERCISES)


def test_every_exercise_has_a_solution():
    labels = {kind: [p.label for p in PAGES if p.kind == kind] for kind in ("exercise", "solution")}
    assert len(labels["exercise"]) > 20
    assert sorted(labels["exercise"]) == sorted(labels["solution"])


def test_code_is_read_from_exercises_and_solutions():
    text = """
````{exercise} A title
:label: ex-a

Words.

```python
check("a.b", ...)
```
````

```python
check("not.this", 1)
```

```{solution-start} ex-a
:class: dropdown
```
```python
x = 1
```
```python
check("a.b", 2)
check('a.c', 3)
```
```{solution-end}
```
"""
    exercise, solution = parts_of(text, "book/page")
    assert exercise == Part("book/page", "exercise", "ex-a", ('check("a.b", ...)\n',), False)
    assert (solution.kind, solution.label, solution.folded) == ("solution", "ex-a", True)
    assert solution.names == ("a.b", "a.c")
