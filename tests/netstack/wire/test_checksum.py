from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.netstack.wire.checksum import checksum, fold, ones_sum, ones_sum_of, pseudo_sum
from juneau.testing.packets import internet_checksum, pseudo_header


def test_rfc_1071_example():
    assert ones_sum(bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"\xff\xff", b"\xff\xff\xff\xff", b"\x01", b"\xff\xfe\x00\x01"]
)
def test_edges_agree_with_the_plain_way(data: bytes):
    assert checksum(data) == internet_checksum(data)


@given(st.binary(max_size=300))
def test_agrees_with_the_plain_way(data: bytes):
    assert checksum(data) == internet_checksum(data)
    assert checksum(memoryview(data)) == internet_checksum(data)


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_pieces_of_any_length_sum_like_the_whole(pieces: list[bytes]):
    assert ones_sum_of(pieces) == ones_sum(b"".join(pieces))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from([6, 17]), st.integers(0, 65_515))
def test_pseudo_header(src: int, dst: int, proto: int, length: int):
    assert pseudo_sum(src, dst, proto, length) == ones_sum(pseudo_header(src, dst, proto, length))


def test_folding_keeps_zero_apart_from_its_other_representation():
    assert fold(0) == 0
    assert fold(0xFFFF) == fold(2 * 0xFFFF) == 0xFFFF
