"""The rooms of the chapters: what each measures, draws, claims and asks."""
