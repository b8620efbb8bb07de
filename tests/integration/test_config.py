#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`leat config check` and the programs agree on leat.conf: equal verdicts with equal words. A
thousand files, changed at random from a seed; and, for some of them, a real start of each
program."""
# timeout: 120
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback

BUILD = os.environ["BUILD"]
SEED, FILES = int(os.environ.get("LEAT_CONFIG_SEED", "1")), 1000
PROGRAMS = {"leat-mds": ["leat-mds"], "leat-ossd": ["leat-ossd"], "mount.leat": ["mount.leat"],
            "leat agent": ["leat", "agent"]}
SECTIONS = ("cluster", "mds", "ossd", "client", "mount", "agent")
VALUES = ["", "1", "0", "-1", "30s", "8MB", "2TiB", "4K", "010", "0x10", "1e3", "1 K", "yes", "no",
          "maybe", "mds1", "mds1:7440", "mds1:70000", "mds1:7440,mds2:7440", "verbs:mds1:7540",
          "[::1]:7440", "tcp:mds1:7440", "rdma", "verbs", "tcp", "auto", "verbose", "debug",
          "sealed", "staged", "0-3,8", "all", "9-1", "/var/lib/x", "/a b", "x" * 1023, "x" * 1024,
          "x" * 1300, "\x07", "caf\u00e9", "18446744073709551616", "99999999999"]


def run(argv, **kw):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=100, **kw)


def write(path, data, mode=0o644):
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    os.chmod(path, mode)
    return path


class Mutations:
    def __init__(self, folder, sample):
        self.rng = random.Random(SEED)
        self.sample = sample
        key = os.urandom(32).hex().encode()
        self.key = write(folder + "/key", key, 0o600)
        self.keys = [folder + "/none", folder, "relative", write(folder + "/open", key, 0o644),
                     write(folder + "/short", key[1:], 0o600), write(folder + "/empty", b"", 0o600)]

    def lines(self):
        """A file that all programs accept: each section, with some parameters at their defaults."""
        found = []
        for section in SECTIONS:
            names = sorted(self.sample[section])
            found.append("[%s]" % section)
            if section == "cluster":
                found.append("key_file = " + self.key)
                names.remove("key_file")
            for name in self.rng.sample(names, self.rng.randrange(4)):
                value = self.sample[section][name]["default"]
                value = {True: "yes", False: "no"}.get(value, value) \
                    if isinstance(value, bool) else value
                found.append("%s = %s" % (name, value))
        return found

    def set_value(self, lines, i):
        lines[i] = lines[i].split("=")[0] + "= " + self.rng.choice(VALUES)

    def comment(self, lines, i):
        lines[i] += self.rng.choice([" # x", " ; x", "#x", ";x", "\t# \"x", " # mds = a"])

    def quote(self, lines, i):
        name, eq, value = lines[i].partition("=")
        if eq:
            q = self.rng.choice("\"'")
            lines[i] = "%s= %s%s%s" % (name, q, value.strip(), self.rng.choice(
                [q, q, q, "", q + " # x", q + " x", "\"'"]))

    def twice(self, lines, i):
        lines.insert(self.rng.randrange(len(lines) + 1), lines[i])

    def drop(self, lines, i):
        del lines[i]

    def letter(self, lines, i):
        at = self.rng.randrange(len(lines[i]) + 1)
        what = self.rng.choice(["", "x", "=", ":", "[", "]", " ", "#", "\"", "\t", "\x00", "\x7f",
                                "\x1b", "\r", "\ufeff", "\n", "\udce4"])
        lines[i] = lines[i][:at] + what + lines[i][at + self.rng.randrange(2):]

    def swap(self, lines, i):
        k = self.rng.randrange(len(lines))
        lines[i], lines[k] = lines[k], lines[i]

    def key_file(self, lines, i):
        lines[1] = "key_file = " + self.rng.choice(self.keys)

    def foreign(self, lines, i):
        section = self.rng.choice(SECTIONS)
        lines.insert(i, "%s = %s" % (self.rng.choice(sorted(self.sample[section])),
                                     self.rng.choice(VALUES)))

    def file(self):
        lines = self.lines()
        change = [self.set_value, self.set_value, self.set_value, self.comment, self.quote,
                  self.twice, self.drop, self.letter, self.swap, self.key_file, self.foreign]
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3))):
            self.rng.choice(change)(lines, self.rng.randrange(1, len(lines)))
        end = self.rng.choice(["\n", "\n", "\n", "\r\n", ""])
        return ("\n".join(lines) if not end else end.join(lines) + end).encode(
            errors="surrogateescape")


def verdicts(program, files):
    """{file: the words of the program's refusal, or "" if it accepts the file}"""
    p = run([BUILD + "/" + PROGRAMS[program][0], *PROGRAMS[program][1:], "--check-config", *files])
    good = set(l.removesuffix(": good") for l in p.stdout.decode().splitlines())
    words = p.stderr.decode().splitlines()
    assert p.returncode == (0 if not words else 1 if program == "mount.leat" else 2), p
    assert len(good) + len(words) == len(files), (program, len(good), len(words))
    assert all(w.startswith(program + ": ") for w in words), words
    words.reverse()
    return {f: "" if f in good else words.pop()[len(program) + 2:] for f in files}


def whole(refusal):
    """The one line of a program; the check prints it in two."""
    of_key = refusal["message"].startswith("cluster key ")
    return refusal["message"] + (". " + refusal["hint"] if of_key else "")


def checked(files):
    """{file: {program: the check's verdict}}"""
    p = run([BUILD + "/leat", "--json", "config", "check", *files])
    found = [json.loads(l) for l in p.stdout.decode().splitlines()]
    assert [d["file"] for d in found] == files and p.returncode == 2
    for d in found:
        assert d["good"] == (not d["refusals"]) == ("error" not in d), d
    return {d["file"]: {name: whole(r) for r in d["refusals"] for name in r["programs"]}
            for d in found}


def test_same_verdict(folder):
    sample = json.loads(run([BUILD + "/leat", "--json", "config", "sample"]).stdout)
    changes = Mutations(folder, sample)
    files = [write("%s/%d.conf" % (folder, i), changes.file()) for i in range(FILES)]
    said, n_good, refused = checked(files), 0, {}
    for program in PROGRAMS:
        for name, words in verdicts(program, files).items():
            assert words == said[name].get(program, ""), (program, name, words, said[name])
            if words:
                refused.setdefault(program, {}).setdefault(words.split(": ", 1)[-1], name)
    n_good = sum(not d for d in said.values())
    print("seed %d: %d files good, %d refused, %d reasons" % (
        SEED, n_good, FILES - n_good, len(set().union(*refused.values()))))
    assert n_good > FILES / 10 and FILES - n_good > FILES / 4  # else the test proves little
    starts(folder, said, refused)


def starts(folder, said, refused):
    """A real start ends with equal words."""
    os.mkdir(folder + "/mnt")
    ways = {"leat-mds": lambda f: ["leat-mds", "-c", f, "run"],
            "leat-ossd": lambda f: ["leat-ossd", "-c", f, "run"],
            "mount.leat": lambda f: ["mount.leat", "leat", folder + "/mnt", "-o", "conf=" + f],
            "leat agent": lambda f: ["leat", "--conf", f, "agent"]}
    for program, way in ways.items():
        for name in sorted(refused[program].values())[::7][:8]:
            argv = way(name)
            p = run([BUILD + "/" + argv[0], *argv[1:]])
            words = p.stderr.decode().splitlines()
            got = words[0].removeprefix(program + ": ")
            if got.startswith("cluster key ") and program == "leat agent":
                got += ". " + words[1].strip()
            assert got == said[name][program], (program, name, words, said[name])
            assert p.returncode == (1 if program == "mount.leat" else 2), p
    # With a good file the program fails at the next step, a folder that does not exist.
    for name in [n for n in said if not said[n]][:2]:
        for program in ("leat-mds", "leat-ossd"):
            p = run([BUILD + "/" + program, "-c", name, "--set", "data_dir=" + folder + "/no",
                     "--set", "listen=127.0.0.1:0", "run"])
            assert p.returncode == 1 and b"no store here: is its disk mounted?" in \
                p.stderr, p


def test_nothing_is_made_below_a_folder_that_is_missing(folder):
    """The folder may be a disk that is not mounted, and files would go to the system's disk."""
    conf = write(folder + "/conf", "[cluster]\nkey_file = %s\n" %
                 write(folder + "/k", os.urandom(32).hex(), 0o600))
    os.mkdir(folder + "/data")
    leat = [BUILD + "/leat", "--conf", conf, "stage", "in", folder + "/data", "--to"]

    def server(name, *command, to):
        return [BUILD + "/" + name, "-c", conf, "--set", "data_dir=" + to,
                *(["--set", "data_size=64M"] if name == "leat-ossd" else []), *command]

    missing, there = folder + "/gone/disk", folder + "/disk"
    for argv, code in ((server("leat-mds", "format", to=missing), 1),
                       (server("leat-mds", "restore", folder, to=missing), 1),
                       (server("leat-ossd", "format", to=missing), 1),
                       (server("leat-ossd", "format", to=there + "0 " + missing + "/"), 1),
                       (leat + [missing], 9), (leat + [there + "/" + "x", "--to", missing], 9)):
        os.makedirs(there, exist_ok=True)
        p = run(argv)
        assert p.returncode == code and b"Is its disk mounted?" in p.stderr, p
        assert (folder + "/gone: ").encode() in p.stderr, p
        assert not os.path.exists(folder + "/gone"), argv
    p = run(server("leat-mds", "format", to=folder + "/mds/"))
    assert p.returncode == 0 and os.path.isdir(folder + "/mds/store"), p


def test_what_an_administrator_writes(folder):
    """Each row: lines of leat.conf, the line of the error, words of the message."""
    key = write(folder + "/k", os.urandom(32).hex(), 0o600)
    rows = [("[mds]\nlog_level = verbose", 4, "error, warn, info or debug"),
            ("transport = rdma", 3, "auto, verbs or tcp"),
            ("mds = mds1", 3, "'mds1' is not host:port"),
            ("mds = mds1:7440 # comment", 0, ""),
            ("mds = mds1:7440 ; comment", 0, ""),
            ("mds = \"mds1:7440\"", 0, ""),
            ("mds = \"mds1:7440", 3, "not closed"),
            ("mds = a:1\nmds = b:1", 4, "mds is set twice: also in line 3"),
            ("[client]\nrequest_timeout_ms = 30s", 4, "a number (of ms, without the unit)"),
            ("[ossd]\ncache_size = 8MB", 0, ""),
            ("[ossd]\ncache_size = 64 K", 4, "is not a size")]
    path = folder + "/row.conf"
    for text, line, words in rows:
        write(path, "[cluster]\nkey_file = %s\n%s\n" % (key, text))
        p = run([BUILD + "/leat", "config", "check", path])
        said = p.stderr.decode()
        assert p.returncode == (2 if line else 0), (text, p)
        assert said == "" if not line else "%s:%d: " % (path, line) in said and words in said, p
    none = write(path, "[cluster]\nkey_file = %s/none\n" % folder)
    p = run([BUILD + "/leat", "config", "check", none])
    assert p.returncode == 2 and folder + "/none: no such file" in p.stderr.decode(), p
    assert run([BUILD + "/leat", "config", "check", "--no-key", none]).stdout == b"good\n"
    env = dict(os.environ, LEAT_CONF=folder + "/nothing.conf")
    p = run([BUILD + "/leat", "config", "check"], env=env)
    assert p.returncode == 2 and folder + "/nothing.conf" in p.stderr.decode(), p


def test_shown_as_json(folder):
    key = write(folder + "/k2", os.urandom(32).hex(), 0o600)
    path = write(folder + "/show.conf", "[cluster]\nkey_file = %s\n[ossd]\ncache_size = 2M\n"
                 "sync = no\n[mount]\npassthrough = off\n" % key)
    shown = json.loads(run([BUILD + "/leat", "--conf", path, "--json", "config", "show"]).stdout)
    assert tuple(shown) == SECTIONS, shown
    assert shown["ossd"]["cache_size"] == 2 << 20 and shown["ossd"]["sync"] is False
    assert shown["cluster"]["key_file"] == key and shown["mount"]["passthrough"] == "off"
    sample = json.loads(run([BUILD + "/leat", "--json", "config", "sample"]).stdout)
    about = sample["mount"]["passthrough"]
    assert about["words"] == ["sealed", "staged", "off"] and about["default"] == "sealed", about
    about = sample["mds"]["session_ttl_ms"]
    assert (about["unit"], about["least"], about["greatest"]) == ("ms", 1000, 86400000), about


def main():
    failed = []
    for name in [n for n in globals() if n.startswith("test_")]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                globals()[name](folder)
                print(name)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                failed.append(name)
    sys.exit("failed: " + " ".join(failed) if failed else 0)


main()
