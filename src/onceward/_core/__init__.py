"""
Every rule of Onceward, and nothing that acts: no I/O, no clock, no randomness, no threads.

A rule that needs something done yields it (an effect of `flow.py`) and is sent the result. `onceward.runtime` drives
these generators, blocking or awaiting, so both colours of the product follow one text, and a test can stop it anywhere.

It imports the parts of the standard library that compute, and itself. `tests/house/test_layers.py` holds it to that.

To read it in an hour, in this order:

1. The life of a key: `record_types`, then `record`, which has the picture and every rule about states. After it
   `holders`, `events`, `terms`, `store_protocols` (with `store_async`) and `capabilities`.
2. The flows, which say what happens between two effects: `flow`, `operation`, `operation_flow`, `finish_flow`,
   `dead_holder_flow`; `atomic_flow` with `caller_transaction_async`; `settle_inside_flow`, `sequence_flow`,
   `unrun_results`, `first_call`.
3. Failures: `base_error`, `errors`, `edge_errors`, `advice` (what their messages say); `verdict`, `classifier` and
   `verdict_tables/` (what a failure proves); `retry_headers` and `structured_fields`.
4. Retries: `retry_flow`, `backoff`, `stops`, `attempt_history`, `circuit`, `token_bucket`, `shared_state`,
   `resilience`.
5. Other records in the same store: `dead_letters` with `sent_request`, `spool`, `erasure_marks`.
6. Keys, requests and results: `keys`, `key_recipes`, `key_ingredients`, `key_lint`, `key_derivation`,
   `tool_call_keys`, `downstream_keys`; `fingerprint`, `canonical`, `canonical_writer`, `plain_values`, `strict_json`;
   `codec`, `result_restorer`, `reply`.

`durations` and `display_text` are small helpers. `colour` says which half of a pair a text is (see `tools/halves.py`).
"""
