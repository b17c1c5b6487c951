#!/bin/sh
# Installs build and test dependencies from Debian 12's packages. --oracles also
# makes .venv with the Python packages that tests compare against.
set -eu
cd "$(dirname "$0")/.."

packages="
  cmake ninja-build make ccache g++ clang-19 clang-format-19 clang-tidy-19 lld-19 liblld-19-dev libclang-rt-19-dev
  llvm-19-dev llvm-19-tools libmlir-19-dev mlir-19-tools zlib1g-dev libzstd-dev libedit-dev libxml2-dev libcurl4-openssl-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev
  libflatbuffers-dev flatbuffers-compiler libxxhash-dev libutf8proc-dev libboost-context-dev libboost-dev
  libgtest-dev libgmock-dev openmpi-bin mpich python3 python3-venv python3-torch python3-numpy
  manpages manpages-dev manpages-zh"

missing=""
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "install-deps: run as root, or install these yourself:$missing" >&2
      exit 1
    }
    sudo=sudo
  fi
  echo "install-deps: installing$missing"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

# The oracles: transformers runs on Debian's PyTorch. Without a package index all
# other tests still run; those that need it are skipped, with a message.
# .venv/ready has the checksum of its requirements; it is rebuilt if they change.
wanted=$(cksum <test/oracle/requirements.txt)
if [ "${1:-}" = --oracles ] && [ "$(cat .venv/ready 2>/dev/null || true)" != "$wanted" ]; then
  echo "install-deps: making .venv for the test oracles"
  rm -rf .venv.before
  if [ -e .venv ]; then mv .venv .venv.before; fi
  /usr/bin/python3 -m venv --system-site-packages .venv
  # The openai client's own tests are only in its source archive.
  openai=$(grep '^openai==' test/oracle/requirements.txt)
  alone=$(sed -n 's/^# no-deps: //p' test/oracle/requirements.txt)
  # shellcheck disable=SC2086 # several words
  if .venv/bin/pip install -q -r test/oracle/requirements.txt &&
    .venv/bin/pip install -q --no-deps $alone &&
    .venv/bin/pip download -q --no-deps --no-binary openai -d .venv/sources "$openai" &&
    tar xzf ".venv/sources/openai-${openai#openai==}.tar.gz" -C .venv/sources; then
    echo "$wanted" >.venv/ready
    rm -rf .venv.before
  elif [ -e .venv.before ]; then
    echo "install-deps: the oracles' packages could not be installed; keeping the previous ones" >&2
    rm -rf .venv
    mv .venv.before .venv
  else
    echo "install-deps: the oracles' packages could not be installed; their tests will be skipped" >&2
  fi
fi
