// What store and client share: the two hello messages and the layout of the three memory regions.
// Everything here is plain data of fixed layout; both sides must be built for the same kind of
// machine (they are on the same box) and agree on kVersion.
//
//   arena         slots with expert bytes                     written by the store, read by clients
//   table         TableHeader, layers, classes, entries       written by the store, read by clients
//   client block  BlockHeader, pins, rings                    one per client, written by that
//   client
//                                                             (and by the store where stated)
#pragma once

#include <array>
#include <cstdint>

#include "common/quant/weight_layout.h"
#include "common/shm/atomic.h"

namespace strata::shm {

inline constexpr uint64_t kMagic = 0x31656e616c505845;  // "EXPlane1"
inline constexpr uint32_t kVersion = 4;

inline constexpr uint32_t kMaxParts = 3;     // gate, up, down; or gate_up, down
inline constexpr uint32_t kMaxClients = 63;  // a bit each in the store's masks, and one for itself
inline constexpr uint32_t kMaxClasses = 64;  // slot sizes
inline constexpr uint32_t kMaxOutstanding = 1024;  // experts a client may wait for at a time
inline constexpr uint32_t kRequestRing = 4096;     // entries; power of two
inline constexpr uint32_t kUseRing = 1 << 16;      // entries; power of two
inline constexpr uint32_t kFailureRing = 1024;     // entries; power of two, >= kMaxOutstanding
inline constexpr uint64_t kBlockAlign = 4096;      // of parts in a slot, as O_DIRECT wants it

// 0 is served first.
enum class Priority : uint8_t { kDecode = 0, kLookAhead = 1, kPrompt = 2, kBackground = 3 };
inline constexpr uint32_t kPriorities = 4;

using Fingerprint = std::array<uint8_t, 16>;

// --- attach socket --------------------------------------------------------------------------
// The client connects and sends ClientHello; the store answers ServerHello and, if code is 0, four
// descriptors: arena, table, client block, doorbell (eventfd). The connection then stays open and
// silent: its end is how either side learns that the other is gone.
struct ClientHello {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  Fingerprint fingerprint{};  // of the model the client means
};

struct ServerHello {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t code = 0;  // absl::StatusCode; 0 = attached
  uint64_t arena_bytes = 0;
  uint64_t table_bytes = 0;
  uint64_t block_bytes = 0;
  uint32_t sealed_arena =
      1;  // 0: the arena may be mapped writable (see ExpertStoreConfig.unsealed)
  uint32_t reserved = 0;
  std::array<char, 192> error{};  // text, zero-terminated, if code != 0
};
inline constexpr int kHelloFds = 4;

// --- table ----------------------------------------------------------------------------------
// Experts are numbered 0..experts-1, layer by layer. A slot belongs to one size class.
struct LayerRecord {
  uint32_t first_expert = 0;
  uint32_t experts = 0;  // 0: a layer without experts
  uint32_t size_class = 0;
  uint32_t parts = 0;
  // Part p of expert e lies in its slot at
  //   part_start[p] + (file_offset[p] + e * stride[p]) mod kBlockAlign,
  // so that a block-aligned read of the file lands there without a copy.
  std::array<uint64_t, kMaxParts> part_start{};         // multiples of kBlockAlign
  std::array<uint64_t, kMaxParts> file_offset{};        // of expert 0 of this layer
  std::array<uint64_t, kMaxParts> stride{};             // from one expert to the next in the file
  std::array<uint64_t, kMaxParts> bytes{};              // of one expert
  std::array<quant::WeightLayout, kMaxParts> layout{};  // of its weights
  std::array<uint8_t, 5> reserved{};
};

struct ClassRecord {
  uint32_t first_slot = 0;
  uint32_t slots = 0;
  uint64_t slot_bytes = 0;
  uint64_t arena_offset = 0;  // of first_slot; the class's slots follow one another
};

struct TableHeader {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t layers = 0;  // LayerRecords, indexed by the model's layer number
  uint32_t classes = 0;
  uint32_t experts = 0;
  uint32_t slots = 0;
  uint32_t reserved = 0;
  uint64_t arena_bytes = 0;
  Fingerprint fingerprint{};
  // 1 while the store waits for a pin to go: whoever unpins then rings the doorbell.
  alignas(64) Atomic<uint32_t> starved{0};
  // Slots that have memory at the moment: the arena gives some back when others need it.
  Atomic<uint32_t> usable_slots{0};
};
static_assert(Atomic<uint32_t>::is_always_lock_free);
static_assert(Atomic<uint64_t>::is_always_lock_free);

// --- client block ---------------------------------------------------------------------------
enum class RequestOp : uint8_t {
  kWant = 1,  // read it; the store holds it for this client until kDone
  kDone = 2,  // the client has pinned it, or no longer wants it
  // Read it when the drive has nothing better to do; nobody waits. At priority kPrompt: a prompt
  // will want it after what it waits for now; it takes a place that decoding does not need, as soon
  // as there is one, and keeps it until kCancelLookAhead.
  kLookAhead = 3,
  kCancelLookAhead = 4,  // forget this client's look-ahead requests that have not reached the drive
  kPromote = 5,          // read it in the background if, by use, it is worth more than what must go
  kElsewhere = 6,        // the client holds a copy of its own: the first to go
};

struct Request {
  RequestOp op = RequestOp::kWant;
  Priority priority = Priority::kDecode;
  uint32_t expert = 0;

  constexpr uint64_t Pack() const {
    return static_cast<uint64_t>(op) << 40 | static_cast<uint64_t>(priority) << 32 | expert;
  }
};

struct Failure {
  uint32_t expert = 0;
  uint32_t code = 0;             // absl::StatusCode
  std::array<char, 248> text{};  // zero-terminated
};

// What a client's router chose: of this the store learns what to keep. In the order of the choices,
// which a counter per expert would lose.
struct ExpertUse {
  uint32_t expert = 0;
  uint32_t tokens = 0;  // below 2^24
  bool prompt = false;  // read, not generated

  static constexpr uint32_t kMaxTokens = (1 << 24) - 1;
  constexpr uint64_t Pack() const {
    return static_cast<uint64_t>(prompt ? 1 : 0) << 56 | static_cast<uint64_t>(tokens) << 32 |
           expert;
  }
  static constexpr ExpertUse Unpack(uint64_t word) {
    return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32) & kMaxTokens,
            (word >> 56) != 0};
  }
};

// Indices of the rings only ever grow; entry i lies at i mod size.
struct BlockHeader {
  alignas(64) Atomic<uint64_t> request_tail{0};  // client: requests written
  alignas(64) Atomic<uint64_t> request_head{0};  // store: requests taken
  alignas(64) Atomic<uint64_t> failure_tail{0};  // store: failures written
  alignas(64) Atomic<uint64_t> failure_head{0};  // client: failures read
  alignas(64) Atomic<uint64_t> use_tail{0};      // client: uses written; never waits
  alignas(64) Atomic<uint32_t> wake{0};          // both: +1 when something changed; futex
  alignas(64) Atomic<uint64_t> hits{0};          // client: statistics
  Atomic<uint64_t> misses{0};
};

// Byte offsets inside a client block, from the numbers in the table's header (never from the block
// itself: the store must not trust a word of it).
struct BlockLayout {
  uint64_t pins = 0;      // atomic<uint32_t>[slots]: how often this client pins the slot
  uint64_t uses = 0;      // atomic<uint64_t>[kUseRing], ExpertUse::Pack; the newest overwrite
  uint64_t requests = 0;  // atomic<uint64_t>[kRequestRing], Request::Pack
  uint64_t failures = 0;  // Failure[kFailureRing]
  uint64_t bytes = 0;

  static constexpr BlockLayout For(uint32_t slots) {
    const auto line = [](uint64_t offset) { return (offset + 63) / 64 * 64; };
    BlockLayout layout;
    layout.pins = line(sizeof(BlockHeader));
    layout.uses = line(layout.pins + uint64_t{4} * slots);
    layout.requests = line(layout.uses + uint64_t{8} * kUseRing);
    layout.failures = line(layout.requests + uint64_t{8} * kRequestRing);
    layout.bytes = (layout.failures + sizeof(Failure) * kFailureRing + kBlockAlign - 1) /
                   kBlockAlign * kBlockAlign;
    return layout;
  }
};

}  // namespace strata::shm
