"""Claims, rules declared beforehand, verdicts and records."""
