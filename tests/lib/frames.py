# SPDX-License-Identifier: Apache-2.0
"""A client that sends any frames, valid or not: for tests of what servers refuse.

The messages are those of common/proto: their field lists are read from the headers.

    m = Messages()
    with Peer(addr, key, source="127.0.0.2") as p:
        p.open_session()
        status, reply = p.ask("mds_lookup", cred=cred(uid=2001), parent=1, name=b"file")
"""
import ctypes
import hashlib
import os
import queue
import re
import socket
import struct
import threading

SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PROTO = ["types.h", "mds_proto.h", "oss_proto.h", "peer_proto.h"]
ROOT_INO = 1
CLIENT, MDS, OSSD, AGENT, TOOL = 1, 2, 3, 4, 5
HELLO, REQUEST, REPLY, CALLBACK, CALLBACK_REPLY = 1, 2, 3, 4, 5
HEADER = "<4sBBHQQIIQiIIHHIIII"
NUMBERS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i32": "<i", "i64": "<q",
           "ino": "<Q"}
CRED_CHECKED = 1

xxhash = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
xxhash.restype, xxhash.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]


def blob(b):
    return struct.pack("<I", len(b)) + b


class Messages:
    """Numbers, kinds and fields of all messages and structs, and status numbers."""

    def __init__(self):
        text = "".join(open("%s/common/proto/%s" % (SRC, name)).read() for name in PROTO)
        text = text.replace("\\\n", " ")
        self.fields = {m.group(1): re.findall(r"F\((\w+), (\w+)\)", m.group(2))
                       for m in re.finditer(r"#define (\w+)_FIELDS\(F\)(.*)", text)}
        ops = re.findall(r"M\((0x[0-9a-f]{4}), (\w+), (\w+)\)", text)
        self.number = {name: int(number, 16) for number, name, _ in ops}
        self.kind = {name: kind for _, name, kind in ops}
        table = open(SRC + "/common/base/status.h").read()
        self.status = {-int(number): name
                       for name, number in re.findall(r"X\((\w+), (\d+),", table)}
        version = re.search(r"PROTO_VERSION_MAX (\d+)", open(SRC + "/common/proto/frame.h").read())
        self.version = int(version.group(1))

    def encode(self, name, values):
        unknown = set(values) - {field for _, field in self.fields[name]}
        assert not unknown, (name, unknown)
        return b"".join(self._put(kind, values.get(field)) for kind, field in self.fields[name])

    def _put(self, kind, value):
        if kind in NUMBERS:
            return struct.pack(NUMBERS[kind], value or 0)
        if kind == "bytes":
            return blob(value or b"")
        if kind == "uuid":
            return value or bytes(16)
        inner = self.encode(kind, value or {})
        return struct.pack("<H", len(inner)) + inner

    def decode(self, name, data):
        values, _ = self._get(name, data, 0)
        return values

    def _get(self, name, data, at):
        values = {}
        for kind, field in self.fields[name]:
            if at >= len(data):
                values[field] = b"" if kind in ("bytes", "uuid") else 0
            elif kind in NUMBERS:
                values[field], = struct.unpack_from(NUMBERS[kind], data, at)
                at += struct.calcsize(NUMBERS[kind])
            elif kind in ("bytes", "uuid"):
                n = 16 if kind == "uuid" else struct.unpack_from("<I", data, at)[0]
                at += 0 if kind == "uuid" else 4
                values[field] = data[at:at + n]
                at += n
            else:
                n, = struct.unpack_from("<H", data, at)
                values[field] = self.decode(kind, data[at + 2:at + 2 + n])
                at += 2 + n
        return values, at

    def decode_all(self, name, data):
        """Structs of that kind one after the other, each with its length."""
        found, at = [], 0
        while at < len(data):
            n, = struct.unpack_from("<H", data, at)
            found.append(self.decode(name, data[at + 2:at + 2 + n]))
            at += 2 + n
        return found


def cred(uid=0, gid=0, flags=0, groups=()):
    return {"uid": uid, "gid": gid, "flags": flags,
            "groups": struct.pack("<%dI" % len(groups), *groups), "umask": 0o22}


def read_key(path):
    with open(path) as f:
        return bytes.fromhex(f.read().strip())


class Refused(Exception):
    pass


class Frame:
    def __init__(self, header, body, bulk):
        (_, self.type, _, self.op, self.id, self.session, _, _, _,
         self.status) = struct.unpack(HEADER, header[:72])[:10]
        self.body, self.bulk = body, bulk


class Peer:
    """One connection. A thread answers its callbacks. addr: (host, port); source: the local
    address."""

    def __init__(self, addr, key, role=CLIENT, source=None, messages=None, timeout=30):
        self.m = messages or Messages()
        self.sock = socket.create_connection(addr, timeout,
                                             source_address=(source, 0) if source else None)
        self.last, self.session, self.seq = 0, 0, {}
        try:
            self._shake_hands(hashlib.blake2b(b"leat handshake 1", key=key,
                                              digest_size=32).digest(), role)
        except BaseException:
            self.sock.close()
            raise
        self.replies, self.sending = queue.Queue(), threading.Lock()
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster
        self.reader.join()
        self.sock.close()

    def _listen(self):
        try:
            self.sock.settimeout(None)
            while True:
                f = self._read()
                if f.type == CALLBACK:
                    with self.sending:
                        self._send(CALLBACK_REPLY, f.op, f.id, b"")
                elif f.type == REPLY:
                    self.replies.put(f)
        except OSError:
            self.replies.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _shake_hands(self, k, role):
        def proof(step, said):
            text = b"".join(struct.pack("<H", len(m)) + m for m in said)
            return hashlib.blake2b(bytes([step]) + text, key=k, digest_size=32).digest()

        said = [struct.pack("<II16sBI", self.m.version, self.m.version, bytes(16), role, 0) +
                blob(b"frames.py") + blob(os.urandom(32)) + struct.pack("<II", 64, 4 << 20)]
        self._send(HELLO, 0, 1, bytes(32) + said[0])
        said.append(self._read().body[32:])
        said.append(struct.pack("<i", 0))
        self._send(HELLO, 0, 3, proof(3, said) + said[2])
        status, = struct.unpack("<i", self._read().body[32:36])
        if status < 0:
            raise Refused(self.m.status.get(status, status))

    def _send(self, type_, op, id_, body, bulk=b"", **kw):
        head = struct.pack(HEADER, b"LEAT", type_, 0, op, id_, kw.get("session", 0),
                           kw.get("slot", 0), kw.get("epoch", 0), kw.get("seq", 0), 0, len(body),
                           len(bulk), 0, 0, kw.get("timeout_ms", 20000), kw.get("target", 0),
                           kw.get("chain", 0), 0)
        self.sock.sendall(head + struct.pack("<Q", xxhash(head + body, len(head + body))) + body +
                          bulk)

    def _take(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise ConnectionError("the other side has hung up")
            data += more
        return data

    def _read(self):
        head = self._take(80)
        body_len, bulk_len, n_desc = struct.unpack_from("<IIH", head, 44)
        self._take(16 * n_desc)
        body = self._take(body_len)
        return Frame(head, body, self._take(bulk_len))

    def ask(self, message, /, bulk=b"", frame=None, **fields):
        """(name of the status or "OK", decoded reply or None); the reply's bulk data is in
        self.bulk. frame: fields of the frame's header."""
        self.last += 1
        header = {"session": self.session}
        if self.m.kind[message] == "WRITE":
            slot = (frame or {}).get("slot", 0)
            self.seq[slot] = header["seq"] = self.seq.get(slot, 0) + 1
        header.update(frame or {})
        body = self.m.encode(message + "_req", fields)
        with self.sending:
            self._send(REQUEST, self.m.number[message], self.last, body, bulk, **header)
        f = self.replies.get(timeout=60)
        if f is None:
            raise ConnectionError("the other side has hung up")
        assert f.id == self.last
        self.bulk = f.bulk
        if f.status < 0:
            return self.m.status.get(f.status, f.status), None
        return "OK", self.m.decode(message + "_rep", f.body)

    def open_session(self, **fields):
        status, rep = self.ask("mds_session_open", client=os.urandom(16), name=b"frames.py",
                               slots=64, **fields)
        if status != "OK":
            raise Refused(status)
        self.session, self.seq = rep["session"], {}
        return rep

    def walk(self, path, who):
        """The attributes of the inode at that path, looked up name by name."""
        attr = {"ino": ROOT_INO}
        for name in path.strip("/").split("/"):
            status, rep = self.ask("mds_lookup", cred=who, parent=attr["ino"], name=name.encode())
            if status != "OK" or rep["attr"]["ino"] == 0:
                raise Refused(status)
            attr = rep["attr"]
        return attr

    def map(self):
        """The cluster map: {target: (host, port)}, {chain: its row}."""
        targets, chains, at, status = {}, {}, 0, "OK"
        while True:
            status, rep = self.ask("mds_map_get", **{"from": at})
            assert status == "OK", status
            for t in self.m.decode_all("target_info", rep["targets"]):
                first = t["addrs"].decode().split()[0].replace("tcp:", "")
                targets[t["id"]] = (first.rsplit(":", 1)[0], int(first.rsplit(":", 1)[1]))
            for c in self.m.decode_all("chain_info", rep["chains"]):
                n = len(c["members"]) // 4
                c["targets"] = struct.unpack("<%dI" % n, c["members"])
                chains[c["id"]] = c
            at = rep["next"]
            if at == 0:
                return targets, chains
