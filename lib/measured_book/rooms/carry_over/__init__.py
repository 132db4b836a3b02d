"""The chapter *What carries over*: findings of small models, asked of a real one."""
