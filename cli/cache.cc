// `strata cache`: what kvstore holds, for people.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include "cli/cache_commands.h"
#include "cli/command.h"
#include "cli/daemon_set.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/reader.h"
#include "common/rpc/channel.h"
#include "common/tokenizer/tokenizer.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

// The folder of sockets of the one `strata run` of this user, else the system's.
absl::StatusOr<std::string> FindRuntimeFolder() {
  const char* user = std::getenv("XDG_RUNTIME_DIR");
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(user != nullptr ? user : "/tmp", error)) {
    const std::string path = folder.path();
    const bool ours = folder.path().filename().string().starts_with("strata-");
    if (ours && fs::exists(path + "/kvstore.sock", error)) found.push_back(path);
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("several strata run here, e.g. at '", found[0],
                                                   "' and '", found[1],
                                                   "': choose one with --runtime_dir"));
  }
  return found.empty() ? "" : found[0];
}

}  // namespace

absl::Status Cache(std::span<const std::string> arguments) {
  STRATA_ASSIGN_OR_RETURN(v1::Config config, config::FromFlagsWithoutDefaults());
  if (config.runtime_dir().empty() && config.kvstore().listen().empty()) {
    STRATA_ASSIGN_OR_RETURN(*config.mutable_runtime_dir(), FindRuntimeFolder());
  }
  const absl::StatusOr<std::string> path = FindModel(config.model());
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(const auto channel,
                          rpc::Connect(config.kvstore().listen(), config.tls()));
  const auto kvstore = v1::KvStore::NewStub(channel);
  CacheContext context;
  context.kvstore = kvstore.get();
  context.out = &std::cout;
  context.now_ms = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                             std::chrono::system_clock::now().time_since_epoch())
                                             .count());
  // Which model a conversation is of cannot be told from its hashes: this one's tokens are assumed.
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (path.ok()) {
    STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(*path));
    absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> read =
        tokenizer::Tokenizer::FromGguf(model->metadata());
    if (read.ok()) tokenizer = *std::move(read);
  }
  if (tokenizer != nullptr) {
    context.text = [&](std::span<const uint32_t> ids) {
      return tokenizer->Decode(ids, /*render_control=*/true);
    };
  }
  const absl::Status status = RunCacheCommand(context, arguments);
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat("kvstore does not answer at ",
                                             config.kvstore().listen(), " (", status.message(),
                                             "); is it running? Where: --runtime_dir or --config"));
}

}  // namespace strata::cli
