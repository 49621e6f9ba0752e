// strata-expertstore: keeps experts in shared memory and reads the others from the drive.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "common/base/log.h"
#include "common/base/memory_info.h"
#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "services/expertstore/service/expert_store_service.h"
#include "services/expertstore/service/kvstore_profile.h"

namespace strata::expertstore {
namespace {

constexpr std::chrono::milliseconds kGrace{2000};

// Runs the plane on a thread of its own for the life of the object.
class PlaneThread {
 public:
  explicit PlaneThread(DataPlane& plane) : plane_(plane), thread_([this] { plane_.Run(); }) {}
  ~PlaneThread() {
    plane_.Stop();
    thread_.join();
  }
  PlaneThread(const PlaneThread&) = delete;
  PlaneThread& operator=(const PlaneThread&) = delete;

 private:
  DataPlane& plane_;
  std::thread thread_;
};

std::string TextOf(const gguf::Metadata& metadata, std::string_view key) {
  const auto value = metadata.GetString(key);
  return value.ok() ? std::string(*value) : std::string();
}

uint32_t ExpertsPerToken(const gguf::Metadata& metadata) {
  const auto used =
      metadata.GetUint(TextOf(metadata, "general.architecture") + ".expert_used_count");
  return used.ok() ? static_cast<uint32_t>(std::clamp<uint64_t>(*used, 1, 1 << 16)) : 1;
}

ServedModel Describe(const gguf::Model& file, const gguf::ExpertGeometry& geometry) {
  ServedModel model;
  model.file = &file;
  const auto hash = file.Fingerprint();
  model.fingerprint.set_hash(hash.data(), hash.size());
  model.fingerprint.set_architecture(TextOf(file.metadata(), "general.architecture"));
  model.fingerprint.set_name(TextOf(file.metadata(), "general.name"));
  model.geometry = geometry;
  return model;
}

// The files of each mirror; FailedPrecondition if one is not the same model byte for byte where it
// matters here (tables, samples of every tensor, places of the experts).
absl::StatusOr<std::vector<std::vector<std::string>>> OpenMirrors(
    const v1::ExpertStoreConfig& config, const gguf::Model& model) {
  std::vector<std::vector<std::string>> mirrors;
  for (const std::string& path : config.mirror()) {
    STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> mirror, gguf::Model::Open(path));
    if (mirror->Fingerprint() != model.Fingerprint()) {
      return absl::FailedPreconditionError(
          absl::StrCat("mirror '", path, "' is not a copy of '", model.files().front(),
                       "': other weights or metadata; copy the file again"));
    }
    const auto same_place = [](const gguf::TensorInfo& a, const gguf::TensorInfo& b) {
      return a.name == b.name && a.file == b.file && a.offset == b.offset && a.bytes == b.bytes;
    };
    if (!std::ranges::equal(mirror->tensors(), model.tensors(), same_place)) {
      return absl::FailedPreconditionError(
          absl::StrCat("mirror '", path, "' has its tensors at other places than '",
                       model.files().front(), "'; copy the file as it is"));
    }
    mirrors.push_back(mirror->files());
  }
  return mirrors;
}

// Interleaved rows are for the kernels of x86-64 with AVX2, which compute on this machine: it maps
// the arena. An accelerator's kernels read rows as in the file.
SlotLayout LayoutFor(const v1::Config& config) {
  const std::string& wanted = config.expertstore().layout();
  if (wanted == "rows8") return SlotLayout::kInterleaved;
#if defined(__x86_64__)
  const std::string& isa = config.compute().isa();
  if (wanted == "auto" && config.compute().device_tier().device() == "none" && isa != "scalar" &&
      __builtin_cpu_supports("avx2")) {
    return SlotLayout::kInterleavedIfAll;
  }
#endif
  return SlotLayout::kAsRead;
}

DataPlaneOptions OptionsFrom(const v1::Config& config, const gguf::Model& file,
                             const gguf::ExpertGeometry& geometry, const std::string& profile_path,
                             RemoteProfile* remote) {
  const v1::ExpertStoreConfig& store = config.expertstore();
  DataPlaneOptions options;
  options.geometry = geometry;
  const auto hash = file.Fingerprint();
  std::copy(hash.begin(), hash.end(), reinterpret_cast<std::byte*>(options.fingerprint.data()));
  options.experts_per_token = ExpertsPerToken(file.metadata());
  options.packs.assign(store.pack().begin(), store.pack().end());
  options.layout = LayoutFor(config);
  options.arena_bytes = store.arena_bytes();
  options.policy = store.policy();
  options.queue_depth = store.queue_depth();
  options.slice_bytes = store.slice_bytes();
  options.direct_io = !store.buffered();
  options.sealed = !store.unsealed();
  options.attach_path = config.runtime_dir() + "/experts.sock";
  options.profile = ProfileKeeper::Load(profile_path, remote, geometry, options.fingerprint);
  return options;
}

void LogPlan(const DataPlane& plane, uint64_t reserve) {
  LogInfo("memory plan: ", plane.plan().bytes, " bytes for ", plane.plan().slots, " of ",
          plane.plan().experts, " experts (all: ", plane.plan().all_bytes, "), ", AvailableMemory(),
          " free for everything else, of which ", reserve,
          " are kept free: below that the arena shrinks, at least to ", plane.plan().least_bytes);
}

absl::Status Serve(const v1::Config& config) {
  if (config.model().empty()) {
    return absl::InvalidArgumentError(
        "no model is configured: set `model` in the configuration or pass --model FILE.gguf");
  }
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> file,
                          gguf::Model::Open(config.model()));
  STRATA_ASSIGN_OR_RETURN(const gguf::ExpertGeometry geometry, gguf::ReadExpertGeometry(*file));
  ServedModel model = Describe(*file, geometry);

  std::unique_ptr<DataPlane> plane;
  std::optional<PlaneThread> thread;
  std::unique_ptr<RemoteProfile> remote_profile;
  std::optional<ProfileKeeper> profile;
  std::optional<MemoryWatch> memory;
  if (!geometry.layers.empty()) {
    rpc::NotifyProgress("allocating the expert arena");
    const std::string profile_path = config.state_dir() + "/experts.profile";
    if (config.compute().kvstore() != "none") {
      STRATA_ASSIGN_OR_RETURN(remote_profile, ProfileInKvStore(config.compute().kvstore(),
                                                               config.tls(), model.fingerprint));
    }
    DataPlaneOptions options =
        OptionsFrom(config, *file, geometry, profile_path, remote_profile.get());
    if (!options.packs.empty() && config.expertstore().mirror_size() > 0) {
      return absl::InvalidArgumentError(
          "expertstore.pack and expertstore.mirror are both set; name copies of the pack in "
          "`pack`");
    }
    STRATA_ASSIGN_OR_RETURN(options.mirrors, OpenMirrors(config.expertstore(), *file));
    STRATA_ASSIGN_OR_RETURN(plane, DataPlane::Create(std::move(options)));
    thread.emplace(*plane);
    profile.emplace(*plane, profile_path, remote_profile.get());
    model.plane = plane.get();
    model.profile = &*profile;
    const uint64_t reserve = config.expertstore().reserve_bytes() != 0
                                 ? config.expertstore().reserve_bytes()
                                 : MemoryReserve(TotalMemory());
    memory.emplace(*plane, reserve, [] { return AvailableMemory(); });
    model.memory = &*memory;
    LogPlan(*plane, reserve);
  } else {
    LogInfo("'", config.model(), "' has no experts; there is nothing to keep");
  }

  const std::string& address = config.expertstore().listen();
  ExpertStoreService service(std::move(model));
  grpc::Service* const services[] = {&service};
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                          rpc::Server::Start(address, config.tls(), services));
  server->SetServing(true);
  rpc::ServeUntilSignal(absl::StrCat("serving experts on ", address));
  server->Shutdown(kGrace);
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::expertstore

int main(int argc, char** argv) {
  return strata::rpc::DaemonMain(argc, argv,
                                 "strata-expertstore: keeps a model's experts in shared memory. "
                                 "Usage: strata-expertstore [flags]",
                                 strata::expertstore::Serve);
}
