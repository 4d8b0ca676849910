"""What a source contributes to the slots of a query (queries.md, section 4)."""

from .encoding import Refused


def places_in(plan, schema):
    """Section 4.5: the places of the plan's columns in the source's schema."""
    places = []
    for name, divisor, *_ in plan.columns:
        field = schema.field(name)
        if field is None:
            raise Refused("UnknownColumn")
        if field.kind >= 8 or field.nullable:
            raise Refused("NotExact")
        if field.divisor != divisor:
            raise Refused("DivisorMismatch")
        places.append(schema.fields.index(field))
    return places


def holds(tree, numerators):
    if type(tree[0]) is int:
        value, low, high = numerators[tree[0]], tree[1], tree[2]
        return (low is None or low <= value) and (high is None or value <= high)
    truths = [holds(operand, numerators) for operand in tree[1]]
    return {"NOT": not truths[0], "AND": all(truths), "OR": any(truths)}[tree[0]]


def group_of(plan, numerators):
    """The number of the group of a reading that matches, or None."""
    if numerators is None or plan.steps and not holds(plan.tree(), numerators):
        return None
    if plan.groups is None:
        return 0
    column, values = plan.groups
    return values.index(numerators[column]) if numerators[column] in values else None


def contribution(plan, schema, record, noise=None):
    """The contribution of a source to each slot. `record` is None without a reading."""
    places, numerators = places_in(plan, schema), None
    if plan.epsilon and noise is None:
        raise Refused("NoiseMissing")
    if record is not None:
        values = schema.values(record)
        numerators = [values[place][0] for place in places]
    group = group_of(plan, numerators)
    counted = group is not None and all(plan.columns[at][2] <= numerators[at] <= plan.columns[at][3] for at in plan.summed)
    contributed, number = [], 0
    for slot in plan.slots():
        if slot.kind == "counters":
            integer = 0
            for place, field in enumerate(slot.fields):
                value = of_field(plan, field, number, numerators, noise) if counted and field.group == group else 0
                value += noise.added(number, field.scale) if plan.epsilon else 0
                integer += value << place * plan.counter_bits
                number += 1
        else:
            here = group == slot.group
            numerator = numerators[slot.column] if here and counted and slot.column is not None else 0
            if here and counted:
                integer = {"counts": 0, "sum": numerator - slot.shift, "squares": numerator**2}[slot.kind]
            else:
                integer = -slot.shift
            if here and slot.first:
                integer += 1 << 56 if counted else 1 << 76
        contributed.append(integer)
    return contributed


def of_field(plan, field, number, numerators, noise):
    """What a counted reading of the field's group adds to the field."""
    if field.kind == "readings":
        return 1
    numerator = numerators[field.column]
    if field.kind == "steps":
        return noise.steps(number, numerator, *plan.columns[field.column][2:])
    return int(plan.bin_of(field.column, numerator) == field.bin)
