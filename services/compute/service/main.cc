// strata-compute: runs the model.
#include <chrono>
#include <memory>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "common/rpc/channel.h"
#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "services/compute/engine/runtime.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/compute/experts/device_tier.h"
#include "services/compute/experts/mapped_expert_source.h"
#include "services/compute/service/compute_service.h"
#include "services/compute/service/kv_client.h"
#include "strata/v1/expertstore.grpc.pb.h"

namespace strata::compute {
namespace {

using std::chrono::milliseconds;

// How long running answers may go on after SIGTERM.
constexpr milliseconds kGrace{10'000};
// The expert store opens its files before it answers; a slow disk may need a while.
constexpr milliseconds kOpenTimeout{60'000};

absl::StatusOr<std::unique_ptr<ExpertSource>> ConnectExperts(const v1::Config& config,
                                                             const gguf::Model& file) {
  const std::string& address = config.compute().expertstore();
  STRATA_ASSIGN_OR_RETURN(const auto channel, rpc::Connect(address, config.tls()));
  const auto stub = v1::ExpertStore::NewStub(channel);
  rpc::NotifyProgress("waiting for the expert store");
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::PrepareCall(context, "compute", kOpenTimeout);
  v1::OpenExpertsRequest request;
  const v1::ModelFingerprint fingerprint = FingerprintOf(file);
  *request.mutable_fingerprint() = fingerprint;
  v1::OpenExpertsResponse response;
  const absl::Status opened = rpc::FromGrpc(stub->Open(&context, request, &response));
  if (!opened.ok()) {
    return Annotate(opened, absl::StrCat("the expert store at ", address, " cannot be used"));
  }
  ArenaExpertSource::Options options;
  options.attach_path = response.attach_path();
  std::copy(fingerprint.hash().begin(), fingerprint.hash().end(), options.fingerprint.begin());
  auto source = std::make_unique<ArenaExpertSource>(options);
  STRATA_RETURN_IF_ERROR(source->WaitUntilReady(static_cast<int>(kOpenTimeout.count())));
  return source;
}

// Slots in device memory above `experts`, whose copies the tier's own thread takes from `feeder`.
absl::StatusOr<std::unique_ptr<ExpertSource>> WithDevice(const v1::DeviceTierConfig& config,
                                                         const gguf::ExpertGeometry& geometry,
                                                         std::unique_ptr<ExpertSource> experts,
                                                         std::unique_ptr<ExpertSource> feeder) {
  STRATA_ASSIGN_OR_RETURN(auto device, SimulatedDevice::Create(config.bytes(), config.copy_gbs()));
  DeviceTier::Options options;
  options.uploads_per_layer = config.uploads_per_layer();
  options.uploads_per_step = config.uploads_per_step();
  return DeviceTier::Create(std::move(experts), std::move(feeder), std::move(device), geometry,
                            options);
}

absl::Status Serve(const v1::Config& config) {
  const v1::ComputeConfig& compute = config.compute();
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<gguf::Model> file, OpenModelFile(config.model()));
  std::unique_ptr<ExpertSource> experts;
  STRATA_ASSIGN_OR_RETURN(const gguf::ExpertGeometry geometry, gguf::ReadExpertGeometry(*file));
  if (compute.expertstore() != "none" && !geometry.layers.empty()) {
    STRATA_ASSIGN_OR_RETURN(experts, ConnectExperts(config, *file));
  }
  if (compute.device_tier().device() != "none" && !geometry.layers.empty()) {
    std::unique_ptr<ExpertSource> feeder;
    if (experts != nullptr) {
      STRATA_ASSIGN_OR_RETURN(feeder, ConnectExperts(config, *file));
    } else {
      STRATA_ASSIGN_OR_RETURN(experts, MappedExpertSource::Create(*file, geometry));
      STRATA_ASSIGN_OR_RETURN(feeder, MappedExpertSource::Create(*file, geometry));
    }
    STRATA_ASSIGN_OR_RETURN(experts, WithDevice(compute.device_tier(), geometry, std::move(experts),
                                                std::move(feeder)));
  }
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                          Runtime::Open(std::move(file), compute, std::move(experts)));
  std::unique_ptr<KvClient> store;
  if (compute.kvstore() != "none") {
    STRATA_ASSIGN_OR_RETURN(const auto channel, rpc::Connect(compute.kvstore(), config.tls()));
    store = std::make_unique<KvClient>(channel, runtime->fingerprint(), runtime->layout());
  }
  STRATA_RETURN_IF_ERROR(runtime->StartEngine(store.get()));

  ComputeService service(*runtime, compute, config.model(), store.get());
  grpc::Service* const services[] = {&service};
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                          rpc::Server::Start(compute.listen(), config.tls(), services));
  server->SetServing(true);
  rpc::ServeUntilSignal(
      absl::StrCat("serving ", runtime->fingerprint().name(), " on ", compute.listen()));
  runtime->engine().StopAccepting();
  server->Shutdown(kGrace);
  runtime->StopEngine();  // before the store that it saves into
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::compute

int main(int argc, char** argv) {
  return strata::rpc::DaemonMain(
      argc, argv, "strata-compute: runs a mixture-of-experts model. Usage: strata-compute [flags]",
      strata::compute::Serve);
}
