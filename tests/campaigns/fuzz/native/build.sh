#!/usr/bin/env bash
# Builds the fuzz target of the kernel and runs it: build.sh SECONDS [FLAGS OF LIBFUZZER], or build.sh coverage, memory,
# threads or gcc; or those of readers/tfdata/operations.c: build.sh feed SECONDS.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

FOLDER=${NATIVE_FUZZ:-build}
mkdir -p "$FOLDER/corpus"

if [[ ${1:-} == feed ]]; then
  for checks in address,undefined thread; do
    gcc -O1 -g -Wall -Wextra -fsanitize=$checks -fno-sanitize-recover=all feed_threads.c -o "$FOLDER/feed" -lpthread -ldl
    "$FOLDER/feed" "${2:-60}" "$RANDOM"
  done
  exit
fi

CLANG=$(command -v clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 | head -1) ||
  { echo "clang is missing: apt-get install clang-19 libclang-rt-19-dev llvm-19"; exit 2; }
# An address is checked by the kernel's own code alone, and nothing of the heap is left in use.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0

build() {  # NAME FLAGS...
  local name=$1
  shift
  "$CLANG" -g -fno-omit-frame-pointer -Wall -Wextra -fno-sanitize-recover=all "$@" \
    kernel_fuzz.c -o "$FOLDER/$name" -lpthread
}

case ${1:-60} in
coverage)
  build coverage -O1 -fsanitize=fuzzer -fprofile-instr-generate -fcoverage-mapping
  # Now and then there are threads, or values of many kilobytes: here in each input that may have them.
  build coverage_all -O1 -DSELDOM=1 -fsanitize=fuzzer -fprofile-instr-generate -fcoverage-mapping
  LLVM_PROFILE_FILE="$FOLDER/1.profraw" "$FOLDER/coverage" -runs=0 corpus "$FOLDER/corpus" 2>&1 | tail -1
  LLVM_PROFILE_FILE="$FOLDER/2.profraw" "$FOLDER/coverage_all" -runs=0 corpus "$FOLDER/corpus" 2>&1 | tail -1
  version=${CLANG##*clang}
  "llvm-profdata$version" merge -sparse "$FOLDER"/[12].profraw -o "$FOLDER/profdata"
  "llvm-cov$version" report "$FOLDER/coverage_all" -instr-profile="$FOLDER/profdata" \
    ../../../../readers/format/compiled/kernel.c
  "llvm-cov$version" show "$FOLDER/coverage_all" -instr-profile="$FOLDER/profdata" -show-branches=count \
    ../../../../readers/format/compiled/kernel.c > "$FOLDER/coverage.txt"
  ;;
memory)  # Reads of what nobody has written.
  build memory -O1 -fsanitize=fuzzer,memory
  "$FOLDER/memory" -max_len=600 -print_final_stats=1 -max_total_time="${2:-60}" "$FOLDER/corpus" corpus
  ;;
threads)  # Two threads at one place; each input has some.
  build threads -O1 -DSELDOM=1 -fsanitize=fuzzer,thread
  "$FOLDER/threads" -max_len=600 -print_final_stats=1 -max_total_time="${2:-60}" "$FOLDER/corpus" corpus
  ;;
gcc)  # The other compiler's checks of undefined behaviour, over what has been found so far.
  gcc -O3 -g -fsanitize=undefined,address -fno-sanitize-recover=all -Wall -Wextra -Wno-unknown-pragmas \
    kernel_fuzz.c replay.c -o "$FOLDER/gcc" -lpthread
  find corpus "$FOLDER/corpus" -type f -print0 | xargs -0 "$FOLDER/gcc"
  ;;
*)
  build kernel_fuzz -O2 -fsanitize=fuzzer,address,undefined -fno-sanitize-coverage=trace-cmp
  "$FOLDER/kernel_fuzz" -max_len=600 -print_final_stats=1 -rss_limit_mb=8000 -max_total_time="${1:-60}" \
    "${@:2}" "$FOLDER/corpus" corpus
  ;;
esac
