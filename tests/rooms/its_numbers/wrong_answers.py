"""Mistakes in the exercises on its numbers."""


def _stepped(*, more=0, whole=False, zero=False, shifted=False):
    def stepped(values, bits):
        least, largest = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
        if whole:
            least, largest = values.amin(), values.amax()
        if zero:
            least = 0 * least
        step = (largest - least) / (2**bits - 1 + more)
        found = step * ((values - least) / step).round()
        return found if shifted else least + found

    return stepped


def _draft(*, first=False, last=False, at=False, short=False):
    def draft(tokens, length):
        wanted = tokens[-1:] if short else tokens[-length:]
        size = len(wanted)
        places = [
            i for i in range(size - 1, len(tokens) - 1) if tokens[i - size + 1 : i + 1] == wanted
        ]
        if not places:
            return tokens[-1] if last else -1
        place = places[0] if first else places[-1]
        return tokens[place] if at else tokens[place + 1]

    return draft


WRONG = {
    "its_numbers.bits_and_bytes": {
        "no scales": ((4, 23040), "take room"),
        "one scale": ((4.5, 23040), "two numbers"),
        "nine heads": ((5, 69120), "share three"),
        "keys alone": ((5, 11520), "keys and values"),
        "one block": ((5, 768), "of its own"),
    },
    "its_numbers.stepped": {
        "one step more": (_stepped(more=1), "one step less"),
        "all rows": (_stepped(whole=True), "its own least"),
        "from zero": (_stepped(zero=True), "not at zero"),
        "shifted": (_stepped(shifted=True), "add the least"),
    },
    "its_numbers.draft": {
        "the first": (_draft(first=True), "latest earlier place"),
        "always one": (_draft(last=True), "no draft: -1"),
        "at the place": (_draft(at=True), "should be 8"),
        "one token": (_draft(short=True), "must match"),
    },
}
