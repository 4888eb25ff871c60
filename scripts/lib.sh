# shellcheck shell=bash
# What the scripts of this folder share: messages, the place of models, checksums, and the three counters behind the
# closing line "N passed, N failed, N skipped". Sourced, never run; works with bash 3.2, which macOS ships.

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

have() { command -v "$1" > /dev/null 2>&1; }

models_folder() { printf '%s/models\n' "${KAPITSA_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/kapitsa}"; }

sha256_of() {
  if have sha256sum; then
    sha256sum -- "$1" | cut -d ' ' -f 1
  else
    shasum -a 256 -- "$1" | cut -d ' ' -f 1
  fi
}

# Number of compile jobs: one for each core, but never more than one for each 1.5 GiB of memory.
default_jobs() {
  local cores by_memory
  cores=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
  by_memory=$cores
  if [ -r /proc/meminfo ]; then
    by_memory=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1572864))
  fi
  if [ "$by_memory" -lt 1 ]; then by_memory=1; fi
  if [ "$by_memory" -lt "$cores" ]; then cores=$by_memory; fi
  echo "$cores"
}

passed=0
failed=0
skipped=0

count_pass() { passed=$((passed + 1)); }
count_fail() {
  failed=$((failed + 1))
  note "FAILED: $*"
}
count_skip() {
  skipped=$((skipped + 1))
  note "SKIPPED: $*"
}

# count_closing_line FILE: adds the counts of the last "N passed, N failed[, N skipped]" in FILE; false when there is none.
count_closing_line() {
  local line pattern='^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$'
  line=$(grep -E "$pattern" "$1" | tail -n 1)
  if [ -z "$line" ]; then return 1; fi
  # shellcheck disable=SC2046  # three numbers, split on purpose
  set -- $(printf '%s\n' "$line" | tr -cd '0-9 ')
  passed=$((passed + $1))
  failed=$((failed + $2))
  skipped=$((skipped + ${3:-0}))
}

print_closing_line() { printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"; }
