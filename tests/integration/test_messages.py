#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Error messages name the object, the cause, and the next step: a table of provoked errors of the
command line, of staging and of Python, whose messages are checked."""
# timeout: 120
import errno
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import time

if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3"):
    os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import BUILD, SRC, Cluster
sys.path.insert(0, SRC + "/client/python")

# None of these is a cause, and none may be the whole message.
BLAMES = ("internal error", "wrong usage", "unknown status", "The copy on the servers is damaged",
          "Traceback", "4294967295", "has no attribute", "bad configuration")


def write(path, data, mode=0o644):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
    return path


def conf(c, name, key=None, mds=None):
    """The cluster's configuration with another key file or another server."""
    text = []
    with open(c.dev + "/conf") as f:
        for line in f:
            word = line.split("=")[0].strip()
            text.append("key_file = %s\n" % key if key and word == "key_file" else
                        "mds = %s\n" % mds if mds and word == "mds" else line)
    return write("%s/%s" % (c.dir, name), "".join(text).encode())


def command_line(c):
    """(arguments, exit status, words of object and cause, words of the next step; none if a named
    file does not exist)"""
    d, mnt, nvme = c.dir, c.mnt(), c.dir + "/nvme"
    os.makedirs(nvme)
    os.makedirs(mnt + "/good")
    os.makedirs(mnt + "/notar")
    write(mnt + "/good/a", b"x" * 1000)
    write(mnt + "/notar/a.tar", b"this is no archive\n" * 100)
    write(mnt + "/plain", b"x")
    c.leat("dataset", "create", "good@v1", mnt + "/good")
    c.leat("dataset", "create", "--format", "files", "notar@v1", mnt + "/notar")
    with open(c.dev + "/conf") as f:
        key = next(l.split("=")[1].strip() for l in f if l.startswith("key_file"))
    with open(key, "rb") as f:
        secret = f.read()
    open_key = conf(c, "open-key", key=write(d + "/open", secret, 0o644))
    no_key = conf(c, "no-key", key=d + "/none")
    bad_key = conf(c, "bad-key", key=write(d + "/bad", b"abc\n", 0o600))
    wrong_key = conf(c, "wrong-key", key=write(d + "/wrong", b"0" * 64 + b"\n", 0o600))
    closed = conf(c, "closed", mds="127.0.0.1:1")
    rows = []
    for name in ("x y@v1", "@v1", "a@", "a@@b", "-@v1", "\udce4@v1", "x" * 200 + "@v1", "a/b@v1"):
        rows.append((["dataset", "create", name, mnt + "/good"], 2, [name[-3:], "letters"], ["@"])
                    if not name.startswith("-") else
                    (["dataset", "create", name, mnt + "/good"], 2, ["dataset"], ["--help"]))
    for name in ("x y@v1", "@v1", "a@", "a@@b"):
        rows += [(["dataset", "show", name], 2, [name, "not a name of a data set"],
                  ["NAME@VERSION"])]
    for name in ("none@v1", "none@v2"):
        rows += [(["dataset", "show", name], 9, [name, "no such"], ["leat dataset ls"]),
                 (["stage", "in", name, "--to", nvme], 9, [name], ["leat dataset ls"]),
                 (["stage", "plan", name, "--to", nvme], 9, [name], ["leat dataset ls"]),
                 (["dataset", "seal", name], 9, [name], ["leat dataset ls"])]
    rows += [
        (["dataset", "create", "good@v1", mnt + "/good"], 1, ["good@v1", "exists"],
         ["another version"]),
        (["dataset", "create", "n@v1", mnt + "/nothing"], 9, ["/nothing", "o such file"],
         ["leat:/PATH"]),
        (["dataset", "create", "n@v1", d], 2, [d, "not on a Leat mount"], ["--catalog"]),
        (["stage", "in", "notar@v1", "--to", nvme, "--unpack"], 6, ["a.tar", "tar"],
         ["not of the format of its name"]),
        (["dataset", "create", "n@v1", mnt + "/notar"], 6, ["a.tar", "tar"],
         ["not of the format of its name"]),
        (["stage", "in", "good@v1"], 2, ["--to"], ["--to"]),
        (["stage", "in", "good@v1", "--to", "/proc/x"], 1, ["/proc/x", "no such"],
         ["same command again"]),
        (["stage", "in", "good@v1", "--to", mnt + "/plain"], 1, ["plain", "not a directory"],
         ["same command again"]),
        (["stage", "in", "good@v1", "--to", nvme, "--capacity", "10"], 8, ["more needed"],
         ["leat stage ls"]),
        (["stage", "in", "good@v1", "--to", nvme, "--lease", "a b"], 2, ["a b"], ["--help"]),
        (["stage", "in", "good@v1", "--to", nvme, "--bogus"], 2, ["stage"], ["--help"]),
        (["stage", "in", "/nothing", "--to", nvme], 9, ["/nothing"], ["leat:/PATH"]),
        (["stage", "out", d + "/nothing", mnt + "/out"], 9, ["/nothing", "o such file"], []),
        (["stage", "path", "none@v1", "--to", nvme], 9, ["none@v1"], ["leat"]),
        (["cp", "/nothing", mnt], 1, ["/nothing", "no such file"], []),
        (["rm", mnt + "/nothing"], 1, ["/nothing", "no such file"], []),
        (["layout", "get", "/nothing"], 9, ["/nothing"], []),
        (["bogus"], 2, ["bogus"], ["--help"])]
    for verb in (["status"], ["df"], ["target", "list"]):
        rows += [
            (["--conf", open_key, *verb], 10, [d + "/open", "others than its owner"],
             ["chmod 0600"]),
            (["--conf", no_key, *verb], 9, [d + "/none", "no such file"], ["key_file"]),
            (["--conf", bad_key, *verb], 2, [d + "/bad", "64 hex digits"], ["openssl rand"]),
            (["--conf", wrong_key, *verb], 10, ["127.0.0.1", "wrong cluster key"], ["key_file"]),
            (["--conf", closed, *verb], 11, ["127.0.0.1:1", "connection refused"],
             ["leat-mds running"])]
    for verb in (["dataset", "ls"], ["stage", "in", "good@v1", "--to", nvme]):
        rows += [(["--conf", no_key, *verb], 9, [no_key, "no such file"], ["key_file"]),
                 (["--conf", wrong_key, *verb], 10, [wrong_key, "wrong cluster key"], ["key_file"]),
                 (["--conf", closed, *verb], 11, [closed, "connection refused"],
                  ["leat-mds running"])]
    return rows


def test_command_line(c):
    rows, wrong = command_line(c), []
    for argv, status, words, steps in rows:
        p = subprocess.run([BUILD + "/leat", *argv], env=dict(os.environ,
                           LEAT_CONF=c.dev + "/conf"),
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=300, check=False)
        told = p.stderr.decode(errors="surrogateescape")
        lacking = [w for w in words + steps if w not in told and w != "\udce4@v1"[-3:]]
        if p.returncode != status or lacking or any(b in told for b in BLAMES):
            wrong.append("leat %s: %d (not %d), lacks %r:\n%s" % (" ".join(argv), p.returncode,
            status,
                                                               lacking, told))
    assert not wrong, "\n".join(["%d of %d:" % (len(wrong), len(rows))] + wrong).encode(
        errors="backslashreplace").decode()
    print("%d errors of the command line" % len(rows))


def test_unknown_host(c):
    """The error appears immediately if the host is unknown, and at the timeout if no name server
    answers. Each program that connects names the host."""
    at = c.dir + "/names"
    os.makedirs(at + "/mnt")
    files = write(at + "/files", b"hosts: files\n")
    dns = write(at + "/dns", b"hosts: dns\n")
    nobody = write(at + "/resolv.conf", b"nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    leat = BUILD + "/leat"
    bind = 'mount --bind "$1" /etc/nsswitch.conf && mount --bind "$2" /etc/resolv.conf && ' \
           'shift 2 && exec "$@"'

    def cases(word, seconds):
        name = conf(c, word, mds="nosuch.example:7440")
        with open(name, "a") as f:
            f.write("\n[client]\nmount_timeout_ms = %d000\n" % seconds)
        python = ("import sys; sys.path.insert(0, %r); import leat; leat.FileSystem(%r)"
                  % (SRC + "/client/python", name))
        return (([leat, "--conf", name, "status", "--timeout", str(seconds)],
                 ["getent hosts", name]),
                ([leat, "--conf", name, "dataset", "ls"], ["getent hosts", name]),
                ([BUILD + "/mount.leat", "leat", at + "/mnt", "-o", "conf=" + name],
                 ["/etc/hosts"]),
                ([sys.executable, "-c", python], ["LeatError", "/etc/hosts", name]))

    for source, cause, at_once in ((files, "no such host is known", True),
                                   (dns, "no name server has told", False)):
        # Far from the timeout, on a busy machine too.
        for argv, steps in cases("files", 40) if at_once else cases("dns", 3)[:2]:
            began = time.monotonic()
            p = subprocess.run(["unshare", "-m", "sh", "-c", bind, "sh", source, nobody, *argv],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=300, check=False)
            took, told = time.monotonic() - began, p.stdout.decode()
            if at_once:
                assert took < 20, (argv, took, told)
            else:
                assert took >= 2.5, (argv, took, told)
                steps = ["resolv.conf"]
            assert p.returncode != 0, (argv, told)
            assert argv[0] != leat or p.returncode == 11, (argv, p.returncode, told)
            for word in ["nosuch.example:7440", cause, *steps]:
                assert word in told, (argv, word, told)


def python_rows(c):
    """(action, class, words)"""
    import leat
    d = c.dir + "/py"
    os.makedirs(d)
    for i in range(4):
        write("%s/%d.txt" % (d, i), b"x")
    ds = leat.Dataset(pathlib.Path(d))
    closed = conf(c, "py-closed", mds="127.0.0.1:1")

    def load(**options):
        return lambda: leat.DataLoader(ds, **options)

    return [
        (lambda: leat.Dataset("digits@v1"), ValueError, ["digits@v1", "leat:digits@v1"]),
        (lambda: leat.Dataset("some/where"), ValueError, ["some/where", "absolute"]),
        (lambda: leat.Dataset("leat:none@v1", conf=c.dev + "/conf"), FileNotFoundError,
         ["none@v1", "no such data set", "leat dataset ls"]),
        (lambda: leat.Dataset(d + "/none"), FileNotFoundError, [d + "/none", "no such file"]),
        (lambda: leat.Dataset(17), TypeError, ["int", "PathLike"]),
        (lambda: leat.Dataset(d, format="zzz"), OSError, ["zzz", "tfrecord"]),
        (lambda: leat.Dataset(d, format="tar"), FileNotFoundError, [d, "tar"]),
        (lambda: leat.Dataset("leat:a@v1", conf=closed), ConnectionRefusedError,
         [closed, "refused", "leat status"]),
        (lambda: leat.Dataset("leat:a@v1", conf=d + "/none"), OSError,
         [d + "/none", "o such file", "LEAT_CONF"]),
        (lambda: leat.DataLoader("leat:x", 8), TypeError, ["'leat:x'", "leat.Dataset("]),
        (load(batch_size=-1), ValueError, ["batch_size", "-1"]),
        (load(batch_size=0), ValueError, ["batch_size", "0", "at least one"]),
        (load(global_batch=1 << 40), ValueError, ["global_batch", str(1 << 40)]),
        (load(), ValueError, ["batch_size", "global_batch"]),
        (load(batch_size=2, order="x"), OSError, ["x", "sequential"]),
        (load(batch_size=2, tail="x"), OSError, ["x", "shorter"]),
        (load(batch_size=2, fields=["jpg"]), FileNotFoundError, ["jpg"]),
        (load(batch_size=2, on_error="x"), ValueError, ["'x'", "skip"]),
        (lambda: leat.DataLoader(ds, 2).next()["jpg"], KeyError, ["jpg", "data"]),
        (lambda: leat.DataLoader(ds, 2).load_state_dict({}), OSError, ["state"]),
        (lambda: leat.Order(ds, "zz"), OSError, ["zz", "sequential"]),
        (lambda: leat.stage_in(d + "/none", d + "/st"), FileNotFoundError, [d + "/none",
        "no such"]),
        (lambda: leat.stage_in(pathlib.Path(d), "/proc/none"), FileNotFoundError, ["/proc/none"])]


def test_python(c):
    import leat
    wrong, rows = [], python_rows(c)
    for i, (call, kind, words) in enumerate(rows):
        try:
            call()
            wrong.append("%d: nothing is wrong with it" % i)
        except Exception as e:
            lacking = [w for w in words if w not in str(e)]
            if not isinstance(e, kind) and not (kind is ValueError and getattr(
                    e, "errno", 0) == errno.EINVAL) or lacking or any(b in str(e) for b in BLAMES):
                wrong.append("%d: %s: %s lacks %r" % (i, type(e).__mro__[:3], e, lacking))
    assert not wrong, "\n".join(wrong)
    print("%d errors of Python" % len(rows))
    # Closes the connections while the servers still run.
    rows = call = None
    gc.collect()
    for number in (errno.ENOENT, errno.EACCES, errno.ETIMEDOUT, errno.ESTALE, errno.ECONNREFUSED):
        e = leat.LeatError(number, "a: text", "a", 7, "local")
        again = pickle.loads(pickle.dumps(e))
        for one in (e, again):
            assert isinstance(one, leat.LeatError) and isinstance(one, type(OSError(number, "")))
            assert (one.errno, one.filename, one.offset, one.origin, str(one)) == (
                number, "a", 7, "local", "a: text")


def main():
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("root and /dev/fuse are needed")
        sys.exit(77)
    with Cluster(ossd=1, mounts=1) as c:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
                test(c)
                print(name, flush=True)


if __name__ == "__main__":
    main()
