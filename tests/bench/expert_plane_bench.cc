// What the expert data plane costs, as ratios to the plain alternative in the same run:
//   hit    pin and unpin of a resident expert, and the same through ArenaExpertSource
//   miss   request, read, wake and pin, from a file in the page cache, against pread of its bytes
//   read   whole experts from the drive, against pread with O_DIRECT of the same bytes
//
//   expert_plane_bench [FOLDER [MEGABYTES]]
//
// A file of MEGABYTES (default 256) is made in FOLDER (default /tmp) and removed at the end.
// Medians of five rounds; rounds of the two sides alternate, so that a change of the machine's mood
// hits both.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/memory_map.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/shm/attachment.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/plane/data_plane.h"

namespace strata {
namespace {

using compute::ArenaExpertSource;
using compute::ExpertId;
using compute::ExpertPriority;
using expertstore::DataPlane;
using expertstore::DataPlaneOptions;

constexpr int kRounds = 5;
constexpr uint64_t kPartBytes = 1 << 20;
constexpr uint64_t kExpertBytes = 3 * kPartBytes;
constexpr uint32_t kBatch = 8;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void MakeFile(const std::string& path, uint64_t bytes) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  std::vector<uint64_t> block(kPartBytes / 8);
  std::mt19937_64 random(1);
  for (uint64_t at = 0; at < bytes; at += kPartBytes) {
    for (uint64_t& word : block) word = random();
    if (write(fd.get(), block.data(), kPartBytes) != static_cast<ssize_t>(kPartBytes)) {
      std::perror(path.c_str());
      std::exit(1);
    }
  }
  fsync(fd.get());
}

gguf::ExpertGeometry GeometryOf(const std::string& path, uint32_t experts) {
  gguf::ExpertGeometry geometry;
  geometry.files = {path};
  gguf::ExpertLayer layer;
  layer.experts = experts;
  for (uint64_t p = 0; p < 3; ++p) {
    gguf::ExpertPart part;
    part.offset = p * experts * kPartBytes;
    part.bytes_per_expert = kPartBytes;
    layer.parts.push_back(part);
  }
  geometry.layers = {layer};
  return geometry;
}

// A store on a thread, and one client of it.
class Store {
 public:
  Store(DataPlaneOptions options) : plane_(DataPlane::Create(options).value()) {
    thread_ = std::thread([this] { plane_->Run(); });
    source_ = std::make_unique<ArenaExpertSource>(
        ArenaExpertSource::Options{options.attach_path, options.fingerprint});
    if (!source_->WaitUntilReady(10000).ok()) std::exit(1);
    // The background load is not what is measured.
    while (plane_->Status().counts.background_left > 0 || plane_->Status().reads_in_flight > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ~Store() {
    source_.reset();
    plane_->Stop();
    thread_.join();
  }
  ArenaExpertSource& source() { return *source_; }
  DataPlane& plane() { return *plane_; }

  void Run(std::span<const ExpertId> batch, ExpertPriority priority) {
    source_->Begin(batch, priority);
    for (;;) {
      const auto ready = source_->Next();
      if (!ready.ok()) {
        std::fprintf(stderr, "%s\n", std::string(ready.status().message()).c_str());
        std::exit(1);
      }
      if (ready->empty()) break;
    }
    source_->End();
  }

 private:
  std::unique_ptr<DataPlane> plane_;
  std::thread thread_;
  std::unique_ptr<ArenaExpertSource> source_;
};

void BenchHits(const DataPlaneOptions& options, uint32_t experts) {
  Store store(options);
  auto attachment = shm::Attachment::Connect(options.attach_path, options.fingerprint).value();
  shm::ArenaClient& client = attachment->client();
  constexpr int kLaps = 20000;
  std::vector<double> raw;
  std::vector<double> batched;
  for (int round = 0; round < kRounds; ++round) {
    raw.push_back(Seconds([&] {
      for (int lap = 0; lap < kLaps; ++lap) {
        for (uint32_t e = 0; e < kBatch; ++e) client.Unpin(client.TryPin(e).value());
      }
    }));
    std::vector<ExpertId> batch;
    for (uint16_t e = 0; e < kBatch; ++e) batch.push_back({0, e});
    batched.push_back(Seconds([&] {
      for (int lap = 0; lap < kLaps; ++lap) store.Run(batch, ExpertPriority::kDecode);
    }));
  }
  const double per = 1e9 / (kLaps * kBatch);
  std::printf("hit   pin + unpin                %8.1f ns/expert\n", Median(raw) * per);
  std::printf("hit   Begin, Next, End (batch %u) %8.1f ns/expert   (%u experts resident)\n", kBatch,
              Median(batched) * per, experts);
}

// Every expert once, in random order, in batches, from an arena that holds a quarter; against pread
// of the same bytes into memory of the same size.
void BenchMisses(DataPlaneOptions options, uint32_t experts, bool direct) {
  options.direct_io = direct;
  options.arena_bytes = experts / 4 * kExpertBytes;
  Store store(options);
  const std::string& path = options.geometry.files[0];
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
  MemoryMap memory = MemoryMap::Anonymous(options.arena_bytes, false).value();
  std::mt19937 random(3);
  std::vector<double> ours;
  std::vector<double> plain;
  uint64_t missed = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<ExpertId> order;
    for (uint32_t e = 0; e < experts; ++e) order.push_back({0, static_cast<uint16_t>(e)});
    std::shuffle(order.begin(), order.end(), random);
    const uint64_t before = store.plane().Status().bytes_read;
    const double seconds = Seconds([&] {
      for (uint32_t at = 0; at + kBatch <= experts; at += kBatch) {
        store.Run({order.data() + at, kBatch}, ExpertPriority::kPrompt);
      }
    });
    const uint64_t read = store.plane().Status().bytes_read - before;
    missed += read / kExpertBytes;
    ours.push_back(seconds / static_cast<double>(read));
    uint64_t done = 0;
    const double plain_seconds = Seconds([&] {
      for (const ExpertId id : order) {
        for (uint64_t p = 0; p < 3; ++p) {
          const auto offset = static_cast<off_t>((p * experts + id.index) * kPartBytes);
          std::byte* dest = memory.data() + done % memory.size();
          if (pread(fd.get(), dest, kPartBytes, offset) != static_cast<ssize_t>(kPartBytes)) {
            std::perror("pread");
            std::exit(1);
          }
          done += kPartBytes;
        }
      }
    });
    plain.push_back(plain_seconds / static_cast<double>(done));
    if (!direct) continue;
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  const double our_bytes = 1 / Median(ours);
  const double plain_bytes = 1 / Median(plain);
  if (direct) {
    std::printf("read  O_DIRECT, %s, depth %u   %8.2f GB/s   plain pread %.2f GB/s   ratio %.2f\n",
                store.plane().Status().engine, options.queue_depth, our_bytes / 1e9,
                plain_bytes / 1e9, our_bytes / plain_bytes);
  } else {
    std::printf(
        "miss  3 MiB from the page cache  %8.0f us/expert   plain pread %.0f us   ratio %.2f\n",
        1e6 * kExpertBytes / our_bytes, 1e6 * kExpertBytes / plain_bytes, plain_bytes / our_bytes);
  }
  if (missed == 0) std::printf("      (nothing was missed: the figure above means nothing)\n");
}

// The cost of one miss without the bytes: experts of 4 KiB parts.
void BenchSmallMisses(DataPlaneOptions options) {
  constexpr uint32_t kSmall = 256;
  for (uint64_t p = 0; p < 3; ++p) {
    options.geometry.layers[0].parts[p].offset = p * kSmall * 4096;
    options.geometry.layers[0].parts[p].bytes_per_expert = 4096;
  }
  options.geometry.layers[0].experts = kSmall;
  options.direct_io = false;
  options.arena_bytes = kSmall / 4 * 3 * 4096;
  Store store(options);
  std::mt19937 random(3);
  std::vector<double> one_at_a_time;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t before = store.source().counters().misses;
    const double seconds = Seconds([&] {
      for (int i = 0; i < 2000; ++i) {
        const ExpertId id{0, static_cast<uint16_t>(random() % kSmall)};
        store.Run({&id, 1}, ExpertPriority::kPrompt);
      }
    });
    one_at_a_time.push_back(seconds /
                            static_cast<double>(store.source().counters().misses - before));
  }
  std::printf("miss  12 KiB, one at a time      %8.1f us/expert   (request, read, wake)\n",
              Median(one_at_a_time) * 1e6);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/tmp";
  const uint64_t megabytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256;
  const auto experts = static_cast<uint32_t>((megabytes << 20) / strata::kExpertBytes / 8 * 8);
  if (experts < 32 || experts > 65535) {
    std::fprintf(stderr, "MEGABYTES must be between 96 and 196000\n");
    return 1;
  }
  const std::string path = folder + "/expert_plane_bench." + std::to_string(getpid());
  strata::MakeFile(path, experts * strata::kExpertBytes);
  strata::expertstore::DataPlaneOptions options;
  options.geometry = strata::GeometryOf(path, experts);
  options.attach_path = path + ".sock";
  options.arena_bytes = experts * strata::kExpertBytes;
  strata::BenchHits(options, experts);
  strata::BenchSmallMisses(options);
  strata::BenchMisses(options, experts, /*direct=*/false);
  strata::BenchMisses(options, experts, /*direct=*/true);
  unlink(path.c_str());
  return 0;
}
