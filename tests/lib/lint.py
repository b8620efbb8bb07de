# SPDX-License-Identifier: Apache-2.0
"""Common code of the scripts in tests/lint: the files of the tree, comment stripping, the
ratchet."""
import os
import re
import subprocess
import sys

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.chdir(SRC)
RATCHET = "tests/lint/ratchet"


def files(*suffixes):
    """The files of the project that git does not ignore; without git, all outside build*."""
    git = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, check=False)
    if git.returncode == 0:
        paths = [os.fsdecode(p) for p in git.stdout.split(b"\0") if p]
    else:
        paths = [os.path.relpath(os.path.join(d, f)) for d, _, names in os.walk(".") for f in names]
        paths = [p for p in paths if not re.match(r"build|\.git/", p)]
    paths = [p for p in paths if not suffixes or p.endswith(suffixes)]
    return sorted({p for p in paths if os.path.isfile(p) and not os.path.islink(p)})


def read(path):
    with open(path, errors="replace") as f:
        return f.read()


def shebang(path):
    with open(path, "rb") as f:
        line = f.readline(100)
    return line.decode(errors="replace") if line.startswith(b"#!") else ""


def strip(text):
    """C without comments and without the content of strings; line numbers stay."""
    def blank(m):
        s = m.group(0)
        return s if s[0] not in "/\"'" else (
            "\n" * s.count("\n") if s[0] == "/" else s[0] + s[0])
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text,
                  flags=re.S)


def includes(path):
    """(line number, name, quoted?) of each #include, comments ignored."""
    found = []
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), read(path), flags=re.S)
    for n, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if m:
            found.append((n, m.group(2), m.group(1) == '"'))
    return found


def ratchet():
    """{(kind, what): value} of the exceptions that may stay, and shrink."""
    allowed = {}
    if os.path.exists(RATCHET):
        for line in read(RATCHET).splitlines():
            fields = line.split("#")[0].split()
            if len(fields) == 3:
                allowed[fields[0], fields[1]] = int(fields[2])
    return allowed


def finish(problems, hint=""):
    for p in problems:
        print(p)
    if problems and hint:
        print(hint)
    sys.exit(1 if problems else 0)
