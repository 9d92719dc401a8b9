"""
Pictures for the pages, each made of something that can be asked: the rules, a run, a file of measurements.

    canvas.py          boxes, arrows and text as SVG, for light and dark, with words for those who do not see it
    life_of_a_key.py   every legal move, tried on the rules themselves
    keyed_request.py   one keyed request and its retry through the real middleware, as its parts were called
    guarantee.py       which guarantee: the questions of the page, and what the rules do after a crash
    crashes.py         processes killed at each point of an operation: what the record says, what the next caller gets
    failover.py        a primary killed under load, from docs/images/data/failover.json

`make pictures` draws them; a test holds that those in docs/images are what this makes.
"""
