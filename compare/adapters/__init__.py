"""
How each peer is called: one file each, as its own documentation shows it, and nothing that mends it.

A module has `make(place, work)`, which gives an `Adapter` (`compare.place`), or what its kind of question says. What
a user would add to a program of their own stands between the two comments `# what a user adds` and `# until here`;
those lines are counted (question `lines`).
"""
