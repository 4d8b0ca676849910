"""Policies of private sums (policy.md)."""

from .broadcast import key_id
from .encoding import Refused, array, byte_string, decode, optional, out_of_range, sint, text, uint, version_one
from .plans import STDDEV, VARIANCE
from .signed import POLICY, signed


DAY_MS = 86_400_000


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
        key, trust, epoch_ms, budget, columns = array(querier, 5)
        byte_string(key, 8), out_of_range(uint(trust) > 1), uint(epoch_ms, 32), uint(budget, 32)
        named = {}
        for place, column in enumerate(array(columns)):
            name, divisor, low, high = array(column, 4)
            text(name), uint(divisor, 32)
            optional(low, sint), optional(high, sint)
            out_of_range((low is None) != (high is None) or name in named or not 1 <= len(name.encode()) <= 64 or divisor == 0)
            out_of_range(low is None and not trust or low is not None and low > high)
            named[name] = divisor, low, high
        out_of_range(len(named) > 16 or not 1000 <= epoch_ms <= 7 * DAY_MS or trust and budget != 0)
        out_of_range(any(key == other or trust != trusted for other, trusted, *_ in read))
        read.append((key, trust, epoch_ms, budget, named))
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
    """Section 3, of a source with a policy: how it answers. With noise, also the budget; None if no budget applies.

    `ring` is the size of the source's key group, or None if it has no masks.
    """
    _, _, _, least, least_squares, queriers = policy
    terms = next((terms for terms in queriers if terms[0] == key_id(querier)), None)
    if terms is None:
        raise Refused("QuerierNotPermitted")
    _, trust, epoch_ms, budget, named = terms
    is_exact = plan.epsilon == 0
    if plan.epoch_ms < epoch_ms or (not trust and is_exact and plan.epoch_ms > epoch_ms):
        raise Refused("EpochNotPermitted")
    for name, divisor, *ends in plan.columns if named or not trust else []:
        if name not in named or named[name][0] != divisor:
            raise Refused("ColumnNotPermitted")
        if is_exact and ends and named[name][1] is not None and tuple(ends) != named[name][1:]:
            raise Refused("RangeNotPermitted")
    if trust and is_exact:
        return "plain"
    if is_exact and (plan.steps or plan.groups or plan.bins):
        raise Refused("ConditionNotPermitted")
    if is_exact and len(plan.summed) > 1:
        raise Refused("ColumnsCombined")
    if not is_exact and not trust and plan.epsilon > budget:
        raise Refused("BudgetTooSmall")
    if ring is None:
        raise Refused("NoMasks")
    if ring < (least_squares if plan.with_item(VARIANCE, STDDEV) else least):
        raise Refused("GroupTooSmall")
    return "masked" if is_exact else {"noisy": None if trust else budget}


def policy_charge(day, spent, start_ms, epsilon, budget):
    """Section 4: the day and the sum of the epsilons after an answer for the epoch that begins at `start_ms`."""
    if start_ms // DAY_MS > day:
        day, spent = start_ms // DAY_MS, 0
    if spent + epsilon > budget:
        raise Refused("BudgetSpent")
    return day, spent + epsilon
