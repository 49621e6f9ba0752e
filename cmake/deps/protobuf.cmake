# Debian's protobuf 3.21 ships no CMake config: the FindProtobuf module is the supported way.
find_package(Protobuf QUIET)
if(NOT Protobuf_FOUND)
  strata_missing("Protocol Buffers" "libprotobuf-dev protobuf-compiler")
endif()
