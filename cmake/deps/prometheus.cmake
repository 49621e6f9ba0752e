find_package(prometheus-cpp CONFIG QUIET)
if(NOT prometheus-cpp_FOUND)
  strata_missing("prometheus-cpp" prometheus-cpp-dev)
endif()
