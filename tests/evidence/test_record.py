"""Recording in a script, in a notebook and under a test: what is judged, kept and shown."""

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser

import nbclient
import nbformat
import numpy as np
import pytest
import torch
from measured_transformer import __version__
from measured_transformer.evidence import record as module
from measured_transformer.evidence import registry
from measured_transformer.evidence.record import record, report
from measured_transformer.evidence.records import payloads
from measured_transformer.evidence.verdicts import Verdict

CLAIMS = """
chapter = "book/part/chapter"

[[claim]]
id = "CS-1.3"
source = "CS"
place = "section 1"
statement = "Similarity <depends> on the offset & nothing else."
kind = "identity"
scope = "Encodings themselves."
test = "Largest deviation."
section = "only-the-offset"
expected = "confirmed"
rule = {type = "identity", tolerance = 1e-9, control_above = 1e-3}

[[claim]]
id = "DD-7.7"
source = "DD"
place = "section 7"
statement = "Rotary is better."
kind = "experiment"
scope = "Small models."
test = "Loss."
seeds = {quick = 5, full = 10}
expected = "conditional"
axis = "the other scheme"
[[claim.part]]
name = "zeta"
label = "against zeta"
rule = {type = "difference", direction = "less", smallest_effect = 0.1}
[[claim.part]]
name = "alibi"
rule = {type = "difference", direction = "less", smallest_effect = 0.1}

[[claim]]
id = "DD-7.8"
source = "DD"
place = "section 7"
statement = "Planned."
kind = "experiment"
scope = "Small models."
test = "Loss."
status = "planned"
seeds = {quick = 5, full = 10}
rule = {type = "difference", direction = "less", smallest_effect = 0.1}

[[claim]]
id = "DD-7.9"
source = "DD"
place = "section 7"
statement = "Cited."
kind = "cited"
scope = "A configuration."
test = "Read."
reference = "touvron2023llama"
"""

LOW = [1.0, 1.1, 0.9, 1.05, 0.95]
HIGH = [2.0, 2.0, 2.05, 1.95, 2.0]
PARTS = {
    "alibi": {"treatment": HIGH, "baseline": LOW},
    "zeta": {"treatment": LOW, "baseline": HIGH},
}


@pytest.fixture(autouse=True)
def claims(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = registry.parse_claims(CLAIMS, "claims.toml")
    monkeypatch.setattr(registry, "_packaged", lambda: parsed)
    monkeypatch.delenv("MEASURED_PROFILE", raising=False)
    monkeypatch.delenv("MEASURED_SEED_OFFSET", raising=False)


def test_a_record_holds_everything_needed_to_judge_it_again() -> None:
    error = torch.tensor([0.1, 0.2], dtype=torch.float64) * 1e-13
    before = datetime.now(UTC).replace(microsecond=0)
    made = record("CS-1.3", error=error, control=np.float32(0.5))
    payload = made.payload
    assert made.verdict is Verdict.CONFIRMED
    assert payload["kind"] == "record"
    assert (payload["id"], payload["chapter"]) == ("CS-1.3", "book/part/chapter")
    assert payload["claim"]["scope"] == "Encodings themselves."
    assert payload["claim"]["section"] == "only-the-offset"
    assert payload["claim"]["expected"] == "confirmed"
    assert payload["rule"] == {"type": "identity", "tolerance": 1e-9, "control_above": 1e-3}
    assert payload["values"] == {"error": error.tolist(), "control": [0.5]}
    assert payload["verdict"] == payload["statistics"]["verdict"] == "confirmed"
    assert payload["statistics"]["effect"] == error.max().item()
    assert payload["statistics"]["interval"] is None
    assert payload["statistics"]["p"] is None
    assert payload["seeds"] is None
    assert (payload["profile"], payload["seed_offset"]) == ("quick", 0)
    assert payload["versions"]["torch"] == torch.__version__
    assert payload["versions"]["numpy"] == np.__version__
    assert payload["versions"]["measured_transformer"] == __version__
    assert payload["versions"]["python"] == sys.version.split()[0]
    assert payload["device"].startswith(("cpu, ", "cuda, "))
    assert payload["seconds"] >= 0
    assert before <= datetime.fromisoformat(payload["date"]) <= datetime.now(UTC)
    assert json.loads(json.dumps(payload, allow_nan=False)) == payload


def test_parts_keep_the_order_of_the_registry() -> None:
    made = record("DD-7.7", PARTS)
    assert [part["name"] for part in made.payload["parts"]] == ["zeta", "alibi"]
    assert [part["label"] for part in made.payload["parts"]] == ["against zeta", "alibi"]
    verdicts = [part["statistics"]["verdict"] for part in made.payload["parts"]]
    assert verdicts == ["confirmed", "refuted"]
    assert made.verdict is Verdict.CONDITIONAL
    assert made.payload["axis"] == "the other scheme"
    assert made.payload["seeds"] == [0, 10, 20, 30, 40]
    low, high = made.payload["parts"][0]["statistics"]["interval"]
    assert low < -1 < high


LEFT = """
[[claim]]
id = "DD-6.1"
source = "DD"
place = "section 6"
statement = "One part is left to the full run."
kind = "experiment"
scope = "Small models."
test = "Loss."
seeds = {quick = 5, full = 10}
expected = {quick = "inconclusive", full = "confirmed"}
axis = "the depth"
combine = "every"
[[claim.part]]
name = "shallow"
rule = {type = "difference", direction = "less", smallest_effect = 0.1}
[[claim.part]]
name = "deep"
label = "a hundred blocks"
only = "full"
rule = {type = "difference", direction = "less", smallest_effect = 0.1}

[[claim]]
id = "DD-6.2"
source = "DD"
place = "section 6"
statement = "All of it is left to the full run."
kind = "experiment"
scope = "Small models."
test = "Loss."
seeds = {quick = 5, full = 10}
expected = {quick = "inconclusive", full = "confirmed"}
only = "full"
rule = {type = "difference", direction = "less", smallest_effect = 0.1}
"""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = registry.parse_claims('chapter = "book/part/chapter"\n' + LEFT, "left.toml")
    monkeypatch.setattr(registry, "_packaged", lambda: parsed)


@pytest.mark.usefixtures("left")
def test_quick_leaves_open_what_it_does_not_measure(capsys: pytest.CaptureFixture[str]) -> None:
    made = record("DD-6.1", {"shallow": {"treatment": LOW, "baseline": HIGH}})
    shallow, deep = made.payload["parts"]
    assert shallow["statistics"]["verdict"] == "confirmed"
    assert (deep["values"], deep["statistics"]["left"]) == ({}, True)
    assert deep["rule"] == {
        "type": "difference",
        "direction": "less",
        "smallest_effect": 0.1,
        "paired": True,
        "confidence": 0.95,
    }
    assert made.verdict is Verdict.INCONCLUSIVE, "one part alone must not decide the claim"
    assert "a hundred blocks: left to the full run (inconclusive)" in capsys.readouterr().out
    whole = record("DD-6.2")
    assert whole.verdict is Verdict.INCONCLUSIVE
    assert whole.payload["values"] == {}
    assert "left to the full run (inconclusive)" in capsys.readouterr().out
    gathered = payloads(
        {
            "cells": [
                {"outputs": [{"metadata": {"measured": json.loads(json.dumps(each.payload))}}]}
                for each in (made, whole)
            ]
        }
    )["records"]
    assert gathered["DD-6.1"]["verdict"] == gathered["DD-6.2"]["verdict"] == "inconclusive"
    family = [part["statistics"]["p_holm"] for part in gathered["DD-6.1"]["parts"]]
    assert family[0] == shallow["statistics"]["p"], "a part that was not measured is no comparison"
    assert family[1] is None


@pytest.mark.usefixtures("left")
def test_the_full_run_measures_what_quick_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEASURED_PROFILE", "full")
    arms = {"treatment": LOW * 2, "baseline": HIGH * 2}
    made = record("DD-6.1", {"shallow": arms, "deep": arms})
    assert made.verdict is Verdict.CONFIRMED
    assert not any("left" in part["statistics"] for part in made.payload["parts"])
    assert record("DD-6.2", **arms).verdict is Verdict.CONFIRMED
    with pytest.raises(ValueError, match=r"expected the values of shallow, deep .* got shallow$"):
        record("DD-6.1", {"shallow": arms})
    with pytest.raises(ValueError, match="expected the values treatment, baseline"):
        record("DD-6.2")


@pytest.mark.usefixtures("left")
@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        (("DD-6.1", {}), {}, "expected the values of shallow .*; quick leaves deep to the full"),
        (
            ("DD-6.1", {"shallow": {}, "deep": {}}),
            {},
            "expected the values of shallow .* got shallow, deep; quick leaves deep",
        ),
        (("DD-6.2",), {"treatment": LOW}, "DD-6.2 is left to the full run: expected no value"),
    ],
)
def test_quick_takes_no_value_of_what_it_leaves(
    arguments: tuple[object, ...], named: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        record(*arguments, **named)  # type: ignore[arg-type]


def test_profile_and_offset_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEASURED_PROFILE", "full")
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    parts = {
        name: {arm: list(values) * 2 for arm, values in part.items()}
        for name, part in PARTS.items()
    }
    payload = record("DD-7.7", parts).payload
    assert (payload["profile"], payload["seed_offset"]) == ("full", 1000)
    assert payload["seeds"] == list(range(10000, 10100, 10))


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        (("CS-1.3",), {"error": [1.0]}, "CS-1.3: expected the values error, control"),
        (("CS-1.3", {"a": {}}), {}, "CS-1.3 has one rule"),
        (("CS-1.3",), {"error": [math.nan], "control": 1}, "CS-1.3: error: .* got nan"),
        (("CS-1.3",), {"error": np.zeros(5001), "control": 1}, "at most 5000 numbers, got 5001"),
        (("DD-7.7",), {}, "expected the values of zeta, alibi in a dictionary, got none"),
        (("DD-7.7", {"zeta": {}}), {}, "got zeta"),
        (("DD-7.7", PARTS), {"extra": 1}, "got alibi, zeta, extra"),
        (("DD-7.7", PARTS), {"seeds": [1, 2]}, "declares 5 seeds for profile quick, got 2"),
        (("DD-7.7", PARTS), {"seeds": [1, 1, 2, 3, 4]}, "each seed once"),
        (
            ("DD-7.7", {**PARTS, "zeta": {"treatment": LOW[:4], "baseline": HIGH[:4]}}),
            {},
            "DD-7.7, part zeta: treatment: expected 5 values, one for each seed .* got 4",
        ),
        (("DD-7.8",), {}, "expected a covered claim, got DD-7.8, which is planned"),
        (("DD-7.9",), {}, "DD-7.9 is cited"),
    ],
)
def test_bad_records_are_explained(
    arguments: tuple[object, ...], named: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        record(*arguments, **named)  # type: ignore[arg-type]


def test_an_unknown_claim_gives_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"nearest are CS-1\.3"):
        record("CS-1.33", error=[0.0], control=[1.0])


def test_reports_keep_numbers_as_they_are() -> None:
    made = report(
        count=np.int64(5),
        width=torch.tensor(0.1),
        losses=np.array([0.1, 0.2]),
        solved=[True, False],
        exact=3,
    )
    assert made.values == {
        "count": 5,
        "width": torch.tensor(0.1).item(),
        "losses": [0.1, 0.2],
        "solved": [1, 0],
        "exact": 3,
    }
    assert isinstance(made.values["count"], int)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "at least one value"),
        ({"min distance": 1}, "identifier .* got 'min distance'"),
        ({"x": math.inf}, "x: expected finite"),
        ({"x": []}, "x: expected at least one"),
        ({"x": "words"}, "x: expected real numbers"),
        ({"x": np.ones((2, 2))}, r"x: .* got shape \(2, 2\)"),
        ({"x": np.ones(5001)}, "x: expected at most 5000"),
    ],
)
def test_bad_reports_are_explained(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        report(**values)


def test_the_text_for_the_reader(capsys: pytest.CaptureFixture[str]) -> None:
    record("DD-7.7", PARTS)
    report(min_distance=1.5, losses=[1, 2, 3])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "DD-7.7  Rotary is better."
    assert shown[1] == "  conditional, by the other scheme (profile quick, 5 seeds)"
    assert shown[2] == "  against zeta: treatment = 5 values from 0.9 to 1.1, mean 1"
    assert shown[4].startswith("  against zeta: effect \N{MINUS SIGN}1, 95% interval")
    assert shown[4].endswith("(confirmed)")
    assert shown[-2] == "min_distance = 1.5"
    assert shown[-1] == "losses = 3 values from 1 to 3, mean 2"


class Markup(HTMLParser):
    """Collects tags and attributes, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_markup_is_escaped_labelled_and_takes_the_pages_colours() -> None:
    payload = record("CS-1.3", error=[0.0], control=[1.0]).payload
    markup = Markup()
    markup.feed(module._record_html(payload))
    assert markup.open == []
    assert "Similarity <depends> on the offset & nothing else." in markup.text
    assert "confirmed" in markup.text
    assert dict(markup.attributes)["aria-label"] == "Claim CS-1.3"
    styles = " ".join(value or "" for name, value in markup.attributes if name == "style")
    assert "currentColor" in styles
    assert "#" not in styles
    assert "background" not in styles


CELL = f"""
from measured_transformer.evidence import registry
registry._packaged = lambda: registry.parse_claims({CLAIMS!r}, "claims.toml")
from measured_transformer.evidence.record import record, report
first = record("CS-1.3", error=[0.1e-12], control=[1.0])
report(min_distance=0.1 + 0.2)
"""


def test_in_a_notebook_the_payload_is_in_the_outputs_metadata() -> None:
    last = f'record("DD-7.7", {PARTS!r})'
    cells = [nbformat.v4.new_code_cell(source) for source in (CELL, last, "first.verdict")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    notebook = nbformat.reads(nbformat.writes(notebook), as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    # Each call shows once, also at the end of a cell, where Jupyter shows what it returns.
    assert [o.output_type for o in outputs] == ["display_data"] * 3 + ["execute_result"]
    assert [o.metadata.measured.kind for o in outputs[:3]] == ["record", "report", "record"]
    assert set(outputs[0].data) == {"text/plain", "text/html"}
    assert outputs[0].data["text/plain"].startswith("CS-1.3  Similarity")
    gathered = payloads(notebook)
    assert list(gathered["records"]) == ["CS-1.3", "DD-7.7"]
    assert gathered["records"]["CS-1.3"]["values"]["error"] == [0.1e-12]
    assert gathered["values"] == {"min_distance": 0.1 + 0.2}
    parts = gathered["records"]["DD-7.7"]["parts"]
    assert [part["name"] for part in parts] == ["zeta", "alibi"]


def test_a_script_prints_without_ipython() -> None:
    script = "import sys\nsys.modules['IPython'] = None\n" + CELL
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith("CS-1.3  Similarity <depends>")
    assert "min_distance = 0.3" in done.stdout


def test_pages_can_be_printed_without_torch_or_scipy() -> None:
    script = (
        "import sys\n"
        "from measured_transformer.evidence import profile, records, registry, verdicts\n"
        "registry.claims()\n"
        "records.format_value({'records': {}, 'values': {'x': [1, 2]}}, 'x|median:.1f')\n"
        "heavy = {'torch', 'scipy', 'numpy', 'IPython', 'jaxtyping'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
