#include "services/compute/experts/device_tier.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/policy/make_policy.h"
#include "common/quant/weight_layout.h"

namespace strata::compute {

namespace {

constexpr size_t kPartAlignment = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTier>> DeviceTier::Create(std::unique_ptr<ExpertSource> below,
                                                               std::unique_ptr<ExpertSource> feeder,
                                                               std::unique_ptr<ExpertDevice> device,
                                                               const gguf::ExpertGeometry& geometry,
                                                               const Options& options) {
  auto tier = std::unique_ptr<DeviceTier>(
      new DeviceTier(std::move(below), std::move(feeder), std::move(device), options));
  policy::Shape shape;
  for (const gguf::ExpertLayer& from : geometry.layers) {
    if (tier->layers_.size() <= from.layer) tier->layers_.resize(from.layer + 1);
    Layer& layer = tier->layers_[from.layer];
    layer.first_expert = static_cast<uint32_t>(shape.layer.size());
    layer.experts = from.experts;
    size_t end = 0;
    for (const gguf::ExpertPart& part : from.parts) {
      layer.offset[layer.parts] = end;
      layer.type[layer.parts] = part.type;
      layer.row_bytes[layer.parts] = part.row_bytes;
      layer.bytes[layer.parts++] = part.bytes_per_expert;
      end += (part.bytes_per_expert + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    }
    tier->slot_bytes_ = std::max(tier->slot_bytes_, end);
    shape.layer.insert(shape.layer.end(), from.experts, from.layer);
  }
  const auto experts = static_cast<uint32_t>(shape.layer.size());
  const std::span<std::byte> memory = tier->device_->memory();
  if (experts == 0 || memory.size() < tier->slot_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_tier.bytes = ", memory.size(), " does not hold one expert of ",
                     tier->slot_bytes_, " bytes; set more, or device_tier.device to \"none\""));
  }
  const auto slots =
      static_cast<uint32_t>(std::min<uint64_t>(experts, memory.size() / tier->slot_bytes_));
  tier->base_ = memory.data();
  tier->places_.resize(experts);
  tier->slots_.resize(slots);
  for (uint32_t slot = slots; slot > 0; --slot) tier->free_slots_.push_back(slot - 1);
  shape.size_class.assign(experts, 0);
  shape.class_slots = {slots};
  tier->hotness_ = std::make_unique<policy::Hotness>(experts);
  STRATA_ASSIGN_OR_RETURN(tier->policy_, policy::Make("lru", shape, *tier->hotness_));
  LogInfo("device tier: ", slots, " slots of ", tier->slot_bytes_, " bytes for ", experts,
          " experts");
  tier->copier_ = std::thread([tier = tier.get()] { tier->CopyLoop(); });
  return tier;
}

DeviceTier::DeviceTier(std::unique_ptr<ExpertSource> below, std::unique_ptr<ExpertSource> feeder,
                       std::unique_ptr<ExpertDevice> device, const Options& options)
    : below_(std::move(below)),
      feeder_(std::move(feeder)),
      device_(std::move(device)),
      options_(options) {
  here_.reserve(kMaxBatch);
  there_.reserve(kMaxBatch);
  there_positions_.reserve(kMaxBatch);
  group_.reserve(kMaxBatch);
}

DeviceTier::~DeviceTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (copier_.joinable()) copier_.join();
}

void DeviceTier::Begin(std::span<const ExpertId> experts, ExpertPriority priority) {
  if (some_finished_.load(std::memory_order_relaxed)) TakeFinished();
  here_.clear();
  there_.clear();
  there_positions_.clear();
  handed_out_ = failed_ = false;
  decoding_ = priority == ExpertPriority::kDecode;
  if (experts.empty()) return;
  const uint32_t layer_number = experts.front().layer;
  if (layer_number <= last_layer_) {  // steps pass over the layers in order
    ++step_;
    step_uploads_ = 0;
  }
  last_layer_ = layer_number;
  for (uint32_t i = 0; i < experts.size(); ++i) {
    const ExpertId id = experts[i];
    const uint32_t slot = id.layer < layers_.size() && id.index < layers_[id.layer].experts
                              ? places_[NumberOf(id)].slot
                              : kNone;  // (below knows the error)
    if (slot == kNone) {
      there_.push_back(id);
      there_positions_.push_back(i);
      continue;
    }
    slots_[slot].used_in = step_;
    const Layer& layer = layers_[id.layer];
    ReadyExpert ready{i, id, {}};
    for (uint32_t p = 0; p < layer.parts; ++p) ready.parts.part[p] = At(slot) + layer.offset[p];
    here_.push_back(ready);
  }
  hits_ += here_.size();
  below_began_ = !there_.empty();
  if (below_began_) below_->Begin(there_, priority);
}

absl::StatusOr<std::span<const ReadyExpert>> DeviceTier::Next() {
  if (!std::exchange(handed_out_, true) && !here_.empty()) {
    return std::span<const ReadyExpert>(here_);
  }
  if (!below_began_) return std::span<const ReadyExpert>();
  absl::StatusOr<std::span<const ReadyExpert>> ready = below_->Next();
  failed_ = !ready.ok();
  if (failed_) return ready;
  group_.assign(ready->begin(), ready->end());
  for (ReadyExpert& expert : group_) expert.position = there_positions_[expert.position];
  return std::span<const ReadyExpert>(group_);
}

void DeviceTier::End() {
  if (std::exchange(below_began_, false)) below_->End();
  if (decoding_ && !failed_) StartUploads();
  here_.clear();
  there_.clear();
}

void DeviceTier::TakeFinished() {
  std::vector<Upload> finished;
  {
    const std::lock_guard lock(mutex_);
    finished.swap(finished_);
    some_finished_.store(false, std::memory_order_relaxed);
  }
  not_here_.clear();
  for (const Upload& upload : finished) {
    --uploading_;
    const uint32_t expert = NumberOf(upload.id);
    places_[expert].uploading = false;
    if (!upload.done) {
      free_slots_.push_back(upload.slot);
      continue;
    }
    places_[expert].slot = upload.slot;
    slots_[upload.slot] = {expert, 0};
    policy_->Insert(expert, policy::Phase::kDecode);
    ++uploads_;
    not_here_.push_back(upload.id);  // below need not hold it any more
  }
  below_->HeldElsewhere(not_here_);
}

uint32_t DeviceTier::FreeSlot(uint32_t incoming) {
  if (!free_slots_.empty()) {
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  const auto victim = policy_->Victim(incoming, policy::Phase::kDecode, [this](uint32_t expert) {
    return slots_[places_[expert].slot].used_in < step_;
  });
  if (!victim) return kNone;
  policy_->Erase(*victim);
  const uint32_t slot = std::exchange(places_[*victim].slot, kNone);
  slots_[slot].expert = kNone;
  return slot;
}

void DeviceTier::StartUploads() {
  uint32_t started = 0;
  for (const ExpertId id : there_) {
    if (started == options_.uploads_per_layer || step_uploads_ == options_.uploads_per_step ||
        uploading_ == options_.uploads_per_step) {
      break;
    }
    const uint32_t expert = NumberOf(id);
    if (places_[expert].uploading) continue;
    const uint32_t slot = FreeSlot(expert);
    if (slot == kNone) break;
    places_[expert].uploading = true;
    ++started;
    ++step_uploads_;
    ++uploading_;
    const std::lock_guard lock(mutex_);
    queue_.push_back({id, slot, false});
  }
  if (started > 0) changed_.notify_one();
}

void DeviceTier::CopyLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Upload upload = queue_.front();
    queue_.pop_front();
    lock.unlock();
    upload.done = CopyIn(upload);
    lock.lock();
    finished_.push_back(upload);
    some_finished_.store(true, std::memory_order_relaxed);
  }
}

bool DeviceTier::CopyIn(const Upload& upload) {
  const Layer& layer = layers_[upload.id.layer];
  std::vector<uint8_t> in_memory(layer.experts);
  feeder_->FindResident(upload.id.layer, in_memory);
  // Uploading must not read from the drive: if RAM dropped it, it was not worth a slot here.
  if (in_memory[upload.id.index] == 0) return false;
  feeder_->Begin(std::span(&upload.id, 1), ExpertPriority::kBackground);
  const absl::StatusOr<std::span<const ReadyExpert>> ready = feeder_->Next();
  const bool ok = ready.ok() && ready->size() == 1;
  if (ok) {
    const ExpertParts& parts = ready->front().parts;
    for (uint32_t p = 0; p < layer.parts; ++p) {
      std::span<const std::byte> bytes(parts.part[p], layer.bytes[p]);
      if (parts.layout[p] == quant::WeightLayout::kRows8) {  // the device's kernels read rows
        plain_.resize(layer.bytes[p]);
        quant::DeinterleaveRows(layer.type[p],
                                static_cast<int64_t>(layer.bytes[p] / layer.row_bytes[p]),
                                layer.row_bytes[p], bytes.data(), plain_.data());
        bytes = plain_;
      }
      device_->Copy(At(upload.slot) + layer.offset[p], bytes);
    }
  }
  feeder_->End();
  return ok;
}

std::span<const ExpertId> DeviceTier::NotHere(std::span<const ExpertId> experts) {
  not_here_.clear();
  for (const ExpertId id : experts) {
    if (places_[NumberOf(id)].slot == kNone) not_here_.push_back(id);
  }
  return not_here_;
}

void DeviceTier::CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) {
  const policy::Phase phase =
      priority == ExpertPriority::kDecode ? policy::Phase::kDecode : policy::Phase::kPrompt;
  uses_.clear();
  for (const ExpertUse& use : uses) {
    const uint32_t expert = NumberOf(use.id);
    if (places_[expert].slot == kNone) {
      uses_.push_back(use);
    } else {
      policy_->Use(expert, use.tokens, phase);
    }
  }
  below_->CountUses(uses_, priority);
}

void DeviceTier::FindResident(uint16_t layer, std::span<uint8_t> in_memory) const {
  below_->FindResident(layer, in_memory);
  if (layer >= layers_.size()) return;
  const size_t count = std::min<size_t>(in_memory.size(), layers_[layer].experts);
  for (uint32_t e = 0; e < count; ++e) {
    if (places_[layers_[layer].first_expert + e].slot != kNone) in_memory[e] = 1;
  }
}

ExpertCounters DeviceTier::counters() const {
  ExpertCounters counters = below_->counters();
  counters.hits += hits_;
  counters.device_hits = hits_;
  counters.uploads = uploads_;
  return counters;
}

}  // namespace strata::compute
