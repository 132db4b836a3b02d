"""Records as data: gathered from notebooks, written whole or not at all, and put into words."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.evidence.records import (
    format_value,
    number_text,
    payloads,
    read_records,
    write_records,
)

MINUS, TIMES = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"

RUN = {
    "profile": "quick",
    "seed_offset": 0,
    "device": "cpu, a model, 2 cores",
    "versions": {"python": "3.11.7"},
    "seconds": 1.5,
    "date": "2026-01-01T00:00:00+00:00",
}


def statistics(
    verdict: str, effect: float, interval: list[float] | None = None, p: float | None = None
) -> dict[str, Any]:
    return {"verdict": verdict, "effect": effect, "interval": interval, "p": p, "details": {}}


IDENTITY = {
    "kind": "record",
    "id": "CS-1.3",
    "combine": "levels",
    "verdict": "confirmed",
    "rule": {"type": "identity", "tolerance": 1e-9, "control_above": 1e-3},
    "values": {"error": [1e-14, 1.2e-14, 3e-15], "control": [0.5]},
    "statistics": statistics("confirmed", 1.2e-14),
    **RUN,
}
ARMS = {"treatment": [1.0, 2.0, 3.0], "baseline": [2.5, 3.5, 4.0]}
PARTS = {
    "kind": "record",
    "id": "DD-7.7",
    "combine": "levels",
    "verdict": "conditional",
    "parts": [
        {
            "name": "rotary",
            "rule": {"type": "difference", "confidence": 0.95},
            "values": ARMS,
            "statistics": statistics("confirmed", -1.333, [-2.05, -0.62], 0.03),
        },
        {
            "name": "alibi",
            "rule": {"type": "difference", "confidence": 0.95},
            "values": ARMS,
            "statistics": statistics("refuted", 0.5, [0.25, 0.75], 0.02),
        },
    ],
    **RUN,
}
REPORT = {
    "kind": "report",
    "values": {"min_distance": 1.47184, "count": 5000, "losses": [3, 1, 2, 6], "solved": [1, 0, 1]},
    **RUN,
}


def output(payload: object, kind: str = "display_data") -> dict[str, Any]:
    return {"output_type": kind, "data": {}, "metadata": {"measured": payload}}


def notebook(*cells: list[object]) -> dict[str, Any]:
    return {
        "cells": [
            {"cell_type": "markdown", "source": "words"},
            *({"cell_type": "code", "outputs": outputs} for outputs in cells),
        ]
    }


STREAM = {"output_type": "stream", "name": "stdout", "text": "x"}
FIGURE = output({"kind": "figure", "dark": "..."})


def test_payloads_of_several_cells() -> None:
    found = payloads(
        notebook([STREAM, output(IDENTITY)], [], [FIGURE, output(REPORT), output(PARTS)])
    )
    assert list(found["records"]) == ["CS-1.3", "DD-7.7"]
    assert found["values"] == REPORT["values"]
    assert found["run"] == RUN
    assert found["records"]["CS-1.3"]["values"] == IDENTITY["values"]


def test_a_notebook_without_evidence() -> None:
    assert payloads(notebook([STREAM, FIGURE])) == {"records": {}, "values": {}, "run": None}
    assert payloads({}) == {"records": {}, "values": {}, "run": None}


def test_the_verdict_is_the_one_after_holm_and_the_notebook_stays_as_it_was() -> None:
    cells = notebook([output(PARTS)])
    before = copy.deepcopy(cells)
    record = payloads(cells)["records"]["DD-7.7"]
    # 0.02 counts twice and stands; 0.03 is then at least as large and stands too.
    assert (record["verdict"], record["verdict_alone"]) == ("conditional", "conditional")
    assert [part["statistics"]["p_holm"] for part in record["parts"]] == pytest.approx([0.04, 0.04])
    again = {**copy.deepcopy(PARTS), "id": "DD-7.8"}  # the same two comparisons: each counts once
    record = payloads(notebook([output(PARTS), output(again)]))["records"]["DD-7.7"]
    assert record["verdict"] == "conditional"
    another = copy.deepcopy(again)
    for part in another["parts"]:
        for values in part["values"].values():
            values[0] += 1e-9
    record = payloads(notebook([output(PARTS), output(another)]))["records"]["DD-7.7"]
    assert (record["verdict"], record["verdict_alone"]) == ("inconclusive", "conditional")
    assert [part["statistics"]["verdict"] for part in record["parts"]] == ["confirmed", "refuted"]
    assert {part["statistics"]["verdict_holm"] for part in record["parts"]} == {"inconclusive"}
    assert cells == before


def test_the_same_measurement_may_be_recorded_again() -> None:
    later = {**copy.deepcopy(IDENTITY), "date": "2026-01-02T00:00:00+00:00", "seconds": 9.0}
    found = payloads(notebook([output(IDENTITY)], [output(later)]))
    assert len(found["records"]) == 1


def test_another_measurement_of_the_same_claim_is_an_error() -> None:
    other = copy.deepcopy(IDENTITY)
    other["values"]["error"][0] = 2e-14  # type: ignore[index]
    with pytest.raises(ValueError, match=r"cell 3: claim CS-1\.3 is recorded a second time"):
        payloads(notebook([output(IDENTITY)], [output(other)]))


def test_a_name_reported_with_other_values_is_an_error() -> None:
    again = {**REPORT, "values": {"min_distance": 1.47184}}
    assert payloads(notebook([output(REPORT), output(again)]))["values"] == REPORT["values"]
    other = {**REPORT, "values": {"min_distance": 1.5}}
    with pytest.raises(ValueError, match="cell 2: value min_distance is reported a second time"):
        payloads(notebook([output(REPORT), output(other)]))
    with pytest.raises(ValueError, match="identifiers as names, got 'a b'"):
        payloads(notebook([output({**REPORT, "values": {"a b": 1}})]))


def gathered() -> dict[str, Any]:
    return payloads(notebook([output(IDENTITY), output(REPORT), output(PARTS)]))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("min_distance:.3f", "1.472"),
        ("min_distance", "1.472"),
        (" min_distance : .1f ", "1.5"),
        ("count", "5000"),
        ("count:,", "5,000"),
        ("losses", "3"),
        ("losses|mean:.2f", "3.00"),
        ("losses|min", "1"),
        ("losses|max", "6"),
        ("losses|median", "2.5"),
        ("losses|count", "4"),
        ("losses|first", "3"),
        ("losses|last", "6"),
        ("losses|interval:.2f", f"{MINUS}0.44 to 6.44"),  # 3 +- 3.1824 * 2.1602 / 2
        ("solved|share:.0%", "67%"),
        ("min_distance|count", "1"),
        ("CS-1.3.error|max:.1e", f"1.2{TIMES}10\u207b\u00b9\u2074"),
        ("CS-1.3.control", "0.5"),
        ("CS-1.3.effect:.0e", f"1{TIMES}10\u207b\u00b9\u2074"),
        ("CS-1.3.rule.tolerance", f"1{TIMES}10\u207b\u2079"),
        ("DD-7.7.rotary.treatment|mean:.2f", "2.00"),
        ("DD-7.7.rotary.effect:.2f", f"{MINUS}1.33"),
        ("DD-7.7.rotary.interval:.2f", f"{MINUS}2.05 to {MINUS}0.62"),
        ("DD-7.7.alibi.interval|min:.2f", "0.25"),
        ("DD-7.7.alibi.p:.2f", "0.02"),
        ("DD-7.7.alibi.p_holm:.2f", "0.04"),
    ],
)
def test_expressions(expression: str, text: str) -> None:
    assert format_value(gathered(), expression) == text


@pytest.mark.parametrize(
    ("expression", "near"),
    [
        ("min_distanse", "min_distance"),
        ("CS-1.3.eror|max", "CS-1.3.error"),
        ("CS-1.4.error", "CS-1.3.error"),
        ("DD-7.7.rotary.treatmen", "DD-7.7.rotary.treatment"),
        ("DD-7.7.effect", "DD-7.7.alibi.effect"),
        ("zzz", "nothing measured is near"),
        ("", "nothing measured is near"),
    ],
)
def test_an_unknown_name_gives_the_nearest(expression: str, near: str) -> None:
    with pytest.raises(KeyError) as caught:
        format_value(gathered(), expression)
    assert near in caught.value.args[0]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("losses|average", "expected one of mean, min, max.*'average'"),
        ("losses|", "expected one of mean, min, max.*''"),
        ("losses|share", "zeros and ones .* got 3"),
        ("min_distance:.3q", r"number format such as \.3f.*'\.3q'"),
        ("CS-1.3.p", "exact rule"),
        ("CS-1.3.rule.type", "expected a number, got 'identity'"),
        ("DD-7.7.alibi.interval|mean", "expected min or max of an interval, got mean"),
        ("min_distance|interval", "more than one seed"),
    ],
)
def test_bad_expressions_are_explained(expression: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        format_value(gathered(), expression)


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (1.2e-14, ".1e", f"1.2{TIMES}10\u207b\u00b9\u2074"),
        (-1.2e14, ".1e", f"{MINUS}1.2{TIMES}10\u00b9\u2074"),
        (1.5, ".1e", "1.5"),
        (1e100, ".0e", f"1{TIMES}10\u00b9\u2070\u2070"),
        (-0.5, "+.1f", f"{MINUS}0.5"),
        (0.5, "+.1f", "+0.5"),
        (-0.001, ".2f", "0.00"),
        (-0.001, ".0%", "0%"),
        (-0.06, ".1f", f"{MINUS}0.1"),
        (0.831, ".0%", "83%"),
        (1115394, ",", "1,115,394"),
        (1115394, "", "1115394"),
        (2 / 3, "", "0.6667"),
        (0.0, "", "0"),
    ],
)
def test_numbers_for_readers(value: float, spec: str, text: str) -> None:
    assert number_text(value, spec) == text


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([".2f", ".3e", "", ".3g"]))
def test_every_text_can_be_read_back(value: float, spec: str) -> None:
    text = number_text(value, spec)
    superscripts = "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
    plain = text.translate(str.maketrans(superscripts, "-0123456789"))
    plain = plain.replace(MINUS, "-").replace(f"{TIMES}10", "e")
    assert float(plain) == float(format(value, spec or ".4g"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "quick" / "chapter.json"
    payload = {"chapter": "book/a", **gathered()}
    payload["values"]["odd"] = [0.1 + 0.2, 1e-300, 5e-324]
    payload["records"]["CS-1.3"]["note"] = 'a [ 1, 2 ] "list" in\nwords'
    write_records(path, payload)
    assert read_records(path) == payload
    assert [p.name for p in path.parent.iterdir()] == ["chapter.json"]


def test_the_same_payload_gives_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    payload = gathered()
    backwards = dict(reversed(payload.items()))
    write_records(tmp_path / "a.json", payload)
    write_records(tmp_path / "b.json", backwards)
    text = (tmp_path / "a.json").read_text("utf-8")
    assert text == (tmp_path / "b.json").read_text("utf-8")
    assert '"losses": [3, 1, 2, 6]' in text  # numbers of one list on one line


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
texts = st.text(max_size=20)
trees = st.recursive(
    numbers | texts | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(tree=trees)
def test_any_payload_survives(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    path = tmp_path_factory.mktemp("records") / "a.json"
    payload = {"records": {"x": tree}, "values": {}}
    write_records(path, payload)
    assert read_records(path) == payload


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_crash_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "chapter.json"
    write_records(path, {"records": {}, "values": {"x": 1}})
    before = path.read_bytes()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, step, crash)
    with pytest.raises(KeyboardInterrupt):
        write_records(path, {"records": {}, "values": {"x": 2}})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_json_cannot_hold_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "chapter.json"
    for value in (float("nan"), object()):
        with pytest.raises(ValueError, match=r"finite numbers.*chapter\.json"):
            write_records(path, {"records": {}, "values": {"x": value}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "got damage"),
        (b'{"records": {}, "val', "got damage"),
        (b'{"records": "\xff"}', "got damage"),
        (b"[]", "expected a table, got list"),
        (b'{"values": {}}', "expected a table 'records'"),
        (b'{"records": {}, "values": []}', "expected a table 'values'"),
    ],
)
def test_corrupt_files_are_named_with_a_way_out(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "chapter.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_records(path)
    assert str(path) in str(caught.value)
    assert "delete chapter.json and build the book again" in str(caught.value)


def test_a_truncated_file_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "chapter.json"
    write_records(path, gathered())
    whole = path.read_bytes()
    for length in range(0, len(whole) - 2, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damage"):
            read_records(path)
    assert json.loads(whole) == gathered()


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_records(tmp_path / "none.json")
