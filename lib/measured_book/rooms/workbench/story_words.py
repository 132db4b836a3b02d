"""Words that small stories are made of, and the simple facts that hold in all of them."""

from __future__ import annotations

GIRLS = (
    *("Mia", "Anna", "Lily", "Emma", "Nora", "Rosa", "Ella", "Ruth", "Clara", "Lucy", "Maya", "Zoe"),
    *("Ida", "Jane", "Molly", "Sara", "Tess", "Vera", "Alice", "Grace"),
)  # fmt: skip
BOYS = (
    *("Tom", "Ben", "Max", "Leo", "Sam", "Paul", "Finn", "Jack", "Otto", "Peter", "Hugo", "Noah"),
    *("Adam", "Carl", "Dan", "Eric", "Felix", "Oscar", "Theo", "Will"),
)  # fmt: skip
STARTS = ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
VOWELS = ("a", "e", "i", "o", "u")
ENDS = ("l", "m", "n", "r", "s", "k", "x")

PEOPLE = {
    "girl": "she", "woman": "she", "queen": "she", "princess": "she", "witch": "she",
    "boy": "he", "man": "he", "king": "he", "prince": "he", "wizard": "he",
    "farmer": "he", "baker": "she", "doctor": "she", "teacher": "he", "sailor": "he", "painter": "she",
}  # fmt: skip
"""Kinds of people, and the pronoun of each."""

PLACES = {
    "kitchen": "in", "garden": "in", "forest": "in", "school": "at", "market": "at", "river": "at",
    "beach": "on", "farm": "on", "hill": "on", "castle": "in", "library": "in", "barn": "in",
    "park": "in", "village": "in", "bakery": "in", "harbour": "at", "bridge": "on", "tower": "in",
    "cave": "in", "station": "at", "bedroom": "in", "shop": "in", "lake": "at", "mill": "at",
}  # fmt: skip
"""Places, and the preposition of each."""

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "pink", "grey")
THINGS = {
    "ball": "balls", "box": "boxes", "key": "keys", "cup": "cups",
    "hat": "hats", "book": "books", "coat": "coats", "lamp": "lamps",
    "spoon": "spoons", "kite": "kites", "drum": "drums", "bell": "bells",
    "boat": "boats", "coin": "coins", "ring": "rings", "stone": "stones",
    "shell": "shells", "letter": "letters", "basket": "baskets", "button": "buttons",
    "pencil": "pencils", "blanket": "blankets", "ladder": "ladders", "mirror": "mirrors",
    "candle": "candles", "rope": "ropes", "bag": "bags", "bottle": "bottles",
    "knife": "knives", "brush": "brushes", "flag": "flags", "chair": "chairs",
    "feather": "feathers", "map": "maps", "pot": "pots", "shoe": "shoes",
    "scarf": "scarves", "wheel": "wheels", "toy": "toys", "clock": "clocks",
}  # fmt: skip
"""Things, and the plural of each."""

OPPOSITES = (
    ("big", "small"), ("old", "new"), ("hot", "cold"), ("wet", "dry"), ("full", "empty"),
    ("heavy", "light"), ("clean", "dirty"), ("long", "short"), ("hard", "soft"), ("open", "closed"),
    ("fast", "slow"), ("strong", "weak"), ("happy", "sad"), ("good", "bad"), ("loud", "quiet"),
    ("rich", "poor"), ("bright", "dark"), ("thick", "thin"), ("high", "low"), ("early", "late"),
)  # fmt: skip
OF_THINGS = 10
"""So many of the first pairs are said of things."""

# Name, plural, sound, food, home, young.
ANIMALS = (
    ("cat", "cats", "meow", "fish", "house", "kitten"),
    ("dog", "dogs", "woof", "meat", "house", "puppy"),
    ("cow", "cows", "moo", "grass", "barn", "calf"),
    ("sheep", "sheep", "baa", "grass", "field", "lamb"),
    ("duck", "ducks", "quack", "bread", "pond", "duckling"),
    ("horse", "horses", "neigh", "hay", "stable", "foal"),
    ("pig", "pigs", "oink", "corn", "sty", "piglet"),
    ("frog", "frogs", "croak", "flies", "pond", "tadpole"),
    ("lion", "lions", "roar", "meat", "jungle", "cub"),
    ("mouse", "mice", "squeak", "cheese", "hole", "pup"),
    ("owl", "owls", "hoot", "mice", "tree", "owlet"),
    ("bee", "bees", "buzz", "honey", "hive", "larva"),
    ("goat", "goats", "bleat", "leaves", "field", "kid"),
    ("hen", "hens", "cluck", "seeds", "coop", "chick"),
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
)  # fmt: skip
LIKE = (
    ("grass", "green"), ("snow", "white"), ("the night", "black"), ("blood", "red"), ("milk", "white"),
    ("the sky", "blue"), ("coal", "black"), ("a lemon", "yellow"), ("a leaf", "green"), ("the sea", "blue"),
    ("chocolate", "brown"), ("a strawberry", "red"), ("a banana", "yellow"), ("an elephant", "grey"),
)  # fmt: skip
WORK = (
    ("baker", "bakes", "bread"), ("farmer", "grows", "corn"), ("teacher", "teaches", "children"),
    ("painter", "paints", "pictures"), ("doctor", "helps", "sick people"), ("sailor", "sails", "ships"),
    ("tailor", "makes", "coats"), ("cook", "cooks", "soup"), ("writer", "writes", "books"),
    ("fisher", "catches", "fish"), ("singer", "sings", "songs"), ("builder", "builds", "houses"),
)  # fmt: skip

# What happens, and what follows from it; "N" is a person, "he" the pronoun.
CAUSES = (
    ("N was hungry", "N ate some bread"), ("N was thirsty", "N drank some water"),
    ("N was tired", "N went to bed"), ("N was cold", "N put on a coat"),
    ("it rained all day", "the road was wet"), ("the sun shone", "the grass was dry"),
    ("the wind was strong", "the door fell shut"), ("it snowed at night", "the hill was white"),
    ("the fire went out", "the room was cold"), ("N fell down", "N began to cry"),
    ("N heard a joke", "N began to laugh"), ("N was ill", "the doctor came"),
    ("it was dark", "N lit a candle"), ("the cup fell", "the cup broke"),
    ("N ran very fast", "N won the race"), ("N forgot the key", "the door stayed closed"),
    ("N watered the seeds", "the flowers grew"), ("N told a lie", "nobody believed N"),
    ("N was kind", "everybody liked N"), ("the ice was thin", "N did not walk on it"),
)  # fmt: skip

# Singular and plural of verbs that need no object.
VERBS = (
    ("runs", "run"), ("sings", "sing"), ("sleeps", "sleep"), ("waits", "wait"), ("laughs", "laugh"),
    ("jumps", "jump"), ("dances", "dance"), ("swims", "swim"), ("hides", "hide"), ("plays", "play"),
    ("works", "work"), ("walks", "walk"),
)  # fmt: skip
FEELINGS = ("happy", "sad", "tired", "proud", "angry", "glad")
WEATHER = ("sunny", "rainy", "windy", "cold", "warm", "snowy")
