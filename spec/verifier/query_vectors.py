"""The operations of the vectors for queries over many devices (queries.md)."""

import dataclasses

from .contributions import contribution
from .encoding import Refused, optional, unhex
from .noise import Noise
from .plans import plan_decode
from .queries import QueryText
from .results import answer
from .schema import schema_decode


def parse_vector(_case, given):
    plan = QueryText(given["text"], schema_decode(unhex(given["schema"]))).plan()
    assert plan_decode(plan.encode(), any_slots=True) == plan, "what a text gives is a plan"
    return {"plan": plan.encode().hex(), "text": plan.text}


def plan_vector(_case, given):
    plan = plan_decode(unhex(given["bytes"]))
    if not plan.fits(given["sources"]):
        raise Refused("Overflow")
    slots = [
        [slot.kind, None if slot.column is None else plan.columns[slot.column][0], str(slot.vmax), slot.shift, str(slot.most)]
        for slot in plan.slots()
    ]
    return {"text": plan.text, "epoch_ms": plan.epoch_ms, "slots": slots}


def contribution_vector(_case, given):
    plan, schema = plan_decode(unhex(given["plan"])), schema_decode(unhex(given["schema"]))
    return {"values": [str(value) for value in contribution(plan, schema, optional(given["record"], unhex))]}


def noisy_vector(_case, given):
    plan, schema = plan_decode(unhex(given["plan"])), schema_decode(unhex(given["schema"]))
    noise = Noise(plan, unhex(given["key"]), given["epoch"], given["ring"])
    return {"values": [str(value) for value in contribution(plan, schema, optional(given["record"], unhex), noise)]}


def answer_vector(_case, given):
    plan, totals = plan_decode(unhex(given["plan"])), [int(total) for total in given["totals"]]
    return {"groups": answer(plan, totals, given["participants"], given["ring"])}


def fit_vector(_case, given):
    # Before its counter bits are chosen, the plan of a text may have more slots than a plan may have.
    plan = plan_decode(unhex(given["plan"]), any_slots=True)
    if plan.has_fields and not plan.epsilon:
        narrower = (dataclasses.replace(plan, counter_bits=bits) for bits in (12, 16, 20))
        plan = next((narrow for narrow in narrower if narrow.fits(given["sources"])), dataclasses.replace(plan, counter_bits=20))
    return {"plan": plan.encode().hex()}


QUERY_OPERATIONS = {
    "query.parse": parse_vector,
    "query.plan": plan_vector,
    "query.contribution": contribution_vector,
    "query.noisy": noisy_vector,
    "query.answer": answer_vector,
    "query.fit": fit_vector,
}
