"""The same for a function of yours."""
