# Sourced by quickstart and test: numbered steps with elapsed time, logs in build/logs, and an end at
# the first failure that names the step and shows the tail of its log.
step_start=$SECONDS
step_number=0

elapsed() {
  local seconds=$((SECONDS - step_start))
  printf '%d:%02d' $((seconds / 60)) $((seconds % 60))
}

# step NAME COMMAND...: runs the command with its output in a log.
step() {
  local name=$1
  shift
  step_number=$((step_number + 1))
  local log="build/logs/$(printf '%02d' $step_number)-${name//[^a-z0-9]/-}.log"
  mkdir -p build/logs
  printf '[%6s] %s ...\n' "$(elapsed)" "$name"
  local begin=$SECONDS
  if ! "$@" >"$log" 2>&1 </dev/null; then
    printf '[%6s] FAILED: %s\n---- end of %s:\n' "$(elapsed)" "$name" "$log" >&2
    tail -n 60 "$log" >&2
    exit 1
  fi
  printf '[%6s]   done in %d s\n' "$(elapsed)" $((SECONDS - begin))
  step_log=$log
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "needs root to install packages, and sudo is not there: run as root" >&2
    return 1
  fi
}

# Whether a package, or the program of that name from another source (NodeSource's node brings its own
# npm, which Debian's package conflicts with), is there.
have_package() {
  dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$' ||
    case $1 in
      nodejs) command -v node >/dev/null ;;
      npm) command -v npm >/dev/null ;;
      *) false ;;
    esac
}

# install_packages LIST...: what is missing of deploy/packages/LIST.txt.
install_packages() {
  local list wanted missing=()
  for list in "$@"; do
    while read -r wanted; do
      [ -z "$wanted" ] || have_package "$wanted" || missing+=("$wanted")
    done <"deploy/packages/$list.txt"
  done
  if [ ${#missing[@]} = 0 ]; then
    echo "all packages are there"
    return 0
  fi
  echo "installing: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "${missing[@]}"
}

# Two jobs per 4 GiB of memory at most: a file that includes gRPC takes half a gigabyte.
jobs=$(nproc)
memory_jobs=$(($(awk '/MemAvailable/ {print $2}' /proc/meminfo) / 2000000 + 1))
[ "$jobs" -le "$memory_jobs" ] || jobs=$memory_jobs
