"""The committed comparison holds all that its page says of it."""

import pytest
from measured_book.rooms.your_own_checkpoint.figures import (
    comparison,
    families,
    heads,
    peer,
)


def test_what_is_defined_alike_is_equal_and_both_find_the_same_heads():
    found = comparison()
    assert {row["peer"] for row in found["rows"]} == {"Captum", "TransformerLens"}
    for row in found["rows"]:
        left = row["difference"] if row["same"] else row["after"]
        assert row["holds"], row
        assert left < found["equal below"], row
        assert row["same"] or (row["why"] and row["difference"] > 1e-3), row
    assert all(each["ours"] == each["theirs"] for each in found["heads"])
    assert all(each["our score"] > 0.5 for each in found["heads"])
    assert all(each["difference"] < 1e-5 for each in found["families"])


def test_a_table_has_all_rows_under_its_header():
    found = comparison()
    tables = [peer(found, "Captum"), peer(found, "TransformerLens"), families(found), heads(found)]
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert table._repr_html_().count("<tr>") == len(table.rows) + 1
    with pytest.raises(ValueError, match="Captum, TransformerLens, got 'SHAP'"):
        peer(found, "SHAP")
