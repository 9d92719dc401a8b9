"""
The transactional outbox: a message is written in the transaction of the effect that it tells of, and a relay delivers
it at least once, under the same id every time.
"""
