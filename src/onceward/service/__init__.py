"""
The parts of `onceward serve`. Apps (`sql`, `records`) know nothing of each other and can be mounted anywhere; `access`
(who may call) and `web` (how a call becomes an answer) serve them all; `serving` puts them together.
"""
