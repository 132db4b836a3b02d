"""What a profile executes of a chapter's code: what counts as the same, and what does not."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from importlib import import_module

import measured_transformer
import pytest
from bookpress.partial import code_at
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook


def code(*cells: str, profile: str = "full") -> str:
    return code_at(new_notebook(cells=[new_code_cell(cell) for cell in cells]), profile)


SAME_AT_FULL = {
    "another number of seeds": ("s = p.seeds(quick=5, full=10)", "s = p.seeds(quick=2, full=10)"),
    "a choice": ("a = range(3)", "a = p.choose(quick=[0], full=range(3))"),
    "a choice within another": (
        "a = p.choose(quick=1, full=p.choose(quick=2, full=3))",
        "a = 3",
    ),
    "a branch": ("if p.is_full:\n    report(a=1)", "report(a=1)"),
    "the other branch": ("if not p.is_full:\n    a = 1\nelse:\n    a = 2", "a = 2"),
    "a branch that is not reached": ("a = 1\nif not p.is_full:\n    a = 2", "a = 1"),
    "a conditional expression": ("a = 1 if p.is_full else 2", "a = 1"),
    "a condition of a list": ("a = [x for x in y if p.is_full]", "a = [x for x in y]"),
    "an argument of quick": ("train(arms, quick=2, full=10)", "train(arms, full=10, quick=3)"),
    "layout and comments": ("a = f(1,2)  # once", "a = f(\n    1,\n    2,\n)"),
}


@pytest.mark.parametrize(("one", "other"), SAME_AT_FULL.values(), ids=SAME_AT_FULL)
def test_what_only_quick_does_is_no_part_of_a_full_run(one: str, other: str) -> None:
    assert code(one) == code(other)
    if "layout" not in one and "#" not in one:
        assert code(one, profile="quick") != code(other, profile="quick")


DIFFERENT_AT_FULL = {
    "seeds": ("s = p.seeds(quick=2, full=5)", "s = p.seeds(quick=2, full=10)"),
    "a choice": ("a = p.choose(quick=1, full=2)", "a = p.choose(quick=1, full=3)"),
    "a branch": ("if p.is_full:\n    a = 1", "if p.is_full:\n    a = 2"),
    "a condition that the profile does not decide": ("if b:\n    a = 1", "a = 1"),
    "a condition of a list": ("[x for x in y if x]", "[x for x in y]"),
    "a name": ("a = 1", "b = 1"),
    "a number": ("a = 1", "a = 1.0"),
    "none": ("a = None", "a = False"),
    "an empty list": ("a = []", "a = ()"),
    "order": ("a = 1\nb = 2", "b = 2\na = 1"),
    "another method": ("a = p.choice(quick=1, full=2)", "a = 2"),
    "a choice of something else": ("a = p.choose(1, quick=1, full=2)", "a = 2"),
    "a text": ("a = 'x'", "a = b'x'"),
    "a magic": ("%time a = 1", "%time a = 2"),
    "no Python": ("%%bash\necho a", "%%bash\necho b"),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT_AT_FULL.values(), ids=DIFFERENT_AT_FULL)
def test_what_full_does_is(one: str, other: str) -> None:
    assert code(one) != code(other)


def test_cells_may_be_divided_and_explained() -> None:
    assert code("a = 1\nb = 2") == code("a = 1", "b = 2") == code("a = 1", "", "b = 2", "# nothing")
    cells = [new_markdown_cell("a = 3"), new_code_cell("a = 1\nb = 2", metadata={"tags": ["x"]})]
    assert code_at(new_notebook(cells=cells), "full") == code("a = 1\nb = 2")


def test_the_fingerprint_is_the_same_in_every_version_of_python() -> None:
    written = (
        "async def f(a, /, b: int = 2, *c, d, **e) -> str:\n    return f'{a!r:>{b}} {d}'\nx = None"
    )
    assert code(written) == "8d680b9403f48c8babecb143dca94b41"
    assert ast.parse(written)


def test_a_profile_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of quick, full, came 'fast'"):
        code("a = 1", profile="fast")


def test_arguments_named_like_profiles_mean_profiles_all_over_the_library() -> None:
    """An argument `quick` that did anything at full would make records look current that are not."""
    found = set()
    for module in pkgutil.walk_packages(
        measured_transformer.__path__, measured_transformer.__name__ + "."
    ):
        if "__main__" in module.name:
            continue
        for name, member in vars(import_module(module.name)).items():
            if not callable(member) or getattr(member, "__module__", None) != module.name:
                continue
            members = vars(member).values() if inspect.isclass(member) else [member]
            for each in filter(inspect.isfunction, members):
                asked = set(inspect.signature(each).parameters)
                if asked & {"quick", "full"}:
                    found.add(name)
                    assert {"quick", "full"} <= asked, f"{module.name}.{name}"
                    source = inspect.getsource(each)
                    assert "quick=quick" in source or each.__name__ == "choose", f"{name}: {source}"
    assert {"Profile", "train_arms"} <= found
