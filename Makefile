# memopt: one header. Nothing has to be built to use it; this file builds the examples, tests and benches into build/.
# GNU make 4. Honours CC (may have arguments: CC="ccache gcc"), CXX, CFLAGS, LDFLAGS, PREFIX, DESTDIR, JOBS.
ifeq ($(origin CC),default)
CC := cc
endif
ifeq ($(origin CXX),default)
CXX := c++
endif
CFLAGS  ?=
LDFLAGS ?=
PREFIX  ?= /usr/local
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
WERROR  ?= -Werror
BENCH   ?=
FUZZ_SECONDS ?= 60
BUILD   := build
LDLIBS  := -lm

WARN_C := -Wstrict-prototypes -Wmissing-prototypes
# Not -Wmisleading-indentation: for it gcc reads the file from its begin again at every statement of C, 4 s of the header's 5.
# g++ and clang++ do not, and see the same code (check.sh).
WARN := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wcast-qual -Wundef \
        -Wdouble-promotion -Wwrite-strings -Wpointer-arith -Wno-misleading-indentation

VERSION_NUMBER = $(shell sed -n 's/^\#define MEMOPT_VERSION \([0-9]*\).*/\1/p' memopt.h)
VERSION = $(shell expr $(VERSION_NUMBER) / 10000).$(shell expr $(VERSION_NUMBER) / 100 % 100).$(shell expr $(VERSION_NUMBER) % 100)

TESTS    := $(filter-out test_combined,$(patsubst tests/%.c,%,$(wildcard tests/test_*.c)))
TOOLS    := $(patsubst tests/%.c,%,$(wildcard tests/*_tool.c))
BENCHES  := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c))
PEERS    := $(patsubst tests/bench/peer_%.c,$(BUILD)/peer_%,$(wildcard tests/bench/peer_*.c)) \
            $(if $(wildcard tests/bench/peer_malloc.c),$(BUILD)/peer_mimalloc)
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
EXAMPLES := $(patsubst examples/%.c,%,$(wildcard examples/*.c))
CUDA_TESTS := $(patsubst tests/%.cu,%,$(wildcard tests/test_cuda_*.cu))
NVCC     ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || echo nvcc)

# Code of 16 lanes, half of what a test compiles, is left out where AVX-512 is not there to run it (LANES=: not so). It is compiled in
# build/memopt.o, by check.sh parts and cplusplus, and for benches; check.sh emulated runs it.
LANES := $(shell [ ! -r /proc/cpuinfo ] || grep -q avx512_vbmi2 /proc/cpuinfo || echo -DMEMOPT_NO_AVX512)

export LANES CUDA_TESTS NVCC CC CXX CFLAGS LDFLAGS JOBS WERROR WARN WARN_C TESTS TOOLS BENCHES EXAMPLES FUZZERS MAKE

.DELETE_ON_ERROR:
.PHONY: header card demo-cuda peers-cuda advise-runs frontier seven-b simulator mutants cuda help all adopt demo ranks ladder-124m long-run batch-table examples test test-all test-ci layers symbols macros fuzz coverage bench bench-json peers deps install uninstall clean FORCE

help: ## list the targets (this)
	@echo "memopt $(VERSION): copy memopt.h into your project, nothing needs to be built. Targets:"
	@sed -n 's/^\([a-z0-9 -]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-22s %s\n", $$1, $$2 }'

all: $(patsubst %,$(BUILD)/%,$(EXAMPLES) $(TOOLS) $(TESTS) $(BENCHES)) $(PEERS) ## build every example, tool, test and bench into build/

demo: $(BUILD)/flags ## train a small GPT with and without memopt, each technique a row: the memory table, and build/ladder.html
	@echo "compiling memopt and the GPT"; $(MAKE) -s -j 2 $(BUILD)/train_gpt
	@$(BUILD)/train_gpt --ladder --layers 8 --width 256 --heads 8 --context 1024 --batch 2 --steps $(or $(STEPS),4) --threads $(JOBS)

ladder-124m: $(BUILD)/train_gpt ## the same table for GPT-2 124M, 4 sequences of 1024 tokens (about 10 minutes, 7 GB of memory)
	@$(BUILD)/train_gpt --ladder --preset gpt2-124m --batch 4 --steps $(or $(STEPS),2) --threads $(JOBS)

LONG_TEXT = $(or $(DATA),$(BUILD)/perl-doc.txt)
long-run: $(BUILD)/train_gpt $(LONG_TEXT) ## 10 million parameters, 3000 steps on Perl's documentation or DATA=FILE, in three ways: the loss of text held back (2 hours)
	@$(BUILD)/train_gpt --ladder --ends --data $(LONG_TEXT) --layers 6 --width 384 --heads 6 --context 128 --batch 4 \
	    --steps $(or $(STEPS),3000) --warmup 100 --schedule cosine --validate 250 --threads $(JOBS)

$(BUILD)/perl-doc.txt:
	@mkdir -p $(BUILD)/perl-doc && cd $(BUILD)/perl-doc && apt-get -qq download perl-doc && dpkg-deb -x perl-doc_*.deb . || \
	    { echo "Debian's package perl-doc could not be fetched: give DATA=FILE, a text of 5 MB or more"; exit 1; }
	@find $(BUILD)/perl-doc -name '*.pod' | LC_ALL=C sort | xargs cat > $@.new && mv $@.new $@

batch-table: $(BUILD)/train_gpt ## the largest batch under one limit and the samples a second at it, for a GPT and a ViT
	@$(BUILD)/train_gpt --batch-table --layers 6 --width 256 --heads 4 --context 256 --fit $(or $(LIMIT),300M) --steps 2 --threads $(JOBS)

# Two letters of a text are a token: below 32000, as letters above '|' are replaced.
SHAPE ?= llama2-7b
SEVEN_B = $(or $(DIR),$(BUILD))/$(SHAPE)
seven-b: $(BUILD)/finetune ## STEPS=1 steps of a model of 7 billion parameters in 3 GB of memory, random weights and all else in DIR (68 GB; the next call goes on; SHAPE=qwen2-0.5b, or llama3-8b with ARGS='--memory 4G')
	@mkdir -p '$(SEVEN_B)' && cp examples/finetune/shapes/$(SHAPE).json '$(SEVEN_B)/config.json'
	@LC_ALL=C tr '}~' '()' < examples/text.txt > '$(SEVEN_B)/text.u16'
	@$(BUILD)/finetune '$(SEVEN_B)' '$(SEVEN_B)/text.u16' --random --out '$(SEVEN_B)-tuned' --disk '$(or $(DIR),$(BUILD))' \
	  --context 512 --memory 3G --pause $(or $(STEPS),1) --threads $(JOBS) $(ARGS) || [ $$? = 3 ]

advise-runs: $(BUILD)/train_gpt ## 200 random models, budgets, permissions and ranks: what train_gpt --advise says is run, and compared (CASES=N, SEED=N; half an hour)
	@python3 tests/check_advise.py $(BUILD)/train_gpt $(or $(CASES),200) $(or $(SEED),1)

frontier: $(BUILD)/train_gpt ## tokens a second against memory for GPT-2 124M, predicted and measured: build/frontier.html (about 10 minutes, 3 GB)
	@$(BUILD)/train_gpt --preset gpt2-124m --context $(or $(CONTEXT),256) --batch 1 --steps $(or $(STEPS),2) --advise $(or $(LIMIT),3G) \
	    --speeds $(BUILD)/speeds.txt --frontier --threads $(JOBS)

ranks: $(BUILD)/train_gpt ## the tiny GPT over 1, 2, 4 and 8 ranks, stages 0 to 3, threads and MPI: bytes of a rank, traffic, one hash
	@sh tests/ranks.sh

test: $(BUILD)/flags ## run the tests; what this machine cannot run is skipped, with the reason
	@sh tests/suite.sh test > $(BUILD)/test.table
	@LIMIT=1200 sh tests/run.sh $(BUILD)/log/test < $(BUILD)/test.table

test-ci: $(BUILD)/flags ## a part of the matrix: each compiler and machine once, one case of 7 or 19 where that takes long
	@sh tests/suite.sh ci > $(BUILD)/test-ci.table
	@LIMIT=1800 sh tests/run.sh $(BUILD)/log/test-ci < $(BUILD)/test-ci.table

test-all: $(BUILD)/flags ## the whole matrix; what passed on the same sources is not run again (FRESH=1: all of it)
	@sh tests/suite.sh all > $(BUILD)/test-all.table
	@LIMIT=7200 KEEP=$(BUILD)/kept sh tests/run.sh $(BUILD)/log/test-all < $(BUILD)/test-all.table

adopt: $(BUILD)/flags ## four plain engines and what they become with memopt, stage by stage: added lines, peaks, bits
	@sh tests/adopt.sh

examples: $(patsubst %,$(BUILD)/%,$(EXAMPLES)) ## build the examples

layers symbols macros: ## one check of `make test` by itself: who uses whom; what is exported; which macros stay
	@sh tests/check.sh $@

simulator: $(BUILD)/flags ## run every CUDA kernel on the CPU, a fiber for each thread: compilers, sanitizers, schedules
	@sh tests/suite.sh simulator > $(BUILD)/simulator.table
	@LIMIT=900 sh tests/run.sh $(BUILD)/log/simulator < $(BUILD)/simulator.table

mutants: $(BUILD)/flags ## break header and kernels, a line each, and see the section's tests find it (SECTION=arena, SAMPLE=N)
	@CC="$(CC)" CXX="$(CXX)" JOBS=$(JOBS) python3 tests/mutants/mutants.py $(if $(SAMPLE),--sample $(SAMPLE)) $(SECTION)

cuda: $(BUILD)/test_cuda $(BUILD)/bench_cuda ## with nvcc: the kernels' tests and benches for the card of this machine, and run the tests
	@$(BUILD)/test_cuda

card: $(foreach program,test bench train_gpt,$(BUILD)/card/$(program)_mma $(BUILD)/card/$(program)_wgmma) ## with nvcc and no card: the programs that `sh tests/card.sh OUT` runs where a card is, and nothing is compiled
	@du -ch $^ | tail -n 1

demo-cuda: $(BUILD)/train_gpt_cuda ## with nvcc and a card: train GPT-2 124M there, in 16 and 8 bits (ARGS=--help: all switches; --ladder: rung by rung; --dry-run needs no card)
	@$(BUILD)/train_gpt_cuda --preset gpt2-124m --batch 8 --steps $(or $(STEPS),50) \
	  $(if $(filter --ladder,$(ARGS)),,--weights bf16 --optimizer adamw8 --keep overhead:33 --head chunk:2048) $(ARGS)

fuzz: ## let every fuzzer search for FUZZ_SECONDS (default 60), with clang's libFuzzer
	@for fuzzer in $(FUZZERS); do echo "$$fuzzer"; sh tests/check.sh fuzz $$fuzzer $(FUZZ_SECONDS) || exit 1; done

coverage: ## line and branch coverage of memopt.h, with a page in build/coverage/index.html
	@python3 tests/coverage.py

bench: $(patsubst %,$(BUILD)/%,$(BENCHES)) $(PEERS) ## measure every section against the machine's own limits (BENCH=--json for scripts)
	@for bench in $(BENCHES); do $(BUILD)/$$bench $(BENCH) || exit 1; done
	@sh tests/bench/bench_include.sh $(BENCH)
	@sh tests/bench/bench_ranks.sh $(BENCH)

peers: $(BUILD)/bench_gemm $(BUILD)/train_gpt ## time torch, OpenBLAS and bitsandbytes beside memopt, in a throw-away environment (needs PyPI), into tests/bench/results/peers-PROCESSOR.md
	@sh tests/bench/peers/run.sh

peers-cuda: ## with nvcc, a card and torch: train_gpt.cu beside torch, eager, compiled, checkpointed and FSDP2, into tests/bench/results/cuda-peers.md
	@sh tests/bench/peers/run_cuda.sh

bench-json: ## the same, one JSON object a line
	@$(MAKE) -s bench BENCH=--json

deps: ## install the Debian packages that the matrix can use (as root or with sudo)
	@sh tests/deps.sh

header: export PARTS := $(value PARTS)
header: export OUT := $(value OUT)
header: ## write build/memopt.h with only PARTS="optim tape" (sections or groups) and what they use; OUT=FILE; without PARTS: the list
	@case $$PARTS in *[A-Za-z0-9_]*) ;; *) awk -v list=1 -f examples/header.awk memopt.h; exit ;; esac; \
	out=$${OUT:-$(BUILD)/memopt.h}; case $$out in -*) out=./$$out ;; esac; \
	refuse() { printf '%s\n' "OUT=$$out $$1: give another name" >&2; exit 1; }; \
	if [ "$$out" -ef memopt.h ]; then refuse "is the whole header"; fi; \
	case $$out in */) refuse "is a folder" ;; *[\"\\]*) refuse "has a quote or a backslash, which #include does not take" ;; esac; \
	if [ -d "$$out" ]; then refuse "is a folder"; fi; \
	mkdir -p "$$(dirname "$$out")" || exit 1; \
	HEADER_NAME=$${out##*/} awk -f examples/header.awk memopt.h >"$$out.new" && mv "$$out.new" "$$out" || { rm -f "$$out.new"; exit 1; }; \
	echo "$$out: $$(($$(wc -l <"$$out"))) of $$(($$(wc -l <memopt.h))) lines, $$(($$(wc -c <"$$out") / 1000)) of $$(($$(wc -c <memopt.h) / 1000)) KB"

install: ## install memopt.h, memopt_cuda.cu and memopt.pc under PREFIX (default /usr/local), below DESTDIR
	install -d "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/share/pkgconfig"
	install -m 644 memopt.h memopt_cuda.cu "$(DESTDIR)$(PREFIX)/include/"
	printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$${prefix}/include' '' 'Name: memopt' \
	  'Description: train the same network in less memory (one header)' 'Version: $(VERSION)' \
	  'Cflags: -I$${includedir}' 'Libs: -lm' > "$(DESTDIR)$(PREFIX)/share/pkgconfig/memopt.pc"
	chmod 644 "$(DESTDIR)$(PREFIX)/share/pkgconfig/memopt.pc"

uninstall: ## remove them
	rm -f "$(DESTDIR)$(PREFIX)/include/memopt.h" "$(DESTDIR)$(PREFIX)/include/memopt_cuda.cu" "$(DESTDIR)$(PREFIX)/share/pkgconfig/memopt.pc"

clean: ## remove build/
	rm -rf $(BUILD)

# Whatever changes the result of a build is written here, and everything depends on it.
export BUILD_FLAGS := $(CC) | $(CFLAGS) | $(LDFLAGS) | $(WERROR) | $(LANES)
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@printf '%s\n' "$$BUILD_FLAGS" | cmp -s - $@ || printf '%s\n' "$$BUILD_FLAGS" > $@

COMMON := memopt.h Makefile $(BUILD)/flags
# Every program is one source file. The tests as C99, with errors for warnings, at MEMOPT_DEBUG 0 (the fast paths; below
# under sanitizers at 2), and with MEMOPT_STATIC, because the compiler then skips what a section's test does not use;
# examples as a user would compile them, the large ones linked with one implementation (LINKED).
# -g1 has the lines that a sanitizer or a debugger shows, and compiles in three quarters of the time; CFLAGS=-g adds variables.
# gcc at -O1 forgets vzeroupper without -fexpensive-optimizations, and all that follows a wide function crawls.
EXPENSIVE := $(shell echo 'int x;' | $(CC) -Werror -fexpensive-optimizations -x c -c - -o /dev/null 2>/dev/null && echo -fexpensive-optimizations)
export TEST_FLAGS := -std=c99 -O1 $(EXPENSIVE) -g1 -DMEMOPT_STATIC -DMEMOPT_DEBUG=0 $(LANES)
$(BUILD)/test_%: tests/test_%.c $(wildcard tests/*.h) $(COMMON)
	$(CC) $(TEST_FLAGS) $(WARN) $(WARN_C) $(WERROR) -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

# Every one of 2^32 inputs; minutes, so with the pool.
$(BUILD)/exhaustive_%: tests/exhaustive_%.c $(wildcard tests/*.h) $(COMMON)
	$(CC) -O2 -DMEMOPT_PTHREADS -pthread $(WARN) -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

# Static: what a program does not use is not compiled.
$(BUILD)/%_tool: tests/%_tool.c $(wildcard tests/*.h) $(COMMON)
	$(CC) -O2 -DMEMOPT_STATIC $(LANES) $(WARN) -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

# Static too, but for those that time single calls, which stay calls into code that anybody may call.
BENCH_STATIC := -DMEMOPT_STATIC
$(BUILD)/bench_arena $(BUILD)/bench_heap $(BUILD)/bench_ledger: BENCH_STATIC :=
$(BUILD)/bench_%: tests/bench/bench_%.c $(wildcard tests/bench/*.h tests/*.h) $(COMMON)
	$(CC) -O2 $(BENCH_STATIC) $(WARN) -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

# The pool; and OpenMP where the compiler has it.
$(BUILD)/bench_store $(BUILD)/bench_save $(BUILD)/bench_number $(BUILD)/bench_checksum $(BUILD)/bench_scale $(BUILD)/bench_optim $(BUILD)/bench_gemm $(BUILD)/bench_layer \
  $(BUILD)/bench_head $(BUILD)/bench_attention $(BUILD)/bench_norm $(BUILD)/bench_batchnorm $(BUILD)/bench_fused $(BUILD)/bench_shard $(BUILD)/bench_offload $(BUILD)/bench_tensor: override CFLAGS += -DMEMOPT_PTHREADS -pthread
$(BUILD)/bench_host: override CFLAGS += -DMEMOPT_PTHREADS -pthread \
  $(shell echo 'int main(void) { return 0; }' | $(CC) -fopenmp -x c - -o /dev/null 2>/dev/null && echo -fopenmp)

# What a bench compares with: a program of its own, beside it. One more is the same on another allocator.
$(BUILD)/peer_mimalloc: tests/bench/peer_malloc.c $(wildcard tests/bench/*.h) $(COMMON)
	@$(CC) -O2 -I. $(CFLAGS) $< -o $@ $(LDFLAGS) -lmimalloc $(LDLIBS) 2>/dev/null || \
	  echo "no mimalloc here, so it is not compared with: make deps"

$(BUILD)/peer_%: tests/bench/peer_%.c $(wildcard tests/bench/*.h) $(COMMON)
	$(CC) -O2 $(WARN) -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

# The GPT: with the pool, and with the BLAS that pkg-config finds (BLAS=none: without).
BLAS ?= $(shell for blas in openblas blis mkl-dynamic-lp64-seq cblas; do pkg-config --exists $$blas 2>/dev/null && echo $$blas && break; done)
ifneq ($(filter-out none,$(BLAS)),)
$(BUILD)/train_gpt.o $(BUILD)/train_gpt_mpi: private override CFLAGS += -DTRAIN_GPT_CBLAS $(shell pkg-config --cflags $(BLAS))
$(BUILD)/train_gpt $(BUILD)/train_gpt_mpi: private LDLIBS := $(shell pkg-config --libs $(BLAS)) $(LDLIBS)
endif
$(BUILD)/test_store $(BUILD)/test_save $(BUILD)/test_comm $(BUILD)/test_shard $(BUILD)/test_pieces $(BUILD)/test_pipeline $(BUILD)/test_onebit $(BUILD)/test_ring $(BUILD)/test_tensor: override CFLAGS += -DMEMOPT_PTHREADS -pthread
$(BUILD)/train_gpt.o $(BUILD)/train_gpt_mpi: $(wildcard examples/gpt/*.h examples/parts/*.h examples/adapters/*.h)
$(BUILD)/test_gpt $(BUILD)/sanitized/test_gpt $(BUILD)/page_tool: $(wildcard examples/gpt/*.h)
$(BUILD)/doctor_tool $(BUILD)/test_doctor $(BUILD)/sanitized/test_doctor: examples/doctor.h $(wildcard examples/doctor/*.h)
$(foreach test,json tokeniser finetune_data combined,$(BUILD)/test_$(test) $(BUILD)/sanitized/test_$(test)) $(BUILD)/tokeniser_tool $(BUILD)/finetune $(BUILD)/finetune_mpi: $(wildcard examples/finetune/*.h)
$(foreach test,parts parts_nets ring tensor pipeline ledger schedule graph feed finetune_data advise layer doctor gpt combined,$(BUILD)/test_$(test) $(BUILD)/sanitized/test_$(test)) $(BUILD)/transformer $(BUILD)/finetune $(BUILD)/finetune_mpi $(BUILD)/snapshot $(BUILD)/advise_tool $(BUILD)/export_tool $(BUILD)/model_tool $(BUILD)/schedule_tool $(BUILD)/adopt/gpt_6_parts $(BUILD)/adopt/gru_1_plan: $(wildcard examples/parts/*.h)

# memopt in a file of its own, compiled once, as README tells an engine of many files. The large examples are linked with it, which
# saves half a minute for each: of their text the implementation is left out, as if they had not defined what asks for it.
LINKED := train_gpt train_gpt_mpi finetune finetune_mpi transformer contrastive ranks advise_tool onebit pieces pipeline
$(BUILD)/memopt.o: examples/adopt/memopt.c $(COMMON)
	$(CC) -std=c99 -O2 -DMEMOPT_PTHREADS -pthread $(WARN) $(WARN_C) $(WERROR) -I. $(CFLAGS) -c $< -o $@.$$$$ && mv $@.$$$$ $@

$(LINKED:%=$(BUILD)/%) $(BUILD)/train_gpt.o: private override CFLAGS += -DMEMOPT_PTHREADS -pthread -DMEMOPT_I_IMPLEMENTED -DMEMOPT_API=extern
$(LINKED:%=$(BUILD)/%): $(BUILD)/memopt.o

# Several checks may want the same one at once: a file that runs is never written to.
$(BUILD)/%: examples/%.c $(wildcard examples/*.h) $(COMMON)
	$(CC) -O2 $(LANES) $(WARN) -I. $(CFLAGS) $< $(filter %.o,$^) -o $@.$$$$ $(LDFLAGS) $(LDLIBS) && mv $@.$$$$ $@

# The largest in two steps: with -j both are compiled at once.
$(BUILD)/train_gpt.o: examples/train_gpt.c $(COMMON)
	$(CC) -O2 $(LANES) $(WARN) -I. $(CFLAGS) -c $< -o $@.$$$$ && mv $@.$$$$ $@
$(BUILD)/train_gpt: $(BUILD)/train_gpt.o
	$(CC) $(CFLAGS) $(filter %.o,$^) -o $@.$$$$ $(LDFLAGS) $(LDLIBS) && mv $@.$$$$ $@

# The GPT again, its ranks the processes of mpirun. MPI's macros cast more than our warnings allow.
MPICC ?= mpicc
$(BUILD)/train_gpt_mpi: examples/train_gpt.c $(COMMON)
	@command -v $(MPICC) >/dev/null || { echo "no $(MPICC) here, so no train_gpt_mpi: apt-get install openmpi-bin libopenmpi-dev, or make deps"; exit 1; }
	OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC) -O2 -DTRAIN_GPT_MPI $(LANES) -Wall -Wextra -Wconversion -Wshadow -Wno-misleading-indentation $(WERROR) -I. $(CFLAGS) $< $(filter %.o,$^) -o $@.$$$$ $(LDFLAGS) $(LDLIBS) && mv $@.$$$$ $@

$(BUILD)/finetune_mpi: examples/finetune.c $(COMMON)
	@command -v $(MPICC) >/dev/null || { echo "no $(MPICC) here, so no finetune_mpi: apt-get install openmpi-bin libopenmpi-dev, or make deps"; exit 1; }
	OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC) -O2 -DFINETUNE_MPI $(LANES) -Wall -Wextra -Wconversion -Wshadow -Wno-misleading-indentation $(WERROR) -I. $(CFLAGS) $< $(filter %.o,$^) -o $@.$$$$ $(LDFLAGS) $(LDLIBS) && mv $@.$$$$ $@

$(BUILD)/ranks_fold: tests/ranks_fold.c examples/adapters/mpi.h $(wildcard tests/bench/*.h) $(COMMON)
	OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC) -O2 -Wall -Wextra -Wconversion -Wshadow -Wno-misleading-indentation -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

$(BUILD)/adopt/gpt_7_ranks: private override CFLAGS += -DMEMOPT_PTHREADS -pthread
$(BUILD)/adopt/%: examples/adopt/%.c $(BUILD)/memopt.o
	@mkdir -p $(@D)
	$(CC) -std=c99 -O2 $(WARN) $(WARN_C) $(WERROR) -I. $(CFLAGS) $< $(BUILD)/memopt.o -o $@ $(LDFLAGS) $(LDLIBS)

# The same tests once more for `make test`: under sanitizers, with the pool, and by the compiler's own standard.
$(BUILD)/sanitized/test_%: tests/test_%.c $(wildcard tests/*.h) $(COMMON)
	@mkdir -p $(@D)
	$(CC) -O1 $(EXPENSIVE) -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -DMEMOPT_STATIC -DMEMOPT_PTHREADS -pthread \
	  $(LANES) $(WARN) $(WARN_C) $(WERROR) -I. $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDLIBS)

# memopt_cuda.cu on the CPU: build/simulator/KIND/test_cuda_X, the simulator in place of CUDA. Its own part is compiled
# without sanitizers: it tells them of its fibers. Two makes may be at it at once: each moves a whole file into place.
SIMULATED := -x c++ -std=c++17 -DMEMOPT_CUDA_WGMMA -g1 -pthread -ffp-contract=off -Wall -Wextra -Wshadow $(WERROR) -Itests/simulator/include -Itests/simulator -Itests -I.
KIND_plain   := $(CXX) -O1
KIND_fast    := $(CXX) -O2
KIND_clang   := clang++ -O2
KIND_cuda12  := $(CXX) -O1 -DCUDART_VERSION=12080
KIND_blas    := $(CXX) -O1 -DSIMULATOR_REAL_CUBLASLT -idirafter/usr/local/cuda/include
# What the address sanitizer finds by itself is not looked at twice: half the time of compiling.
KIND_address := $(CXX) -O1 -fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow -fno-sanitize-recover=undefined -DSIMULATOR_ASAN
KIND_thread  := clang++ -O1 -fsanitize=thread -DSIMULATOR_TSAN
# The thread sanitizer would see calls of memcpy() and memset() that a compiler makes out of loops.
NO_CALLS := -fno-builtin $(shell echo | $(CXX) -Werror -fno-tree-loop-distribute-patterns -x c++ -c - -o /dev/null 2>/dev/null \
              && echo -fno-tree-loop-distribute-patterns)
SIMULATOR_KINDS := plain fast clang cuda12 blas address thread
SIMULATOR_PARTS := $(wildcard tests/simulator/*.h tests/simulator/include/*.h tests/simulator/include/*/*.h tests/simulator/*.cpp)
define SIMULATOR_KIND
$(BUILD)/simulator/$(1)/%.o: tests/simulator/%.cpp $(SIMULATOR_PARTS) Makefile $(BUILD)/flags
	@mkdir -p $$(@D)
	$(CXX) -O2 $(NO_CALLS) $$(filter -D% -i%,$$(KIND_$(1))) $(SIMULATED) -c $$< -o $$@.$$$$$$$$ && mv $$@.$$$$$$$$ $$@
.PRECIOUS: $(BUILD)/simulator/$(1)/%.o
$(BUILD)/simulator/$(1)/example_%: examples/%.cu $(patsubst %,$(BUILD)/simulator/$(1)/%.o,simulator cublaslt_mock nccl) memopt_cuda.cu $(COMMON)
	$$(KIND_$(1)) $$(SIMULATED) $$< -x none $$(filter %.o,$$^) -o $$@
$(BUILD)/simulator/$(1)/bench_cuda: tests/bench/bench_cuda.cu $(patsubst %,$(BUILD)/simulator/$(1)/%.o,simulator cublaslt_mock) \
  $(wildcard tests/bench/*.h) memopt_cuda.cu $(COMMON)
	$$(KIND_$(1)) $$(SIMULATED) $$< -x none $$(filter %.o,$$^) -o $$@
$(BUILD)/simulator/$(1)/%: tests/%.cu $(patsubst tests/simulator/%.cpp,$(BUILD)/simulator/$(1)/%.o,$(wildcard tests/simulator/*.cpp)) \
  memopt_cuda.cu $(wildcard tests/*.h) $(COMMON)
	$$(KIND_$(1)) $(SIMULATED) $$< -x none $$(filter %.o,$$^) -o $$@ $$(LIBS_$(1))
endef
$(foreach kind,$(SIMULATOR_KINDS),$(eval $(call SIMULATOR_KIND,$(kind))))
# All kernels, of which it runs few: the time is the compiler's.
$(BUILD)/simulator/plain/example_cuda $(BUILD)/simulator/plain/bench_cuda: private SIMULATED += -O0
$(SIMULATOR_KINDS:%=$(BUILD)/simulator/%/example_train_gpt): private SIMULATED += -DTRAIN_GPT_NCCL -DTRAIN_GPT_NVTX -DTRAIN_GPT_SECONDS=30
$(SIMULATOR_KINDS:%=$(BUILD)/simulator/%/example_train_gpt) $(BUILD)/train_gpt_cuda $(BUILD)/train_gpt_nccl: $(wildcard examples/gpt/*.h examples/parts/*.h examples/adapters/nccl.h)
comma := ,
LIBS_blas := $(addprefix -L,$(wildcard /usr/local/cuda/lib64)) $(addprefix -Wl$(comma)-rpath$(comma),$(wildcard /usr/local/cuda/lib64)) -lcublasLt

# On a card.
CUDA_ARCH ?= $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d . | sed 's/^/sm_/')
NVCC_FLAGS = -std=c++17 -O2 -arch=$(or $(CUDA_ARCH),sm_90) -I. -Itests -Itests/simulator
$(BUILD)/test_cuda: tests/test_cuda.cu $(wildcard tests/test_cuda_*.cu tests/*.h tests/simulator/*.h) memopt_cuda.cu $(COMMON)
	$(NVCC) $(NVCC_FLAGS) $< -o $@ -lcublasLt
$(BUILD)/train_gpt_cuda: examples/train_gpt.cu memopt_cuda.cu $(COMMON)
	$(NVCC) $(NVCC_FLAGS) $< -o $@ -lcublasLt
$(BUILD)/train_gpt_nccl: examples/train_gpt.cu memopt_cuda.cu $(COMMON)
	$(NVCC) $(NVCC_FLAGS) -DTRAIN_GPT_NCCL $< -o $@ -lcublasLt -lnccl
$(BUILD)/bench_cuda: tests/bench/bench_cuda.cu $(wildcard tests/bench/*.h) memopt_cuda.cu $(COMMON)
	$(NVCC) $(NVCC_FLAGS) $< -o $@ -lcublasLt

# For a card elsewhere, by tests/card.sh: attention by mma.sync, and by wgmma, which sm_90a alone has. As small as they get.
CARD_mma   := -arch=sm_90
CARD_wgmma := -arch=sm_90a -DMEMOPT_CUDA_WGMMA
CARD_FLAGS = -std=c++17 -O2 -I. -Itests -Itests/simulator -Xlinker -s $(shell $(NVCC) --help 2>/dev/null | grep -q -e --compress-mode && echo --compress-mode=size)
define CARD_PROGRAM # name, variant, source
$(BUILD)/card/$(1)_$(2): $(3) $(wildcard tests/test_cuda_*.cu tests/*.h tests/simulator/*.h tests/bench/*.h examples/gpt/*.h examples/parts/*.h) memopt_cuda.cu $(COMMON)
	@mkdir -p $$(@D)
	$(NVCC) $$(CARD_FLAGS) $$(CARD_$(2)) $$< -o $$@.new -lcublasLt && mv $$@.new $$@
endef
$(eval $(call CARD_PROGRAM,test,mma,tests/test_cuda.cu))
$(eval $(call CARD_PROGRAM,test,wgmma,tests/test_cuda_attention.cu))
$(foreach variant,mma wgmma,$(eval $(call CARD_PROGRAM,bench,$(variant),tests/bench/bench_cuda.cu)))
$(foreach variant,mma wgmma,$(eval $(call CARD_PROGRAM,train_gpt,$(variant),examples/train_gpt.cu)))
