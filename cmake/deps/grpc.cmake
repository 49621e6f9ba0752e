find_package(gRPC CONFIG QUIET)
if(NOT gRPC_FOUND)
  strata_missing("gRPC" "libgrpc++-dev protobuf-compiler-grpc")
endif()
