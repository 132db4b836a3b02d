"""The words of the prompts in *Repeats and rules*."""

from __future__ import annotations

RELATIONS: dict[str, dict[str, str]] = {
    "opposite": {
        "hot": "cold", "up": "down", "big": "small", "left": "right", "open": "closed", "day": "night",
        "old": "new", "black": "white", "first": "last", "high": "low", "good": "bad", "full": "empty",
        "fast": "slow", "hard": "soft", "early": "late", "rich": "poor", "true": "false", "inside": "outside",
    },
    "plural": {
        "cat": "cats", "dog": "dogs", "book": "books", "car": "cars", "house": "houses", "tree": "trees",
        "girl": "girls", "king": "kings", "bird": "birds", "child": "children", "man": "men", "woman": "women",
        "foot": "feet", "road": "roads", "song": "songs", "horse": "horses",
        "city": "cities", "letter": "letters",
    },
    "past": {
        "walk": "walked", "go": "went", "take": "took", "see": "saw", "make": "made", "come": "came",
        "find": "found", "give": "gave", "write": "wrote", "run": "ran", "think": "thought", "begin": "began",
        "play": "played", "open": "opened", "call": "called", "know": "knew", "fall": "fell", "sell": "sold",
    },
}  # fmt: skip
"""Questions and answers of three relations; those are asked whose answers are one token behind a space."""

NOUNS = {
    "teacher": "teachers", "doctor": "doctors", "farmer": "farmers", "student": "students",
    "writer": "writers", "driver": "drivers", "soldier": "soldiers", "singer": "singers",
    "boy": "boys", "girl": "girls", "king": "kings", "player": "players",
    "worker": "workers", "friend": "friends", "artist": "artists", "lawyer": "lawyers",
}  # fmt: skip
"""Singular and plural of subjects and of nouns between subject and verb, one token each behind a space."""
BETWEEN = ("near", "behind", "beside", "with")
VERBS = (" is", " are")
"""The forms that agree with a singular and with a plural subject."""
