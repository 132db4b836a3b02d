"""The table of what carries over on a tiny book that prints the library's own rows."""

from __future__ import annotations

import csv
import json

import pytest
import tiny_pages
from measured_book.evidence.carries import carries
from measured_book.measuring.carrying import asked_rows

TABLE = """\
# What carries over

{carried}`over` of {carried}`findings` findings, of {carried}`claims` claims.

```{carry-over} all
```

```{carry-over} reasons
```
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("carry"))
    book.settings = {
        "measured_judging": "measured_book.measuring.judging",
        "measured_claims": "",
    }
    book.write("table.md", TABLE)
    other = "is not in the book"  # the chapters whose claims are asked
    assert [line for line in book.build() if other not in line] == []
    return book


def test_every_row_is_there_with_an_address_and_both_models(printed):
    rows = printed.page("table").select("table.carry-table tbody > tr")
    assert len(rows) == len(carries().rows)
    assert len({row["id"] for row in rows}) == len(rows)
    row = next(row for row in rows if row["id"] == "carry-CS-3-4b-twelve")
    cells = [cell.get_text(" ", strip=True) for cell in row.find_all("td", recursive=False)]
    assert "gradual" in cells[0]
    assert "refuted" in cells[1]
    assert "at most 0.405" in cells[0]
    assert row.select_one(f"a[href='#{row['id']}']").get_text() == "link"
    assert {"theme-stream"} <= set(row["class"])


def test_numbers_are_those_of_the_file_that_can_be_taken_along(printed):
    pages = printed.root / "_build/html"
    data = json.loads((pages / "table.json").read_text("utf-8"))
    shown = [one.get_text() for one in printed.page("table").select("span.measured")]
    counts = data["counts"]
    assert shown == [str(counts[name]) for name in ("over", "findings", "claims")]
    assert counts["findings"] == counts["over"] + counts["not"] + counts["undecided"]
    judged = {one.row.name: one.outcome for one in asked_rows()}
    assert {row["finding"]: row["outcome"] for row in data["rows"]} == judged
    rows = list(csv.DictReader((pages / "table.csv").open(encoding="utf-8")))
    assert [row["outcome"] for row in rows] == [row["outcome"] for row in data["rows"]]


def test_the_page_has_its_script_and_the_reasons(printed):
    page = printed.page("table")
    assert page.select_one("script[src*='carry-over.js'][defer]") is not None
    assert "holds for any weights" in page.get_text()


def test_what_is_not_there_is_complained_of(tmp_path):
    book = tiny_pages.make(tmp_path)
    book.write(
        "table.md", "# Table\n\n{carried}`ovre` findings.\n\n```{carry-over} everything\n```\n"
    )
    found = "\n".join(book.build())
    assert "expected one of over, findings" in found
    assert "expected {carry-over} with one of own, all, reasons" in found
