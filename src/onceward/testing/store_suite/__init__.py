"""
One suite for every store, in both colours: a store is done when it passes.

    pytest --pyargs onceward.testing.store_suite --store sqlite://
    pytest --pyargs onceward.testing.store_suite --store 'memory://,sqlite:///{tmp}/store.db'
    pytest --pyargs onceward.testing.store_suite --store-factory my_package.testing:CANDIDATE

To have it run with your own tests, import it into a module of them and say which stores:

    from onceward.testing.store_suite.suite import *

    STORES = ("sqlite://",)         # URLs, or instances of Candidate

Every test gets an empty store. A test does not know its colour: `do` brings an answer home from either.
"""

from onceward.testing.store_suite.candidates import Candidate, NetworkLine, TcpLine, tcp_line

__all__ = ["Candidate", "NetworkLine", "TcpLine", "tcp_line"]
