# SPDX-License-Identifier: Apache-2.0
"""pip install ./client/python: pure Python over libleat.so, which is included if it has been built.
Leaves no files beside this one."""
import atexit
import os
import re
import shutil
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")


def version():
    try:
        with open(os.path.join(ROOT, "Makefile")) as f:
            return re.search(r"^VERSION\s*:=\s*(\S+)", f.read(), re.M).group(1)
    except (OSError, AttributeError):
        return "0.1.0"


class with_library(build_py):
    def run(self):
        super().run()
        for path in (os.environ.get("LEAT_LIBRARY"),
                     os.path.join(os.environ.get("BUILD", ""), "libleat.so"),
                     os.path.join(ROOT, "build", "libleat.so")):
            if path and os.path.isfile(path):
                shutil.copy(path, os.path.join(self.build_lib, "leat", "libleat.so"))
                break


def elsewhere():
    """Options that put intermediate files into a folder that is removed with this process. For a
    link to this folder (pip install -e), the metadata stays here as long as the link."""
    if {"develop", "editable_wheel"} & set(sys.argv):
        return {}
    folder = tempfile.mkdtemp(prefix="leat-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"build": {"build_base": os.path.join(folder, "build")},
            "egg_info": {"egg_base": folder}}


setup(name="leat", version=version(),
      description="Loader and staging of the Leat parallel file system",
      packages=["leat"],
      package_data={"leat": ["py.typed"]},
      python_requires=">=3.8", extras_require={"numpy": ["numpy"]},
      options=elsewhere(),
      cmdclass={"build_py": with_library})
