find_package(absl CONFIG QUIET)
if(NOT absl_FOUND)
  strata_missing("Abseil" libabsl-dev)
endif()
