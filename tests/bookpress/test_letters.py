"""Letters after years, where two works would be cited alike."""

from __future__ import annotations

from bookpress.sphinx.letters import give_letters
from pybtex.database import parse_string

WORKS = """
@misc{b, author = {Ada Zhong and Bo Li and Cy Wu}, year = {2023}, title = {Zebras}}
@misc{a, author = {Ada Zhong and Di Xu and Ed Yi}, year = {2023}, title = {{Apes} and others}}
@misc{two, author = {Ada Zhong and Bo Li}, year = {2023}, title = {Two}}
@misc{later, author = {Ada Zhong and Bo Li and Cy Wu}, year = {2024}, title = {Later}}
@misc{x, author = {{Deep Dive}}, title = {No year}}
@misc{y, author = {{Deep Dive}}, title = {None either}}
"""


def years(data) -> dict[str, str]:
    return {key: entry.fields.get("year", "") for key, entry in data.entries.items()}


def test_works_of_the_same_names_and_year_get_letters_by_title():
    data = parse_string(WORKS, "bibtex")
    give_letters(data.entries)
    expected = {"a": "2023a", "b": "2023b", "two": "2023", "later": "2024", "x": "", "y": ""}
    assert years(data) == expected
    give_letters(data.entries)
    assert years(data) == expected, "a second time changes nothing"


def test_a_letter_goes_when_the_other_work_does():
    data = parse_string(WORKS, "bibtex")
    give_letters(data.entries)
    del data.entries["a"]
    give_letters(data.entries)
    assert years(data)["b"] == "2023"
