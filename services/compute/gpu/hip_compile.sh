#!/bin/bash
# Compiles a kernel source for AMD GPUs with Debian's packages.
#
#   hip_compile.sh SOURCE OBJECT SOURCE_ROOT WORK_FOLDER [ARCHITECTURE...]
#
# Exit status 77 (skipped, for CTest) names the packages if something is missing.
#
# Debian 12's hipcc is older than today's GPUs, but its headers and device libraries also work with
# clang 19, which knows them. One thing is missing: for each architecture the device libraries have
# a file that defines a single constant, the ISA version; it is generated here for newer ones.
set -euo pipefail

source=$1 object=$2 root=$3 work=$4
shift 4
architectures=("$@")
((${#architectures[@]})) || architectures=(gfx1030 gfx1100 gfx1200 gfx1201 gfx90a gfx942)

library=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode
missing() {
  echo "HIP compilation needs $1. Install: apt-get install clang-19 clang-tools-19 llvm-19 lld-19" \
       "libamdhip64-dev rocm-device-libs" >&2
  exit 77
}
command -v clang++-19 >/dev/null || missing clang++-19
command -v clang-offload-bundler-19 >/dev/null || missing clang-offload-bundler-19
command -v llvm-as-19 >/dev/null || missing llvm-as-19
[[ -e /usr/include/hip/hip_runtime.h ]] || missing hip/hip_runtime.h
[[ -e $library/ockl.bc ]] || missing "the device libraries"

mkdir -p "$work/bitcode"
ln -sf "$library"/*.bc "$work/bitcode/"
for architecture in "${architectures[@]}"; do
  number=${architecture#gfx}  # 1100, or 90a: the last two digits are hexadecimal
  file="$work/bitcode/oclc_isa_version_$number.bc"
  [[ -e $file ]] && continue
  version=$((10#${number%??} * 1000 + 16#${number: -2:1} * 100 + 16#${number: -1}))
  echo "target triple = \"amdgcn-amd-amdhsa\"
@__oclc_ISA_version = linkonce_odr hidden local_unnamed_addr addrspace(4) constant i32 $version, align 4" \
    | llvm-as-19 -o "$file.$$" -
  mv "$file.$$" "$file"
done

exec clang++-19 -x hip "${architectures[@]/#/--offload-arch=}" --rocm-path=/usr \
  "--rocm-device-lib-path=$work/bitcode" -D__HIP_PLATFORM_AMD__=1 -std=c++20 -O3 -fPIC \
  -Wall -Wextra -Werror -Wno-linker-warnings "-I$root" -MD -MF "$object.d" -MT "$object" \
  -c "$source" -o "$object"
