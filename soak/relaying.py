"""
A relay that is killed: `python -m soak.relaying --url URL --to ADDRESS`. It says on stdout that it is ready.

Patience is short here, so that a soak of minutes sees many leases run out and many tries fail.
"""

from __future__ import annotations

import argparse
import json
import signal

from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.relay import Relay

ENDPOINT = "receiver"
SECRET = "whsec_" + "c29hay1zb2FrLXNvYWstc29hay1zb2FrLXNvYWsh"
SECONDS = 3.0
"""For one try; a lease is that and the margin."""


def main() -> None:
    """Deliver until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--port", help="a relay listens on none")
    asked = parser.parse_args()
    port = int(asked.to.rpartition(":")[2])
    endpoint = HttpEndpoint(
        f"{asked.to}/hooks",
        secrets=[SECRET],
        allow_http=True,
        allow_private=["127.0.0.1/32"],
        ports=[port],
        seconds=SECONDS,
        connect_seconds=1.0,
    )
    with Relay(asked.url, {ENDPOINT: endpoint}, schedule=[0.5] * 100, margin=2.0, idle=0.1, recovery=0.5) as relay:
        signal.signal(signal.SIGTERM, lambda *_: relay.stop())
        print(json.dumps({"address": "http://127.0.0.1:0"}), flush=True)
        relay.run()


if __name__ == "__main__":
    main()
