# Only for STRATA_GPU=cuda. Here, in the root's scope, because languages are enabled for the whole
# tree.
if(STRATA_GPU STREQUAL "cuda")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "STRATA_GPU=cuda needs nvcc of CUDA 13: install cuda-nvcc-13-0 from NVIDIA's "
      "repository (developer.nvidia.com/cuda-downloads), set CUDACXX if it is not in the PATH, or "
      "configure with -DSTRATA_GPU=none")
  endif()
  # Before enable_language, which would choose a default. From Turing on, and PTX of the newest for
  # what comes after it.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 120-real 120-virtual)
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc knows C++20, CMake before 3.26 does not know
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit REQUIRED)
endif()
