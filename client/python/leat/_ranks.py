"""Which rank of how many this process is, as its launcher tells it."""
import os
import sys

SOURCES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
           ("PMI_RANK", "PMI_SIZE"),
           ("SLURM_PROCID", "SLURM_NTASKS"), ("HOROVOD_RANK", "HOROVOD_SIZE"))


def _of_torch():
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None


def rank_and_world(rank="auto", world="auto", env=None):
    """What is given wins; then torch.distributed; then the environment, where contradictions are
    an error."""
    if rank != "auto" and world != "auto":
        return rank, world
    if (rank == "auto") != (world == "auto"):
        raise ValueError("give both rank and world, or neither")
    found = _of_torch()
    if found:
        return found
    env = os.environ if env is None else env
    told = {}
    for names in SOURCES:
        if all(env.get(name, "").isdigit() for name in names):
            told[names] = tuple(int(env[name]) for name in names)
    if len(set(told.values())) > 1:
        words = ["%s=%d %s=%d" % (names[0], value[0], names[1], value[1])
                 for names, value in told.items()]
        raise ValueError("the environment contradicts itself about rank and world: "
                         + ", ".join(words) + ". Give rank= and world=.")
    return next(iter(told.values()), (0, 1))


LOCAL = (("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
         ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
         ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"))


def ranks_of_node(rank, world, given="auto", env=None):
    """How many ranks this node has, where they are a block of that many: what is given, else what
    the launcher says, else 1."""
    if given != "auto":
        return given
    env = os.environ if env is None else env
    for names in LOCAL:
        if all(env.get(name, "").isdigit() for name in names):
            local, size = (int(env[name]) for name in names)
            if size > 0 and world % size == 0 and rank % size == local:
                return size
    return 1
