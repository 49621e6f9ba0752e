#include "cli/compute_client.h"

#include <chrono>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "strata/v1/compute.grpc.pb.h"

namespace strata::cli {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout{120'000};

}  // namespace

class ComputeClient::Impl {
 public:
  std::unique_ptr<v1::Compute::Stub> stub;
  v1::DescribeResponse description;
};

ComputeClient::ComputeClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ComputeClient::ComputeClient(ComputeClient&&) noexcept = default;
ComputeClient::~ComputeClient() = default;

absl::StatusOr<ComputeClient> ComputeClient::Connect(const std::string& address,
                                                     const v1::TlsConfig& tls) {
  STRATA_ASSIGN_OR_RETURN(const auto channel, rpc::Connect(address, tls));
  auto impl = std::make_unique<Impl>();
  impl->stub = v1::Compute::NewStub(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::PrepareCall(context, "cli", kConnectTimeout);
  const absl::Status status = rpc::FromGrpc(impl->stub->Describe(&context, {}, &impl->description));
  if (!status.ok()) return Annotate(status, absl::StrCat("compute at ", address));
  return ComputeClient(std::move(impl));
}

uint32_t ComputeClient::context_length() const { return impl_->description.context_length(); }

absl::StatusOr<v1::Finish> ComputeClient::Generate(std::span<const uint32_t> prompt,
                                                   uint32_t max_tokens,
                                                   const v1::SamplingParams& sampling) {
  grpc::ClientContext context;
  rpc::PrepareCall(context, "cli", std::chrono::milliseconds(0));
  v1::GenerateRequest request;
  request.set_client("cli");
  request.mutable_prompt()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  request.set_max_tokens(max_tokens);
  *request.mutable_sampling() = sampling;
  const auto reader = impl_->stub->Generate(&context, request);
  v1::Finish finish;
  for (v1::GenerateEvent event; reader->Read(&event);) {
    if (event.has_finish()) finish = event.finish();
  }
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(reader->Finish()));
  return finish;
}

}  // namespace strata::cli
