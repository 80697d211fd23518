#!/bin/sh
# suite.sh test|ci|all|simulator - print the table of checks for run.sh: `name | command` a line.
# test: what `make test` runs, with CC and CXX. ci: a part of the matrix, thinned (TEST_STRIDE) where it takes long; with `test`
# it is to take below 25 minutes on two cores. all: the whole matrix, every case.
set -u
check="sh tests/check.sh"
header_checks() {
    row "layers: a section uses only what it declares" "$check layers"
    row "contents, index and #if lines of groups are as the markers say" "$check contents"
    row "every public function is called by an example, part, tool or memopt_cuda.cu" "$check users"
    row "house: statements, lines, macros and copies within their limits" "$check house"
    row "README.md: every block of code is from an example" "$check readme"
    row "symbols: memopt_ only, no writable data, no output" "$check symbols"
    row "macros: MEMOPT_ only" "$check macros"
    row "mutants: every fault has its place" "$check mutants"
    row "MEMOPT_STATIC too late is refused" "$check late_static"
    row "examples/upgrade.sed: programs for 0.1.0 compile" "$check upgrade"
    row "MEMOPT_STATIC: one part costs one part" "$check parts"
    row "memopt_cuda.cu: what an include gives" "$check cuda_includes"
    row "a CMake project that adds examples/cmake" "$check cmake_project"
    row "MSVC's rules, by clang's parser" "$check msvc"
    row "declarations as C89" "$check declarations '$CC' c89 c"
    row "declarations as C++98" "$check declarations '$CXX' c++98 c++"
    row "declarations as C++11" "$check declarations '$CXX' c++11 c++"
    row "examples/parts in C++ with -Wold-style-cast" "$check old_style_casts '$CXX'"
    row "every struct can be zeroed by { 0 }, in C++ too" "$check zeroed"
}

together() { # "test..." [flags]: in one program
    row "tests $1" "$check together '${2:-}' test_$(echo "$1" | sed 's/ / test_/g')"
}
# What takes longest comes first, so that it does not stand alone at the end.
tests() {
    row "train_gpt: same_bits" "$check gpt same_bits" # apart from the others, which then need not build it again
    row "test_gpt, address and undefined behaviour sanitizer" "$check sanitized test_gpt"
    for test in test_tape test_gpt test_tiles test_host test_comm test_ring test_tensor test_doctor; do row "$test" "$MAKE -s build/$test && build/$test"; done # which have more alone
    # Of a group where they need no more.
    together "gemm row_kernels softmax head attention norm layer batchnorm fused nan" -DMEMOPT_ONLY_OPERATORS
    together "base simd random number checksum quant state_codec optim adafactor parts_cut scale fp8" -DMEMOPT_ONLY_NUMBERS
    together "shard pieces onebit feed tensors save store finetune_data" "-DMEMOPT_ONLY_RANKS -DMEMOPT_ONLY_NUMBERS -DMEMOPT_ONLY_MUON -DMEMOPT_PTHREADS -pthread"
    together "advise" "-DMEMOPT_ONLY_ADVISE -DMEMOPT_ONLY_RANKS"
    together "muon" "-DMEMOPT_ONLY_NUMBERS -DMEMOPT_ONLY_MUON"
    together "pipeline" "-DMEMOPT_ONLY_OPERATORS -DMEMOPT_ONLY_ACTIVATIONS -DMEMOPT_ONLY_NUMBERS -DMEMOPT_ONLY_RANKS -DMEMOPT_PTHREADS -pthread"
    together "operator parts_nets parts" "-DMEMOPT_ONLY_OPERATORS -DMEMOPT_ONLY_ACTIVATIONS -DMEMOPT_ONLY_NUMBERS"
    together "arena heap ledger plan carve status config json tokeniser" -DMEMOPT_ONLY_MEMORY
    together "schedule graph" -DMEMOPT_ONLY_ACTIVATIONS
    together "source host_visible"
    row "doctor_tool: the plain GPT of examples/adopt" "$check doctor"
    row "doctor_tool: the conventional train_gpt" "$check doctor_gpt"
    row "test_combined has every test" "$check combined_is_complete"
    row "a row that passed is kept until its sources change" "$check keeps"
    row "a row's sources: all that the compiler reads" "$check knows"
    row "implementation as C++11" "$check cplusplus c++11"
    row "callbacks that throw" "$check exceptions"
    header_checks
    for fuzzer in $FUZZERS; do row "$fuzzer, random inputs" "$check fuzz_smoke $fuzzer"; done
    for check_of_gpt in ranks tensor sequence grids grid_advice models plan_holds bad_input samples resumes outliers saves_refused own_files killed; do row "train_gpt: $check_of_gpt" "$check gpt $check_of_gpt"; done
    for example in $EXAMPLES; do
        case $example in train_gpt | finetune | doctor_tool | advise_tool) continue ;; esac # which have rows of their own
        row "example $example" "$check example $example"
    done
    row "example finetune: beside a GPT-2 in python" "$check finetune"
    row "examples/finetune/unicode.h: its tables are those of Unicode" "$check unicode_tables"
    row "advise_tool: README's answers, files, what does not fit" "$check advise"
    for tool in $TOOLS; do row "$tool" "$check $tool"; done
}

# The kernels of memopt_cuda.cu on the CPU. fast: as the figures are told; blas: the descriptors of the real cuBLASLt.
simulated() { # kind...
    for kind in "$@"; do
        for test in $CUDA_TESTS; do row "$test, simulated, $kind" "$check simulated $kind $test"; done
    done
}

# A row of the matrix: all tests in one program.
configuration() { # name, compiler, flags, [runner]
    row "$1" "$check combined '$2' '$3' '${4:-}'"
}
matrix() { # prints the rows of ci; of all, when that is wanted
    tier=all # what takes longest comes first
    for bench in $BENCHES; do row "$bench starts" "$check bench $bench"; done
    configuration "long random tests, gcc -O2" gcc "-std=c99 -O2 -DTEST_LONG -DMEMOPT_PTHREADS -pthread"
    configuration "long random tests, clang, address and undefined, threads" clang "$address_clang -DTEST_LONG -DMEMOPT_PTHREADS -pthread"
    row "train_gpt: 200 plans that are advised, run" "ADVISE_TIME=0 $check advise_runs 200"
    row "train_gpt: lossy, 200 steps of 3 seeds" "$check gpt lossy"
    row "1-bit Adam trains the tiny GPT as Adam does" "$check onebit_trains"
    row "train_gpt: ranks, every optimizer and format" "$check gpt ranks_everywhere"
    row "train_gpt: plans hold with every switch, 1 to 8 threads" "$check gpt plan_holds_everywhere"
    row "train_gpt: the page in a browser" "$check gpt page"
    row "nvcc: four architectures, no warning, no spills, hot kernels as counted" "$check cuda 80 90 100 120"
    row "nvcc: 8-bit AdamW alone compiles its 9 kernels" "$check cuda_part"
    row "nvcc: the same code whether it may fuse or not" "$check cuda_fuses"
    row "nvcc: tests and benches compile" "$check cuda_programs"
    row "mutants of the kernels" "$MAKE -s mutants SECTION=kernels"
    row "mutants of the header" "$MAKE -s mutants SECTION=header"
    simulated thread clang
    for test in $TESTS; do row "$test alone" "$MAKE -s build/$test && build/$test"; done
    row "valgrind" "CC=gcc $check memcheck"
    for source in tests/exhaustive_*.c; do
        name=$(basename "$source" .c); row "$name: every float" "$check exhaustive $name"
    done
    row "exhaustive_cuda: every float" "$check simulated fast exhaustive_cuda"
    configuration "gcc, address and undefined, MEMOPT_DEBUG 2" gcc "-std=c17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -DMEMOPT_DEBUG=2"
    configuration "s390x, big-endian, under qemu" s390x-linux-gnu-gcc "-std=c99 -O2 -static" qemu-s390x
    configuration "aarch64 under qemu" aarch64-linux-gnu-gcc "-std=c99 -O2 -static" qemu-aarch64
    configuration "clang, memory" clang "-O1 -g -fsanitize=memory -fno-sanitize-recover=all"
    tier=ci
    row "train_gpt: 2 plans that are advised, run" "ADVISE_TIME=0 $check advise_runs 2"
    # In ci: of many cases one of so many, and only code that a test reaches, where compiling or running takes several times as long.
    [ "$wanted" = all ] || some="-DTEST_STRIDE=7 -DMEMOPT_STATIC ${LANES:-}" few="-DTEST_STRIDE=19 -DMEMOPT_STATIC ${LANES:-}" fast=-O1
    # Compiling is most of gcc's sanitizers: in long functions the address sanitizer is called, and what it finds by itself, a NULL,
    # the end of an object or a pointer far beyond it, is not looked at twice.
    [ "$wanted" = all ] || outlined="-fno-sanitize=null,object-size,pointer-overflow --param asan-instrumentation-with-call-threshold=30 -DMEMOPT_NO_AVX512"
    configuration "gcc, address and undefined" gcc "-O1 -fexpensive-optimizations -g1 -fsanitize=address,undefined -fno-sanitize-recover=all $outlined -DMEMOPT_STATIC -DMEMOPT_PTHREADS -pthread $some"
    if [ "$wanted" = all ]; then simulated plain
    else for test in test_cuda test_cuda_part test_cuda_simulator; do row "$test, simulated" "$check simulated plain $test"; done # test_cuda is the others in one
    fi
    row "example cuda, simulated" "$check simulated plain example_cuda"
    row "example train_gpt.cu, simulated, beside train_gpt.c" "$check train_gpt_cuda plain"
    row "an include: seconds and bytes within limits" "$check include"
    row "groups alone: no warning by any compiler; C99 to C++20" "$check groups all"
    row "make header: limits, refusals, tests on their parts" "$check cut"
    row "make header: every section alone, tests on their parts" "$check cut_everywhere"
    row "three copies in one program" "$check two_copies"
    row "the header finds itself: renamed, linked, pasted" "$check finds_itself"
    row "s390x, big-endian: hashes, numbers, codes" "$check big_endian s390x-linux-gnu-gcc qemu-s390x"
    [ "$wanted" = all ] || configuration "aarch64 under qemu, what is wide" aarch64-linux-gnu-gcc "-std=c99 $fast -static -DTEST_WIDE=1 $few" qemu-aarch64
    row "clang, thread: tests with a pool" "CC=clang $check threads '$some${some:+ -DMEMOPT_NO_AVX512}' $(grep -l memopt_thread_pool_create tests/test_*.c | xargs -n 1 basename -s .c | tr '\n' ' ')"
    tier=all
    for fuzzer in $FUZZERS; do row "$fuzzer, $fuzz_seconds s" "$check fuzz $fuzzer $fuzz_seconds"; done
    row "fuzz_tensors, 20 million inputs" "$check fuzz fuzz_tensors 0 20000000"
    row "coverage: 97% of lines, 90% of branches" "$check measured 97 90"
    row "all that is wide, AVX-512 and matrix units emulated" "$check emulated test_combined -DTEST_WIDE=1"
    tier=ci
    for test in test_optim test_quant test_softmax; do
        [ "$wanted" = all ] || row "$test, AVX-512 emulated" "$check emulated $test -DMEMOPT_STATIC" # of all that is wide
    done
    tier=all
    row "refusals: the text of every one is read" "$check refusals"
    row "gcc -fanalyzer" "$check analysed gcc '-O1 -fanalyzer -DMEMOPT_PTHREADS -pthread'"
    row "gcc -fanalyzer, MEMOPT_DEBUG 2" "$check analysed gcc '-O1 -fanalyzer -DMEMOPT_DEBUG=2'"
    # What an assert says is told to the analyser, which then still follows the ways of a release.
    row "clang-tidy" "$check tidy '-DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS'"
    row "clang-tidy, MEMOPT_DEBUG 0" "$check tidy '-DMEMOPT_DEBUG=0 -DMEMOPT_ASSERT(x)=((x)?(void)0:__builtin_unreachable())'"
    row "cppcheck, MEMOPT_DEBUG 0" "$check check_cpp -DMEMOPT_DEBUG=0"
    tier=ci
    [ "$wanted" = all ] || row "mutants of the header, a sample" "$MAKE -s mutants SECTION=header SAMPLE=5 JOBS=1" # of all
    [ "$wanted" = all ] || row "clang-tidy without its analyser" "$check tidy '-DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS' '-clang-analyzer-*'"
    row "cppcheck" "$check check_cpp '-DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS'"
    [ "$wanted" = all ] || row "nvcc: no warning, no spills, hot kernels as counted" "$check cuda 90" # of the five
    row "nvcc: attention by groups of warps, for sm_90a" "$check cuda_groups"
    for test in $CUDA_TESTS; do # in ci those that have most pointers
        case $test in test_cuda_memory | test_cuda_codec | test_cuda_head) tier=ci ;; *) tier=all ;; esac
        row "$test, simulated, address" "$check simulated address $test"
    done
    tier=ci
    row "ranks over MPI" "$check mpi"
    row "finetune: ranks as processes" "$check finetune_mpi"
    row "safetensors: read as the reference reads them" "$check tensors_python $files"
    row "tokeniser: ids and texts as the library's" "$check tokenizers $strings"
    row "finetune: losses, folders and adapters as transformers and peft have them" "$check finetune_peers"
    row "example save: its model, read by the reference" "$check save_python"
    row "ranks over NCCL, simulated" "$check nccl"
    row "tests/card.sh, rehearsed on the simulator" "$check card" # whose programs other rows have built by then
    row "examples/adopt: lines, peaks and bits of every stage" "$check adopt"
    row "test_cuda_gemm, simulated, blas" "$check simulated blas test_cuda_gemm"
    row "test_cuda_memory, simulated, cuda12" "$check simulated cuda12 test_cuda_memory"
    [ "$wanted" = all ] || configuration "Windows under wine, what is no operator" x86_64-w64-mingw32-gcc "-std=c99 -O1 -static -DMEMOPT_PTHREADS -DTEST_WIDE=-1 $few" windows
    [ "$wanted" = all ] || configuration "gcc, 32 bit, what is no operator" gcc "-m32 $multilib -std=c99 -O1 -DTEST_WIDE=-1 $few"
    tier=all
    configuration "Windows under wine" x86_64-w64-mingw32-gcc "-std=c99 -O2 -static -DMEMOPT_PTHREADS" windows
    configuration "gcc, 32 bit" gcc "-m32 $multilib -std=c99 -O3"
    tier=all
    row "gcc, examples, tools and benches without warnings" "$check everything gcc -O0"
    row "clang, examples, tools and benches without warnings" "$check everything clang -O0"

    # Every compiler, standard and level of optimisation; in ci each compiler at least once.
    tier=all
    for cc in gcc clang; do
        for standard in c99 c11 c17; do
            for level in 0 2 3; do
                configuration "$cc $standard -O$level" $cc "-std=$standard -O$level"
            done
        done
    done
    for cc in g++ clang++; do
        for standard in c++11 c++17 c++20; do
            for level in 0 2 3; do configuration "$cc $standard -O$level" $cc "-std=$standard -O$level"; done
        done
    done
    tier=ci
    [ "$wanted" = all ] || row "clang++ implementation as c++20" "CXX=clang++ $check cplusplus c++20" # of the nine
    for cc in gcc clang; do
        tier=all # `make test` is static, and at 0; its sanitizer at 2
        configuration "$cc -ffast-math" $cc "-O3 -ffast-math"
        for level in 0 1 2; do configuration "$cc MEMOPT_DEBUG $level" $cc "-O1 -DMEMOPT_DEBUG=$level"; done
        configuration "$cc MEMOPT_STATIC" $cc "-O1 -DMEMOPT_STATIC"
    done
    tier=all
    configuration "gcc OpenMP and MEMOPT_PTHREADS" gcc "-std=c99 -O0 -fopenmp -DMEMOPT_PTHREADS -pthread"
    # Equal bits are promised on 32 bits with SSE2; the x87 has the row "gcc, 32 bit", of a compiler that rounds as C99 says.
    configuration "g++, 32 bit, threads" g++ "-m32 -msse2 -mfpmath=sse $multilib -std=c++17 -O1 -DMEMOPT_PTHREADS -pthread"
    tier=all
    configuration "clang OpenMP and MEMOPT_PTHREADS" clang "-O2 -fopenmp -DMEMOPT_PTHREADS -pthread"
    configuration "gcc, portable bit functions" gcc "-O2 -DMEMOPT_I_PORTABLE"
    configuration "gcc, char unsigned, enums short" gcc "-O2 -funsigned-char -fshort-enums"
    configuration "clang, 32 bit" clang "-m32 -msse2 $multilib -O2"
    configuration "g++ MEMOPT_STATIC" g++ "-O1 -DMEMOPT_STATIC"
    configuration "s390x, MEMOPT_DEBUG 2, threads" s390x-linux-gnu-gcc "-O1 -static -DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS -pthread" qemu-s390x
    configuration "aarch64 MEMOPT_DEBUG 2, threads" aarch64-linux-gnu-gcc "-O1 -static -DMEMOPT_DEBUG=2 -DMEMOPT_PTHREADS -pthread" qemu-aarch64

    tier=ci
    CC=clang CXX=clang++
    for standard in c++98 c++11 c++17 c++20; do row "clang++ declarations as $standard" "$check declarations clang++ $standard c++"; done
    for standard in c89 c99 c17; do row "clang declarations as $standard" "$check declarations clang $standard c"; done
    [ "$wanted" = all ] || row "clang++ memopt_cuda.cu without warnings" "$check cuda_clang" # all runs its programs
    row "clang symbols" "CC=clang $check symbols"
    row "clang macros" "CC=clang $check macros"
    row "clang three copies in one program" "CC=clang $check two_copies"
    row "clang the header finds itself" "CC=clang $check finds_itself"
}

case $1 in
test)
    row() { printf '%s | %s\n' "$1" "$2"; }
    tests ;;
ci | all)
    wanted=$1
    row() { if [ "$wanted" = all ] || [ "$tier" = ci ]; then printf '%s | %s\n' "$1" "$2"; fi; }
    [ "$wanted" = all ] && fuzz_seconds=120 files=10000 strings=200000 || fuzz_seconds=10 files=2000 strings=2000
    some= few= outlined= fast=-O2
    # gcc-multilib would give -m32 the path of asm/errno.h; it cannot be installed beside the cross compilers.
    multilib="-idirafter /usr/include/$(gcc -print-multiarch 2>/dev/null)"
    address_clang="-std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    # In ci what takes longest comes first, so that it does not stand alone at the end.
    if [ "$wanted" = all ]; then matrix; else matrix | awk '/check.sh (combined|threads|cuda|adopt|advise_runs)( |$)|simulated plain test_cuda$|SAMPLE=/ { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }'; fi ;;
simulator)
    row() { printf '%s | %s\n' "$1" "$2"; }
    simulated plain address clang thread ;;
*) echo "suite.sh test|ci|all|simulator" >&2; exit 1 ;;
esac
