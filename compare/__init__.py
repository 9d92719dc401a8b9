"""
The same questions, asked of Onceward and of its peers, and a page made of what they answered.

`make compare` installs the peers' named versions into an environment of their own (the one of `bench`), asks each
question of each peer, writes what was seen to `compare/results.json`, and makes
`docs/explanation/compared-with-peers.md` of it. Start with `questions/__init__.py` (what a question is), then
`adapters/__init__.py` (how a peer is called). An answer is data: effects counted in a file, what callers got, how much
was installed. Sentences are made of that data by a rule in the question's own file, so another result is another
sentence. It imports `bench` and the tests' servers; nothing imports it but its tests.
"""
