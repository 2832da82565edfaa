"""Computes the bits of a subscription in RocketMQ's Bloom filter, for `consumerFilter.json`.

The bits of a group and topic are derived from the Murmur3 hash of `group#topic`. The filter is for
32 subscriptions with an error rate of 20 %: 112 bits, 3 hashes. A broker ignores the file if a bit
differs. Source: `BloomFilter`, Guava's `Hashing.murmur3_128`.
"""

BITS, HASHES = 112, 3
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def bit_positions(group: str, topic: str) -> list[int]:
    """Return the positions of the bits of a subscription."""
    hashed = murmur3(f"{group}#{topic}".encode())
    low, high = _int32(hashed), _int32(hashed >> 32)
    sums = (_int32(low + n * high) for n in range(1, HASHES + 1))
    return [(~each if each < 0 else each) % BITS for each in sums]


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 (x64, 128 bits, seed 0), unsigned."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = (int.from_bytes(data[n : n + 8], "little") for n in (at, at + 8))
        h1 = (_rotated(h1 ^ _mixed(k1, _C1, 31, _C2), 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 = (_rotated(h2 ^ _mixed(k2, _C2, 33, _C1), 31) + h1) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    h2 ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    h1 ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _finished(h1) + _finished(h2) & _MASK


def _mixed(word: int, first: int, turn: int, second: int) -> int:
    return _rotated(word * first & _MASK, turn) * second & _MASK


def _rotated(word: int, turn: int) -> int:
    word &= _MASK
    return (word << turn | word >> 64 - turn) & _MASK


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
