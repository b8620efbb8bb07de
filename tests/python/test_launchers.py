#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rank and world under the launchers that people use. mpirun of Open MPI and MPICH really run where
they are installed; Slurm's are in tests/integration/test_slurm.py; of the others the environment is
that of their documentation, which the tests' names say."""
import contextlib
import glob
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
from leat import _ranks  # noqa: E402
from leat._ranks import ranks_of_node  # noqa: E402

# What Slurm sets in a batch script of --nodes=2 --ntasks=8, and for a task that srun starts there.
BATCH = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "8",
         "SLURM_NPROCS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
         "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_GTIDS": "0"}


def step(rank, tasks=8, per_node=4):
    return dict(BATCH, SLURM_STEP_ID="0", SLURM_STEPID="0", SLURM_PROCID=str(rank),
                SLURM_NTASKS=str(tasks), SLURM_STEP_NUM_TASKS=str(tasks),
                SLURM_LOCALID=str(rank % per_node), SLURM_NODEID=str(rank // per_node),
                SLURM_STEP_TASKS_PER_NODE="%d(x%d)" % (per_node, tasks // per_node))


def torchrun(rank, world, local):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % local),
            "LOCAL_WORLD_SIZE": str(local), "GROUP_RANK": str(rank // local),
            "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}


def open_mpi(rank, world, local):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(world),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(local), "PMIX_RANK": str(rank)}


def hydra(rank, world, local):
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(world), "PMI_FD": "6",
            "MPI_LOCALRANKID": str(rank % local), "MPI_LOCALNRANKS": str(local)}


def horovodrun(rank, world, local):
    return {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(world),
            "HOROVOD_LOCAL_RANK": str(rank % local), "HOROVOD_LOCAL_SIZE": str(local),
            "HOROVOD_CONTROLLER": "gloo"}


def without(env, *names):
    return {k: v for k, v in env.items() if k not in names}


class Documented(unittest.TestCase):
    """Environments according to the launchers' documentation."""

    def check(self, env, rank, world, by, local=1):
        with mock.patch.object(_ranks, "_said", set()), \
                self.assertLogs("leat", logging.INFO) as logs:
            for _ in range(2):
                self.assertEqual(leat.rank_and_world(env=env), (rank, world), env)
        self.assertEqual([r.getMessage() for r in logs.records if r.levelno == logging.INFO],
                         ["rank %d of %d (by %s)" % (rank, world, by)], "said once")
        self.assertEqual(ranks_of_node(rank, world, env=env), local, env)

    def test_documented_environment_of_a_notebook_and_of_python(self):
        for env in ({}, {"JPY_PARENT_PID": "1", "JPY_SESSION_NAME": "a.ipynb"}):
            self.check(env, 0, 1, "no launcher")

    def test_documented_environment_of_sbatch_without_srun(self):
        for env in (BATCH, dict(BATCH, SLURM_STEPID="4294967291"),  # the batch step
                    dict(BATCH, SLURM_STEP_ID="4294967290", SLURM_STEP_NUM_TASKS="1"),  # salloc's
                    dict(BATCH, SLURM_STEP_ID="4294967292"), dict(BATCH, SLURM_STEP_ID="batch"),
                    dict(BATCH, JPY_PARENT_PID="1")):
            with mock.patch.object(_ranks, "_said", set()), \
                    self.assertLogs("leat", logging.WARNING) as logs:
                leat.rank_and_world(env=env)
            self.assertIn("SLURM_NTASKS=8, but srun did not start", logs.output[0])
            self.check(env, 0, 1, "no launcher")

    def test_documented_environment_of_srun(self):
        for r in range(8):
            self.check(step(r), r, 8, "SLURM_PROCID", 4)
            self.check(without(step(r), "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"), r, 8,
                       "SLURM_PROCID", 4)
            # With --mpi=pmi2 and pmix.
            self.assertEqual(leat.rank_and_world(env=dict(
                step(r), PMI_RANK=str(r), PMI_SIZE="8", PMIX_RANK=str(r))), (r, 8))
        self.check(step(0, 1, 1), 0, 1, "SLURM_PROCID")
        self.check(dict(step(1, 2), SLURM_STEP_TASKS_PER_NODE="1,1"), 1, 2, "SLURM_PROCID")

    def test_documented_environment_of_torchrun_in_srun(self):
        for r in range(8):
            self.check({**step(r // 4, 2, 1), **torchrun(r, 8, 4)}, r, 8, "RANK", 4)
            self.check({**BATCH, **torchrun(r, 8, 4)}, r, 8, "RANK", 4)
            self.check({**open_mpi(r // 4, 2, 1), **torchrun(r, 8, 4)}, r, 8, "RANK", 4)

    def test_documented_environment_of_mpirun_in_srun_and_in_sbatch(self):
        """mpirun starts its daemons by srun: each daemon is a task of a step."""
        for r, mpi, name in itertools.product(range(8), (open_mpi, hydra), "ab"):
            around = step(r // 4, 2, 1) if name == "a" else dict(
                step(0, 1, 1), PMI_RANK="0", PMI_SIZE="1")
            env = {**around, **mpi(r, 8, 4)}
            self.check(env, r, 8, next(k for k in env if k.endswith("_RANK") and (
                "COMM" in k or mpi is hydra)), 4)
        # In a step of srun --mpi=pmi2, whose PMI_RANK is no second mpirun.
        self.check({**step(1, 2, 1), "PMI_RANK": "1", "PMI_SIZE": "2", **open_mpi(5, 8, 4)}, 5, 8,
                   "OMPI_COMM_WORLD_RANK", 4)

    def test_documented_environment_of_horovodrun(self):
        for r in range(8):
            self.check(horovodrun(r, 8, 4), r, 8, "HOROVOD_RANK", 4)
            self.check({**BATCH, **horovodrun(r, 8, 4)}, r, 8, "HOROVOD_RANK", 4)
            self.check({**open_mpi(r, 8, 4), **horovodrun(r, 8, 4)}, r, 8, "OMPI_COMM_WORLD_RANK",
                       4)

    def test_documented_environment_of_kubernetes_pytorchjob(self):
        for r in range(3):
            pod = {"RANK": str(r), "WORLD_SIZE": "3", "MASTER_ADDR": "job-master-0",
                   "MASTER_PORT": "23456", "PET_NNODES": "3", "PET_NODE_RANK": str(r),
                   "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
            self.check(pod, r, 3, "RANK")
        for r in range(6):
            self.check({**pod, **torchrun(r, 6, 2)}, r, 6, "RANK", 2)

    def test_documented_environment_of_mvapich(self):
        env = {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "4",
               "MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "2"}
        self.check(env, 3, 4, "MV2_COMM_WORLD_RANK", 2)

    def test_contradictions_and_halves_are_refused(self):
        for env, words in (({**open_mpi(1, 2, 1), **hydra(3, 4, 1)}, "OMPI.*PMI_RANK=3 PMI_SIZE=4"),
                           ({**open_mpi(1, 2, 1), **horovodrun(0, 2, 1)}, "contradicts itself"),
                           ({"RANK": "4", "WORLD_SIZE": "4"}, "no such rank"),
                           ({"RANK": "0", "WORLD_SIZE": "0"}, "no such rank"),
                           (dict(step(1), SLURM_PROCID="9"), "no such rank"),
                           ({"RANK": "1"}, "of how many.*set WORLD_SIZE"),
                           ({"WORLD_SIZE": "4", "LOCAL_RANK": "1"}, "nothing says which this is"),
                           ({"PMI_RANK": "1"}, "of how many"), ({"PMIX_RANK": "0"}, "of how many")):
            with self.assertRaisesRegex(ValueError, words):
                leat.rank_and_world(env=env)
        self.check({"WORLD_SIZE": "1", "RANK": "first"}, 0, 1, "no launcher")
        self.assertEqual(leat.rank_and_world(2, 4, {"RANK": "9", "WORLD_SIZE": "2"}), (2, 4))
        with self.assertRaises(ValueError):
            leat.rank_and_world(1, "auto", {})
        for odd in ("٣", "-1", "1e0", "", "9" * 5000):
            self.check({"RANK": odd, "WORLD_SIZE": "4", **step(1)}, 1, 8, "SLURM_PROCID", 4)


# Output to a file of its own: a launcher may mix the output of several processes within a line.
SHOW = """
import io, json, logging, os, sys
import leat
from leat._ranks import ranks_of_node
said = io.StringIO()
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=said)
rank, world = leat.rank_and_world()
with open(os.path.join(sys.argv[1], "told.%d" % os.getpid()), "w") as f:
    json.dump([rank, world, ranks_of_node(rank, world), said.getvalue()], f)
"""


class Real(unittest.TestCase):
    def run_by(self, *launcher, **env):
        """(rank, world, ranks of its node, log) of each process, by rank."""
        own = {k: v for k, v in os.environ.items() if not k.startswith((
            "SLURM", "OMPI", "PMI", "HOROVOD", "MV2", "RANK", "WORLD"))}
        with tempfile.TemporaryDirectory(dir="/tmp") as tmp:  # Open MPI's sockets need short paths
            done = subprocess.run([*launcher, sys.executable, "-c", SHOW, tmp], text=True,
                                  timeout=300, capture_output=True, check=False,
                                  stdin=subprocess.DEVNULL,
                                  env=dict(own, PYTHONPATH=SRC + "/client/python", TMPDIR=tmp,
                                           **env))
            self.assertEqual(done.returncode, 0, done.stderr)
            told = []
            for name in glob.glob(tmp + "/told.*"):
                with open(name) as f:
                    told.append(tuple(json.load(f)))
        return sorted(told)

    def test_python(self):
        self.assertEqual(self.run_by(), [(0, 1, 1, "rank 0 of 1 (by no launcher)\n")])
        told, = self.run_by(**BATCH)
        self.assertEqual(told[:3], (0, 1, 1))
        self.assertIn("SLURM_NTASKS=8, but srun did not start this process", told[3])

    def mpirun(self, mpirun, by, **env):
        if not shutil.which(mpirun):
            self.skipTest(mpirun + " is not installed (Debian: openmpi-bin, mpich)")
        for around in ({}, BATCH):
            # mpirun itself must not detect Slurm, which is not there; the programs must.
            words = ["env", *("%s=%s" % v for v in around.items())]
            told = self.run_by(mpirun, "-np", "3", *words, **env)
            self.assertEqual([t[:3] for t in told], [(r, 3, 3) for r in range(3)])
            for r in range(3):
                self.assertIn("rank %d of 3 (by %s)" % (r, by), told[r][3])

    def test_mpirun_of_open_mpi(self):
        self.mpirun("mpirun.openmpi", "OMPI_COMM_WORLD_RANK", OMPI_ALLOW_RUN_AS_ROOT="1",
                    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                    OMPI_MCA_oob_tcp_if_include="lo")

    def test_mpirun_of_mpich(self):
        self.mpirun("mpiexec.hydra", "PMI_RANK")

    def test_torchrun_as_the_examples_say(self):
        """The command of deploy/examples/README.md, with another program."""
        try:
            import torch.distributed as dist
        except ImportError:
            self.skipTest("torch is not installed")
        if not dist.is_available():
            self.skipTest("torch has no torch.distributed")
        with open(SRC + "/deploy/examples/README.md", encoding="utf-8") as f:
            line, = (line.split() for line in f if line.startswith("    $py -m torch.distributed"))
        words = line[1:line.index("deploy/examples/mnist.py")]
        told = self.run_by(sys.executable, *words, "--no_python", OMP_NUM_THREADS="1")
        self.assertEqual([t[:3] for t in told], [(r, 2, 2) for r in range(2)])
        for r in range(2):
            self.assertIn("rank %d of 2 (by RANK)" % r, told[r][3])

    def test_torch_distributed_where_it_is_initialised(self):
        try:
            import torch.distributed as dist
        except ImportError:
            self.skipTest("torch is not installed")
        with tempfile.TemporaryDirectory() as tmp, contextlib.ExitStack() as stack:
            dist.init_process_group("gloo", init_method="file://" + tmp + "/rendezvous", rank=0,
                                    world_size=1)
            stack.callback(dist.destroy_process_group)
            self.assertEqual(leat.rank_and_world(env={"RANK": "1", "WORLD_SIZE": "4"}), (0, 1))
        self.assertEqual(leat.rank_and_world(env={"RANK": "1", "WORLD_SIZE": "4"}), (1, 4))


if __name__ == "__main__":
    unittest.main()
