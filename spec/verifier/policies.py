"""Policies of private sums (policy.md)."""

from .broadcast import key_id
from .encoding import Refused, array, byte_string, decode, optional, out_of_range, sint, text, uint, version_one
from .signed import POLICY, signed


def policy_decode(payload):
    """Section 1: the payload."""
    version, group, roster, number, least, least_squares, queriers = array(decode(payload), 7)
    version_one(version)
    byte_string(group, 8), byte_string(roster, 32)
    uint(number, 32), uint(least, 32), uint(least_squares, 32)
    array(queriers)
    out_of_range(least < 2 or least_squares < least)
    read = []
    for querier in queriers:
        key, trust, epoch_ms, columns = array(querier, 4)
        byte_string(key, 8), out_of_range(uint(trust) > 1), uint(epoch_ms, 32)
        named = {}
        for place, column in enumerate(array(columns)):
            name, divisor, low, high = array(column, 4)
            text(name), uint(divisor, 32)
            optional(low, sint), optional(high, sint)
            out_of_range((low is None) != (high is None) or name in named or not 1 <= len(name.encode()) <= 64 or divisor == 0)
            out_of_range(low is None and not trust or low is not None and low > high)
            named[name] = divisor, low, high
        out_of_range(len(named) > 16 or not 1000 <= epoch_ms <= 7 * 86_400_000)
        out_of_range(any(key == other or trust != trusted for other, trusted, *_ in read))
        read.append((key, trust, epoch_ms, named))
    out_of_range(len(read) > 8)
    return group, roster, number, least, least_squares, read


def policy_open(data, group, roster, operator):
    """Section 1, the checks of a policy."""
    object = signed(data, POLICY)
    policy = policy_decode(object.payload)
    if policy[0] != group:
        raise Refused("WrongGroup")
    if policy[1] != roster:
        raise Refused("WrongRoster")
    object.verify(operator)
    return policy


def policy_permit(policy, querier, plan, ring):
    """Section 3. Returns whether the source answers with a mask."""
    _, _, _, least, least_squares, queriers = policy
    terms = next((terms for terms in queriers if terms[0] == key_id(querier)), None)
    if terms is None:
        raise Refused("QuerierNotPermitted")
    _, trust, epoch_ms, named = terms
    if plan.epoch_ms < epoch_ms or not trust and plan.epoch_ms > epoch_ms:
        raise Refused("EpochNotPermitted")
    for name, divisor, *ends in plan.columns if named or not trust else []:
        if name not in named or named[name][0] != divisor:
            raise Refused("ColumnNotPermitted")
        if ends and named[name][1] is not None and tuple(ends) != named[name][1:]:
            raise Refused("RangeNotPermitted")
    if trust:
        return False
    if plan.steps:
        raise Refused("ConditionNotPermitted")
    if sum(len(column) == 4 for column in plan.columns) > 1:
        raise Refused("ColumnsCombined")
    if ring is None:
        raise Refused("NoMasks")
    if ring < (least_squares if any(aggregate in (3, 4) for aggregate, _ in plan.items) else least):
        raise Refused("GroupTooSmall")
    return True
