"""The registry on the command line, and the filters that it shares with `claims`."""

import subprocess
import sys
from pathlib import Path

import pytest
from measured_book.evidence import registry
from measured_book.evidence.__main__ import main
from measured_book.evidence.registry import KINDS, SOURCES, STATUSES, claims


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def ids(lines: list[str]) -> list[str]:
    """The ids of a table: its first column without the heading and the counts."""
    assert lines[0].split() == ["id", "kind", "status", "chapter", "statement"]
    assert lines[-2] == ""
    return [line.split()[0] for line in lines[1:-2]]


@pytest.mark.parametrize(
    ("name", "values"), [("source", tuple(SOURCES)), ("kind", KINDS), ("status", STATUSES)]
)
def test_filters_divide_the_registry(name: str, values: tuple[str, ...]) -> None:
    found = [claims(**{name: value}) for value in values]
    for value, some in zip(values, found, strict=True):
        assert {getattr(c, name) for c in some.values()} <= {value}
    assert sum(map(len, found)) == len(claims())


def test_filters_join() -> None:
    some = claims("book/norms/*", ids="DD-3.*", kind="identity")
    assert set(some) == {"DD-3.1a", "DD-3.2", "DD-3.6"}
    assert set(claims("book/norms/layer-norm")) > {"DD-3.1a"}
    assert claims("book/norms") == {}
    assert set(claims(ids="DD-3.1")) == set()


@pytest.mark.parametrize("name", ["source", "kind", "status"])
def test_an_unknown_filter_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected one of .*got 'XX'"):
        claims(**{name: "XX"})


def test_the_table_holds_what_fits_in_the_order_of_the_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, "DA-4.*", "--source", "DA")
    found = ids(lines)
    assert set(found) == set(claims(ids="DA-4.*"))
    assert found[:3] == ["DA-4.1", "DA-4.2", "DA-4.3"]
    assert found.index("DA-4.9") < found.index("DA-4.10") < found.index("DA-4.12a")
    assert found.index("DA-4.12a") + 1 == found.index("DA-4.12b")
    assert lines[-1].startswith(f"{len(found)} claims; {len(found)} DA; ")


def test_the_table_is_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    narrow = printed(capsys, "--chapter", "book/norms/*")
    monkeypatch.setenv("COLUMNS", "400")
    wide = printed(capsys, "--chapter", "book/norms/*")
    assert max(map(len, narrow)) <= 140 < max(map(len, wide))
    for claim_id, line in zip(ids(wide), wide[1:], strict=False):
        assert line.endswith(claims()[claim_id].statement)


def test_the_long_form_says_all_that_is_declared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    lines = printed(capsys, "DD-13.14", "--long")
    found = claims()["DD-13.14"]
    for text in (found.statement, found.scope, found.test, found.chapter):
        assert any(line.endswith(text) for line in lines)
    assert f"seeds     {found.seeds}" in lines
    assert "parts     majority, by the task" in lines
    rules = [line for line in lines if "threshold, at_least 0.1, at_most 0.2" in line]
    assert len(rules) == len(found.parts) == 3
    cited = printed(capsys, "DD-7.9", "--long")
    assert "reference touvron2023llama" in cited
    assert "expected  fact" in cited


def test_nothing_that_fits_is_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["XX-1.1"]) == 1
    assert capsys.readouterr().err == "no claim fits\n"


def test_a_registry_that_cannot_be_read_is_a_line_and_an_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "claims.toml"
    broken.write_text('chapter = "book/norms/one"\nclaim = = 3\n', "utf-8")
    monkeypatch.setattr(registry, "claims_files", lambda: {"one_norm": broken})
    registry._packaged.cache_clear()
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: one_norm/claims.toml: expected TOML, got text that breaks")
    assert said.err.count("\n") == 1
    assert "line 2" in said.err

    broken.unlink()
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert str(broken) in said


def test_it_runs_as_a_module_without_loading_torch() -> None:
    code = (
        "import runpy, sys; sys.argv = ['x', 'CS-1.3']\n"
        "try: runpy.run_module('measured_book.evidence', run_name='__main__')\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "0 False"
    assert lines[1].split()[:4] == [
        "CS-1.3",
        "identity",
        "covered",
        "book/positions/positional-encoding",
    ]
