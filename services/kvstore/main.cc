// strata-kvstore: keeps sequence state across requests, clients and restarts.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "services/kvstore/blocks/block_store.h"
#include "services/kvstore/service/kvstore_service.h"

namespace strata::kvstore {
namespace {

constexpr std::chrono::milliseconds kGrace{5'000};

// The budget, cut to what is there: never more than half of the free space and our own data.
uint64_t Budget(const v1::KvStoreConfig& config, const BlockStore::Options& options) {
  std::error_code error;
  const auto space = std::filesystem::space(options.path, error);
  if (error) return config.budget_bytes();
  uint64_t own = 0;
  std::filesystem::recursive_directory_iterator file(options.path, error);
  for (; !error && file != std::filesystem::recursive_directory_iterator(); file.increment(error)) {
    struct stat info {};  // segments have holes: their length says little
    if (stat(file->path().c_str(), &info) == 0) own += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  const uint64_t most = (space.available + own) / 2;
  if (config.budget_bytes() > most) {
    LogWarning("kvstore.budget_bytes = ", config.budget_bytes(), " is cut to ", most,
               ": half of what is free at '", options.path, "'");
  }
  return std::min(config.budget_bytes(), most);
}

absl::Status Serve(const v1::Config& config) {
  BlockStore::Options options;
  options.path = config.kvstore().path();
  std::error_code error;
  std::filesystem::create_directories(options.path, error);  // Open reports what is wrong with it
  options.budget_bytes = Budget(config.kvstore(), options);
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<BlockStore> store, BlockStore::Open(options));
  KvStoreService service(*store, options.path, config.kvstore().min_run_tokens());
  grpc::Service* const services[] = {&service};
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                          rpc::Server::Start(config.kvstore().listen(), config.tls(), services));
  server->SetServing(true);
  const StoreStatus status = store->status();
  rpc::ServeUntilSignal(absl::StrCat("keeping ", status.blocks, " blocks (", status.bytes / 1000000,
                                     " of ", status.budget_bytes / 1000000, " MB) at ",
                                     options.path));
  server->Shutdown(kGrace);
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::kvstore

int main(int argc, char** argv) {
  return strata::rpc::DaemonMain(
      argc, argv, "strata-kvstore: keeps sequence state on disk. Usage: strata-kvstore [flags]",
      strata::kvstore::Serve);
}
