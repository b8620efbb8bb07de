# SPDX-License-Identifier: Apache-2.0
# Leat: one Makefile, not recursive, no configure step.
#
# Sources are found, not listed: a new .c file needs no edit here. What a file becomes follows from
# its folder (see "What is built from what"). `make help` says what can be asked for.
#
#   make                          everything, into build/
#   make CC=clang WERROR=1        the same by clang, warnings are errors
#   make SAN=address,undefined    into build-asan/     (SAN=thread: build-tsan/, SAN=fuzzer: build-fuzz/)
#   make BUILD=/tmp/x             elsewhere; a single target works too: make build/leat-mds
#   make LENIENT=1                leave out of the libraries the files that do not compile just now

VERSION   := 0.1.0
SOVERSION := 0

.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
comma := ,

# --- where and how --------------------------------------------------------------------------------

BUILD_ROOT ?= build
variant    := $(if $(SAN),-$(or $(if $(findstring address,$(SAN)),asan),$(if \
              $(findstring thread,$(SAN)),tsan),$(if $(findstring fuzzer,$(SAN)),fuzz),san))
BUILD      ?= $(BUILD_ROOT)$(variant)
# One name for one folder, however it was given: what an object depends on is noted under its name.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
SBINDIR    ?= $(PREFIX)/sbin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
DATADIR    ?= $(PREFIX)/share/leat
SYSCONFDIR ?= /etc
STATEDIR   ?= /var/lib/leat
# systemd looks into these two.
UNITDIR    ?= $(if $(filter /usr,$(PREFIX)),/usr,/usr/local)/lib/systemd/system
# mount(8) looks for its helpers nowhere but in /sbin, which is a link to /usr/sbin on most systems.
HELPERDIR  ?= $(if $(shell test -L /sbin && echo link),/usr)/sbin

# Sanitizers and fuzzers by clang: gcc 12 has neither libFuzzer nor cheap TSan fibers.
ifneq ($(filter default undefined,$(origin CC)),)
CC := $(if $(SAN),clang,gcc)
endif
AR        := ar
INSTALL   ?= install
PKGCONFIG ?= pkg-config
PYTHON    ?= /usr/bin/python3
# Of the folders that PYTHON looks into the first below PREFIX, else its first. Asked when installing.
PYTHONDIR ?= $(shell $(PYTHON) -c 'import site; all = site.getsitepackages(); \
    print(([d for d in all if d.startswith("$(PREFIX)/lib/")] or all)[0])')
Q         := $(if $(V),,@)
say        = $(if $(V),@:,@printf '  %-7s %s\n' '$(1)' '$(patsubst $(BUILD)/%,%,$@)')

# Reports of sanitizers need lines and no types; types take a fifth of the time of a build.
CFLAGS ?= -O2 $(if $(SAN),-g1,-g)
flags  := -std=gnu17 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
          -D_GNU_SOURCE -I. -Iclient/include -fvisibility=hidden -fno-omit-frame-pointer -fPIC \
          -pthread -DLEAT_VERSION='"$(VERSION)"'
ldflags := -pthread -Wl,--as-needed
ifneq ($(SAN),)
san    := -fsanitize=$(if $(findstring fuzzer,$(SAN)),fuzzer-no-link$(comma)address$(comma)undefined,$(SAN))
flags  += $(san) -fno-sanitize-recover=all
# Some 250 programs are linked with sanitizers; lld takes a third of the time of GNU's linker.
ldflags += $(san) -fuse-ld=lld
endif

# --- probes ---------------------------------------------------------------------------------------

needed  := liburing libxxhash liblz4 libzstd zlib libsodium jansson inih libmicrohttpd
passive := help clean deps format distclean check check-% demo uninstall
goals   := $(or $(MAKECMDGOALS),all)
ifneq ($(filter-out $(passive),$(goals)),)
missing := $(shell for p in $(needed) cmocka; do $(PKGCONFIG) --exists $$p || echo $$p; done)
$(if $(missing),$(error missing libraries: $(missing). Install them with `make deps`, see deploy/deps.sh))
endif

flags += $(shell $(PKGCONFIG) --cflags $(needed) 2>/dev/null)
libs  := -lrocksdb $(shell $(PKGCONFIG) --libs $(needed) 2>/dev/null)
# VERBS=no (in a BUILD folder of its own): as where rdma-core is not installed, TCP only.
VERBS := $(if $(filter no,$(VERBS)),no,$(shell $(PKGCONFIG) --exists librdmacm libibverbs && echo yes))
ifeq ($(VERBS),yes)
HAVE_VERBS := 1
flags += -DHAVE_VERBS
libs  += $(shell $(PKGCONFIG) --libs librdmacm libibverbs)
endif

# Where the distribution's libfuse is too old for all that a mount does, deploy/deps.sh builds a
# current static one, once. FUSE=system (in a BUILD folder of its own): the distribution's all the same.
ifneq ($(filter-out $(passive),$(goals)),)
ifneq ($(FUSE),system)
$(if $(shell [ -e '$(BUILD_ROOT)/deps/libfuse/lib/pkgconfig/fuse3.pc' ] || \
    $(PKGCONFIG) --atleast-version=3.17 fuse3 || echo old),$(shell \
    BUILD_ROOT='$(BUILD_ROOT)' deploy/deps.sh fuse >&2))
endif
endif
fuse_pc    := $(if $(filter system,$(FUSE)),,$(shell ls $(BUILD_ROOT)/deps/libfuse/lib/pkgconfig/fuse3.pc 2>/dev/null))
fuse_probe := $(if $(fuse_pc),PKG_CONFIG_PATH=$(dir $(fuse_pc)) $(PKGCONFIG) --static,$(PKGCONFIG))
fuse_flags := $(shell $(fuse_probe) --cflags fuse3 2>/dev/null)
fuse_libs  := $(shell $(fuse_probe) --libs fuse3 2>/dev/null)
fuse_old   := $(shell $(fuse_probe) --atleast-version=3.17 fuse3 || echo old)
define fuse_warning
@printf '\n%s\n' '*** THIS BUILD LACKS A PART OF MOUNTING: libfuse is older than 3.17.' \
    '*** shared mappings fail with ENODEV where others write a file, there is no O_TMPFILE,' \
    '*** and the kernel does not read staged files by itself (no passthrough).' \
    '*** `deploy/deps.sh fuse` builds a current libfuse, which takes a network; then make again.' >&2
endef

# --- what is built from what ----------------------------------------------------------------------

sources := $(sort $(shell find common mds ossd client fuse tools tests \
            -name '*.c' -o -name '*.S' 2>/dev/null))
in       = $(filter $(1)/%,$(sources))
obj      = $(addprefix $(BUILD)/obj/,$(addsuffix .o,$(basename $(1))))
has      = $(filter $(1),$(sources))

# verbs_rails.c says by itself that there are none.
only_verbs := $(filter-out %/verbs_rails.c,$(call in,common/rpc/verbs))
build_src  := common/base/build.c
common_src := $(filter-out $(build_src) $(if $(HAVE_VERBS),,$(only_verbs)),$(call in,common))
mds_src    := $(filter-out mds/main.c,$(call in,mds))
ossd_src   := $(filter-out ossd/main.c,$(call in,ossd))
example_src := $(foreach f,$(call in,client),$(if $(findstring /examples/,$(f)),$(f)))
client_src := $(filter-out client/python/% $(example_src),$(call in,client))
fuse_src   := $(filter-out fuse/main.c,$(call in,fuse))
tools_src  := $(filter-out tools/leat.c,$(call in,tools))
testlib_src := $(call in,tests/lib)

libcommon  := $(BUILD)/libleat-common.a
libmds     := $(BUILD)/libmds.a
libossd    := $(BUILD)/libossd.a
libleat    := $(BUILD)/libleat.a
libmount   := $(BUILD)/libmount.a
libtools   := $(BUILD)/libtools.a
libtest    := $(BUILD)/libtest.a
so         := $(BUILD)/libleat.so.$(SOVERSION)

programs := $(if $(call has,mds/main.c),$(BUILD)/leat-mds) \
            $(if $(call has,ossd/main.c),$(BUILD)/leat-ossd) \
            $(if $(call has,fuse/main.c),$(BUILD)/mount.leat) \
            $(if $(call has,tools/leat.c),$(BUILD)/leat)
# A plugin of Slurm's, where its headers are.
spank    := $(if $(wildcard /usr/include/slurm/spank.h),$(BUILD)/spank_leat.so)
shared   := $(if $(client_src),$(so) $(BUILD)/libleat.so)
examples := $(patsubst %.c,$(BUILD)/examples/%,$(notdir $(example_src)))

# tests/unit/common/base/test_pool.c becomes $(BUILD)/tests/unit_common_base_pool.
unit_src  := $(foreach f,$(call in,tests/unit),$(if $(filter test_%,$(notdir $(f))),$(f)))
test_bin   = $(BUILD)/tests/$(subst /,_,$(patsubst tests/%,%,$(dir $(1))))$(patsubst test_%,%,$(basename $(notdir $(1))))
unit_bin  := $(foreach f,$(unit_src),$(call test_bin,$(f)))
unit_dirs := $(shell printf '%s\n' $(sort $(dir $(unit_src))) | awk -F/ \
             '{ d = ""; for (i = 3; i < NF; i++) { d = d (d ? "/" : "") $$i; print d } }' | sort -u)
fault_src := $(filter tests/fault/test_%.c,$(sources))
fault_bin := $(foreach f,$(fault_src),$(call test_bin,$(f)))
fault_tool_src := $(filter tests/fault/power_%.c,$(sources))
fault_tool := $(patsubst tests/fault/%.c,$(BUILD)/tests/%,$(fault_tool_src))
bench_src := $(filter tests/bench/bench_%.c,$(sources))
bench_bin := $(patsubst tests/bench/%.c,$(BUILD)/tests/%,$(bench_src))
helper_src := $(call in,tests/integration) $(call in,tests/python) \
              $(filter tests/bench/bulk_% tests/bench/loader_% tests/bench/stage_%,$(sources)) \
              $(if $(HAVE_VERBS),$(filter-out %/raw.c,$(call in,tests/rdma)) \
              $(filter tests/bench/rdma_%,$(sources)))
helper_bin := $(foreach f,$(helper_src),$(BUILD)/tests/$(basename $(notdir $(f))))
sim_src   := $(call in,tests/sim)
sim_bin   := $(if $(sim_src),$(BUILD)/leat-sim)
powerfs   := $(if $(call has,tests/fault/powerfs.c),$(BUILD)/powerfs)
# What tests without a GPU load in the place of the CUDA driver and of cuFile.
fake_cuda := $(if $(call has,tests/cuda/fake_driver.c),$(BUILD)/tests/libcuda.so.1)
clock_shim := $(if $(call has,tests/clock/clock_shim.c),$(BUILD)/tests/clock_shim.so)
fake_cufile := $(if $(call has,tests/cuda/fake_cufile.c),$(BUILD)/tests/libcufile.so.0)
fuzz_src  := $(filter tests/fuzz/fuzz_%.c,$(sources))
fuzz_bin  := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/%,$(fuzz_src))

# --- targets --------------------------------------------------------------------------------------

all: programs tests $(shared) $(examples) ## programs, library and tests (the default)
programs: $(programs) $(shared) $(spank)           ## the programs and the library only
	$(if $(fuse_old),$(fuse_warning),@:)
tests: unit-bin $(sim_bin) $(powerfs) $(fault_bin) $(fault_tool) $(bench_bin) $(helper_bin)
helper-bin: $(helper_bin) $(fake_cuda) $(fake_cufile) $(spank) $(clock_shim)
unit-bin: $(unit_bin) $(fake_cuda) $(fake_cufile)
fault-bin: $(fault_bin) $(fault_tool) $(powerfs) $(BUILD)/tests/bulk_files $(programs)
fuzz-bin: $(fuzz_bin)
sim-bin: $(sim_bin)

SEEDS    ?= 1..1000
REPLICAS ?= 3
sim: $(sim_bin) ## simulate seeds: make sim SEEDS=1..5000 REPLICAS=3 (1: single copies only)
	$(Q)$(sim_bin) run --seeds $(SEEDS) --replicas $(REPLICAS) --jobs $(or $(JOBS),$(shell nproc))
lib: $(libcommon) $(libmds) $(libossd) $(libleat) $(shared)

deps: ## install what building and testing need
	$(Q)BUILD_ROOT='$(BUILD_ROOT)' deploy/deps.sh check

help: ## this text
	@sed -n '/^$$/q;s/^# \{0,1\}//p' Makefile
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r t d; do \
	    printf '  %-16s %s\n' "$$t" "$$d"; done
	@printf '  %-16s %s\n' 'unit-<folder>' 'build and run the unit tests of one folder: unit-mds, unit-common-kv'
	@printf '  %-16s %s\n' 'check-<suite>' 'one of: $(suites)'

clean: ## remove what this BUILD holds, and keep deps
	$(Q)rm -rf $(BUILD)/obj $(BUILD)/tests $(BUILD)/man $(BUILD)/examples $(BUILD)/test-logs $(BUILD)/*.a \
	    $(BUILD)/libleat.so* $(BUILD)/leat* $(BUILD)/mount.leat $(BUILD)/powerfs $(BUILD)/.stamp*

distclean: ## remove every build folder
	$(Q)rm -rf $(BUILD) $(BUILD_ROOT) $(BUILD_ROOT)-asan $(BUILD_ROOT)-tsan $(BUILD_ROOT)-fuzz \
	    $(BUILD_ROOT)-tcp

format: ## run clang-format over all sources
	$(Q)find common mds ossd client fuse tools tests -name '*.[ch]' 2>/dev/null | \
	    xargs -r $(firstword $(shell command -v clang-format clang-format-14) clang-format) -i

# --- tests ----------------------------------------------------------------------------------------

# tests/run builds what each suite needs by calling back here, so that a build that fails is one
# failed test and the other suites still run.
suites := lint unit unit-asan unit-tsan valgrind sim fuzz fault integration python rdma examples
runner  = BUILD='$(BUILD)' BUILD_ROOT='$(BUILD_ROOT)' WERROR='$(WERROR)' V='$(V)' \
          $(if $(filter command% environment%,$(origin CC)),LEAT_CC='$(CC)') tests/run

check: ## install what is needed, build, run every suite that is not long
	$(Q)BUILD_ROOT='$(BUILD_ROOT)' deploy/deps.sh check
	$(Q)$(runner) $(suites)

check-long: ## every suite with its long tests, more seeds and longer fuzzing
	$(Q)BUILD_ROOT='$(BUILD_ROOT)' deploy/deps.sh check
	$(Q)$(runner) --long $(suites)

# A short selection of the suite over RDMA is part of check; asked for by name it is all of it.
$(addprefix check-,$(suites)): check-%:
	$(Q)$(runner) $(if $(filter rdma,$*),--long) $*

bench: programs $(bench_bin) ## run the benchmarks
	$(Q)if [ -x tests/bench/run ]; then BUILD='$(abspath $(BUILD))' LEAT_SRC='$(CURDIR)' tests/bench/run; \
	    else for b in $(bench_bin); do $$b || exit 1; done; fi

demo: ## install what it needs, build, show Leat at work on this machine
	$(Q)BUILD_ROOT='$(BUILD_ROOT)' deploy/deps.sh demo
	$(Q)tests/lib/lacking --must
	$(Q)$(MAKE) programs
	$(Q)[ -x deploy/demo/run ] || { echo 'demo: deploy/demo/run is missing' >&2; exit 1; }
	$(Q)BUILD='$(abspath $(BUILD))' LEAT_SRC='$(CURDIR)' PATH="$(abspath $(BUILD)):$$PATH" deploy/demo/run

fuzz: ## build the fuzzers and run each for FUZZ_SECONDS (60)
	$(Q)$(runner) --fuzz-seconds=$(or $(FUZZ_SECONDS),60) fuzz

define unit_folder
unit-$(subst /,-,$(1)): $$(filter $$(BUILD)/tests/unit_$(subst /,_,$(1))_%,$$(unit_bin))
	@rc=0; for t in $$^; do echo "== $$$${t##*/}"; $$$$t || rc=1; done; exit $$$$rc
.PHONY: unit-$(subst /,-,$(1))
endef
$(foreach d,$(unit_dirs),$(eval $(call unit_folder,$(d))))
unit-%:
	@echo 'no unit tests in tests/unit/$(subst -,/,$*)'; exit 1

# --- install --------------------------------------------------------------------------------------

# Pages that are made: from the headers of the library, and from the parameter tables.
header_pages := $(patsubst client/%.in,$(BUILD)/man/%,$(wildcard client/*.3.in))
man_pages := $(wildcard mds/*.8 ossd/*.8 fuse/*.8 tools/*.[158]) $(header_pages) $(BUILD)/man/leat.conf.5
$(BUILD)/man/%.3: client/%.3.in client/include/leat/%.h deploy/man_page
	$(call say,MAN)
	@mkdir -p $(@D)
	$(Q)$(PYTHON) deploy/man_page header client/include/leat/$*.h $< >$@
$(BUILD)/man/leat.conf.5: deploy/leat.conf.5.in deploy/man_page $(BUILD)/leat
	$(call say,MAN)
	@mkdir -p $(@D)
	$(Q)$(PYTHON) deploy/man_page conf $(BUILD)/leat $< >$@
man: $(header_pages) $(BUILD)/man/leat.conf.5 ## manual pages that are made from headers and tables
integration_files := $(addprefix deploy/,$(addprefix slurm/,leat-slurm leat-slurm.conf prolog epilog \
    burst_buffer.lua job_submit.lua) hook.sh sge/prolog sge/epilog sge/leat-sge pbs/leat_stage.py \
    k8s/leat-csi k8s/csi_messages.py)
order_files := client/loader/ORDER.md $(wildcard tests/unit/client/loader/*_vectors.txt)
# The folders that the linker looks into by itself; others are named to it in ld.so.conf.d.
ld_folders = /lib /usr/lib /lib64 /usr/lib64 $(shell cat $(filter-out %/leat.conf, \
    $(wildcard /etc/ld.so.conf /etc/ld.so.conf.d/*.conf)) /dev/null | grep '^/')

# What is installed, as HOW:FROM:TO. HOW is a mode, `mode` for that of the source, `fill` for a text
# with places to fill in, `link` or `line` where FROM is what it says. `uninstall` reads the same list.
# $(call put,how,files,folder)
put = $(foreach f,$(2),$(1):$(f):$(3)/$(notdir $(f)))
installed = $(call put,755,$(filter %/leat,$(programs)),$(BINDIR)) \
    $(call put,755,$(filter-out %/leat,$(programs)),$(SBINDIR)) \
    $(if $(filter $(HELPERDIR),$(SBINDIR)),,link:$(SBINDIR)/mount.leat:$(HELPERDIR)/mount.leat) \
    link:$(if $(filter $(HELPERDIR),$(SBINDIR)),,$(SBINDIR)/)mount.leat:$(HELPERDIR)/mount.fuse.leat \
    $(call put,755,$(so),$(LIBDIR)) link:$(notdir $(so)):$(LIBDIR)/libleat.so \
    $(if $(filter $(LIBDIR),$(ld_folders)),,line:$(LIBDIR):$(SYSCONFDIR)/ld.so.conf.d/leat.conf) \
    $(call put,755,$(spank),$(LIBDIR)/slurm) \
    $(call put,644,$(wildcard client/include/leat/*.h),$(INCLUDEDIR)/leat) \
    fill:client/leat.pc.in:$(LIBDIR)/pkgconfig/leat.pc \
    $(foreach m,$(man_pages),$(call put,644,$(m),$(MANDIR)/man$(subst .,,$(suffix $(m))))) \
    $(call put,644,$(order_files),$(DATADIR)/order) \
    $(call put,fill,$(wildcard $(addprefix deploy/systemd/*.,service target socket)),$(UNITDIR)) \
    $(call put,644,deploy/leat.conf.sample,$(SYSCONFDIR)/leat) \
    $(call put,644,$(wildcard client/python/leat/*.py) client/python/leat/py.typed,$(PYTHONDIR)/leat) \
    $(foreach f,$(integration_files),mode:$(f):$(DATADIR)/$(f:deploy/%=%))
# Folders that are Leat's own: `uninstall` removes them where nothing else is in them.
own_folders = $(addprefix $(DATADIR),/order /slurm /sge /pbs /k8s) $(DATADIR) $(INCLUDEDIR)/leat \
    $(addprefix $(PYTHONDIR)/leat,/__pycache__) $(PYTHONDIR)/leat $(LIBDIR)/slurm $(SYSCONFDIR)/leat \
    $(STATEDIR)
fill = sed -e 's|@PREFIX@|$(PREFIX)|g;s|@LIBDIR@|$(LIBDIR)|g;s|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
    -e 's|@VERSION@|$(VERSION)|g;s|/usr/local/sbin|$(SBINDIR)|g;s|/usr/local/bin|$(BINDIR)|g'
D = $(DESTDIR)
# On this system, not in a folder that is made for another one.
after_install = [ -n '$(D)' ] || { ! command -v ldconfig >/dev/null || ldconfig; \
    [ ! -d /run/systemd/system ] || systemctl daemon-reload; }
known_python = $(if $(PYTHONDIR),,$(error there is no $(PYTHON) to say where it looks for packages: \
    give PYTHON=/path/to/python3, or PYTHONDIR=))

install: programs man ## into DESTDIR and PREFIX, and for mount(8) into HELPERDIR
	$(known_python)
	$(Q)printf '%s\n' $(installed) | (set -e; while IFS=: read -r how from to; do to='$(D)'$$to; \
	    [ -d "$${to%/*}" ] || mkdir -p "$${to%/*}"; \
	    case $$how in \
	        link) ln -sfn "$$from" "$$to" ;; \
	        line) rm -f "$$to"; echo "$$from" >"$$to"; chmod 644 "$$to" ;; \
	        fill) rm -f "$$to"; $(fill) "$$from" >"$$to"; chmod 644 "$$to" ;; \
	        mode) [ -x "$$from" ] && how=755 || how=644; $(INSTALL) -m $$how "$$from" "$$to" ;; \
	        *) $(INSTALL) -m "$$how" "$$from" "$$to" ;; \
	    esac; done; mkdir -p '$(D)$(STATEDIR)')
	$(Q)$(after_install)

uninstall: ## remove what install with the same PREFIX put there, and nothing else
	$(known_python)
	$(Q)rm -f $(foreach e,$(installed),"$(D)$(lastword $(subst :, ,$(e)))")
	$(Q)cd "$(D)$(PYTHONDIR)/leat/__pycache__" 2>/dev/null && \
	    rm -f $(patsubst client/python/leat/%.py,%.cpython-*.pyc,$(wildcard client/python/leat/*.py)) || :
	$(Q)for d in $(own_folders); do rmdir --ignore-fail-on-non-empty "$(D)$$d" 2>/dev/null || :; done
	$(Q)$(after_install)

# --- rules ----------------------------------------------------------------------------------------

# A stamp is a file that is rewritten only when its text changes: objects depend on the flags,
# archives on the list of their members, so neither goes stale. WERROR is no part of it: it changes
# no object.
ifneq ($(filter-out $(passive),$(goals)),)
$(shell mkdir -p $(BUILD))
stamp = $(if $(subst x$(2)x,,x$(file <$(BUILD)/.stamp-$(1))x)$(if $(wildcard $(BUILD)/.stamp-$(1)),,n),$(file >$(BUILD)/.stamp-$(1),$(2)))
$(call stamp,flags,$(CC) $(flags) $(CFLAGS) $(CPPFLAGS) $(fuse_flags))
endif
$(BUILD)/.stamp-%: ;

compile = $(CC) $(flags) $(CFLAGS) $(CPPFLAGS) $(if $(WERROR),-Werror) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
# LENIENT: an empty object dated 1970, so that it is tried again next time.
lenient = { echo "  LEFT OUT $<"; echo 'struct left_out;' | $(CC) $(san) -fPIC -x c -c - -o $@ && touch -d @1 $@; }

$(BUILD)/obj/%.o: %.c $(BUILD)/.stamp-flags
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(compile) $(if $(LENIENT),|| $(lenient))

$(BUILD)/obj/%.o: %.S $(BUILD)/.stamp-flags
	$(call say,AS)
	@mkdir -p $(@D)
	$(Q)$(compile)

$(BUILD)/spank_leat.so: deploy/slurm/spank_leat.c
	$(call say,LINK)
	@mkdir -p $(@D)
	$(Q)gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wshadow $(if $(WERROR),-Werror) $(CFLAGS) -fPIC -shared -o $@ $<

# The commit, where this tree is a clone of git: in the programs, and nowhere else, so that nothing
# but they is linked anew for another commit.
ifneq ($(filter-out $(passive),$(goals)),)
commit := $(if $(wildcard .git),$(shell git rev-parse --short=10 HEAD 2>/dev/null))
$(call stamp,build,$(VERSION)$(if $(commit),+g$(commit)))
$(call obj,$(build_src)): flags += -DLEAT_BUILD='"$(VERSION)$(if $(commit),+g$(commit))"'
endif
$(call obj,$(build_src)): $(BUILD)/.stamp-build

# Another wall clock for a server: tests/integration/test_clocks.py.
$(BUILD)/tests/clock_shim.so: tests/clock/clock_shim.c
	$(call say,LINK)
	@mkdir -p $(@D)
	$(Q)gcc -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Wshadow $(if $(WERROR),-Werror) -fPIC -shared -o $@ $< -ldl

# Only fuse/, its tests and the power-loss file system see libfuse.
$(call obj,$(call in,fuse) $(call in,tests/unit/fuse) tests/fault/powerfs.c): flags += $(fuse_flags)

define archive
$$(call stamp_if,$(notdir $(1)),$(2))
$(1): $(call obj,$(2)) $(BUILD)/.stamp-$(notdir $(1))
	$$(call say,AR)
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$(filter %.o,$$^)
endef
stamp_if = $(if $(filter-out $(passive),$(goals)),$(call stamp,$(1),$(2)))
$(eval $(call archive,$(libcommon),$(common_src)))
$(eval $(call archive,$(libmds),$(mds_src)))
$(eval $(call archive,$(libossd),$(ossd_src)))
$(eval $(call archive,$(libleat),$(client_src)))
$(eval $(call archive,$(libmount),$(fuse_src)))
$(eval $(call archive,$(libtools),$(tools_src)))
$(eval $(call archive,$(libtest),$(testlib_src)))

# By another name first: who runs the old program never meets half of the new one.
link = $(CC) $(ldflags) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
       $(libs) $(extra) -o $@.new && mv -f $@.new $@

# $(call program,binary,sources,archives,more libraries)
define program
$(1): $(call obj,$(2)) $(3) $(BUILD)/.stamp-flags
	$$(call say,LINK)
	@mkdir -p $$(@D)
	$$(Q)$$(link)
$(1): extra := $(4)
endef

$(eval $(call program,$(BUILD)/leat-mds,mds/main.c $(build_src),$(libmds) $(libcommon)))
$(eval $(call program,$(BUILD)/leat-ossd,ossd/main.c $(build_src),$(libossd) $(libcommon)))
$(eval $(call program,$(BUILD)/mount.leat,fuse/main.c $(build_src),$(libmount) $(libleat) $(libcommon),$(fuse_libs)))
$(eval $(call program,$(BUILD)/leat,tools/leat.c $(build_src),$(libtools) $(libleat) $(libcommon),-lm))
$(foreach f,$(example_src),$(eval $(call program,$(BUILD)/examples/$(basename $(notdir $(f))),$(f),$(libleat) $(libcommon))))

$(so): $(call obj,$(client_src)) $(libcommon) $(wildcard client/libleat.map)
	$(call say,LINK)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(ldflags) $(LDFLAGS) $(filter %.o,$^) $(libcommon) \
	    $(addprefix -Wl$(comma)--version-script=,$(filter %.map,$^)) $(libs) -o $@.new && \
	    mv -f $@.new $@
$(BUILD)/libleat.so: $(so)
	$(Q)ln -sf $(<F) $@

# A test links only its own folder's library and what lies below it, so that a folder that does not
# compile just now stops nobody else's tests.
every        := $(libmds) $(libossd) $(libleat) $(libcommon) $(libtest)
under_common := $(libcommon) $(libtest)
under_mds    := $(libmds) $(libcommon) $(libtest)
under_ossd   := $(libossd) $(libcommon) $(libtest)
under_client := $(libleat) $(libcommon) $(libtest)
under_fuse   := $(libmount) $(libleat) $(libcommon) $(libtest)
under_tools  := $(libtools) $(libleat) $(libcommon) $(libtest)
under         = $(or $(under_$(firstword $(subst /, ,$(patsubst tests/unit/%,%,$(1))))),$(every))
# Helpers: the other .c files of the test's own folder; of the object server those of all folders.
beside        = $(filter-out $(unit_src),$(wildcard $(if $(filter tests/unit/ossd/%,$(1)), \
                    tests/unit/ossd/*/*.c,$(dir $(1))*.c)))

$(foreach f,$(unit_src),$(eval $(call program,$(call test_bin,$(f)),$(f) $(call beside,$(f)),$(call under,$(f)),-lcmocka -lm \
    $(if $(filter tests/unit/fuse/%,$(f)),$(fuse_libs)) \
    $(if $(filter tests/unit/fuse/test_passthrough.c,$(f)),-Wl$(comma)--wrap=fuse_passthrough_open) \
    $(if $(filter tests/unit/mds/test_intents.c,$(f)),-Wl$(comma)--wrap=calloc))))
$(foreach f,$(fault_src),$(eval $(call program,$(call test_bin,$(f)),$(f),$(every),-lcmocka -lm)))
$(foreach f,$(fault_tool_src),$(eval $(call program,$(BUILD)/tests/$(basename $(notdir $(f))),$(f),$(under_ossd),-lm)))
$(foreach f,$(bench_src),$(eval $(call program,$(BUILD)/tests/$(basename $(notdir $(f))),$(f),$(every),-lm)))
$(foreach f,$(helper_src),$(eval $(call program,$(BUILD)/tests/$(basename $(notdir $(f))),$(f),$(under_client),-lcmocka -lm)))
$(fake_cuda): $(call obj,tests/cuda/fake_driver.c)
	$(call say,LINK)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(ldflags) $(LDFLAGS) $^ -o $@
$(fake_cufile): $(call obj,tests/cuda/fake_cufile.c) $(fake_cuda)
	$(call say,LINK)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' $(ldflags) $(LDFLAGS) $^ -o $@
$(foreach t,device direct,$(call test_bin,tests/unit/client/loader/test_$(t).c)): | \
    $(fake_cuda) $(fake_cufile)
# The transports' suite runs over verbs in a guest.
$(BUILD)/tests/conformance $(BUILD)/tests/hostile: \
    $(call obj,$(filter-out $(unit_src),$(call in,tests/unit/common/rpc)))
$(BUILD)/tests/hostile: $(call obj,tests/rdma/raw.c)
# Client and servers have functions of the same names: a fuzzer gets the libraries of one of them.
fuzz_under   = $(if $(filter %/fuzz_chunk_record.c,$(1)),$(under_ossd),$(under_client))
$(foreach f,$(fuzz_src),$(eval $(call program,$(BUILD)/tests/$(basename $(notdir $(f))),$(f),$(call fuzz_under,$(f)),-fsanitize=fuzzer -lm)))
# The simulator runs both servers and the client in one process. Their internal names are their own
# affair, so each server becomes one object that shows nothing but its entry points (server.h).
mds_entry  := mds_start mds_stop mds_addrs mds_format mds_check mds_metrics_of mds_param_table n_mds_params
ossd_entry := ossd_start ossd_stop ossd_addrs ossd_format ossd_check ossd_ready ossd_failed \
              ossd_param_table n_ossd_params chunk_key_decode chunk_record_summary \
              chunk_record_decode chunk_record_is_lost replay_key_decode replay_parse
$(BUILD)/%-whole.o: $(BUILD)/lib%.a Makefile
	$(call say,MERGE)
	$(Q)$(LD) -r --whole-archive $< -o $@.tmp
	$(Q)objcopy $(addprefix --keep-global-symbol=,$($*_entry)) $@.tmp $@ && rm $@.tmp
$(BUILD)/leat-sim: $(BUILD)/mds-whole.o $(BUILD)/ossd-whole.o
$(eval $(call program,$(BUILD)/leat-sim,$(sim_src),$(libleat) $(libcommon) $(libtest),-lm))
$(eval $(call program,$(BUILD)/powerfs,tests/fault/powerfs.c,,$(fuse_libs)))

ifneq ($(filter-out $(passive),$(goals)),)
-include $(patsubst %.o,%.d,$(call obj,$(sources)))
endif

.PHONY: all programs man tests unit-bin fault-bin fuzz-bin sim-bin sim helper-bin lib deps help clean distclean format \
        check check-long bench demo fuzz install uninstall $(addprefix check-,$(suites))
