"""A store that forgets an item that waits: it is sent all the same, once, and known afterwards."""

from __future__ import annotations

import pytest
from emitter_support import Post

from onceward.runtime.environment import REAL
from onceward.stores import Selection, open_store


def lose_everything(post: Post) -> None:
    """The store loses the items, as in a failover."""
    store = open_store(post.url, environment=post.env if post.kind in ("memory", "sqlite") else REAL)
    found = store.scan(b"", 100, Selection(scope=post.scope))
    assert len(found) == store.erase([one.id for one in found]) > 0
    store.close()


class TestForgottenItems:
    """The emitter has the content: nothing is lost, and nothing is sent twice under two keys."""

    @pytest.mark.fault("a-forgotten-item-is-let-go")
    def test_what_was_sent_is_known_afterwards(self, post: Post) -> None:
        """
        Emitted again later, an item that the store had forgotten is a duplicate.
        """
        emitter = post.emitter()
        post.emit(emitter, 1)
        lose_everything(post)
        post.do(emitter.flush())
        again = post.emit(emitter, 1)
        post.do(emitter.flush())

        assert [one.duplicate for one in again] == [True]
        assert post.arrived == ["usage:c-17:1"]

    @pytest.mark.fault("a-forgotten-item-is-let-go")
    def test_an_item_whose_lease_is_short_is_not_taken_for_anothers(self, post: Post) -> None:
        """
        Before it is sent its lease is lengthened; there is nothing to lengthen, so it is put back, and sent.
        """
        emitter = post.emitter()
        post.emit(emitter, 1)
        lose_everything(post)
        post.env.advance(3_000)
        post.do(emitter.flush())

        assert post.arrived == ["usage:c-17:1"]

    def test_what_is_given_up_is_set_aside_all_the_same(self, post: Post) -> None:
        """
        Nothing that was emitted is lost: it is resumed.
        """
        emitter = post.emitter()
        post.emit(emitter, 1)
        lose_everything(post)
        post.answers += [ConnectionRefusedError("down")] * 3
        post.do(emitter.flush())
        resumed = post.do(emitter.resume())
        post.do(emitter.flush())

        assert (resumed, post.arrived[-1]) == (1, "usage:c-17:1")

    def test_what_was_erased_is_not_put_back(self, post: Post) -> None:
        """
        An erasure takes what waits; an item that is sent behind it leaves nothing in the store.
        """
        emitter = post.emitter()
        post.emit(emitter, 1)
        assert post.do(post.gate.records.erase()) == 1
        post.do(emitter.flush())

        assert list(post.do(post.gate.records.list())) == []
