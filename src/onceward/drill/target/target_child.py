"""Child."""
WORKS = {}
