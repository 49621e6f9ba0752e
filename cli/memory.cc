// `strata memory [--limit_gb=N]`: what the expert arena takes of memory; gives some back or takes
// it again while serving.
#include <iostream>

#include "cli/command.h"
#include "common/base/memory_info.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/rpc/channel.h"
#include "strata/v1/expertstore.grpc.pb.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(double, limit_gb, -1,
          "memory: gigabytes that experts may take from now on; 0 = as planned at the start.");

namespace strata::cli {
namespace {

double Gb(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

absl::Status Memory(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 0));
  STRATA_ASSIGN_OR_RETURN(const v1::Config config, config::FromFlags());
  STRATA_ASSIGN_OR_RETURN(const auto channel,
                          rpc::Connect(config.expertstore().listen(), config.tls()));
  const auto store = v1::ExpertStore::NewStub(channel);
  const double limit = absl::GetFlag(FLAGS_limit_gb);
  if (limit >= 0) {
    v1::SetMemoryRequest request;
    request.set_limit_bytes(static_cast<uint64_t>(limit * 1e9));
    v1::SetMemoryResponse response;
    grpc::ClientContext context;
    rpc::PrepareCall(context, "", std::chrono::seconds(20));
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(store->SetMemory(&context, request, &response)));
  }
  v1::ExpertStoreStatusResponse status;
  grpc::ClientContext context;
  rpc::PrepareCall(context, "", std::chrono::seconds(20));
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(store->Status(&context, {}, &status)));
  std::cout << absl::StreamFormat(
      "experts may take   %8.3f GB\n"
      "the arena holds    %8.3f GB\n"
      "experts in memory  %8d of %d\n"
      "free on machine    %8.3f GB of %.3f\n",
      Gb(status.limit_bytes()), Gb(status.held_bytes()), status.resident(), status.experts(),
      Gb(AvailableMemory()), Gb(TotalMemory()));
  return absl::OkStatus();
}

}  // namespace strata::cli
