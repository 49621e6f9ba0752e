// gRPC's global state. Includes gRPC headers.
#pragma once

#include <grpc/grpc.h>

namespace strata::rpc {

// Keeps the library initialised until the process ends. Otherwise the last gRPC object to go takes
// the library's threads down with it, and one of those may sleep in a poll of ten seconds: a daemon
// would take that long to stop.
inline void KeepLibraryInitialized() {
  static const bool initialized = [] {
    grpc_init();
    return true;
  }();
  (void)initialized;
}

}  // namespace strata::rpc
