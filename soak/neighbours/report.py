"""What came of it, in words."""

from __future__ import annotations

from soak.neighbours.outcome import Outcome, Round
from soak.neighbours.tenants import is_attacker

SHOWN = 5


def say(round: Round) -> None:
    """One round, when it is over."""
    cpu = ", ".join(f"{name} {used:.1f}" for name, used in round.cpu.items())
    print(
        f"{round.kind:7} {round.answers:5} answers  failed {len(round.failures):3}  p50 {1000 * round.p50:7.1f} ms  "
        f"p99 {1000 * round.p99:8.1f} ms  max {1000 * round.most:8.1f} ms  "
        f"memory {round.memory.parent:.0f} + {round.memory.workers:.0f} MB  processor seconds: {cpu}",
        flush=True,
    )


def report(outcome: Outcome) -> None:
    """Everything, at the end."""
    print()
    for name, heard in sorted(outcome.heard.items()):
        if is_attacker(name):
            print(f"  {name} heard: " + ", ".join(f"{many} x {what}" for what, many in heard.most_common()))
    for name, use in sorted(outcome.uses.items()):
        print(f"  {name}: {use.cpu_seconds:.2f} processor seconds on its account, refused {use.refused} times")
    for one in outcome.failures[:SHOWN]:
        print(f"  failed: {one}")
    for wrong in outcome.wrong_accounts:
        print(f"  account: {wrong}")
    if outcome.effects is not None:
        for kind, found in outcome.effects._asdict().items():
            if found:
                print(f"  {kind} {len(found)}, such as {', '.join(found[:SHOWN])}")
    memory, bounded = outcome.memory, "bounded" if outcome.memory.holds else "GROWING"
    print(
        f"memory of the service, first and last third: {memory.first.parent:.0f} -> {memory.last.parent:.0f} MB, "
        f"at most {memory.most.parent:.0f} + {memory.most.workers:.0f} MB: {bounded}"
    )
    judged = f"at most {outcome.ratio_max:g}" if outcome.ratio_max else "not judged"
    print(
        f"p99 beside attackers over p99 beside honest neighbours: {', '.join(f'{one:.2f}' for one in outcome.ratios)}; "
        f"median {outcome.ratio:.2f}, {judged}"
    )
    print(f"failed={len(outcome.failures)} lost={outcome.lost} doubled={outcome.doubled}")
    print("held" if outcome.holds else "DID NOT HOLD")
