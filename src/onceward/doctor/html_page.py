"""
The report as one page to hand round: no script, nothing loaded from anywhere, light and dark, and it can be printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from onceward._core.display_text import escape_invisible
from onceward.doctor.box import BoxState
from onceward.doctor.examination import Examined
from onceward.doctor.key_sentences import KeySentence
from onceward.doctor.report import by_group, empty_boxes, verdict

PLACES_MAX: Final = 50
"""Of one box, on the page."""

_WORDS: Final = {
    BoxState.FILLED: "evidence",
    BoxState.STATED: "stated",
    BoxState.IDLE: "does not occur",
    BoxState.EMPTY: "missing",
    BoxState.UNKNOWN: "not known",
}
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #59636e; --paper: #fff; --card: #f6f8fa; --line: #d9dfe5;
  --good: #11633a; --goodbg: #dcf3e4; --bad: #a1210f; --badbg: #fde4df; --ask: #7d4a00; --askbg: #fdeecb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf0; --soft: #a2acb6; --paper: #14181c; --card: #1d2329;
  --line: #363e46; --good: #7fdba3; --goodbg: #12361f; --bad: #ff9d8c; --badbg: #45170f; --ask: #f3c668;
  --askbg: #3d2c08; } }
* { box-sizing: border-box; min-width: 0; overflow-wrap: anywhere; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: .8rem; letter-spacing: .08em; color: var(--soft); margin: 2.25rem 0 .6rem; }
p.sub { margin: 0; color: var(--soft); }
p.verdict { margin: 1.25rem 0 0; padding: .75rem 1rem; border-radius: .5rem; font-weight: 600; }
p.verdict.good { background: var(--goodbg); color: var(--good); }
p.verdict.bad { background: var(--badbg); color: var(--bad); }
ul.boxes, ul.keys { list-style: none; margin: 0; padding: 0; border: 1px solid var(--line); border-radius: .5rem;
  overflow: hidden; }
ul.boxes > li, ul.keys > li { padding: .75rem 1rem; background: var(--card); }
ul.boxes > li + li, ul.keys > li + li { border-top: 1px solid var(--line); }
ul.boxes > li { display: grid; grid-template-columns: 8.5rem 1fr; gap: .25rem 1rem; align-items: start; }
.state { justify-self: start; padding: .05rem .6rem; border-radius: 1rem; font-size: .8rem; font-weight: 600;
  white-space: nowrap; margin-top: .15rem; }
.filled, .stated { background: var(--goodbg); color: var(--good); }
.empty { background: var(--badbg); color: var(--bad); }
.unknown { background: var(--askbg); color: var(--ask); }
.idle { border: 1px solid var(--line); color: var(--soft); }
.box strong { display: block; font-weight: 600; }
.box span { color: var(--soft); }
details { margin-top: .3rem; font-size: .85rem; color: var(--soft); }
summary { cursor: pointer; }
code { font: .85rem/1.5 ui-monospace, monospace; }
.keys small { color: var(--soft); }
@media (max-width: 36rem) { ul.boxes > li { grid-template-columns: 1fr; } }
@media print { body { font-size: 11pt; } main { padding: 0; max-width: none; } li { break-inside: avoid; }
  h2 { break-after: avoid; } .state, p.verdict { border: 1px solid; } details:not([open]) { display: none; }
  summary { list-style: none; } }
"""


def as_page(examined: Sequence[Examined], sentences: Sequence[KeySentence], *, project: str, read: str) -> str:
    """The whole page."""
    title = f"Before production: {_safe(project)}"
    state = "bad" if empty_boxes(examined) else "good"
    groups = "".join(
        f'<section><h2>{_safe(group)}</h2><ul class="boxes">{"".join(map(_box, boxes))}</ul></section>'
        for group, boxes in by_group(examined)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f'<p class="sub">{_safe(read)}</p>\n<p class="verdict {state}">{_safe(verdict(examined))}</p>\n{groups}\n'
        f"{_keys(sentences)}</main>\n</body>\n</html>\n"
    )


def _box(one: Examined) -> str:
    state, places = one.answer.state, one.answer.places
    opened = " open" if state.is_empty else ""
    shown = "".join(f"<br><code>{_safe(str(place))}</code>" for place in places[:PLACES_MAX])
    more = f"<br>and {len(places) - PLACES_MAX} more" if len(places) > PLACES_MAX else ""
    counted = f"{len(places)} place{'s' if len(places) > 1 else ''}"
    where = f"<details{opened}><summary>{counted}</summary>{shown[4:]}{more}</details>"
    return (
        f'<li><span class="state {state.value}">{_WORDS[state]}</span><div class="box">'
        f"<strong>{_safe(one.box.sentence)}</strong><span>{_safe(one.answer.words)}</span>"
        f"{where if places else ''}</div></li>"
    )


def _keys(sentences: Sequence[KeySentence]) -> str:
    if not sentences:
        return ""
    lines = "".join(f"<li>{_safe(one.sentence)}<br><small>{_safe(one.where)}</small></li>" for one in sentences)
    return f'<section><h2>THE KEYS, ONE SENTENCE EACH</h2><ul class="keys">{lines}</ul></section>\n'


def _safe(text: str) -> str:
    """Text of a project may say anything."""
    return escape(escape_invisible(text))
