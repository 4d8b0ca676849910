"""Replays the vectors of confidential readings (confidential.md)."""

from .confidential import (
    check_key,
    check_nodes,
    column_id,
    column_root,
    commitment,
    cover,
    decrypt,
    epoch_key,
    next_secret,
    seal_key,
)
from .encoding import Refused, unhex
from .schema import schema_decode, show_value


def confidential_keys(_case, given):
    secret, column = unhex(given["secret"]), column_id(unhex(given["field"]))
    root = column_root(secret, column)
    leaf = epoch_key([[0, 0, root]], given["base"], given["epoch"])
    key = seal_key_of(given, leaf, column)
    shown = {"column": column, "next": next_secret(secret), "root": root, "epoch_key": leaf, "seal_key": key}
    return {name: value.hex() for name, value in {**shown, "commitment": commitment(key)}.items()}


def seal_key_of(given, leaf, column):
    place = unhex(given["device"]), given["epoch"], given["index"]
    return seal_key(leaf, *place, column, given["suite"], unhex(given["nonce"]))


def confidential_cover(_case, given):
    root = column_root(unhex(given["secret"]), unhex(given["column"]))
    nodes = cover(root, given["base"], given["first"], given["last"])
    return {"nodes": [[depth, prefix, key.hex()] for depth, prefix, key in nodes]}


def confidential_open(_case, given):
    nodes = [[depth, prefix, unhex(key)] for depth, prefix, key in given["nodes"]]
    check_nodes(nodes)
    leaf = epoch_key(nodes, given["base"], given["epoch"])
    key = seal_key_of(given, leaf, unhex(given["column"]))
    check_key(key, unhex(given["commitment"]))
    return {"seal_key": key.hex()}


def confidential_decrypt(_case, given):
    schema, record = schema_decode(unhex(given["schema"])), unhex(given["record"])
    schema.check_record(record)
    keys = [key and unhex(key) for key in given["keys"]]
    record, hidden = decrypt(schema, keys, given["seq"], record)
    values = []
    for field, cell in zip(schema.fields, schema.cells(record)):
        if field.name in hidden:
            values.append({"error": "Encrypted"})
            continue
        if not schema.is_null(field, cell) and not schema.is_value(field, cell):
            raise Refused("RecordValue", field.name)
        values.append(show_value(schema.value(field, cell)))
    return {"record": record.hex(), "values": values}


CONFIDENTIAL_OPERATIONS = {
    "confidential.keys": confidential_keys,
    "confidential.cover": confidential_cover,
    "confidential.open": confidential_open,
    "confidential.decrypt": confidential_decrypt,
}
