"""Questions and answers of five tasks for curves over the number of examples, in *Repeats and rules*."""

from __future__ import annotations

RELATIONS: dict[str, dict[str, str]] = {
    "opposite": {
        "wet": "dry", "long": "short", "near": "far", "strong": "weak", "happy": "sad", "clean": "dirty",
        "light": "dark", "thick": "thin", "wide": "narrow", "deep": "shallow", "loud": "quiet",
        "safe": "dangerous", "win": "lose", "push": "pull", "north": "south", "east": "west", "love": "hate",
        "friend": "enemy", "war": "peace", "summer": "winter", "always": "never", "above": "below",
        "before": "after", "male": "female", "life": "death", "question": "answer", "success": "failure",
        "more": "less", "accept": "reject", "increase": "decrease", "public": "private",
        "maximum": "minimum", "positive": "negative", "yes": "no", "input": "output", "export": "import",
        "heaven": "hell", "sharp": "dull", "top": "bottom", "simple": "complex", "odd": "even",
    },
    "past": {
        "say": "said", "eat": "ate", "drink": "drank", "sing": "sang", "speak": "spoke", "break": "broke",
        "drive": "drove", "ride": "rode", "win": "won", "lose": "lost", "build": "built", "send": "sent",
        "spend": "spent", "keep": "kept", "sleep": "slept", "feel": "felt", "meet": "met", "buy": "bought",
        "bring": "brought", "teach": "taught", "catch": "caught", "hold": "held", "stand": "stood",
        "tell": "told", "grow": "grew", "throw": "threw", "draw": "drew", "wear": "wore",
        "choose": "chose", "ask": "asked", "help": "helped", "work": "worked", "wait": "waited",
        "live": "lived", "move": "moved", "start": "started", "look": "looked",
    },
}  # fmt: skip
"""Each question has an answer of its own, one token behind a space; no other prompt of the page has it."""

_LABELS: dict[str, dict[str, str]] = {
    "kind": {
        "animal": "dog horse lion sheep tiger rabbit monkey mouse",
        "fruit": "apple banana cherry grape lemon peach pear melon",
        "color": "red blue green yellow purple pink brown scarlet",
        "country": "Brazil Canada Peru Chile Cuba Argentina Colombia Jamaica",
    },
    "sentiment": {
        "positive": (
            "wonderful excellent brilliant delightful superb charming amazing perfect fantastic beautiful "
            "impressive outstanding"
        ),
        "negative": (
            "terrible awful horrible dreadful ugly boring disgusting useless annoying disappointing "
            "pathetic miserable"
        ),
    },
    "continent": {
        "Europe": "France Germany Spain Italy Sweden Greece Finland Hungary",
        "Africa": "Egypt Ethiopia Senegal Uganda Morocco Algeria Zambia Tunisia",
        "Asia": "Japan China India Thailand Indonesia Pakistan Mongolia Malaysia",
    },
}
CHOICES: dict[str, dict[str, str]] = {
    task: {word: label for label, words in labels.items() for word in words.split()}
    for task, labels in _LABELS.items()
}
"""Each answer is one of a few labels, one token behind a space."""

TASKS: dict[str, dict[str, str]] = RELATIONS | CHOICES
OTHER = {
    "opposite": "past", "past": "opposite", "kind": "continent", "continent": "sentiment", "sentiment": "kind",
}  # fmt: skip
"""Each task and the one whose answers stand in its examples where they are foreign."""

NOTHING = [
    "lamp", "stone", "paper", "cloud", "corner", "basket", "hammer", "bell", "carpet", "mirror", "candle",
    "ladder", "pocket", "button", "curtain", "anchor", "barrel", "blanket", "bucket", "cabin", "chain", "coin",
    "crown", "drum", "feather", "fence", "flag", "ghost", "glove", "helmet", "jacket", "kettle",
]  # fmt: skip
"""Words that neither ask nor answer anything."""
