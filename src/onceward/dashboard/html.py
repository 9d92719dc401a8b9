"""
HTML that is escaped by construction: text is text, and only `Markup` is markup.

    element("p", "Key ", element("code", key), class_="lead")

A template language would be one more package, and one more place where escaping can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
"""Elements that have no end."""


class Markup(str):
    """Text that is HTML already. Only this module makes it."""

    __slots__ = ()


Content: TypeAlias = "Markup | str | int | float | Iterable[Content] | None"
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, /, *children: Content, **attributes: Attribute) -> Markup:
    """
    An element. Attributes end with `_` where Python has the word (`class_`), and `_` within is a dash.

    An attribute that is True stands alone; one that is False or None is left out.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[Content]) -> Markup:
    """Everything, one after the other."""
    return Markup("".join(_pieces(children)))


def document(head: Content, body: Content, **attributes: Attribute) -> Markup:
    """A whole page."""
    return Markup("<!doctype html>" + element("html", element("head", head), element("body", body), **attributes))


def _pieces(children: Iterable[Content]) -> Iterable[str]:
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str | int | float):
            yield escape(str(child))
        else:
            yield from _pieces(child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
