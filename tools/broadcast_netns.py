#!/usr/bin/env python3
"""Measures broadcasts over real UDP between network namespaces: one `moteseal broadcast send` and six
`moteseal broadcast watch`, with losses.

usage: tools/broadcast_netns.py [MOTESEAL]    (the moteseal binary; default target/release/moteseal)

Needs Linux with `ip` and user namespaces. Seven namespaces each have a link to this process, which acts as the
medium: it delivers each frame to every other node, or loses it with the stated probability, independently for
each receiver. The script sends 100 messages of 20 bytes, in blocks of 1, 10 and 32, at three loss rates. It
prints how many frames all nodes sent per message, by kind. It fails if a receiver does not have every message in
order. `crates/lab/src/broadcast/hop.rs` simulates this setup ("Repair on one hop" in docs/broadcast); its counts
contain fragments and repairs, but no requests.
"""

import collections
import json
import os
import pathlib
import random
import select
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES = 7
MESSAGES = 100
LOSSES = (0.0, 0.1, 0.2)
BLOCKS = (1, 10, 32)
ADDRESS = "udp://239.1.2.3:5000"
LONGEST_SECONDS = 60
KINDS = {32: "certificate", 33: "revocation", 34: "head", 35: "fragment", 36: "wanted", 37: "holds", 38: "single", 39: "repair"}
IP, UDP = 0x0800, 17


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Medium:
    """Seven namespaces and the medium between them."""

    def __init__(self) -> None:
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "3600"]) for _ in range(NODES)]
        time.sleep(0.5)
        self.air = []
        for node, holder in enumerate(self.holders):
            run("ip", "link", "add", f"air{node}", "type", "veth", "peer", "name", f"node{node}")
            run("ip", "link", "set", f"node{node}", "netns", str(holder.pid))
            run("ip", "link", "set", f"air{node}", "up")
            for command in (
                ["ip", "address", "add", f"10.9.0.{node + 1}/24", "dev", f"node{node}"],
                ["ip", "link", "set", f"node{node}", "up"],
                ["ip", "link", "set", "lo", "up"],
                ["ip", "route", "add", "224.0.0.0/4", "dev", f"node{node}"],
            ):
                run(*self.inside(node), *command)
            air = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IP))
            air.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            air.bind((f"air{node}", 0))
            self.air.append(air)

    def inside(self, node: int) -> list[str]:
        """Returns the command prefix that executes a command in the namespace of a node."""
        return ["nsenter", "--net", "--target", str(self.holders[node].pid), "--"]

    def carry(self, loss: float, chance: random.Random, seconds: float) -> collections.Counter:
        """Delivers frames for the given time. Returns the number of frames by kind."""
        sent: collections.Counter = collections.Counter()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for air in select.select(self.air, [], [], left)[0]:
                frame, (_, _, direction, *_) = air.recvfrom(65535)
                if direction == socket.PACKET_OUTGOING or frame[23] != UDP:
                    continue
                # The kernel expects hardware to compute the UDP checksum, but there is none. 0 means no checksum.
                frame = frame[:40] + b"\0\0" + frame[42:]
                # A frame starts with the head of a CBOR array (0x82 to 0x86), then 0x18 and the kind.
                sent[KINDS.get(frame[44], "other")] += 1
                for receiver in self.air:
                    if receiver is not air and chance.random() >= loss:
                        receiver.send(frame)
        return sent

    def close(self) -> None:
        for holder in self.holders:
            holder.kill()


def point(medium: Medium, moteseal: str, folder: pathlib.Path, keys: pathlib.Path, loss: float, block: int) -> collections.Counter:
    """Sends one chain through the medium. Returns its number of frames by kind. Exits if a receiver lacks a message."""
    chance = random.Random(f"{loss} {block}")
    lines = [f"open valve {number:03} by 6%" for number in range(MESSAGES)]
    (folder / "lines").write_text("".join(f"{line}\n" for line in lines))
    watchers, outputs = [], []
    for node in range(1, NODES):
        output = (folder / f"out{node}").open("w+")
        command = [moteseal, "broadcast", "watch", "--ca", str(keys / "base.pub.pem"), "--on", ADDRESS, "--state",
                   str(folder / f"state{node}"), "--wait", str(LONGEST_SECONDS), "--json"]
        watchers.append(subprocess.Popen([*medium.inside(node), *command], stdout=output, stderr=subprocess.DEVNULL))
        outputs.append(output)
    medium.carry(loss, chance, 1.5)
    sender = subprocess.Popen(
        [*medium.inside(0), moteseal, "broadcast", "send", "--key", str(keys / "ops.key.pem"), "--cert", str(keys / "ops.cert"), "--to", ADDRESS,
         "--block", str(block), "--lines", str(folder / "lines"), "--state", str(folder / "number"), "--rate", "4000", "--linger", "3"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sent: collections.Counter = collections.Counter()
    end = time.monotonic() + LONGEST_SECONDS
    got: list[list[str]] = []
    while time.monotonic() < end:
        sent += medium.carry(loss, chance, 0.25)
        got = [messages(output) for output in outputs]
        if all(len(each) >= MESSAGES for each in got):
            break
    for process in [*watchers, sender]:
        process.terminate()
        process.wait()
    for node, each in enumerate(got, start=1):
        if each != lines:
            raise SystemExit(f"broadcast_netns: receiver {node} has {len(each)} of {MESSAGES} messages at loss {loss}, blocks of {block}")
    return sent


def messages(output) -> list[str]:
    """Returns the messages that a watcher has printed, in order."""
    output.seek(0)
    objects = [json.loads(line) for line in output.read().splitlines() if line.startswith("{") and line.endswith("}")]
    return [each["text"] for each in objects if each["event"] == "message"]


def main() -> None:
    if os.environ.get("MOTESEAL_NETNS") != "1":
        # Start again as root of a new user namespace, so that nothing outside of it is changed.
        os.environ["MOTESEAL_NETNS"] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", sys.executable, *sys.argv])
    moteseal = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/moteseal").resolve())
    medium = Medium()
    try:
        with tempfile.TemporaryDirectory() as place:
            keys = pathlib.Path(place) / "keys"
            keys.mkdir()
            run(moteseal, "key", "new", "--out", str(keys / "base"))
            run(moteseal, "key", "new", "--out", str(keys / "ops"))
            run(moteseal, "key", "request", "--key", str(keys / "ops.key.pem"), "--sender", "ops", "--out", str(keys / "ops.request"))
            run(moteseal, "key", "certify", str(keys / "ops.request"), "--ca", str(keys / "base.key.pem"), "--serial", "1", "--out",
                str(keys / "ops.cert"))
            print(f"{'loss':>5} {'block':>5} {'all':>6} {'/message':>10} {'fragments and repairs':>22}  by kind")
            for block in BLOCKS:
                for loss in LOSSES:
                    folder = pathlib.Path(place) / f"{block}-{loss}"
                    folder.mkdir()
                    sent = point(medium, moteseal, folder, keys, loss, block)
                    total, data = sum(sent.values()), sent["fragment"] + sent["repair"]
                    kinds = ", ".join(f"{count} {kind}" for kind, count in sent.most_common())
                    print(f"{loss:>5} {block:>5} {total:>6} {total / MESSAGES:>10.2f} {data / MESSAGES:>22.2f}  {kinds}", flush=True)
    finally:
        medium.close()


if __name__ == "__main__":
    main()
