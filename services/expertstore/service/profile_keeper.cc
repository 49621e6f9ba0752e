#include "services/expertstore/service/profile_keeper.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::expertstore {
namespace {

constexpr auto kInterval = std::chrono::minutes(2);
// At the start for kvstore to answer: with a file at hand and without one.
constexpr std::chrono::milliseconds kGetWithFile{200};
constexpr std::chrono::milliseconds kGetWithoutFile{1000};
constexpr std::chrono::milliseconds kPut{1000};

absl::StatusOr<Profile> GetRemote(RemoteProfile& remote, const shm::Fingerprint& model,
                                  std::chrono::milliseconds timeout) {
  STRATA_ASSIGN_OR_RETURN(const std::string text, remote.Get(timeout));
  return ParseProfile(text, model, "the profile in kvstore");
}

std::vector<double> ByNumber(const std::vector<ProfileEntry>& entries,
                             const gguf::ExpertGeometry& geometry) {
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
  for (const ProfileEntry& entry : entries) {
    if (entry.layer < count.size() && entry.index < count[entry.layer]) {
      values[first[entry.layer] + entry.index] = entry.value;
    }
  }
  return values;
}

}  // namespace

std::vector<double> ProfileKeeper::Load(const std::string& path, RemoteProfile* remote,
                                        const gguf::ExpertGeometry& geometry,
                                        const shm::Fingerprint& model) {
  absl::StatusOr<Profile> profile = LoadProfile(path, model);
  std::string where = absl::StrCat("'", path, "'");
  if (remote != nullptr) {
    absl::StatusOr<Profile> kept =
        GetRemote(*remote, model, profile.ok() ? kGetWithFile : kGetWithoutFile);
    if (kept.ok() && (!profile.ok() || kept->saved_at >= profile->saved_at)) {
      profile = *std::move(kept);
      where = "in kvstore";
    } else if (!kept.ok()) {
      LogInfo("no expert profile from kvstore: ", kept.status().message());
    }
  }
  if (!profile.ok()) {
    LogInfo("no expert profile is used: ", profile.status().message());
    return {};
  }
  LogInfo("expert profile ", where, ": ", profile->entries.size(), " experts were in use");
  return ByNumber(profile->entries, geometry);
}

ProfileKeeper::ProfileKeeper(DataPlane& plane, std::string path, RemoteProfile* remote)
    : plane_(plane),
      path_(std::move(path)),
      remote_(remote),
      thread_(kInterval, [this] { SaveOrWarn(); }) {}

ProfileKeeper::~ProfileKeeper() {
  thread_.Stop();
  SaveOrWarn();
}

void ProfileKeeper::SaveOrWarn() {
  if (const auto saved = Save(); !saved.ok()) LogWarning(saved.status().message());
}

absl::StatusOr<uint64_t> ProfileKeeper::Save() {
  const std::vector<double> values = plane_.Profile();
  Profile profile;
  profile.saved_at = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  for (uint32_t e = 0; e < values.size(); ++e) {
    const ExpertMap::Place& place = plane_.map().place(e);
    if (values[e] > 1e-6) profile.entries.push_back({place.layer, place.index, values[e]});
  }
  const std::string text = FormatProfile(profile, plane_.options().fingerprint);
  const std::lock_guard lock(file_mutex_);
  const absl::Status in_file = SaveProfile(path_, text);
  const absl::Status in_kvstore =
      remote_ != nullptr ? remote_->Put(text, kPut) : absl::NotFoundError("no kvstore");
  if (!in_file.ok() && !in_kvstore.ok()) return in_file;
  return profile.entries.size();
}

}  // namespace strata::expertstore
