// What the tests of the store and of its clients share: a small model file with known bytes, a read
// engine that does as it is told, and a store running on a thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/eventually.h"
#include "common/base/memory_map.h"
#include "common/gguf/expert_geometry.h"
#include "common/shm/attachment.h"
#include "services/expertstore/io/read_engine.h"
#include "services/expertstore/plane/data_plane.h"

namespace strata::expertstore {

// A path of this process, or of the process that started it (EXPERT_TEST_OWNER).
inline std::string TestPath(const std::string& name) {
  const char* owner = std::getenv("EXPERT_TEST_OWNER");
  return ::testing::TempDir() + "expert_" + (owner != nullptr ? owner : std::to_string(getpid())) +
         "_" + name;
}

// A file of random bytes and a geometry that says where experts are in it. Layers 1..layers of
// `experts` experts each; offsets and sizes are multiples of 32, not of 4096, as in real files. The
// last layer's experts are larger than the others'. Part 1 lies in a second file.
struct TestModel {
  // `write`: make the files; otherwise use those that another process made.
  explicit TestModel(const std::string& name, uint32_t layers = 3, uint32_t experts = 16,
                     bool write = true)
      : owner(write) {
    geometry.files = {TestPath(name + ".a"), TestPath(name + ".b")};
    uint64_t at[2] = {4096 + 32, 160};
    for (uint32_t l = 1; l <= layers; ++l) {
      gguf::ExpertLayer layer;
      layer.layer = l;
      layer.experts = experts;
      for (uint32_t p = 0; p < 3; ++p) {
        gguf::ExpertPart part;
        part.file = p == 1 ? 1 : 0;
        part.offset = at[part.file];
        part.bytes_per_expert = l == layers ? 20000 : 5024 + 32 * p;
        at[part.file] += part.bytes_per_expert * experts + 96;
        layer.parts.push_back(part);
      }
      geometry.layers.push_back(layer);
    }
    std::mt19937_64 random(layers * 1000 + experts);
    for (int f = 0; f < 2; ++f) {
      // Ends right behind the last expert, in the middle of a block.
      std::vector<uint64_t> words((at[f] - 96 + 7) / 8);
      for (uint64_t& word : words) word = random();
      if (owner) {
        std::ofstream(geometry.files[f], std::ios::binary)
            .write(reinterpret_cast<const char*>(words.data()),
                   static_cast<std::streamsize>(at[f] - 96));
      }
      maps.push_back(MemoryMap::ReadFile(geometry.files[f]).value());
    }
  }
  ~TestModel() {
    if (!owner) return;
    for (const std::string& file : geometry.files) unlink(file.c_str());
  }

  // The bytes of a part, straight from the file.
  std::span<const std::byte> Part(uint32_t layer, uint32_t index, uint32_t part) const {
    const gguf::ExpertPart& from = geometry.layers[layer - 1].parts[part];
    return maps[from.file].bytes().subspan(from.offset + index * from.bytes_per_expert,
                                           from.bytes_per_expert);
  }
  bool Same(uint32_t layer, uint32_t index, const std::byte* const* parts) const {
    for (uint32_t p = 0; p < 3; ++p) {
      const auto want = Part(layer, index, p);
      if (std::memcmp(want.data(), parts[p], want.size()) != 0) return false;
    }
    return true;
  }

  const bool owner;
  gguf::ExpertGeometry geometry;
  std::vector<MemoryMap> maps;
};

// Reads from the files by pread, but a test may hold reads back and decide their results.
class FakeEngine : public ReadEngine {
 public:
  // For each read: empty = do it, otherwise its result (bytes up to there are read).
  using Fault = std::function<std::optional<int64_t>(const ReadOp&)>;

  FakeEngine(const ModelFiles& files, uint32_t depth, Fault fault = {}, bool manual = false)
      : files_(files), depth_(depth), fault_(std::move(fault)), manual_(manual) {
    fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }

  uint32_t depth() const override { return depth_; }
  void Queue(const ReadOp& op) override {
    log.push_back(op);
    queued_.push_back(op);
    EXPECT_LE(queued_.size() + done_.size(), depth_);
  }
  void Flush() override {
    if (!manual_) Complete(queued_.size());
  }
  size_t Reap(std::span<ReadResult> results) override {
    const size_t count = std::min(results.size(), done_.size());
    std::copy_n(done_.begin(), count, results.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    uint64_t n;
    if (done_.empty()) [[maybe_unused]]
      const ssize_t got = read(fd_.get(), &n, sizeof(n));
    return count;
  }
  int fd() const override { return fd_.get(); }
  const char* name() const override { return "fake"; }

  // Ends the `count` oldest reads in flight.
  void Complete(size_t count) {
    for (; count > 0 && !queued_.empty(); --count) {
      const ReadOp op = queued_.front();
      queued_.pop_front();
      const std::optional<int64_t> result = fault_ ? fault_(op) : std::nullopt;
      int64_t got = result.value_or(op.bytes);
      if (got > 0) {
        got = pread(files_.buffered_fd(op.file), op.dest, static_cast<size_t>(got),
                    static_cast<off_t>(op.offset));
      }
      done_.push_back({op.tag, got});
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = write(fd_.get(), &one, sizeof(one));
  }
  size_t in_flight() const { return queued_.size(); }

  std::vector<ReadOp> log;  // all reads ever asked for

 private:
  const ModelFiles& files_;
  const uint32_t depth_;
  const Fault fault_;
  const bool manual_;
  UniqueFd fd_;
  std::deque<ReadOp> queued_;
  std::deque<ReadResult> done_;
};

inline DataPlane::EngineFactory FakeFactory(FakeEngine::Fault fault) {
  return [fault](const ModelFiles& files, std::span<const std::span<std::byte>> /*pieces*/,
                 uint32_t depth) -> absl::StatusOr<std::unique_ptr<ReadEngine>> {
    return std::make_unique<FakeEngine>(files, depth, fault);
  };
}

inline DataPlaneOptions OptionsFor(const TestModel& model, const std::string& name) {
  DataPlaneOptions options;
  options.geometry = model.geometry;
  options.fingerprint = {7, 7, 7};
  options.attach_path = TestPath(name + ".sock");
  options.arena_bytes = 1ull << 30;  // more than all
  options.queue_depth = 8;
  options.slice_bytes = 8192;
  return options;
}

// A store on a thread of its own for the life of the object.
class RunningPlane {
 public:
  explicit RunningPlane(DataPlaneOptions options,
                        const DataPlane::EngineFactory& engine = DataPlane::SystemEngine) {
    auto made = DataPlane::Create(std::move(options), engine);
    EXPECT_TRUE(made.ok()) << made.status();
    plane_ = *std::move(made);
    thread_ = std::thread([this] { plane_->Run(); });
  }
  ~RunningPlane() {
    plane_->Stop();
    thread_.join();
  }
  DataPlane* operator->() { return plane_.get(); }

 private:
  std::unique_ptr<DataPlane> plane_;
  std::thread thread_;
};

inline std::unique_ptr<shm::Attachment> Attach(const DataPlaneOptions& options) {
  auto attachment = shm::Attachment::Connect(options.attach_path, options.fingerprint);
  EXPECT_TRUE(attachment.ok()) << attachment.status();
  return *std::move(attachment);
}

// Asks for an expert and waits until it is pinned; returns its slot.
inline uint32_t Fetch(shm::ArenaClient& client, uint32_t expert) {
  std::optional<uint32_t> slot = client.TryPin(expert);
  if (slot) return *slot;
  client.Push({shm::RequestOp::kWant, shm::Priority::kDecode, expert});
  client.Ring();
  EXPECT_TRUE(Eventually([&] {
    slot = client.TryPin(expert);
    return slot.has_value();
  }));
  client.Push({shm::RequestOp::kDone, shm::Priority::kDecode, expert});
  client.Ring();
  return slot.value_or(0);
}

// Whether the bytes of a pinned expert are those of the model's file.
inline bool HasBytes(const TestModel& model, const shm::ArenaClient& client, uint32_t expert,
                     uint32_t slot) {
  const auto layers = client.table().layers();
  uint32_t number = 0;
  while (expert - layers[number].first_expert >= layers[number].experts) ++number;
  const shm::LayerRecord& layer = layers[number];
  const uint32_t index = expert - layer.first_expert;
  const std::byte* parts[shm::kMaxParts];
  for (uint32_t p = 0; p < layer.parts; ++p) {
    parts[p] =
        client.arena() + shm::TableView::PartOffset(
                             layer, client.table().classes()[layer.size_class], index, slot, p);
  }
  return model.Same(number, index, parts);
}

}  // namespace strata::expertstore
