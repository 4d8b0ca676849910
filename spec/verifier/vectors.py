"""Replays the test vectors."""

import hashlib
import json
import pathlib
import re
import struct
import sys
from fractions import Fraction

import cbor2

from .audit import audit
from .broadcast import (
    Chain,
    ChainReceiver,
    Revoked,
    broadcast_evidence,
    broadcast_frame,
    chain_head,
    chain_of,
    chain_of_one,
    key_id,
    network_of,
    revocation,
    sender_certificate,
    sender_named,
    sender_request,
)
from .confidential_vectors import CONFIDENTIAL_OPERATIONS
from .encoding import M64, Refused, Skipped, decode, optional, unhex
from .hashes import be, chacha12_words, device_id, group_id, level_of, levels_of, salt_of, siphash24
from .health import frame_health, frame_health_session, health_record, health_row
from .link import (
    Followed,
    dtls_psk,
    frame_down,
    frame_event,
    frame_event_answer,
    frame_refusal,
    frame_up,
    link_secret,
)
from .plans import plan_decode
from .query_vectors import QUERY_OPERATIONS
from .readings import reading_open
from .receivers import addressed_content, check_receipts, receiver_key, receiver_tag
from .receipts import explain_check, receipt_verify
from .roster import certificate_open, check_succession, roster_open
from .rounds import Coordinator, announcement_open, manifest_open
from .schedules import child_frame, explain_frame, participation_decode, participation_encode, schedule_open
from .sanitised import Waiting
from .schema import TYPES, schema_decode, show_value
from .seal import Seal, seal_decode, urgent_open
from .served import (
    at_most_mask,
    check_answer,
    check_choice,
    check_history,
    check_proof,
    permutation,
    query_check,
    rate_mask,
)
from .grants import grant_key_vector, grant_open_vector, owner_forget_vector, owner_open_vector, owner_share_vector
from .signed import signed
from .policies import policy_charge, policy_decode, policy_open, policy_permit
from .signed_time import time_challenge, time_open, time_range
from .stream import MAX_EVENTS, Reader, is_whole, items, whole_from
from .suites import Key, ed25519_point
from .sums import (
    P,
    SHARE,
    chacha20_block,
    group_factor,
    key_group_secret,
    mask,
    psr_read,
    refusal_tag,
    source_key,
    source_secret,
    sum_open,
)
from .updates import first_part, image_tag
from .trees import (
    NULL,
    block_digest,
    inclusion_path,
    leaf_hash,
    multiproof,
    multiproof_count,
    multiproof_root,
    path_root,
    star_chain,
    tree_root,
)


def known_answers():
    """Tests the primitives of this file against published test vectors."""
    key = bytes(range(16))
    assert siphash24(key, bytes(range(15))) == 0xA129CA6149BE45E5  # the paper's appendix A
    assert siphash24(key, b"") == 0x726FDB47DD0E0E31
    assert siphash24(key, bytes(range(8))) == 0x93F5F5799A932462
    words = chacha12_words(bytes(32))  # draft-strombergson-chacha-test-vectors, TC1
    start = b"".join(struct.pack("<Q", next(words)) for _ in range(8))
    assert start.hex().startswith("9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f")
    block = chacha20_block(bytes(range(32)), 1, unhex("000000090000004a00000000"))  # RFC 8439, section 2.3.2
    assert block[:16].hex() == "10f1e7e4d13b5915500fdd1fa32071c4" and block[48:].hex() == "b5129cd1de164eb9cbd083e8a2503c4e"
    assert tree_root([]) == hashlib.sha256(b"").digest()  # RFC 9162, section 2.1.1
    assert ed25519_point(bytes.fromhex("01" + "00" * 31)) == (0, 1)
    for thing in (0, 23, 24, -70001, b"x" * 300, "temperature", [1, None, True], 1 << 63):
        assert decode(cbor2.dumps(thing, canonical=True)) == thing


def operator_of(case):
    return Key(case["operator"]["alg"], unhex(case["operator"]["key"]))


def roster_of(case, opened={}):
    """The roster of the file, opened once. The vectors of rosters test the opening."""
    if case["roster"] not in opened:
        opened[case["roster"]] = roster_open(unhex(case["roster"]), operator_of(case))
    return opened[case["roster"]]


def show_part(rebuilt):
    seal = rebuilt.seal
    return {
        "index": seal.index,
        "epoch": seal.epoch,
        "root": seal.root.hex(),
        "digest": seal.digest.hex(),
        "counters": seal.counters,
        "rows": [[seq, level, record.hex()] for seq, level, record in rebuilt.rows],
    }


def reader_of(case, given):
    known = {(unhex(entry["device"]), entry["index"]): unhex(entry["digest"]) for entry in given.get("known", [])}
    return Reader(roster_of(case), known, case.get("max_events", MAX_EVENTS))


def show_sanitiser(sanitiser):
    devices = [right.devices and [device.hex() for device in right.devices] for right in sanitiser.rights]
    rights = [[of, right.groups, right.first_epoch, right.end_epoch] for of, right in zip(devices, sanitiser.rights)]
    return [sanitiser.name, sanitiser.certificate.digest.hex(), rights]


def stream_read(case, given):
    parts, others = [], []
    for kind, value in reader_of(case, given).read(unhex(given["bytes"])):
        if kind == "part":
            parts.append(show_part(value))
        else:
            others.append(kind)
    return {"parts": parts, "others": others}


def sanitised_read(case, given):
    """A stream with its sanitised items: those of each part, and the new records."""
    waiting, parts = Waiting(roster_of(case)), []
    for kind, value in reader_of(case, given).read(unhex(given["bytes"])):
        if kind == "sanitised":
            waiting.push(*value)
        elif kind == "end":
            waiting.finish()
        elif kind == "part":
            for statement, sanitiser, records in sorted(waiting.take(value), key=lambda one: one[0].column_group):
                rows = [[seq, record.hex()] for (seq, _, _), record in zip(value.rows, records)]
                group, policy = statement.column_group, statement.policy
                parts.append({"index": value.seal.index, "group": group, "by": sanitiser.name, "policy": policy, "rows": rows})
    waiting.finish()
    return {"sanitised": parts}


def choice_answer(case, given):
    """Checks the answer for one device: each epoch as requested, nothing else, and the range complete."""
    reader, parts = reader_of(case, given), []
    for kind, value in reader.read(unhex(given["bytes"])):
        if kind == "part":
            parts.append(value)
    device, since, until = unhex(given["device"]), given["since"], given["until"]
    seals = [rebuilt.seal for rebuilt in parts]
    inside, tail = check_history(seals, device, since, until)
    if tail is not None and until is not None:
        raise Refused("TailUnknown", f"from epoch {tail}")
    for rebuilt in parts[inside:]:
        if rebuilt.part.select != 0:
            raise Refused("NotAsAsked", "events after the range")
    choice = dict(given["choice"])
    if "rate" in choice:
        choice["rate"] = Fraction(choice["rate"])
    if "seed" in choice:
        choice["seed"] = unhex(choice["seed"])
    checked = parts[:inside]
    if "rate" not in choice and until is None and checked and not checked[-1].seal.last_in_epoch:
        # Nothing shows the last part of the newest epoch, so its selection cannot be checked.
        checked = [rebuilt for rebuilt in checked if rebuilt.seal.epoch != checked[-1].seal.epoch]
    for epoch in sorted({rebuilt.seal.epoch for rebuilt in checked}):
        check_choice([rebuilt for rebuilt in checked if rebuilt.seal.epoch == epoch], choice, choice.get("round", 0))
    rows = [[r.seal.index, seq, record.hex()] for r in checked for seq, _, record in r.rows]
    return {"seals": len(checked), "rows": rows}


def explain_run(case, given):
    """Compares the parts of a run, which may have failed, with their explained seals."""
    reader, rebuilt = reader_of(case, given), []
    for kind, value, _ in items(unhex(given["bytes"])):
        if kind == "schema":
            reader.schema = schema_decode(value)
        elif kind == "open":
            reader.open(*value)
        elif kind == "part":
            rebuilt.append(reader.part(value))
    for at, part in enumerate(rebuilt):
        if at >= len(given["explained"]):
            raise Refused("ExplanationWithheld")
        ((_, (seal, digests), _),) = items(unhex(given["explained"][at]))
        explain_check(reader.roster, part, seal, digests)
    return {}


def star_seal(_case, given):
    schema, salt, levels = schema_decode(unhex(given["schema"])), unhex(given["salt"]), given["levels"]
    blocks = [[] for _ in range(levels)]
    for seq, record in enumerate(given["records"]):
        blocks[level_of(salt, seq, levels)].append(unhex(record))
    counters = [len(block) for block in blocks]
    device, index = unhex(given["device"]), given["index"]
    digests = [
        block_digest(device, index, level, schema.join(block)) if block else NULL for level, block in enumerate(blocks)
    ]
    joined = [schema.join(block).hex() for block in blocks]
    return {
        "counters": counters,
        "blocks": joined,
        "digests": [digest.hex() for digest in digests],
        "root": star_chain(counters, digests).hex(),
    }


def leaves_of(given):
    return [leaf_hash(unhex(record)) for record in given["records"]]


def tree_multiproof(_case, given):
    leaves, selected = leaves_of(given), given["selected"]
    digests = multiproof(leaves, selected)
    root = multiproof_root(len(leaves), [(seq, leaves[seq]) for seq in selected], digests)
    assert root == tree_root(leaves) and len(digests) == multiproof_count(len(leaves), selected)
    return {"digests": [digest.hex() for digest in digests], "root": root.hex()}


def cose_object(_case, given):
    object = signed(unhex(given["bytes"]), given["typ"])
    return {"alg": object.alg, "vds": object.vds, "digest": object.digest.hex()}


def cose_verify(_case, given):
    object = signed(unhex(given["bytes"]), given["typ"])
    object.verify(Key(given["alg"], unhex(given["key"])))
    return {"digest": object.digest.hex()}


def cose_signature(_case, given):
    Key(given["alg"], unhex(given["key"])).verify(unhex(given["message"]), unhex(given["signature"]))
    return {}


def certificate_vector(case, given):
    certificate = certificate_open(unhex(given["bytes"]), operator_of(case))
    return {
        "group": certificate.group.hex(),
        "device": certificate.device.hex(),
        "serial": certificate.serial,
        "alg": certificate.alg,
        "key": certificate.key_bytes.hex(),
        "first_index": certificate.first_index,
        "digest": certificate.digest.hex(),
    }


def roster_vector(case, given):
    roster = roster_open(unhex(given["bytes"]), operator_of(case))
    return {
        "digest": roster.digest.hex(),
        "group_name": roster.group_name,
        "group": roster.group.hex(),
        "version": roster.version,
        "periods": [
            {
                "version": period.version,
                "first_epoch": period.first_epoch,
                "start_ms": period.start_ms if period.start_ms <= M64 else None,
                "epoch_ms": period.epoch_ms,
                "levels": period.levels,
                "budget": period.budget,
                "coordinator": period.coordinator and period.coordinator.digest.hex(),
            }
            for period in roster.periods
        ],
        "last_epoch": roster.last_epoch,
        "querier": roster.querier and roster.querier.digest.hex(),
        **({"sanitisers": [show_sanitiser(one) for one in roster.sanitisers]} if roster.sanitisers else {}),
        **({"owners": [[owner.name, owner.certificate.digest.hex()] for owner in roster.owners]} if roster.owners else {}),
        "devices": [
            [
                device.id.hex(),
                device.name,
                device.since,
                [[term.certificate.first_index, term.first_epoch, term.end_index, term.end_epoch] for term in device.terms],
            ]
            for device in roster.devices
        ],
    }


def succession_vector(case, given):
    before, later = (roster_open(unhex(given[name]), operator_of(case)) for name in ("before", "later"))
    check_succession(later, before)
    return {"version": later.version}


def schema_vector(_case, given):
    schema = schema_decode(unhex(given["bytes"]))
    fields = [[field.name, field.unit, TYPES[field.kind], field.divisor, str(field.offset)] for field in schema.fields]
    if schema.version == 2:
        for shown, field in zip(fields, schema.fields):
            shown += [field.id, field.nullable, list(field.labels or ()), field.longest, field.relayed]
            shown += [field.suite] if field.suite else []
            shown += [field.group] if field.group else []
    return {"digest": schema.digest.hex(), "record_size": schema.record_size, "fields": fields}


def seal_vector(_case, given):
    object, seal = seal_decode(unhex(given["bytes"]))
    assert seal.digest == object.digest, "what was decoded encodes to what was read"
    return {"digest": seal.digest.hex(), "root": seal.root.hex(), "scheme": seal.scheme, "counters": seal.counters}


def urgent_vector(case, given):
    schema = schema_decode(unhex(given["schema"])) if "schema" in given else None
    event = urgent_open(unhex(given["bytes"]), roster_of(case), schema)
    return {"device": event.device.hex(), "index": event.index, "seq": event.seq, "record": event.record.hex()}


def reading_vector(case, given):
    reading = reading_open(given["format"], unhex(given["bytes"]), roster_of(case))
    place = {"device": reading.device.hex(), "index": reading.index, "epoch": reading.epoch, "seq": reading.seq}
    return {**place, "format": reading.format, "time": reading.ms, "values": reading.values}


def at_most_vector(_case, given):
    levels = len(given["parts"][0]["counters"])
    seals = [
        Seal({"counters": part["counters"], "own_round": part["own_round"], "lost": part["lost"]}, NULL, "ed25519")
        for part in given["parts"]
    ]
    assert all(len(part["counters"]) == levels for part in given["parts"])
    return {"mask": at_most_mask(seals, given["m"])}


def policy_open_vector(_case, given):
    of = unhex(given["group"]), unhex(given["roster"]), Key(given["alg"], unhex(given["key"]))
    _, _, version, least, least_squares, _ = policy_open(unhex(given["bytes"]), *of)
    return {"version": version, "min_count": least, "min_count_squares": least_squares}


def policy_permit_vector(_case, given):
    policy, plan = policy_decode(unhex(given["policy"])), plan_decode(unhex(given["plan"]))
    return {"permission": policy_permit(policy, Key(given["alg"], unhex(given["key"])), plan, given["ring"])}


def policy_charge_vector(_case, given):
    numbers = (int(given[name]) for name in ("day", "spent", "start_ms", "epsilon", "budget"))
    day, spent = policy_charge(*numbers)
    return {"day": day, "spent": spent}


def time_open_vector(_case, given):
    keys = [given[name] and Key(given[name]["alg"], unhex(given[name]["key"])) for name in ("operator", "querier")]
    to = unhex(given["group"]), unhex(given["device"]), unhex(given["challenge"])
    return {"time": str(time_open(unhex(given["bytes"]), *to, keys))}


def time_range_vector(_case, given):
    earliest, latest = time_range(*(int(given[name]) for name in ("time", "sent", "received", "now")))
    return {"earliest": str(earliest), "latest": str(latest)}


def announcement_vector(case, given):
    epoch, announced = announcement_open(unhex(given["bytes"]), roster_of(case))
    return {"epoch": epoch, "round": announced}


def manifest_vector(case, given):
    manifest = manifest_open(unhex(given["bytes"]), roster_of(case))
    return {
        "digest": manifest.digest.hex(),
        "roster": manifest.roster.hex(),
        "epoch": manifest.epoch,
        "round": manifest.round,
        "devices": [[device.hex(), [seal.hex() for seal in seals]] for device, seals in manifest.devices],
    }


def bundle_vector(case, given):
    reader, rounds, parts = reader_of(case, given), {}, []
    for kind, value in reader.read(unhex(given["bytes"])):
        if kind == "manifest":
            rounds.setdefault(value.epoch, []).append(value.round)
        elif kind == "part":
            if not is_whole(value, rounds, reader.roster):
                raise Refused("NotWhole")
            seal, lowest = value.seal, whole_from(value)
            parts.append({"index": seal.index, "epoch": seal.epoch, "from": lowest, "events": len(value.rows)})
    if not parts:
        raise Refused("NotWhole")
    return {"parts": parts}


def show_answer(checked, manifests):
    devices = [
        {
            "device": one.device.hex(),
            "standing": one.standing,
            "from": one.since,
            "seals": one.seals,
            "late": one.late,
            "rows": one.rows,
        }
        for one in checked
    ]
    return {"devices": devices, "rounds": [[epoch, manifests[epoch].round] for epoch in sorted(manifests)]}


def answer_vector(case, given):
    return show_answer(*check_answer(reader_of(case, given), unhex(given["bytes"]), query_check(given["query"])))


def proof_vector(case, given):
    return show_answer(*check_proof(reader_of(case, given), unhex(given["bytes"])))


def audit_vector(case, given):
    return {"epochs": audit(reader_of(case, given), unhex(given["bytes"]), given["since"], given["until"])}


def follow_vector(_case, given):
    followed, results = Followed(*given["frames"][0][:2]), []
    for frame in given["frames"]:
        what, first = followed.follow(*frame)
        results.append([what, first, followed.index, followed.epoch, followed.next, followed.round])
    return {"heard": results}


def offers_vector(_case, given):
    coordinator, after = Coordinator(given["levels"], given["budget"]), []
    for step, *arguments in given["steps"]:
        became = {"offer": coordinator.offer, "withdraw": coordinator.withdraw, "settle": coordinator.settle}[step](*arguments)
        after.append([became, coordinator.round, coordinator.kept])
    return {"after": after, "kept": coordinator.counts}


def encrypt_vector(_case, given):
    master, group, device = unhex(given["master"]), unhex(given["group"]), unhex(given["device"])
    query, slot, epoch = unhex(given["query"]), given["slot"], given["epoch"]
    if int(given["value"]) >= (1 << 96) - 1:
        raise Refused("ValueTooLarge")
    secrets = source_secret(master, group, device), key_group_secret(master, group, given["key_group"])
    key, share = source_key(secrets[0], query, slot, epoch)
    psr = (group_factor(secrets[1], query, slot, epoch) * (int(given["value"]) * SHARE + share) + key) % P
    return {"device": secrets[0].hex(), "key_group": secrets[1].hex(), "psr": be(psr, 32).hex()}


def open_vector(_case, given):
    master, group = unhex(given["master"]), unhex(given["group"])
    query, slot, epoch = unhex(given["query"]), given["slot"], given["epoch"]
    total = sum(psr_read(unhex(record)) for record in given["psrs"]) % P
    keys = [
        source_key(source_secret(master, group, unhex(device)), query, slot, epoch) for device in given["participants"]
    ]
    factor = group_factor(key_group_secret(master, group, given["key_group"]), query, slot, epoch)
    return {"sum": str(sum_open(total, factor, keys, int(given["vmax"])))}


def participation_vector(_case, given):
    runs = participation_decode(unhex(given["bytes"]), given["sources"])
    return {"runs": runs, "count": sum(end - start for start, end in runs)}


def of_child(given):
    return unhex(given["frame"]), unhex(given["hub_secret"]), unhex(given["group"]), unhex(given["child"])


def shared_keys(given):
    return unhex(given["network"]), [Key(base["alg"], unhex(base["key"])) for base in given["bases"]]


def opened_by(given):
    return unhex(given["network"]), unhex(given["sender"]), Key(given["alg"], unhex(given["key"]))


def ids_vector(_case, given):
    key = Key(given["alg"], unhex(given["key"]))
    return {"sender": sender_named(given["sender"]).hex(), "key": key_id(key).hex(), "network": network_of(key).hex()}


def request_vector(_case, given):
    sender, key = sender_request(unhex(given["bytes"]))
    return {"sender": sender.hex(), "alg": key.alg, "key": key.raw.hex()}


def sender_certificate_vector(_case, given):
    found = sender_certificate(unhex(given["bytes"]), *shared_keys(given))
    found.check(given["now"], Revoked(given["minimum"], given["serials"]))
    return {
        "base": found.base,
        "serial": found.serial,
        "sender": found.sender.hex(),
        "alg": found.key.alg,
        "key": found.key.raw.hex(),
        "not_before": found.not_before,
        "not_after": found.not_after,
    }


def revocation_vector(_case, given):
    base, revoked = revocation(unhex(given["bytes"]), *shared_keys(given))
    known = given["known"]
    revoked.check_covers(Revoked(known["minimum"], known["serials"]))
    return {"base": base, "minimum": revoked.minimum, "serials": revoked.serials}


def chain_vector(_case, given):
    messages = [unhex(message) for message in given["messages"]]
    ids = [unhex(given[name]) for name in ("network", "sender", "key")]
    chain = Chain(*ids, given["number"], len(messages), given["per_block"], 0, 0, given["label"])
    leaves = chain_of(chain, messages)
    return {
        "reference": chain.reference.hex(),
        "longest": chain.longest,
        "leaves": [leaf.hex() for leaf in leaves],
        "first": chain.first.hex(),
        "tags": chain.tags.hex(),
    }


def head_vector(_case, given):
    head = chain_head(unhex(given["bytes"]), *opened_by(given))
    return {
        "reference": head.reference.hex(),
        "number": head.number,
        "messages": head.messages,
        "per_block": head.per_block,
        "longest": head.longest,
        "kind": head.kind,
        "label": head.label,
        "not_before": head.not_before,
        "not_after": head.not_after,
        "previous": head.previous,
        "first": head.first.hex(),
    }


def timely_vector(_case, given):
    chain_head(unhex(given["bytes"]), *opened_by(given)).timely(given["now"], given["offset"])
    return {}


def take_vector(_case, given):
    hearing, taken = ChainReceiver(chain_head(unhex(given["bytes"]), *opened_by(given))), []
    for block, index, leaf in given["leaves"]:
        try:
            taken.append(hearing.take(block, index, unhex(leaf)))
        except Refused as refused:
            taken.append(refused.name)
    return {"taken": taken, "block": hearing.block, "missing": sum(1 << index for index in hearing.missing)}


def broadcast_frame_vector(_case, given):
    read = broadcast_frame(unhex(given["bytes"]))
    return {name: value.hex() if type(value) is bytes else value for name, value in read.items()}


def receiver_vector(_case, given):
    shared = [unhex(given[name]) for name in ("secret", "network", "sender")]
    key, head = receiver_key(*shared, given["position"], given["name"]), unhex(given["head"])
    request = [unhex(given["chain"]), be(given["block"], 4), be(given["wanted"], 8), be(given["attempt"], 4)]
    of_head = [unhex(given["key_id"]), be(given["above"], 8)]
    return {
        "key": key.hex(),
        "receipt": receiver_tag(key, b"receipt", head).hex(),
        "request": receiver_tag(key, b"request", *request).hex(),
        "head_request": receiver_tag(key, b"head-request", *of_head).hex(),
        "head": receiver_tag(key, b"head", head).hex(),
    }


def receipts_vector(_case, given):
    shared = [unhex(given[name]) for name in ("secret", "network", "sender")]
    keys = [receiver_key(*shared, position, name) for position, name in enumerate(given["names"])]
    return {"count": check_receipts(keys, *(unhex(given[name]) for name in ("head", "receivers", "tag")))}


def address_vector(_case, given):
    shared = [unhex(given[name]) for name in ("secret", "network", "sender")]
    key = None if given["position"] is None else receiver_key(*shared, given["position"], given["name"])
    id = shared[1] + shared[2] + unhex(given["key_id"]) + be(given["number"], 8)
    label, content = addressed_content(id, given["total"], key, [unhex(one) for one in given["messages"]])
    return {"label": label, "content": [one.hex() for one in content]}


def single_vector(_case, given):
    head, message = chain_of_one(unhex(given["bytes"]), *opened_by(given))
    read = {"number": head.number, "kind": head.kind, "label": head.label}
    return read | {"message": message.hex(), "digest": head.first.hex()}


def evidence_vector(_case, given):
    certificate, hearing, proven = broadcast_evidence(unhex(given["bytes"]), *shared_keys(given))
    return {
        "sender": certificate and certificate.sender.hex(),
        "proven": proven,
        "messages": hearing and hearing.chain.messages,
    }


def link_secrets(secret):
    return {"dtls_psk": dtls_psk(secret).hex(), "secret": secret.hex()}


OPERATIONS = {
    "cbor.item": lambda _, given: decode(unhex(given["bytes"])) and {} or {},
    "cose.object": cose_object,
    "cose.verify": cose_verify,
    "cose.key": lambda _, given: Key(given["alg"], unhex(given["key"])) and {},
    "cose.signature": cose_signature,
    "cose.seal": seal_vector,
    "certificate.open": certificate_vector,
    "roster.open": roster_vector,
    "roster.succeed": succession_vector,
    **CONFIDENTIAL_OPERATIONS,
    "schema.open": schema_vector,
    "schema.record": lambda _, given: {
        "values": [show_value(v) for v in schema_decode(unhex(given["schema"])).values(unhex(given["record"]))]
    },
    "level.level": lambda _, given: {
        "levels": [level_of(unhex(given["salt"]), seq, given["levels"]) for seq in given["seqs"]]
    },
    "level.counters": lambda _, given: {
        "counters": [
            levels_of(unhex(given["salt"]), given["levels"], given["n"]).count(level) for level in range(given["levels"])
        ]
    },
    "level.salt": lambda _, given: {"salt": salt_of(unhex(given["key"]), unhex(given["device"]), given["index"]).hex()},
    "level.ids": lambda _, given: {
        "group": group_id(given["group"]).hex(),
        "device": device_id(given["group"], given["device"]).hex(),
    },
    "star.seal": star_seal,
    "tree.root": lambda _, given: {"root": tree_root(leaves_of(given)).hex()},
    "tree.path": lambda _, given: {"path": [d.hex() for d in inclusion_path(leaves_of(given), given["seq"])]},
    "tree.multiproof": tree_multiproof,
    "tree.path_root": lambda _, given: {
        "root": path_root(unhex(given["leaf"]), given["seq"], given["size"], [unhex(d) for d in given["path"]]).hex()
    },
    "tree.receipt": lambda _, given: {
        "root": receipt_verify(
            unhex(given["bytes"]), unhex(given["record"]), Key(given["alg"], unhex(given["key"]))
        ).hex()
    },
    "stream.read": stream_read,
    "sanitised.read": sanitised_read,
    "stream.explain": explain_run,
    "stream.bundle": bundle_vector,
    "urgent.open": urgent_vector,
    "reading.open": reading_vector,
    "word.announcement": announcement_vector,
    "word.manifest": manifest_vector,
    "answer.open": answer_vector,
    "proof.open": proof_vector,
    "audit.range": audit_vector,
    "link.secret": lambda _, given: link_secrets(
        link_secret(unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"]))
    ),
    "link.up": lambda _, given: frame_up(unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"])),
    "link.down": lambda _, given: frame_down(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])
    ),
    "link.refusal": lambda _, given: frame_refusal(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])
    ),
    "link.event": lambda _, given: frame_event(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"])
    ),
    "link.event_answer": lambda _, given: frame_event_answer(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])
    ),
    "link.health": lambda _, given: frame_health(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"])
    ),
    "link.health_session": lambda _, given: frame_health_session(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])
    ),
    "health.record": lambda _, given: health_record(unhex(given["record"])),
    "health.row": lambda _, given: health_row(
        unhex(given["schema"]), unhex(given["record"]), given["at"], given["node"]
    ),
    "link.follow": follow_vector,
    "coordinator.offers": offers_vector,
    "update.part": lambda _, given: first_part(unhex(given["bytes"]), *shared_keys(given)),
    "update.tag": lambda _, given: image_tag(unhex(given["bytes"])),
    "cast.ids": ids_vector,
    "cast.request": request_vector,
    "cast.certificate": sender_certificate_vector,
    "cast.revocation": revocation_vector,
    "cast.chain": chain_vector,
    "cast.head": head_vector,
    "cast.timely": timely_vector,
    "cast.take": take_vector,
    "cast.frame": broadcast_frame_vector,
    "cast.receiver": receiver_vector,
    "cast.receipts": receipts_vector,
    "cast.address": address_vector,
    "cast.single": single_vector,
    "cast.evidence": evidence_vector,
    **QUERY_OPERATIONS,
    "sum.encrypt": encrypt_vector,
    "sum.open": open_vector,
    "sum.participants": lambda _, given: {"bytes": participation_encode(given["runs"]).hex()},
    "sum.participation": participation_vector,
    "sum.up": lambda _, given: child_frame(*of_child(given)),
    "sum.explain": lambda _, given: explain_frame(*of_child(given)),
    "sum.agenda": lambda _, given: schedule_open(
        unhex(given["bytes"]), unhex(given["group"]), unhex(given["roster"]), Key(given["alg"], unhex(given["key"]))
    ),
    "sum.mask": lambda _, given: {
        "mask": be(
            mask(
                *(unhex(given[name]) for name in ("root", "group", "query")),
                *(given[name] for name in ("slot", "epoch", "position", "first", "end")),
            ),
            32,
        ).hex()
    },
    "sum.refusal": lambda _, given: {
        "tag": refusal_tag(
            *(unhex(given[name]) for name in ("master", "group", "device", "query")), given["epoch"], given["reason"]
        ).hex()
    },
    "grant.open": lambda case, given: grant_open_vector(roster_of(case), given),
    "grant.key": lambda case, given: grant_key_vector(roster_of(case), given),
    "owner.open": lambda _, given: owner_open_vector(given),
    "owner.forget": lambda _, given: owner_forget_vector(given),
    "owner.share": lambda _, given: owner_share_vector(given),
    "policy.open": policy_open_vector,
    "policy.permit": policy_permit_vector,
    "policy.charge": policy_charge_vector,
    "time.challenge": lambda _, given: {
        "challenge": time_challenge(unhex(given["secret"]), given["starts"], given["count"]).hex()
    },
    "time.open": time_open_vector,
    "time.range": time_range_vector,
    "choice.rate": lambda _, given: {"mask": rate_mask(Fraction(given["rate"]), given["levels"])},
    "choice.at_most": at_most_vector,
    "choice.answer": choice_answer,
    "permutation.choose": lambda _, given: {
        "positions": permutation(
            unhex(given["seed"]), unhex(given["device"]), given["epoch"], int(given["total"]), given["m"]
        )
    },
}


def verdict(case, op, given):
    """The output of an operation, or the name of its error."""
    try:
        return OPERATIONS[op](case, given), None
    except Refused as refused:
        return None, refused.name


def mutated(case):
    """The mutations of a file: for each base, every byte changed by each flip, then every truncation."""
    for mutation in case.get("mutations", []):
        base = bytearray(unhex(mutation["input"][mutation["field"]]))
        names = iter([name for name, times in mutation["verdicts"] for _ in range(times)])
        for flip in mutation["flips"]:
            for at in range(len(base)):
                base[at] ^= flip
                yield mutation, f"{mutation['name']}: byte {at} ^ {flip:#04x}", bytes(base), next(names)
                base[at] ^= flip
        for length in range(len(base)):
            yield mutation, f"{mutation['name']}: cut at {length}", bytes(base[:length]), next(names)
        assert next(names, None) is None


def run_vectors(root):
    """Replays every vector and prints disagreements. Returns the exit code."""
    known_answers()
    names = set(re.findall(r"`([A-Z][A-Za-z]+)`", (pathlib.Path(__file__).parent.parent / "errors.md").read_text()))
    passed = failed = 0
    skipped = {}
    files = sorted(pathlib.Path(root).rglob("*.json"))
    if not files:
        print(f"no vectors under {root}", file=sys.stderr)
        return 2

    def check(path, name, expected, case, op, given):
        nonlocal passed, failed
        try:
            found = verdict(case, op, given)
        except Skipped as reason:
            skipped.setdefault(str(reason), []).append(name)
            return
        if found == expected and (expected[1] is None or expected[1] in names):
            passed += 1
            return
        failed += 1
        why = f"expected {expected[1] or expected[0]}, found {found[1] or found[0]}"
        print(f"{path.parent.name}/{path.name}: {name}: {why if found != expected else 'the name is not in errors.md'}")

    for path in files:
        case = json.loads(path.read_text())
        for entry in case["valid"]:
            check(path, entry["name"], (entry["output"], None), case, entry["op"], entry["input"])
        for entry in case["invalid"]:
            check(path, entry["name"], (None, entry["error"]), case, entry["op"], entry["input"])
        for mutation, name, changed, error in mutated(case):
            given = {**mutation["input"], mutation["field"]: changed.hex()}
            expected = (mutation["kept"], None) if error == "kept" else (None, error)
            check(path, name, expected, case, mutation["op"], given)
    for reason, which in skipped.items():
        print(f"skipped {len(which)}: {reason} ({', '.join(which)})")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
