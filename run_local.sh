#!/usr/bin/env bash
# Runs the project on this machine:
#
#   ./run_local.sh                     make sample inputs, run the three jobs, read the results
#   ./run_local.sh images --input ...  run one job with its flags (also text, sensors, reshard)
#   ./run_local.sh test                run the base tests, which need only Python (5 minutes on two cores)
#   ./run_local.sh test ci             run the long tests of .ci/run, which need Java, Maven, Node and Chromium
#   ./run_local.sh test all            run all tests, which also need Go, zip, root and packages from PyPI
#   ./run_local.sh test tests/a.py -x  run pytest with these arguments
#   ./run_local.sh docs                build the documentation site, build/site; warnings and broken links are errors
#   ./run_local.sh docs all            also build the site of each tag v*, build/site/TAG, with its own environment
#   COVERAGE=1 ./run_local.sh test     also measure branch coverage, and fail below 95 % (also test all)
#   ./run_local.sh engines start flink start a local cluster (also spark, prism, pool; stop stops it)
#
# The first call creates .venv and installs the package there. PYTHON selects another interpreter.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv="$here/.venv"

fail() {
  echo "error: $*" >&2
  exit 2
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail "Python 3.10 to 3.13 is needed; set PYTHON to one (found: $(python3 --version 2>&1 || echo none))"
}

# Installs the package with an extra unless the stamp matches: an interrupted or outdated installation
# is repaired, a complete one takes no time.
install() {
  local extra=$1 stamp="$venv/.installed-$1" size=${2-"a minute the first time"} wanted
  wanted=$(cksum "$here/setup.py" "$here/pyproject.toml" "$here/readers/format/compiled/kernel.c" "$here/readers/tfdata/operations.c"; echo "$here")
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
  local python
  python=$(find_python)
  [ -x "$venv/bin/python" ] || {
    echo "creating .venv with $("$python" --version)" >&2
    "$python" -m venv "$venv" || fail "'$python -m venv' failed (on Debian: apt install python3-venv)"
  }
  echo "installing the package and its dependencies ($size)" >&2
  # uv takes 20 s, pip two minutes; pip is the fallback on machines whose settings uv cannot read.
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
  local uv=("$venv/bin/uv" pip install --quiet --system-certs --compile-bytecode)
  { "${pip[@]}" uv && "${uv[@]}" --python "$venv/bin/python" --editable "$here[$extra]" 2>/dev/null; } ||
    "${pip[@]}" --editable "$here[$extra]" ||
    fail "the installation failed; see the messages above"
  printf '%s\n' "$wanted" >"$stamp"
}

pytest=("$venv/bin/python" -m pytest)

# Includes the processes of tests: each leaves a file, and all become one, .coverage, which `coverage html` reads.
# The tests take at least half as long again, so CI does without.
measure_coverage() {
  pytest=("$venv/bin/python" -m coverage run -m pytest)
  COVERAGE_FILE=$(mktemp -d)/.coverage
  export COVERAGE_FILE
}

report_coverage() {
  "$venv/bin/python" -m coverage combine --quiet --data-file="$here/.coverage" "$(dirname "$COVERAGE_FILE")"
  rm -r "$(dirname "$COVERAGE_FILE")"
  "$venv/bin/python" -m coverage report --data-file="$here/.coverage"
}

# Each test is in one tier: the base, or one of the markers in pyproject.toml.
beyond="slow or environments or disks or frameworks or pool or azurite or browsers or engines"

# The test files that name one of the markers, or run once for each store: importing the others
# would waste time.
files_with() {
  grep -rlE --include="*.py" "mark\.(${1// or /|})|\bstore: Bucket" tests | sort
}

in_parallel() {  # MARKERS [FILES]
  local markers=$1
  shift
  "${pytest[@]}" -m "$markers" "$@" -n logical --maxprocesses 8 --dist worksteal
}

base_tests() {
  echo "the base tests" >&2
  in_parallel "not ($beyond)"
}

# Engines run one after another, because a cluster takes the memory of many processes. Other tests run
# meanwhile, because engines spend half of their time waiting, for a JVM or a lost worker.
long_tests() {  # MARKERS
  local code=0 log engines
  log=$(mktemp)
  "${pytest[@]}" -m "engines and ($1)" $(files_with engines) >"$log" 2>&1 &
  engines=$!
  echo "the long tests except those of engines" >&2
  in_parallel "not engines and ($1)" $(files_with "$1") || code=$?
  wait "$engines" || code=$?
  echo "the engines" >&2
  cat "$log"
  rm "$log"
  return "$code"
}

# Fails with a line for each requirement of the tests beyond the base that this machine lacks.
check_machine() {  # ci or all
  local missing=() folder
  command -v javac >/dev/null || missing+=("Java, a JDK of version 17 (on Debian: apt install openjdk-17-jdk-headless)")
  command -v mvn >/dev/null || missing+=("Maven (on Debian: apt install maven)")
  command -v chromium >/dev/null || missing+=("Chromium (on Debian: apt install chromium)")
  command -v npm >/dev/null || missing+=("Node 20 or later with npm (on Debian: apt install nodejs npm)")
  if [ "$1" = all ]; then
    command -v go >/dev/null || missing+=("Go (on Debian: apt install golang-go)")
    command -v zip >/dev/null || missing+=("zip (on Debian: apt install zip)")
    command -v tar >/dev/null || missing+=("GNU tar (on Debian: apt install tar)")
    folder=$(mktemp -d)
    if mount -t tmpfs -o size=64k tmpfs "$folder" 2>/dev/null; then
      umount "$folder"
    else
      missing+=("permission to mount a tmpfs (Linux: run as root, in a container with --privileged)")
    fi
    rmdir "$folder"
  fi
  [ ${#missing[@]} -eq 0 ] && return
  echo "error: 'test $1' needs, and this machine lacks:" >&2
  printf '  - %s\n' "${missing[@]}" >&2
  exit 2
}

case ${1-} in
  "")
    install all
    exec "$venv/bin/python" "$here/examples/tour.py" "$here/sample_data"
    ;;
  test)
    shift
    cd "$here"
    unset PYTHONDONTWRITEBYTECODE  # hundreds of processes would each compile the package
    case $# in 0 | 1) which=${1-base} ;; *) which=pytest ;; esac
    code=0
    [ -z "${COVERAGE-}" ] || measure_coverage
    case $which in
      base)
        install test
        base_tests || code=$?
        echo "left out: long tests, environments, full disks, PyTorch and DALI, real data, Azure, browsers, engines; './run_local.sh test all' runs all"
        ;;
      ci)
        check_machine ci
        install test
        long_tests ci || code=$?
        ;;
      all)
        check_machine all
        install test
        install test-frameworks "PyTorch, which takes 6 GB with CUDA"
        base_tests || code=$?
        long_tests "$beyond" || code=$?
        ;;
      *)
        install test
        exec "$venv/bin/python" -m pytest "$@"
        ;;
    esac
    [ -z "${COVERAGE-}" ] || report_coverage || code=$?
    exit "$code"
    ;;
  docs)
    install docs
    cd "$here"
    rm -rf build/site
    tags=
    if [ "${2-}" = all ]; then
      tags=$(git tag --list 'v*' --sort=-version:refname)
      export SITE_VERSIONS="main $tags"
    fi
    "$venv/bin/python" -m sphinx -qEW --keep-going -j auto -b html docs build/site
    for tag in $tags; do
      rm -rf build/tag
      git -c advice.detachedHead=false clone --quiet --branch "$tag" . build/tag
      SITE_VERSION=$tag build/tag/run_local.sh docs
      mv build/tag/build/site "build/site/$tag"
    done
    rm -rf build/tag
    echo "build/site/index.html"
    ;;
  engines)
    install all
    shift
    cd "$here"
    exec "$venv/bin/python" -m tests.engines "$@"
    ;;
  -h | --help)
    sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    ;;
  *)
    install all
    exec "$venv/bin/python" -m beam_jobs "$@"
    ;;
esac
