"""
Messages and events that leave or arrive at least once, and have one effect.

    emitter     collects items, and sends them in batches on a cadence
    outbox      messages written in the caller's transaction, and the relay that delivers them
    inbox       webhooks, stored when they arrive and processed once
    webhooks    signatures, and which addresses may be called: below outbox and inbox

May import: _core, runtime, stores, gate, retry; inbox also http. Emitter stands alone. The gate imports
`outbox.message`, `.tables`, `.message_writer` and `.outbox`: so these import no gate, and this file imports nothing.
Start reading with `outbox/outbox_async.py` and `outbox/relay.py` for what leaves, `inbox/event_receiver.py` for what
arrives.
"""
