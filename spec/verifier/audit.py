"""The audit of a coordinator (coordinator.md, sections 6 and 7)."""

from .encoding import M64, Refused
from .served import History, answer_items


class DeviceSeals:
    """The seals of one device in the order of their indices, and the findings from them about a manifest."""

    def __init__(self, device, seals, listed):
        self.device, self.seals, self.listed = device, seals, listed

    def was_taken(self, seal):
        """Whether the seal is listed, or is the predecessor of a listed seal."""
        after = next((after for after in self.seals if after.prev == seal.digest), None)
        return any((one.epoch, one.device, one.digest) in self.listed for one in (seal, after) if one is not None)

    def is_whole(self, epoch):
        """Whether the chain continues after the epoch or closes it, without a gap in it."""
        ends = [at for at, seal in enumerate(self.seals) if seal.epoch == epoch and seal.last_in_epoch]
        ends += [at for at, seal in enumerate(self.seals) if seal.epoch > epoch][:1]
        for at in ends:
            while True:
                seal = self.seals[at]
                if seal.prev_epoch is None or seal.prev_epoch < epoch:
                    return True
                if at == 0 or self.seals[at - 1].digest != seal.prev:
                    break
                at -= 1
        return False

    def check(self, epoch, listed, gone_on):
        """The findings and doubts about the manifest of an epoch that lists these digests."""
        device = self.device.hex()
        findings, doubts, gap = [], [], False
        of_epoch = [seal for seal in self.seals if seal.epoch == epoch]
        for digest in listed:
            seal = next((seal for seal in self.seals if seal.digest == digest), None)
            after = next((seal for seal in self.seals if seal.prev == digest and seal.prev_index is not None), None)
            if seal is not None:
                if seal.epoch != epoch:
                    findings.append({"name": "Replayed", "device": device, "index": seal.index, "from": seal.epoch})
                elif seal.prev_epoch == epoch and seal.prev not in listed:
                    gap = True
                continue
            gap = True
            if after is not None and after.prev_epoch != epoch:
                findings.append({"name": "Replayed", "device": device, "index": after.prev_index, "from": after.prev_epoch})
            elif after is not None:
                doubts.append({"name": "Withheld", "device": device, "index": after.prev_index})
            elif self.is_whole(epoch):
                findings.append({"name": "InventedSeal", "device": device, "digest": digest.hex()})
            elif gone_on:
                findings.append({"name": "Unshown", "device": device, "digest": digest.hex()})
            else:
                doubts.append({"name": "NotShownYet", "device": device, "digest": digest.hex()})
        doubts += [{"name": "Late", "device": device, "index": s.index} for s in of_epoch if s.digest not in listed]
        mine = [seal for seal in of_epoch if seal.digest in listed]
        later = next((seal for seal in self.seals if seal.epoch > epoch), None)
        if later is not None and (later.restart or not self.was_taken(later)):
            later = None
        closed = mine and mine[-1].last_in_epoch
        if closed:
            went_on = True
        elif mine:
            went_on = later is not None and later.prev == mine[-1].digest
        else:
            went_on = later is not None and (later.prev_epoch is None or later.prev_epoch < epoch)
        if gap or not went_on:
            doubts.append({"name": "Absent", "device": device, "listed": bool(mine)})
        following = [seal for seal in self.seals if mine and not closed and seal.index > mine[-1].index][:1]
        if any(seal.restart for seal in mine + following):
            doubts.append({"name": "Restarted", "device": device})
        return findings, doubts


def audit(reader, data, since, until):
    """Audits the epochs since .. until-1. Returns an entry for each manifest, by epoch."""
    roster = reader.roster
    if not roster.has_budget:
        raise Refused("NoBudget")
    manifests, latest, seals_of, listed = {}, -1, {}, set()

    def inside(epoch):
        return since <= epoch < (M64 if until is None else until)

    broken = {}  # by epoch: the faults of the devices' chains
    histories, at = {}, None
    for kind, value in answer_items(reader, data):
        if kind == "end":
            continue
        if kind == "manifest":
            if value.epoch < since or at is not None or roster.period(value.epoch).budget is None:
                raise Refused("NotAsAsked", f"the manifest of epoch {value.epoch}")
            latest = max(latest, value.epoch)
            listed |= {(value.epoch, device, digest) for device, digests in value.devices for digest in digests}
            known = manifests.setdefault(value.epoch, []) if inside(value.epoch) else None
            if known is not None and value.digest not in [manifest.digest for manifest in known]:
                known.append(value)
        else:
            seal = value.seal
            if seal.device != at and seal.device in seals_of:
                raise Refused("NotAsAsked", seal.device.hex())
            at = seal.device
            history = histories.setdefault(at, History(at, since, until))
            found = history.broken(seal, roster)
            if found:
                name, index, epoch = found
                if name == "NotAsAsked":
                    raise Refused(name, f"index {index}")
                finding = {"name": name, "device": at.hex(), "index": index}
                if name == "Missing":
                    finding["named_by"] = seal.index
                broken.setdefault(epoch, []).append(finding)
                # The next seals are compared with this one.
                history = histories[at] = History(at, seal.epoch, None)
            history.take(seal)
            seals_of.setdefault(at, []).append(seal)

    of_epoch = {}
    for seals in seals_of.values():
        for seal in seals:
            if inside(seal.epoch):
                of_epoch.setdefault(seal.epoch, []).append(seal)
    devices = {device.id: DeviceSeals(device.id, seals_of.get(device.id, []), listed) for device in roster.devices}
    report = []
    for epoch in sorted({*manifests, *of_epoch, *filter(inside, broken)}):
        seals, found = of_epoch.get(epoch, []), list(broken.get(epoch, []))
        epoch_manifests = manifests.get(epoch, [])
        if len(epoch_manifests) > 1:
            found.append({"name": "TwoManifests", "digests": sorted(manifest.digest.hex() for manifest in epoch_manifests)})
        for manifest in epoch_manifests:
            report.append(audit_manifest(roster, manifest, devices, seals, found, latest > epoch))
        if not epoch_manifests:
            doubt = {"name": "NoManifest", "gone_on": latest > epoch}
            report.append(audit_entry(epoch, None, None, [], seals, [], found, [doubt], False))
    return report


def audit_manifest(roster, manifest, devices, seals, found, gone_on):
    """The verdict on one manifest."""
    listed, epoch, final = dict(manifest.devices), manifest.epoch, manifest.round
    mine = [seal for seal in seals if seal.digest in listed.get(seal.device, [])]
    levels, budget = roster.period(epoch).levels, roster.period(epoch).budget
    counts = [sum(seal.counters[level] for seal in mine) for level in range(levels)]
    due = next((j for j in range(levels) if sum(counts[j:]) <= budget), levels)
    findings, doubts = list(found), []
    for device, device_seals in devices.items():
        if not roster.device(device).is_member(epoch) and device not in listed:
            continue
        more, unclear = device_seals.check(epoch, listed.get(device, []), gone_on)
        findings += more
        doubts += unclear
    withheld = {(doubt["device"], doubt["index"]) for doubt in doubts if doubt["name"] == "Withheld"}
    findings = [one for one in findings if one["name"] != "Missing" or (one["device"], one["index"]) not in withheld]
    for device, digests in listed.items():
        if device not in devices:
            if manifest.roster == roster.digest:
                findings.append({"name": "InventedDevice", "device": device.hex(), "seals": len(digests)})
            else:
                doubts.append({"name": "Absent", "device": device.hex(), "listed": True})
    missing = any(doubt["name"] not in ("Restarted", "Late") for doubt in doubts)
    restarted = any(doubt["name"] == "Restarted" for doubt in doubts)
    rounds = sorted([seal.device.hex(), seal.round] for seal in mine if seal.round > final)
    justified = False
    if final < due:
        findings.append({"name": "OverBudget", "round": final, "kept": sum(counts[final:]), "due": due})
    elif rounds:
        announced = max(round for _, round in rounds)
        findings.append({"name": "RoundOverstated", "round": final, "announced": announced, "told": rounds})
    elif missing or (final > due and restarted):
        pass
    elif final > due:
        findings.append({"name": "StoppedEarly", "round": final, "due": due, "fitting": sum(counts[due:])})
    else:
        justified = True
    return audit_entry(epoch, manifest, due, counts, seals, mine, findings, doubts, justified)


def audit_entry(epoch, manifest, due, counts, seals, mine, findings, doubts, justified):
    def order(one):
        return one["name"], one.get("device", ""), one.get("index", -1), one.get("digest", "")

    return {
        "epoch": epoch,
        "verdict": "Unjustified" if findings else "Justified" if justified else "Undetermined",
        "manifest": manifest and manifest.digest.hex(),
        "round": manifest and manifest.round,
        "due": due,
        "kept": sum(counts[manifest.round :]) if manifest else 0,
        "counts": counts,
        "devices": len(manifest.devices) if manifest else 0,
        "listed": len(mine),
        "seals": len(seals),
        "findings": sorted(findings, key=order),
        "doubts": sorted(doubts, key=order),
    }
