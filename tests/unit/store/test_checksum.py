"""The checksum of an object: what is read, and how much at once."""

import hashlib

import pytest
from support.builders import Spy

from eventlog.errors import KeyNotFound
from eventlog.store.checksum import object_checksum
from eventlog.store.memory import MemoryStore

BODY = bytes(range(100))


class Pieces(Spy):
    def get(self, key, **bounds):
        self.pieces = [*getattr(self, "pieces", []), bounds["length"]]
        return super().get(key, **bounds)


def stored(body=BODY):
    store = Pieces(MemoryStore())
    assert store.put_if_absent("k", body)
    return store


@pytest.mark.parametrize("piece_bytes", [1, 7, 50, 99, 100, 101, 1000])
def test_an_object_is_hashed_piece_by_piece(piece_bytes):
    store, seen = stored(), []
    found = object_checksum(store, "k", piece_bytes=piece_bytes, watch=seen.append)
    assert found == hashlib.sha256(BODY).hexdigest()
    assert b"".join(seen) == BODY
    assert max(map(len, seen)) <= piece_bytes
    assert len(store.pieces) == 100 // piece_bytes + 1


@pytest.mark.parametrize("body", [BODY, BODY[:-1], BODY + b"!", BODY * 9, b""])
def test_no_more_is_read_than_tells_a_longer_object(body):
    store = stored(body)
    found = object_checksum(store, "k", 101, piece_bytes=40)
    assert found == hashlib.sha256(body[:101]).hexdigest()
    assert sum(store.pieces) <= 101 + 40


def test_an_object_that_is_not_there():
    with pytest.raises(KeyNotFound):
        object_checksum(MemoryStore(), "k")
