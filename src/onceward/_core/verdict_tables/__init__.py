"""
What is known of each library's failures: tables from a type's qualified name to a verdict, one module per family.

A type is found by its name along its MRO, so no library is imported here, and one that is not installed costs nothing.
An entry is a verdict, or a rule that looks closer: it is given the error and a function that judges another one (the
error that it wraps), and returns None if it cannot tell.
"""
