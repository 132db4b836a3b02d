"""What the rows of the Scorecard are filtered and sorted by beyond their verdicts.

- **Surprise**: how far what came out lies from what the source says. A refuted claim is against it; one that is
  conditional, not reproduced or underspecified, or does not carry over, goes beyond it in part. The words
  behind a misprint hold. Among equals, the one whose contrary effect is the sharper is the more surprising.
- **Sharpness** of an effect: how many half-widths of its interval it lies from zero, so that effects of
  different units can be compared. A claim of several parts has that of its sharpest part.
- **Size** of an effect: below one half-width the interval holds zero, and from `LARGE` on an effect is large.
- **Again**: whether a second set of seeds gives the same verdict (`bookpress.second_seeds`).
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from docutils import nodes
from measured_book.evidence.verdicts import Verdict
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from bookpress import second_seeds
from bookpress.sphinx.nodes import score_row
from bookpress.sphinx.scores import SCORECARD, Row, rows_of

AGAINST, PARTLY, AS_SAID, OPEN = "against", "partly", "as-said", "open"
SURPRISES: Mapping[str, str] = {
    AGAINST: "against the source",
    PARTLY: "partly against it",
    AS_SAID: "as the source says",
    OPEN: "not decided",
}
"""Surprise -> its words, the greatest first."""
_OF: Mapping[str, str] = {
    "refuted": AGAINST,
    "conditional": PARTLY,
    "does not carry over": PARTLY,
    "not reproduced": PARTLY,
    "underspecified": PARTLY,
    "confirmed": AS_SAID,
    "misprint": AS_SAID,
    "fact": AS_SAID,
}
_LEVEL = {AGAINST: 2.0, PARTLY: 1.0, AS_SAID: 0.0, OPEN: -1.0}
LARGE = 10.0
"""Half-widths of its interval from which on an effect is called large; about half of those estimated are."""
BIG, SMALL, ZERO, NO_INTERVAL = "large", "small", "zero", "none"
SIZES: Mapping[str, str] = {
    BIG: f"large: from {LARGE:.0f} half-widths on",
    SMALL: f"small: 1 to {LARGE:.0f} half-widths",
    ZERO: "none shown: below 1 half-width",
    NO_INTERVAL: "no interval",
}
"""Size of an effect -> its words, the largest first."""
AGREES, LEAVES_OPEN, DIFFERS, UNKNOWN = "same", "open", "other", "none"
AGAIN: Mapping[str, str] = {
    AGREES: "give the same verdict",
    LEAVES_OPEN: "do not decide alone",
    DIFFERS: "give another verdict",
    UNKNOWN: "were not measured",
}
"""What a second set of seeds does -> its words."""


def surprise(row: Row) -> str:
    """Return how far what came out lies from what the source says: a key of `SURPRISES`."""
    return _OF.get(row["verdict"], OPEN)


def surprise_rank(row: Row) -> float:
    """Return a number by which rows are ordered: the larger, the more surprising."""
    level = surprise(row)
    against = [
        sharp
        for part in _parts(row)
        if _OF.get(part["verdict"]) in (AGAINST, PARTLY) and (sharp := _sharp(part)) is not None
    ]
    sharpest = max(against, default=0.0)
    more = sharpest / (1 + sharpest) if level in (AGAINST, PARTLY) else 0.0
    return round(_LEVEL[level] + 0.999 * more, 4)


def sharpness(row: Row) -> float | None:
    """Return the half-widths of its interval that a row's sharpest effect lies from zero; None without one."""
    found = _sharpest(row)
    return None if found is None else round(found, 2)


def size(row: Row) -> str:
    """Return how large a row's sharpest effect is, in half-widths of its interval: a key of `SIZES`."""
    found = _sharpest(row)
    if found is None:
        return NO_INTERVAL
    return BIG if found >= LARGE else SMALL if found > 1 else ZERO


def _sharpest(row: Row) -> float | None:
    return max((sharp for part in _parts(row) if (sharp := _sharp(part)) is not None), default=None)


def again(claim_id: str, row: Row, kept: Mapping[str, tuple[str, int]]) -> str:
    """Return what a second set of seeds does: a key of `AGAIN`."""
    if claim_id not in kept:
        return UNKNOWN
    verdict = kept[claim_id][0]
    if verdict == row.get("verdict_own", row["verdict"]):
        return AGREES
    return LEAVES_OPEN if verdict == Verdict.INCONCLUSIVE else DIFFERS


def second_set(
    rows: Mapping[str, Row], experiments: Iterable[str], kept: Mapping[str, tuple[str, int]]
) -> tuple[str, list[str]]:
    """Return how much of the book a second set of seeds was asked, and which claims it judges otherwise.

    Args:
        rows: of all claims.
        experiments: those claims that are experiments.
        kept: verdict and number of seeds of the second set, by claim.
    """
    asked = list(experiments)
    found = Counter(again(claim, rows[claim], kept) for claim in asked)
    differ = [claim for claim in asked if again(claim, rows[claim], kept) == DIFFERS]
    done = len(asked) - found[UNKNOWN]
    words = (
        f"{done} of {len(asked)} experiments have been measured once more with a second set of seeds, which is "
        f"judged alone: {found[AGREES]} get the same verdict, {found[LEAVES_OPEN]} are not decided by so few "
        f"seeds, and {found[DIFFERS]} get another one."
    )
    return words, differ


def _parts(row: Row) -> list[dict[str, Any]]:
    return list((row["outcome"] or {}).get("parts", ()))


def _sharp(part: Mapping[str, Any]) -> float | None:
    effect, interval = part.get("effect"), part.get("interval")
    if effect is None or not interval or interval[0] is None or interval[1] is None:
        return None
    half = (interval[1] - interval[0]) / 2
    return abs(effect) / half if half > 0 else None


# On the page --------------------------------------------------------------------------------------


def selects_html(rows: Mapping[str, Row]) -> str:
    """Return the filters by surprise, effect and a second set of seeds, as HTML of the Scorecard's form."""
    kept = second_seeds.kept_verdicts()
    surprises = [surprise(row) for row in rows.values()]
    sizes = [size(row) for row in rows.values()]
    agains = [again(claim, row, kept) for claim, row in rows.items()]
    return (
        _select("surprise", "Surprise", "any", SURPRISES, surprises)
        + "\n"
        + _select("size", "Effect", "any", SIZES, sizes)
        + "\n"
        + _select("again", "Other seeds", "all", AGAIN, agains)
    )


def _select(
    name: str, label: str, everything: str, words: Mapping[str, str], found: Iterable[str]
) -> str:
    values = list(found)
    options = "".join(
        f'<option value="{key}" data-label="{html.escape(word)}">{html.escape(word)} '
        f"({values.count(key)})</option>"
        for key, word in words.items()
        if key in values
    )
    return (
        f'<label>{label} <select name="{name}"><option value="">{everything}</option>'
        f"{options}</select></label>"
    )


class RankRows(SphinxPostTransform):
    """Give the rows of the Scorecard what they are filtered and sorted by."""

    default_priority = 11  # when verdicts are filled in

    def run(self, **kwargs: object) -> None:
        """Complete every row of the page."""
        rows = rows_of(self.env)
        places = list(self.document.findall(score_row)) if rows else []
        kept = second_seeds.kept_verdicts() if places else {}
        for place in places:
            claim, row = place["claim"], rows[place["claim"]]
            sharp = sharpness(row)
            agrees = again(claim, row, kept)
            place["ranks"] = {
                "surprise": surprise(row),
                "rank": surprise_rank(row),
                "effect": "" if sharp is None else sharp,
                "size": size(row),
                "again": agrees,
            }
            if agrees != UNKNOWN:
                verdict, many = kept[claim]
                words = {
                    AGREES: "give the same verdict",
                    LEAVES_OPEN: "alone do not decide",
                    DIFFERS: f"give the verdict {verdict}",
                }[agrees]
                entry = list(place.findall(nodes.entry))[-1]
                entry += nodes.paragraph(
                    "", f"Another {many} seeds {words}.", classes=["score-again"]
                )


def _note_second_seeds(app: Sphinx, doctree: nodes.document) -> None:
    if app.env.metadata[app.env.docname].get(SCORECARD):
        app.env.note_dependency(str(second_seeds.KEPT))


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_post_transform(RankRows)
    app.connect("doctree-read", _note_second_seeds)
