"""
Webhooks over HTTP: received, answered at once, processed afterwards. See `onceward.messaging.inbox`.
"""
