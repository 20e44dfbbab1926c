#!/usr/bin/env bash
# The whole project on this machine:
#
#   ./run_local.sh                     make sample inputs, run the three jobs, read the results
#   ./run_local.sh images --input ...  run one job with its flags (text, sensors likewise)
#   ./run_local.sh test                run the test suite
#   ./run_local.sh test tests/a.py -x  run pytest with these arguments
#   ./run_local.sh engines start flink a cluster on this machine (spark, prism, pool likewise; stop)
#
# The first call makes .venv and installs the package there. PYTHON names another interpreter.
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

# Installs when the stamp does not match what is asked for, so that an interrupted or outdated
# installation is made good and a finished one costs nothing.
install() {
  local extra=$1 stamp="$venv/.installed-$1" wanted
  wanted=$(cksum "$here/setup.py" "$here/pyproject.toml"; echo "$here")
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
  local python
  python=$(find_python)
  [ -x "$venv/bin/python" ] || {
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv "$venv" || fail "'$python -m venv' failed (on Debian: apt install python3-venv)"
  }
  echo "installing the package and its dependencies (a minute the first time)" >&2
  # uv takes 20 s where pip takes two minutes; what settings of this machine it does not know, pip does.
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
  local uv=("$venv/bin/uv" pip install --quiet --system-certs --compile-bytecode)
  { "${pip[@]}" uv && "${uv[@]}" --python "$venv/bin/python" --editable "$here[$extra]" 2>/dev/null; } ||
    "${pip[@]}" --editable "$here[$extra]" ||
    fail "the installation failed; see the messages above"
  printf '%s\n' "$wanted" >"$stamp"
}

case ${1-} in
  "")
    install all
    exec "$venv/bin/python" "$here/examples/tour.py" "$here/sample_data"
    ;;
  test)
    install test
    shift
    cd "$here"
    [ $# -eq 0 ] || exec "$venv/bin/python" -m pytest "$@"
    # Engines have the machine to themselves: a cluster takes all cores, and memory of many processes.
    code=0
    "$venv/bin/python" -m pytest -m "not engines" -n logical --maxprocesses 8 --dist worksteal || code=$?
    "$venv/bin/python" -m pytest -m engines || code=$?
    exit "$code"
    ;;
  engines)
    install all
    shift
    cd "$here"
    exec "$venv/bin/python" -m tests.engines "$@"
    ;;
  -h | --help)
    sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    ;;
  *)
    install all
    exec "$venv/bin/python" -m beam_jobs "$@"
    ;;
esac
