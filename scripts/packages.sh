# Sourced by the install scripts. install_packages ADVICE PACKAGE... installs the packages from the distribution; where it has no
# apt-get, it says what is missing and gives the advice. as_root runs a command as root.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
  local advice=$1
  shift
  if [ $# -eq 0 ]; then return 0; fi
  if ! command -v apt-get >/dev/null; then
    echo "missing: $*. $advice" >&2
    return 1
  fi
  echo "installing $* from the distribution's packages" >&2
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -q
  as_root apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold "$@"
}
