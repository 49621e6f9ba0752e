#!/bin/bash
# Compiles a kernel source for NVIDIA GPUs, to see whether nvcc accepts it: the oldest and the newest
# architecture CUDA 13 knows and the ones between that differ most. The library itself is built by
# CMake.
#
#   cuda_compile.sh SOURCE OBJECT SOURCE_ROOT WORK_FOLDER [ARCHITECTURE...]
#
# Exit status 77 (skipped, for CTest) says what is missing.
set -euo pipefail

source=$1 object=$2 root=$3
shift 4
architectures=("$@")
((${#architectures[@]})) || architectures=(75 90 120)

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [[ ! -x $nvcc ]]; then
  echo "CUDA compilation needs nvcc. Install the package cuda-nvcc-13-0 of NVIDIA's repository" \
       "(developer.nvidia.com/cuda-downloads)" >&2
  exit 77
fi
targets=()
for architecture in "${architectures[@]}"; do
  targets+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
exec "$nvcc" -x cu -std=c++20 -O3 "${targets[@]}" "-I$root" -Werror all-warnings \
  -Xcompiler=-Wall,-Wextra -c "$source" -o "$object"
