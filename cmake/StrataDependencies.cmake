# Every third-party library has one file in deps/. Each names its Debian package, so that a missing
# one ends in an instruction instead of a CMake trace.
include(FindPkgConfig)
find_package(Threads REQUIRED)

# strata_missing(<what> <apt package>): stop with the command that installs it.
function(strata_missing what package)
  message(FATAL_ERROR "Strata needs ${what}. Install it with:\n    apt-get install ${package}")
endfunction()

# strata_pkg(<target suffix> <pkg-config name> <apt package>): imported target PkgConfig::<suffix>.
macro(strata_pkg suffix module package)
  pkg_check_modules(${suffix} QUIET IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${suffix}_FOUND)
    strata_missing("${module}" ${package})
  endif()
endmacro()

file(GLOB _strata_deps CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/deps/*.cmake)
foreach(_dep IN LISTS _strata_deps)
  include(${_dep})
endforeach()
