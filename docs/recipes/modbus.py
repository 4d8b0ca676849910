"""Prints holding registers of a Modbus TCP server as JSON, a line each period.

Usage: modbus.py HOST PORT SECONDS

Registers 0 and 1 are the power in W (32 bits, signed), registers 2 and 3 the energy in 10 Wh. Change
`read` and `line` for another meter. If the server does not respond, the program ends, and the hub
starts it again.
"""

import json
import socket
import struct
import sys
import time


def receive(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            sys.exit("the server has closed the connection")
        data += part
    return data


def read(connection, number, first, count, unit=1):
    """Reads holding registers (function 3). Returns their bytes."""
    connection.sendall(struct.pack(">HHHBBHH", number, 0, 6, unit, 3, first, count))
    echoed, _, length, _, function = struct.unpack(">HHHBB", receive(connection, 8))
    data = receive(connection, length - 2)
    if echoed != number or function != 3 or data[0] != 2 * count:
        sys.exit(f"the server refuses to read registers: {data.hex()}")
    return data[1:]


def line(data):
    power, energy = struct.unpack(">iI", data)
    return json.dumps({"power": power, "energy": f"{energy / 100:.2f}"})


def main():
    host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with socket.create_connection((host, port), timeout=10) as connection:
        number = 0
        while True:
            number = (number + 1) % 65536
            print(line(read(connection, number, 0, 4)), flush=True)
            time.sleep(seconds)


main()
