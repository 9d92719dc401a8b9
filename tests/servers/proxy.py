"""The TCP proxy that loses things on purpose: the one that comes with the package."""

from onceward.testing.proxy import Proxy

__all__ = ["Proxy"]
