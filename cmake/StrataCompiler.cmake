# Language level, warnings, sanitizers, linker and compiler cache: one place for the whole tree.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Line tables cost little and make every profile and crash report readable.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STRATA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${STRATA_CCACHE})
endif()
find_program(STRATA_MOLD mold)
if(STRATA_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Attached to our own targets only (strata_library and friends), never to generated code.
add_library(strata_warnings INTERFACE)
target_compile_options(strata_warnings INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  -Wno-missing-field-initializers)

if(STRATA_SANITIZE STREQUAL "address")
  # `undefined` is added per target (strata_library): on gRPC headers it costs minutes of compile
  # time for code that is not ours.
  add_compile_options(-fsanitize=address -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(STRATA_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(STRATA_SANITIZE STREQUAL "fuzzer")
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(STRATA_SANITIZE)
  message(FATAL_ERROR "STRATA_SANITIZE='${STRATA_SANITIZE}' is not one of: address, thread, fuzzer")
endif()
