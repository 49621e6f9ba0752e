// How much of what the drive can deliver arrives while an engine waits for experts:
//
//   drive_bench --model=FILE [--pack=FILE] [--arena_mb=256] [--batch=8] [--seconds=.5]
//   [--rounds=15]
//
// Batches of random experts of one layer after another, nearly all of them misses, through
// ArenaExpertSource and the store; in turn with raw io_uring reads past the page cache of the same
// pieces, as many in flight, from the same file in the same run. Counted is the time in which the
// store has reads in flight; what is left between batches is compute's time, not the drive's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/memory_map.h"
#include "common/base/status.h"
#include "common/gguf/reader.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/io/uring_engine.h"
#include "services/expertstore/plane/data_plane.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"

ABSL_FLAG(std::string, model, "", "GGUF file with experts, several times larger than the arena.");
ABSL_FLAG(std::string, pack, "", "Pack of the model to read from instead.");
ABSL_FLAG(uint64_t, arena_mb, 256, "Megabytes of the arena.");
ABSL_FLAG(uint32_t, batch, 8, "Experts of a batch.");
ABSL_FLAG(double, seconds, 0.5, "Of each round of each side.");
ABSL_FLAG(int, rounds, 15, "Rounds; medians are printed.");
ABSL_FLAG(uint32_t, depth, 32, "Reads in flight.");
ABSL_FLAG(uint32_t, slice, 512 << 10, "Bytes of a read.");

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;
using expertstore::DataPlane;
using expertstore::DataPlaneOptions;
using expertstore::DataPlaneStatus;
using expertstore::Extent;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Rate {
  double gbs = 0;
  double cpu_s_per_gb = 0;
};

// The drive itself: the pieces of random experts, always `depth` of them in flight.
class Raw {
 public:
  Raw(const DataPlane& plane, uint32_t depth, uint32_t slice) : plane_(plane), slice_(slice) {
    const std::string pack = absl::GetFlag(FLAGS_pack);
    const std::vector<std::string> paths =
        pack.empty() ? plane.options().geometry.files : std::vector<std::string>{pack};
    files_ = std::make_unique<expertstore::ModelFiles>(
        expertstore::ModelFiles::Open(paths, /*direct=*/true).value());
    memory_ = MemoryMap::Anonymous(uint64_t{depth} * slice, false).value();
    const std::span<std::byte> whole(memory_.data(), memory_.size());
    engine_ = expertstore::UringEngine::Create(*files_, {&whole, 1}, depth).value();
  }

  Rate Run(double seconds, std::mt19937& random) {
    std::vector<uint32_t> free_tags;
    for (uint32_t tag = 0; tag < engine_->depth(); ++tag) free_tags.push_back(tag);
    const auto start = Clock::now();
    const double cpu = CpuSeconds();
    uint64_t bytes = 0;
    while (Since(start) < seconds || free_tags.size() < engine_->depth()) {
      while (!free_tags.empty() && Since(start) < seconds) {
        expertstore::ReadOp op = NextPiece(random);
        op.tag = free_tags.back();
        op.dest = memory_.data() + op.tag * slice_;
        free_tags.pop_back();
        engine_->Queue(op);
      }
      engine_->Flush();
      expertstore::ReadResult results[64];
      const size_t count = engine_->Reap(results);
      for (size_t i = 0; i < count; ++i) {
        if (results[i].result < 0) {
          std::fprintf(stderr, "a raw read failed\n");
          std::exit(1);
        }
        bytes += static_cast<uint64_t>(results[i].result);
        free_tags.push_back(static_cast<uint32_t>(results[i].tag));
      }
      if (count == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return {1e-9 * static_cast<double>(bytes) / Since(start),
            (CpuSeconds() - cpu) / (1e-9 * static_cast<double>(bytes))};
  }

 private:
  expertstore::ReadOp NextPiece(std::mt19937& random) {
    if (pieces_.empty()) {
      std::vector<Extent> extents;
      plane_.map().Extents(random() % plane_.plan().experts, 0, 0, nullptr, &extents);
      for (const Extent& extent : extents) {
        for (uint64_t at = 0; at < extent.bytes; at += slice_) {
          expertstore::ReadOp op;
          op.file = extent.file;
          op.direct = true;
          op.offset = extent.offset + at;
          op.bytes = static_cast<uint32_t>(std::min<uint64_t>(slice_, extent.bytes - at));
          pieces_.push_back(op);
        }
      }
    }
    const expertstore::ReadOp op = pieces_.back();
    pieces_.pop_back();
    return op;
  }

  const DataPlane& plane_;
  const uint32_t slice_;
  std::unique_ptr<expertstore::ModelFiles> files_;
  MemoryMap memory_;
  std::unique_ptr<expertstore::UringEngine> engine_;
  std::vector<expertstore::ReadOp> pieces_;
};

// The same through the store.
Rate RunStore(DataPlane& plane, compute::ArenaExpertSource& source, double seconds,
              std::mt19937& random) {
  const std::vector<gguf::ExpertLayer>& layers = plane.options().geometry.layers;
  const DataPlaneStatus before = plane.Status();
  const auto start = Clock::now();
  const double cpu = CpuSeconds();
  for (size_t l = 0; Since(start) < seconds; l = (l + 1) % layers.size()) {
    std::vector<compute::ExpertId> batch;
    std::vector<uint16_t> all(layers[l].experts);
    for (uint32_t e = 0; e < all.size(); ++e) all[e] = static_cast<uint16_t>(e);
    std::shuffle(all.begin(), all.end(), random);
    const size_t count = std::min<size_t>(absl::GetFlag(FLAGS_batch), all.size());
    for (size_t i = 0; i < count; ++i) {
      batch.push_back({static_cast<uint16_t>(layers[l].layer), all[i]});
    }
    source.Begin(batch, compute::ExpertPriority::kDecode);
    for (;;) {
      const auto ready = source.Next();
      if (!ready.ok()) {
        std::fprintf(stderr, "%s\n", std::string(ready.status().message()).c_str());
        std::exit(1);
      }
      if (ready->empty()) break;
    }
    source.End();
  }
  const DataPlaneStatus after = plane.Status();
  const auto bytes = static_cast<double>(after.bytes_read - before.bytes_read);
  return {bytes / static_cast<double>(after.reading_ns - before.reading_ns),
          (CpuSeconds() - cpu) / (1e-9 * bytes)};
}

int Main() {
  const auto model = gguf::Model::Open(absl::GetFlag(FLAGS_model));
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  DataPlaneOptions options;
  options.geometry = gguf::ReadExpertGeometry(**model).value();
  const auto hash = (*model)->Fingerprint();
  std::memcpy(options.fingerprint.data(), hash.data(), options.fingerprint.size());
  options.experts_per_token = absl::GetFlag(FLAGS_batch);
  options.arena_bytes = absl::GetFlag(FLAGS_arena_mb) << 20;
  options.queue_depth = absl::GetFlag(FLAGS_depth);
  options.slice_bytes = absl::GetFlag(FLAGS_slice);
  options.attach_path = "/tmp/drive_bench." + std::to_string(getpid()) + ".sock";
  if (!absl::GetFlag(FLAGS_pack).empty()) options.packs = {absl::GetFlag(FLAGS_pack)};
  auto plane = DataPlane::Create(options);
  if (!plane.ok()) {
    std::fprintf(stderr, "%s\n", std::string(plane.status().message()).c_str());
    return 1;
  }
  std::thread serve([&] { (*plane)->Run(); });
  {
    compute::ArenaExpertSource source({options.attach_path, options.fingerprint});
    if (!source.WaitUntilReady(20000).ok()) return 1;
    while ((*plane)->Status().counts.resident < (*plane)->Status().slots) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    Raw raw(**plane, options.queue_depth, options.slice_bytes);
    std::mt19937 random(3);
    const double seconds = absl::GetFlag(FLAGS_seconds);
    std::vector<double> ours, drives, ratios, our_cpu, drives_cpu;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      // In turn the other goes first: a drive with a budget has more for whoever comes first.
      Rate drive, store;
      if (round % 2 == 0) drive = raw.Run(seconds, random);
      store = RunStore(**plane, source, seconds, random);
      if (round % 2 == 1) drive = raw.Run(seconds, random);
      ours.push_back(store.gbs);
      drives.push_back(drive.gbs);
      ratios.push_back(store.gbs / drive.gbs);
      our_cpu.push_back(store.cpu_s_per_gb);
      drives_cpu.push_back(drive.cpu_s_per_gb);
    }
    std::printf("store %.3f GB/s (%.3f CPU s/GB)   raw %.3f GB/s (%.3f CPU s/GB)   ratio %.3f\n",
                Median(ours), Median(our_cpu), Median(drives), Median(drives_cpu), Median(ratios));
  }
  (*plane)->Stop();
  serve.join();
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("drive_bench --model=FILE: the store's reads against raw reads.");
  absl::ParseCommandLine(argc, argv);
  return strata::Main();
}
