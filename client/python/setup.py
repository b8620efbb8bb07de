"""pip install ./client/python: pure Python over libleat.so, which is taken along where it has
been built."""
import os
import re
import shutil

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


setup(name="leat", version=version(),
      description="Loader and staging of the Leat parallel file system",
      packages=["leat"],
      package_data={"leat": ["py.typed"]},
      python_requires=">=3.8", extras_require={"numpy": ["numpy"]},
      cmdclass={"build_py": with_library})
