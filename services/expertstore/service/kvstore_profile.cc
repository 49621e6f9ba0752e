#include "services/expertstore/service/kvstore_profile.h"

#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::expertstore {
namespace {

constexpr char kName[] = "experts";

class KvStoreProfile : public RemoteProfile {
 public:
  KvStoreProfile(const std::shared_ptr<grpc::Channel>& channel, v1::ModelFingerprint fingerprint)
      : stub_(v1::KvStore::NewStub(channel)), fingerprint_(std::move(fingerprint)) {}

  absl::StatusOr<std::string> Get(std::chrono::milliseconds timeout) override {
    v1::GetProfileRequest request;
    request.set_name(kName);
    *request.mutable_fingerprint() = fingerprint_;
    v1::GetProfileResponse response;
    grpc::ClientContext context;
    rpc::PrepareCall(context, "", timeout);
    context.set_wait_for_ready(true);  // the daemons of a machine start together
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(stub_->GetProfile(&context, request, &response)));
    if (!response.found()) return absl::NotFoundError("kvstore has no expert profile yet");
    return std::move(*response.mutable_value());
  }

  absl::Status Put(const std::string& text, std::chrono::milliseconds timeout) override {
    v1::PutProfileRequest request;
    request.set_name(kName);
    *request.mutable_fingerprint() = fingerprint_;
    request.set_value(text);
    v1::PutProfileResponse response;
    grpc::ClientContext context;
    rpc::PrepareCall(context, "", timeout);
    return rpc::FromGrpc(stub_->PutProfile(&context, request, &response));
  }

 private:
  const std::unique_ptr<v1::KvStore::Stub> stub_;
  const v1::ModelFingerprint fingerprint_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteProfile>> ProfileInKvStore(
    const std::string& address, const v1::TlsConfig& tls, const v1::ModelFingerprint& fingerprint) {
  STRATA_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, rpc::Connect(address, tls));
  return std::make_unique<KvStoreProfile>(channel, fingerprint);
}

}  // namespace strata::expertstore
