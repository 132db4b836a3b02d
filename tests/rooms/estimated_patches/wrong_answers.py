"""Mistakes in the exercise on attribution patching."""

WRONG = {
    "estimated_patches.guessed": {
        "the new vector": (
            lambda own, other, gradient: (other * gradient).sum(1),
            "by how much the vector changes",
        ),
        "the wrong way": (
            lambda own, other, gradient: ((own - other) * gradient).sum(1),
            "leads from",
        ),
        "lengths": (
            lambda own, other, gradient: (other - own).norm(dim=1) * gradient.norm(dim=1),
            "another number",
        ),
    },
}
