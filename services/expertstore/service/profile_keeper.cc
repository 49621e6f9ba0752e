#include "services/expertstore/service/profile_keeper.h"

#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "services/expertstore/policy/profile.h"

namespace strata::expertstore {
namespace {

constexpr auto kInterval = std::chrono::minutes(2);

}  // namespace

std::vector<double> ProfileKeeper::Load(const std::string& path,
                                        const gguf::ExpertGeometry& geometry,
                                        const shm::Fingerprint& model) {
  const auto entries = LoadProfile(path, model);
  if (!entries.ok()) {
    LogInfo("no expert profile is used: ", entries.status().message());
    return {};
  }
  std::vector<uint32_t> first;  // expert number by layer number
  std::vector<uint32_t> count;
  uint32_t experts = 0;
  for (const gguf::ExpertLayer& layer : geometry.layers) {
    first.resize(layer.layer + 1);
    count.resize(layer.layer + 1);
    first.back() = experts;
    count.back() = layer.experts;
    experts += layer.experts;
  }
  std::vector<double> values(experts);
  for (const ProfileEntry& entry : *entries) {
    if (entry.layer < count.size() && entry.index < count[entry.layer]) {
      values[first[entry.layer] + entry.index] = entry.value;
    }
  }
  LogInfo("expert profile '", path, "': ", entries->size(), " experts were in use");
  return values;
}

ProfileKeeper::ProfileKeeper(DataPlane& plane, std::string path)
    : plane_(plane), path_(std::move(path)), thread_([this] { SaveNowAndThen(); }) {}

ProfileKeeper::~ProfileKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
  if (const auto saved = Save(); !saved.ok()) LogWarning(saved.status().message());
}

absl::StatusOr<uint64_t> ProfileKeeper::Save() {
  const std::vector<double> values = plane_.Profile();
  std::vector<ProfileEntry> entries;
  for (uint32_t e = 0; e < values.size(); ++e) {
    const ExpertMap::Place& place = plane_.map().place(e);
    if (values[e] > 1e-6) entries.push_back({place.layer, place.index, values[e]});
  }
  const std::lock_guard lock(file_mutex_);
  STRATA_RETURN_IF_ERROR(SaveProfile(path_, plane_.options().fingerprint, entries));
  return entries.size();
}

void ProfileKeeper::SaveNowAndThen() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    lock.unlock();
    if (const auto saved = Save(); !saved.ok()) LogWarning(saved.status().message());
    lock.lock();
  }
}

}  // namespace strata::expertstore
