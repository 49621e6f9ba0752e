# Only for STRATA_GPU=hip. CMake's own HIP language does not work with Debian's packages, so sources
# are compiled by services/compute/gpu/hip_compile.sh.
if(STRATA_GPU STREQUAL "hip")
  find_program(STRATA_HIP_CLANG clang++-19)
  find_library(STRATA_AMDHIP amdhip64)
  if(NOT STRATA_HIP_CLANG OR NOT STRATA_AMDHIP)
    strata_missing("clang 19 and the HIP runtime (STRATA_GPU=hip)"
      "clang-19 clang-tools-19 llvm-19 lld-19 libamdhip64-dev rocm-device-libs")
  endif()
  set(STRATA_HIP_ARCHITECTURES gfx1030 gfx1100 gfx1200 gfx1201 gfx90a gfx942
    CACHE STRING "AMD GPU architectures")
endif()
