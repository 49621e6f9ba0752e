// Reads of whole experts: cut into slices, started in order of priority, many at a time, repeated
// when the drive errs or delivers less than asked, cancelled when nobody wants them any more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/shm/protocol.h"
#include "services/expertstore/io/model_files.h"
#include "services/expertstore/io/read_engine.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace strata::expertstore {

// A piece of a file and where it goes. All in multiples of 4 KiB except `needed`, or
// `through_cache`.
struct Extent {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t needed = 0;  // of `bytes`: the rest may lie beyond the end of the file
  std::byte* dest = nullptr;
  bool through_cache = false;
};

// One thread.
class ReadQueue {
 public:
  struct Options {
    uint32_t slice_bytes = 512 * 1024;  // multiple of 4 KiB
    // Background reads in flight, so that a demand never waits behind a full queue of them.
    uint32_t background_depth = 4;
    int attempts = 4;  // of one slice, before its error is believed
  };
  struct Outcome {
    uint64_t load = 0;
    absl::Status status;  // DataLoss or Internal with file and offset
  };

  ReadQueue(ReadEngine& engine, ModelFiles& files, Options options);

  // `load` is any number not in use by an unfinished load.
  void Add(uint64_t load, shm::Priority priority, std::span<const Extent> extents);
  // Lets the rest of the load go ahead of what is less urgent than `priority`.
  void Raise(uint64_t load, shm::Priority priority);
  // Drops a load of which nothing has reached the drive; true if so, and no outcome follows then.
  // A load that has begun is finished: most of its cost is paid, and the expert may be of use.
  bool Cancel(uint64_t load);

  // Whether more loads of this priority should be added now: keeps the drive busy without
  // committing to an order earlier than needed.
  bool WantsMore(shm::Priority priority) const;

  // Starts as many slices as the engine takes.
  void Pump();
  // Appends the outcomes of finished loads.
  void Reap(std::vector<Outcome>* outcomes);

  uint32_t in_flight() const { return in_flight_; }
  uint32_t waiting() const;
  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t errors() const { return errors_; }  // failed attempts
  uint64_t reads() const { return reads_; }    // slices handed to the engine
  // Time with at least one read in flight, as of the last moment without one.
  uint64_t reading_ns() const { return reading_ns_; }

 private:
  struct Slice {
    uint64_t load = 0;
    uint32_t file = 0;
    uint32_t bytes = 0;
    uint32_t needed = 0;
    int attempts = 0;
    uint64_t offset = 0;
    std::byte* dest = nullptr;
    bool background = false;
    bool through_cache = false;
    bool direct = false;  // as it was started
  };
  struct Load {
    shm::Priority priority;
    uint32_t slices = 0;  // not finished, in flight or not
    bool begun = false;   // a slice was handed to the engine
    absl::Status status;
    std::vector<Extent> extents;
  };

  std::deque<Slice>& QueueOf(shm::Priority priority) {
    return queues_[static_cast<size_t>(priority)];
  }
  void DropWaiting(uint64_t id, Load& load);
  void Start(const Slice& slice);
  void Finish(const Slice& slice, int64_t result);
  void Retry(Slice slice);
  absl::Status ErrorOf(const Slice& slice, int64_t result) const;
  void Fail(const Slice& slice, const absl::Status& status);
  void EndIfDone(uint64_t id);

  ReadEngine& engine_;
  ModelFiles& files_;
  const Options options_;
  std::array<std::deque<Slice>, shm::kPriorities> queues_;
  std::vector<Slice> flying_;  // by tag
  std::vector<uint32_t> free_tags_;
  absl::flat_hash_map<uint64_t, Load> loads_;
  std::vector<Outcome> finished_;
  uint32_t in_flight_ = 0;
  uint32_t background_in_flight_ = 0;
  uint64_t bytes_read_ = 0;
  uint64_t errors_ = 0;
  uint64_t reads_ = 0;
  uint64_t reading_ns_ = 0;
  uint64_t reading_since_ = 0;  // while a read is in flight
};

}  // namespace strata::expertstore
