"""The table of what carries over as plain data, and as a file."""

from __future__ import annotations

import csv
import io

from bookpress.sphinx.carry import as_csv, details, effect_in_words, plain
from measured_book.evidence.carries import carries
from measured_book.evidence.verdicts import Verdict
from measured_book.measuring.carrying import Asked, Said

ROW = next(row for row in carries().rows if row.why)


def asked(real: Said | None) -> Asked:
    small = Said(0.25, (0.2, 0.3), Verdict.CONFIRMED)
    return Asked(ROW, small, real, None, "" if real else "carry_over.heads has not been measured")


def test_an_effect_has_its_interval_and_a_true_minus_sign() -> None:
    told = effect_in_words({"effect": -0.5, "interval": [-0.6, -0.4]})
    assert told == "\N{MINUS SIGN}0.5 (\N{MINUS SIGN}0.6 to \N{MINUS SIGN}0.4)"
    assert effect_in_words({"effect": 2.0, "interval": None}) == "2"


def test_details_tell_what_was_declared_and_what_is_missing() -> None:
    told = dict(details(plain(asked(None))))
    assert told["Asked of the real model"] == ROW.scope
    assert told["Why not the claim's own rule"] == ROW.why
    assert "has not been measured" in told["Not measured"]


def test_the_csv_has_a_line_a_row_with_both_effects() -> None:
    real = Said(0.75, (0.7, 0.8), Verdict.REFUTED)
    text = as_csv({"rows": [plain(asked(real)), plain(asked(None))]})
    first, second = csv.DictReader(io.StringIO(text))
    assert first["finding"] == ROW.name
    assert (first["small effect"], first["real effect"], first["real verdict"]) == (
        "0.25",
        "0.75",
        "refuted",
    )
    assert first["outcome"] == "does not"
    assert (second["real effect"], second["outcome"]) == ("", "undecided")
