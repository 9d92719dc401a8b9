"""
HTTP, server side: what every middleware shares. The middlewares themselves are `onceward.http.asgi`, `.wsgi` and
`.django`; they move bytes, and decide nothing.

    profile, routes         the options of an API, and of single paths
    request_admission       keyed, refused, or passed through: decided before anything runs. Start reading here
    keyed_exchange_async    one keyed request: who is calling, the body, the fingerprint
    push_exchange           ... whose handler runs inside the gate (ASGI, async Django)
    pull_exchange           ... whose response the server pulls piece by piece (WSGI, Django's streams)
    handler_run             how the handler ended, and what the client gets
    handler_outcomes        which response settles, releases or leaves a key in doubt
    response_recorder       keeps a response while it is sent
    problems                refusals as problem+json

May import: _core, runtime, gate. No framework, except that django_*.py import Django.
"""
