"""
HTTP, client side: what every transport shares. The transports themselves are `onceward.http.httpx`, `.httpx2` and
`.requests`.

    request_preparer        the key of a request, and whether and how it may be retried. Start reading here
    request_sender_async    one request and all its attempts
    responses               replays, rate limits and error codes, read from a response
    credentials             which environment a credential is for: live or test
    httpx_*                 the transports for httpx and httpx2, written once
    dead_letter_sender      sends a request of a dead letter again

May import: _core, runtime, gate, retry. No HTTP library.
"""
