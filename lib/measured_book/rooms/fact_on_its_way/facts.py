"""Facts of four relations, split into those that choose and those that judge, and prompts for them."""

from __future__ import annotations

RELATIONS = ("capital", "language", "continent", "opposite")

COUNTRIES: tuple[tuple[str, str | None, str | None, str], ...] = (
    # country, capital, language, continent; None where there is no single answer of one token
    ("France", "Paris", "French", "Europe"),
    ("Germany", "Berlin", "German", "Europe"),
    ("Italy", "Rome", "Italian", "Europe"),
    ("Spain", "Madrid", "Spanish", "Europe"),
    ("Portugal", "Lisbon", "Portuguese", "Europe"),
    ("Greece", "Athens", "Greek", "Europe"),
    ("Japan", "Tokyo", "Japanese", "Asia"),
    ("Poland", "Warsaw", "Polish", "Europe"),
    ("China", "Beijing", "Chinese", "Asia"),
    ("Russia", "Moscow", "Russian", "Europe"),
    ("Egypt", "Cairo", "Arabic", "Africa"),
    ("Iraq", "Baghdad", "Arabic", "Asia"),
    ("Iran", "Tehran", "Persian", "Asia"),
    ("Cuba", "Havana", "Spanish", "America"),
    ("Peru", "Lima", "Spanish", "America"),
    ("Chile", "Santiago", "Spanish", "America"),
    ("Sweden", "Stockholm", "Swedish", "Europe"),
    ("Norway", "Oslo", "Norwegian", "Europe"),
    ("Denmark", "Copenhagen", "Danish", "Europe"),
    ("Finland", "Helsinki", "Finnish", "Europe"),
    ("Hungary", "Budapest", "Hungarian", "Europe"),
    ("Austria", "Vienna", "German", "Europe"),
    ("Korea", "Seoul", "Korean", "Asia"),
    ("Kenya", "Nairobi", None, "Africa"),
    ("Netherlands", "Amsterdam", "Dutch", "Europe"),
    ("Belgium", "Brussels", None, "Europe"),
    ("Syria", "Damascus", "Arabic", "Asia"),
    ("Ireland", "Dublin", None, "Europe"),
    ("Bulgaria", "Sofia", "Bulgarian", "Europe"),
    ("Israel", None, "Hebrew", "Asia"),
    ("Thailand", None, "Thai", "Asia"),
    ("Vietnam", None, "Vietnamese", "Asia"),
    ("Romania", None, "Romanian", "Europe"),
    ("Turkey", None, "Turkish", "Asia"),
    ("Mexico", None, "Spanish", "America"),
    ("Argentina", None, "Spanish", "America"),
    ("Nigeria", None, None, "Africa"),
    ("Canada", None, None, "America"),
)
OPPOSITES: tuple[tuple[str, str], ...] = (
    ("hot", "cold"),
    ("big", "small"),
    ("up", "down"),
    ("good", "bad"),
    ("black", "white"),
    ("day", "night"),
    ("fast", "slow"),
    ("rich", "poor"),
    ("young", "old"),
    ("high", "low"),
    ("light", "dark"),
    ("strong", "weak"),
    ("hard", "soft"),
    ("open", "closed"),
    ("early", "late"),
    ("wet", "dry"),
    ("happy", "sad"),
    ("left", "right"),
    ("love", "hate"),
    ("true", "false"),
    ("long", "short"),
    ("wide", "narrow"),
    ("full", "empty"),
    ("clean", "dirty"),
)
"""Subjects and answers are single tokens behind a space. Entries of even place choose, of odd place judge."""

WORDINGS: dict[str, tuple[str, str]] = {
    "capital": ("The capital of {subject} is", "Question: capital of {subject}? Answer:"),
    "language": ("The language of {subject} is", "Question: language of {subject}? Answer:"),
    "continent": ("The continent of {subject} is", "Question: continent of {subject}? Answer:"),
    "opposite": ("The opposite of {subject} is", "Question: opposite of {subject}? Answer:"),
}
"""A statement and a question. Each prompt stands behind one solved example in the same wording."""


def facts(relation: str, *, judge: bool) -> list[tuple[str, str]]:
    """Subject and answer of the facts that judge, or of those that choose.

    Args:
        relation: one of `RELATIONS`.
        judge: which half.

    Raises:
        ValueError: when there is no such relation.

    >>> facts("capital", judge=True)[:2]
    [('Germany', 'Berlin'), ('Spain', 'Madrid')]
    """
    if relation not in RELATIONS:
        raise ValueError(f"expected a relation of {', '.join(RELATIONS)}; got {relation!r}")
    if relation == "opposite":
        return list(OPPOSITES[int(judge) :: 2])
    column = 1 + RELATIONS.index(relation)
    rows = COUNTRIES[int(judge) :: 2]
    return [(str(row[0]), str(row[column])) for row in rows if row[column] is not None]
