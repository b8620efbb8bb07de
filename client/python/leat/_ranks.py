# SPDX-License-Identifier: Apache-2.0
"""The rank and the number of ranks of this process, from its launcher.

Launchers are often started by one another, and each adds its variables to those of the launchers
around it. The innermost is right: torchrun and compatible launchers (RANK), then mpirun, mpiexec
and horovodrun, then srun. Slurm sets SLURM_PROCID and SLURM_NTASKS in batch scripts and in
allocations too, where one process runs and not SLURM_NTASKS: they count only in a step of srun."""
from __future__ import annotations

import logging
import os
import re
import sys
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

_log = logging.getLogger("leat")


class _Launcher(NamedTuple):
    rank: str
    size: str
    local: str
    local_size: str


_TORCH = _Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_MPI = (_Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE"),
        _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel
        _Launcher("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                  "MV2_COMM_WORLD_LOCAL_SIZE"),
        _Launcher("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"))
_SLURM = _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                   "SLURM_STEP_TASKS_PER_NODE")
# Steps with larger numbers are no tasks of srun: batch scripts, interactive shells, prologs.
_SLURM_SPECIAL = 0xfffffff0

_said: set = set()


def _number(env: Mapping[str, str], name: str) -> Optional[int]:
    text = env.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,10}", text) else None


def _told(env: Mapping[str, str], by: _Launcher) -> Optional[Tuple[int, int]]:
    rank, size = _number(env, by.rank), _number(env, by.size)
    if rank is None or size is None:
        return None
    if rank >= size:
        raise ValueError("%s=%d and %s=%d: there is no such rank. Set them right, or give rank= "
                         "and world=." % (by.rank, rank, by.size, size))
    return rank, size


def _in_step(env: Mapping[str, str]) -> Dict[str, str]:
    """Slurm's variables of this task if srun started it, else none."""
    step = next((n for n in (_number(env, "SLURM_STEP_ID"), _number(env, "SLURM_STEPID"))
                 if n is not None), None)
    if step is None or step >= _SLURM_SPECIAL:
        return {}
    found = {name: env[name] for name in _SLURM if name in env}
    if _SLURM.size not in found and "SLURM_NTASKS" in env:
        found[_SLURM.size] = env["SLURM_NTASKS"]
    return found


def _mpi(env: Mapping[str, str]) -> List[Tuple[_Launcher, Tuple[int, int]]]:
    """The launchers between torchrun and srun that have set variables. srun sets PMI_RANK for its
    tasks too, so values equal to those of the step count only if there are no others."""
    step = _told(_in_step(env), _SLURM)
    told = [(by, _told(env, by)) for by in _MPI]
    told = [(by, value) for by, value in told if value is not None]
    other = [(by, value) for by, value in told if value != step]
    if len({value for _, value in other}) > 1:
        raise ValueError("the environment contradicts itself about rank and world: %s. Unset what "
                         "is left over, or give rank= and world=." % ", ".join(
                             "%s=%d %s=%d" % (by.rank, value[0], by.size, value[1])
                             for by, value in other))
    return other or told


def _find(env: Mapping[str, str]) -> Tuple[int, int, str, Optional[_Launcher]]:
    value = _told(env, _TORCH)
    if value is not None:
        return (*value, _TORCH.rank, _TORCH)
    for by, value in _mpi(env):
        return (*value, by.rank, by)
    value = _told(_in_step(env), _SLURM)
    if value is not None:
        return (*value, _SLURM.rank, _SLURM)
    _refuse_halves(env)
    tasks = _number(env, "SLURM_NTASKS") or 0
    if tasks > 1 and ("no step", tasks) not in _said:
        _said.add(("no step", tasks))
        _log.warning("SLURM_NTASKS=%d, but srun did not start this process: it is rank 0 of 1. "
                     "Start it by srun to have %d.", tasks, tasks)
    return 0, 1, "no launcher", None


def _refuse_halves(env: Mapping[str, str]) -> None:
    """Refuses a rank without a world, or a world without a rank: such a process would read as if it
    were alone."""
    for rank, size in [(by.rank, by.size) for by in (_TORCH, *_MPI)] + [("PMIX_RANK", None)]:
        number, count = _number(env, rank), _number(env, size) if size else None
        if number is not None:
            raise ValueError("%s=%d says which rank this is, and nothing says of how many: give "
                             "rank= and world=%s." % (rank, number,
                                                      ", or set " + size if size else ""))
        if count is not None and count > 1:
            raise ValueError("%s=%d says how many ranks there are, and nothing says which this is: "
                             "give rank= and world=, set %s, or open the loader after "
                             "torch.distributed has been initialised." % (size, count, rank))


def _of_torch() -> Optional[Tuple[int, int]]:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None


def rank_and_world(rank: Union[int, str] = "auto", world: Union[int, str] = "auto",
                   env: Optional[Mapping[str, str]] = None) -> Tuple[int, int]:
    """Arguments are used if given; else torch.distributed, if it is initialised; else RANK and
    WORLD_SIZE (torchrun, Kubernetes' PyTorchJob); else OMPI_COMM_WORLD_*, PMI_*, MV2_COMM_WORLD_*,
    HOROVOD_*; else Slurm's variables, in a step of srun only; else 0 of 1. The logger "leat"
    reports once which of them was used, at the level INFO. ValueError if mpirun, mpiexec and
    horovodrun contradict each other, or only one of rank and world is set."""
    if rank != "auto" and world != "auto":
        return rank, world  # type: ignore[return-value]
    if (rank == "auto") != (world == "auto"):
        raise ValueError("give both rank and world, or neither")
    found = _of_torch()
    if found:
        number, count, by = (*found, "torch.distributed")
    else:
        number, count, by, _ = _find(os.environ if env is None else env)
    if (number, count, by) not in _said:
        _said.add((number, count, by))
        _log.info("rank %d of %d (by %s)", number, count, by)
    return number, count


def ranks_of_node(rank: int, world: int, given: Union[int, str] = "auto",
                  env: Optional[Mapping[str, str]] = None) -> int:
    """The number of ranks on this node, if they have consecutive numbers and start at a multiple of
    it: the argument, else that of the launcher that sets the rank, else 1."""
    if given != "auto":
        return given  # type: ignore[return-value]
    env = os.environ if env is None else env
    step = _in_step(env)
    # Slurm: "4(x2)" means four on each of two nodes.
    step[_SLURM.local_size] = re.sub(r"\(x[0-9]+\)$", "", step.get(_SLURM.local_size, ""))
    for source, by in ((env, _TORCH), *((env, by) for by in _MPI), (step, _SLURM)):
        local, size = _number(source, by.local), _number(source, by.local_size)
        if local is not None and size and world % size == 0 and rank % size == local:
            return size
    return 1
