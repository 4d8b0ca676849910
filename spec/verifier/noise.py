"""The noise of private sums (sums.md, section 2.4)."""

import bisect
import functools
import math
import struct

from .sums import chacha20_block


ONE = 1 << 60


def alpha_of(epsilon, parts, scale):
    """Rule 5, in units of 2^-32."""
    y = epsilon * ONE // (1000 * parts * scale)
    total, term = 0, ONE
    for k in range(1, 64):
        total += term if k % 2 else -term
        term = (term * y // ONE) // k
    return min((total + 64) // (1 << 28) + 1, (1 << 32) - 1)


def power(x, h):
    result = 1 << 62
    while h > 0:
        if h % 2:
            result = result * x >> 62
        x = x * x >> 62
        h //= 2
    return result


def zero_of(alpha, h):
    """Rule 6: the probability of the number 0, in units of 2^-88."""
    most = ((1 << 32) - alpha) << 30
    low, high = 0, 1 << 62
    # power(low) is not above `most`; `high` is 2^62, or its power is above `most`.
    while high - low > 1:
        middle = (low + high) // 2
        if power(middle, h) <= most:
            low = middle
        else:
            high = middle
    return low << 26


@functools.lru_cache(maxsize=64)
def thresholds(alpha, h, bound):
    """Rule 7: the sums `c`, which do not decrease."""
    sums, p, c = [], zero_of(alpha, h), 0
    for x in range(bound):
        c += p
        sums.append(c)
        p = p * alpha >> 32
        p = p * (x * h + 1) // ((x + 1) * h)
    return sums


def number(u, alpha, h, bound):
    """Rule 7: how many of the sums are not above `u`."""
    return bisect.bisect_right(thresholds(alpha, h, bound), u)


class Noise:
    """The noise of a source for an epoch of a query. `ring` is the number of sources in its key group."""

    def __init__(self, plan, key, epoch, ring):
        self.plan, self.key, self.epoch, self.h = plan, key, epoch, -(-ring // 2)

    def words(self, field):
        return struct.unpack("<16I", chacha20_block(self.key, field, bytes(4) + struct.pack("<Q", self.epoch)))

    def added(self, field, scale):
        """Rule 8: what is added to the field of this number."""
        words, bound = self.words(field), self.plan.bound(scale)
        alpha = alpha_of(self.plan.epsilon, self.plan.parts, scale)
        a, b = ((w[0] + (w[1] << 32) + (w[2] << 64)) % (1 << 88) for w in (words[:3], words[3:6]))
        return bound + number(a, alpha, self.h, bound) - number(b, alpha, self.h, bound)

    def steps(self, field, numerator, low, high):
        """Rule 9."""
        words, span = self.words(field), max(1, high - low)
        rest = (words[6] + (words[7] << 32)) * span >> 64
        return (32 * (numerator - low) + rest) // span


def within(plan, scale, participants, ring):
    """Rule 10: the distance within which a field is with a probability of about 95 %."""
    alpha = alpha_of(plan.epsilon, plan.parts, scale)
    groups = -(-participants // ring)
    square = 4 * groups * alpha * (1 << 32) * 50176 // (((1 << 32) - alpha) ** 2 * 10000)
    return 1 + math.isqrt(square)
