# SPDX-License-Identifier: Apache-2.0
"""gdb: `source common/rt/gdb_fibers.py`, then

    fibers          all fibers of all loops, with the backtraces of those that wait
    fibers NAME     only fibers, or fibers of loops, whose name contains NAME

Works on running programs and on the kernel's core files: it only reads memory. (gdb's own gcore
leaves out memory that has guard pages in it, which stacks have.) It follows frame pointers (Leat is
built with -fno-omit-frame-pointer) from where fiber_switch.S left them."""

import gdb

STATES = {0: "free", 1: "ready", 2: "running", 3: "parked", 4: "blocked"}
MAX_FRAMES = 64


def word(addr):
    data = gdb.selected_inferior().read_memory(addr, 8)
    return int.from_bytes(bytes(data), "little")


def saved_frame(sp):
    """(program counter, frame pointer) as fiber_switch.S saved them."""
    if "aarch64" in gdb.selected_inferior().architecture().name():
        return word(sp + 88), word(sp + 80)
    return word(sp + 48), word(sp + 40)


def backtrace(sp, low, high):
    pc, fp = saved_frame(sp)
    for number in range(MAX_FRAMES):
        block = gdb.execute("info symbol 0x%x" % pc, to_string=True).split(" in section")[0].strip()
        sal = gdb.find_pc_line(pc - 1)
        where = " at %s:%d" % (sal.symtab.filename, sal.line) if sal.symtab else ""
        print("    #%-2d 0x%016x %s%s" % (number, pc, block, where))
        if not low <= fp < high:
            return
        fp, pc = word(fp), word(fp + 8)
        if pc == 0 or "fiber_trampoline" in block:
            return


def members(head, type_name, field):
    """The structs of a struct list."""
    kind = gdb.lookup_type("struct " + type_name)
    offset = next(f.bitpos // 8 for f in kind.fields() if f.name == field)
    at = head["next"]
    while int(at) != int(head.address):
        yield gdb.Value(int(at) - offset).cast(kind.pointer()).dereference()
        at = at["next"]


class Fibers(gdb.Command):
    """Lists the fibers of all loops with backtraces: fibers [NAME]"""

    def __init__(self):
        super().__init__("fibers", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        # Its address sends gdb to the symbols of loop.c, whichever frame is selected.
        loops = gdb.lookup_static_symbol("loops_all").value()
        for loop in members(loops, "loop", "link"):
            name = loop["name"].string()
            print("loop %s: %d fibers, %d ready, %d timers" %
                  (name, int(loop["n_fibers"]), int(loop["n_ready"]), int(loop["n_timers"])))
            try:
                for fiber in members(loop["fibers"], "fiber", "all"):
                    self.show(fiber, argument, name)
            except gdb.MemoryError:
                print("  (fibers are not in the core file)")

    @staticmethod
    def show(fiber, wanted, loop_name):
        name = fiber["name"].string()
        state = STATES.get(int(fiber["state"]), "?")
        if wanted not in name and wanted not in loop_name:
            return
        print("  fiber 0x%x %s: %s" % (int(fiber.address), name, state))
        if state == "running":
            print("    (on a thread: see its backtrace)")
            return
        low = int(fiber["stack"])
        try:
            backtrace(int(fiber["sp"]), low, low + int(fiber["stack_size"]))
        except gdb.MemoryError:
            print("    (its stack is not in the core file)")


Fibers()
